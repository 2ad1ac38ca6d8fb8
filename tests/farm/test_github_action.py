"""deploy/github-action: the files by GitHub's schemas, their scripts by shellcheck, and every step run with bash."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_end_to_end import _nvcc
from test_gate import DATA, commit, git

from interpreter.disassembly import cache_directory

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "deploy" / "github-action"
WORKFLOWS = sorted((ACTION / "workflows").glob("*.yml"))


def steps_of(path: Path) -> list[dict[str, Any]]:
    content = yaml.safe_load(path.read_text())
    if "runs" in content:
        return list(content["runs"]["steps"])
    return [step for job in content["jobs"].values() for step in job["steps"]]


def step(path: Path, name: str) -> dict[str, Any]:
    return next(s for s in steps_of(path) if s.get("name") == name)


def run_step(path: Path, name: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does: its script in a file, by bash without -e of its own making beyond what it sets."""
    script = folder.parent / "step.sh"
    script.write_text(step(path, name)["run"])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def pairs(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines() if line)


@pytest.mark.parametrize("path", [ACTION / "action.yml", *WORKFLOWS], ids=lambda path: path.name)
def test_files_follow_the_schema(path: Path) -> None:
    schema = "vendor.github-actions" if path.name == "action.yml" else "vendor.github-workflows"
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", [ACTION / "action.yml", *WORKFLOWS], ids=lambda path: path.name)
def test_scripts_take_nothing_from_expressions(path: Path) -> None:
    """Text of others (branch names, titles) reaches a script through its environment only, and is quoted there."""
    checker = Path(sys.executable).parent / "shellcheck"
    for one in steps_of(path):
        if "run" in one:
            assert "${{" not in one["run"], f"{path.name}: {one['name']}"
            done = subprocess.run([checker, "-s", "bash", "-"], input=one["run"], capture_output=True, text=True)
            assert done.returncode == 0, f"{path.name}: {one['name']}: {done.stdout}"


def test_the_workflow_with_a_token_runs_nothing_of_the_pull_request() -> None:
    gate, comment = (yaml.safe_load((ACTION / "workflows" / name).read_text())
                     for name in ("farm-gate.yml", "farm-gate-comment.yml"))  # fmt: skip
    assert gate["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in gate[True]  # YAML reads the key `on` as true
    job = comment["jobs"]["comment"]
    assert comment["permissions"] == {} and job["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert not any("checkout" in s.get("uses", "") for s in job["steps"])
    assert comment[True]["workflow_run"]["workflows"] == [gate["name"]]


@pytest.fixture
def runner(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A checkout of a pull request's branch, cloned shallowly from an `origin`, and a runner's environment."""
    origin = tmp_path / "origin"
    shutil.copytree(DATA, origin)
    (origin / ".farm.yaml").write_text(
        "baseline: {git: origin/main}\nsweeps: [{path: smooth, limit: 1}]\ntargets: [h200]\n"
    )
    git(origin, "init", "-q", "-b", "main")
    commit(origin, "first")
    commit(origin, "second")
    git(origin, "checkout", "-q", "-b", "change")
    source = origin / "smooth" / "kernel.cu"
    source.write_text(source.read_text().replace("0.5f * value", "0.50f * value"))
    commit(origin, "change")
    git(tmp_path, "clone", "-q", "--depth", "1", "--branch", "change", f"file://{origin}", "checkout")
    temp = tmp_path / "temp"
    temp.mkdir()
    for name in ("env", "output", "summary"):
        (tmp_path / name).touch()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "RUNNER_TEMP": str(temp),
        "GITHUB_ACTION_PATH": str(ACTION),
        "GITHUB_ENV": str(tmp_path / "env"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        **{name: os.environ[name] for name in ("FARM_CUDA", "CUDA_HOME") if name in os.environ},
    }
    return tmp_path / "checkout", environment


def defaults(**changes: str) -> dict[str, str]:
    """The environment of the gate's step as its inputs' defaults make it."""
    inputs = {
        name: str(value["default"])
        for name, value in yaml.safe_load((ACTION / "action.yml").read_text())["inputs"].items()
    }
    names = {"CONFIG": "config", "MAX_SLOWDOWN": "max-slowdown", "ONLY": "only", "REPORTS": "reports"}
    used = step(ACTION / "action.yml", "Gate")["env"]
    assert used == {name: f"${{{{ inputs.{key} }}}}" for name, key in names.items()}
    return {**{name: inputs[key] for name, key in names.items()}, **changes}


@pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")
def test_every_step_of_the_action_runs(runner: tuple[Path, dict[str, str]]) -> None:
    checkout, environment = runner
    action = ACTION / "action.yml"
    # Install: this project, by pip, into the venv the step makes; what it depends on is there already.
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "FARM_SPEC": str(ROOT)}
    installed = os.pathsep.join([*site.getsitepackages()])
    environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}", "PYTHONPATH": installed}
    done = run_step(action, "Install", checkout, {**environment, **offline})
    assert done.returncode == 0, done.stdout + done.stderr
    environment |= pairs(Path(environment["GITHUB_ENV"]))
    farm = Path(environment["FARM"])
    assert farm.is_file() and farm.is_relative_to(environment["RUNNER_TEMP"])
    assert environment["FARM_CACHE"] == f"{environment['RUNNER_TEMP']}/farm-cache"
    environment["FARM_CACHE"] = str(cache_directory(None))  # as if actions/cache had brought it
    # Fetch the baseline: the clone was shallow
    assert git(checkout, "rev-parse", "--is-shallow-repository").strip() == "true"
    done = run_step(action, "Fetch the baseline", checkout, {**environment, "BASE_REF": "main", "BASELINE": ""})
    assert done.returncode == 0, done.stderr
    assert git(checkout, "merge-base", "HEAD", "origin/main").strip()
    environment |= pairs(Path(environment["GITHUB_ENV"]))
    assert environment["FARM_BASELINE"] == "git:origin/main"
    # Gate: the change alters no instruction
    done = run_step(action, "Gate", checkout, {**environment, **defaults()})
    assert done.returncode == 0, done.stdout + done.stderr
    assert pairs(Path(environment["GITHUB_OUTPUT"])) == {"result": "ok", "reports": "farm-reports"}
    assert ":white_check_mark:" in Path(environment["GITHUB_STEP_SUMMARY"]).read_text()
    reports = {path.name for path in (checkout / "farm-reports").iterdir()}
    assert reports >= {"gate.json", "junit.xml", "gate.sarif", "summary.md", "benchmark.json", "bencher.json"}
    # and one that does is found, by resources alone
    source = checkout / "smooth" / "kernel.cu"
    source.write_text(source.read_text().replace("tile[THREADS];", "tile[4 * THREADS];"))
    done = run_step(action, "Gate", checkout, {**environment, **defaults(ONLY="resources")})
    assert done.returncode == 1, done.stderr
    assert "::error file=smooth/kernel.cu" in done.stdout and "shared bytes 1024 → 4096" in done.stdout
    assert ":x:" in Path(environment["GITHUB_STEP_SUMMARY"]).read_text()
    # a mistake of the user is told in the summary
    done = run_step(action, "Gate", checkout, {**environment, **defaults(CONFIG="none.yaml", REPORTS="other")})
    assert done.returncode == 2
    assert "result=usage" in Path(environment["GITHUB_OUTPUT"]).read_text()
    assert "none.yaml: no such file" in Path(environment["GITHUB_STEP_SUMMARY"]).read_text()


GH = """\
#!/usr/bin/env python3
import json, os, sys
with open(os.environ["GH_LOG"], "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
path = next(a for a in sys.argv if a.startswith("repos/"))
if path.endswith("/pulls"):
    print(os.environ.get("GH_NUMBER", ""))
elif "--method" not in sys.argv:
    print(os.environ.get("GH_COMMENT", ""))
"""


def test_the_comment_step_without_a_report(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    done = run_step(ACTION / "workflows" / "farm-gate-comment.yml", "Comment", work, {"PATH": os.environ["PATH"]})
    assert done.returncode == 0 and "no report" in done.stdout


@pytest.mark.parametrize(("number", "known"), [("17", ""), ("17", "5"), ("", ""), ("17; rm -rf /", "")])
def test_the_comment_step(tmp_path: Path, number: str, known: str) -> None:
    work = tmp_path / "work"
    (work / "reports").mkdir(parents=True)
    (work / "reports" / "summary.md").write_text("## ok\n<!-- farm gate -->\n" + "x" * 100_000)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "gh").write_text(GH)
    (tools / "gh").chmod(0o755)
    environment = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "GH_TOKEN": "none", "GH_LOG": str(tmp_path / "log"),
        "GH_NUMBER": number, "GH_COMMENT": known, "REPOSITORY": "o/r", "HEAD_SHA": "abc", "HEAD_OWNER": "fork",
        "HEAD_BRANCH": "a b", "RUN_URL": "https://example.org/run", "RUNNER_TEMP": str(tmp_path),
    }  # fmt: skip
    done = run_step(ACTION / "workflows" / "farm-gate-comment.yml", "Comment", work, environment)
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert "head=fork:a b" in calls[0]
    if number != "17":
        assert len(calls) == 1 and "no open pull request" in done.stdout
        return
    assert calls[-1][2] == ("PATCH" if known else "POST")
    assert calls[-1][3] == ("repos/o/r/issues/comments/5" if known else "repos/o/r/issues/17/comments")
    body = (tmp_path / "body.md").read_text()
    assert body.startswith("<!-- farm gate -->\n") and body.count("<!--") == 1 and len(body) < 65536
