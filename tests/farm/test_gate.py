"""The gate: what passes and what fails, on a stand-in simulator and, once, on the real one."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

import farm_fakes
import numpy as np
import pyarrow.parquet as pq
import pytest
import s3_server
from test_end_to_end import _nvcc

import farm.submit
from farm.analysis.compare import causes
from farm.analysis.variant import Line, Variant
from jobs.run_folder import RunFolder
from timing.stalls import N_STALLS

DATA = Path(__file__).parents[1] / "data" / "gate"
GATE = "baseline: {git: main}\nsweeps: [toy]\n"
SWEEP = farm_fakes.SWEEP.replace("MISHAP: [0, 1, 2]", "MISHAP: [0]")


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.email=dev@example.org", "-c", "user.name=dev", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results that the tests share, as gates on one machine do: the same content is evaluated once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def repository(tmp_path: Path, fake: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one sweep and a gate, on a branch of its own, evaluated by the stand-in."""
    monkeypatch.setattr(farm.submit, "EVALUATOR", "gate_fakes:evaluate_batch")
    monkeypatch.setenv("FARM_CACHE", str(cache))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    folder = tmp_path / "repository"
    farm_fakes.write_sweep(folder / "toy", SWEEP)
    (folder / ".farm.yaml").write_text(GATE)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "first")
    git(folder, "checkout", "-q", "-b", "change")
    monkeypatch.chdir(folder)
    return folder


def change(repository: Path, words: str) -> None:
    path = repository / "toy" / "kernel.cu"
    path.write_text(path.read_text() + f"// {words}\n")


def test_unchanged_code_passes_at_no_slowdown_at_all(repository: Path, command) -> None:
    code, out, err = command("gate", "--jobs", 1, "--max-slowdown", "0%")
    assert code == 0, err
    assert "0 of 8 comparisons on 2 GPUs failed" in out and "simulated" in out
    change(repository, "a comment")
    assert command("gate", "--jobs", 1, "--max-slowdown", "0%")[0] == 0
    assert git(repository, "worktree", "list").count("\n") == 1  # the baseline's checkout is gone


def test_a_slowdown_fails_with_its_cause(repository: Path, command) -> None:
    change(repository, "slow register")
    code, out, err = command("gate", "--jobs", 1)
    assert code == 1, err
    assert "8 of 8 comparisons" in out and "+3.00 %, 1 % allowed" in out
    assert "registers 32 → 40, 4 → 3 CTAs/SM" in out
    assert "long_scoreboard" in out and "kernel.cu:5 (0x0020)" in out
    assert command("gate", "--jobs", 1, "--max-slowdown", "5%")[0] == 0
    assert command("gate", "--jobs", 1, "--max-slowdown", "5%", "--per-target", "4090=1%")[0] == 1


def test_limits_of_the_file(repository: Path, command) -> None:
    change(repository, "slow")
    gate = repository / ".farm.yaml"
    gate.write_text(GATE + "max_slowdown: 5%\n")
    assert command("gate", "--jobs", 1)[0] == 0
    gate.write_text(GATE + "max_slowdown: 5%\nmax_mean_slowdown: 2%\n")
    code, out, _ = command("gate", "--jobs", 1)
    assert code == 1 and "geometric mean of 8 variants is 3.00 % slower (2 % allowed)" in out
    gate.write_text(GATE.replace("[toy]", "[{path: toy, max_slowdown: 10%, limit: 2}]"))
    code, out, _ = command("gate", "--jobs", 1)
    assert code == 0 and "of 4 comparisons" in out
    gate.write_text(GATE + "targets: [h200]\n")
    assert "of 4 comparisons on 1 GPU failed" in command("gate", "--jobs", 1)[1]


def test_resources_only(repository: Path, command) -> None:
    change(repository, "slow")
    code, out, err = command("gate", "--jobs", 1, "--only", "resources")
    assert code == 0, err
    change(repository, "register")
    code, out, _ = command("gate", "--jobs", 1, "--only", "resources")
    assert code == 1 and "registers 32 → 40, 4 → 3 CTAs/SM (limited by registers)" in out
    gate = repository / ".farm.yaml"
    gate.write_text(GATE + "only: resources\nresources: {registers: 8, ctas_per_sm: 8}\n")
    assert command("gate", "--jobs", 1)[0] == 0
    change(repository, "endless")  # compiles, but cannot be executed: its resources are known all the same
    code, out, _ = command("gate", "--jobs", 1)
    assert code == 0 and "0 of 8" in out
    # resources besides times
    gate.write_text(GATE + "resources: {}\nmax_slowdown: 50%\n")
    change(repository, "slow")
    path = repository / "toy" / "kernel.cu"
    path.write_text(path.read_text().replace("endless", ""))
    code, out, _ = command("gate", "--jobs", 1)
    assert code == 1 and "MORE RESOURCES" in out


def test_a_kernel_that_breaks_fails(repository: Path, command) -> None:
    change(repository, "broken")
    code, out, _ = command("gate", "--jobs", 1)
    assert code == 1 and "BROKEN" in out and "this is broken" in out


def test_comparing_nothing_is_no_pass(repository: Path, command) -> None:
    gate = repository / ".farm.yaml"
    farm_fakes.write_sweep(repository / "new", SWEEP.replace("name: toy", "name: new"))
    gate.write_text("baseline: {git: main}\nsweeps: [new]\n")
    code, _, err = command("gate", "--jobs", 1)
    assert code == 2 and "nothing was compared" in err and "the baseline has no new" in err
    gate.write_text("baseline: {git: main}\nsweeps: [toy, new]\n")  # beside others, a new kernel is a note
    code, out, _ = command("gate", "--jobs", 1)
    assert code == 0 and "8 not in the baseline: new BLOCK=64 MISHAP=0 on h200" in out
    change(repository, "broken")
    commit(repository, "broken on both sides")
    code, _, err = command("gate", "--jobs", 1, "--baseline", "HEAD")
    assert code == 2 or code == 1
    gate.write_text("baseline: {git: change}\nsweeps: [toy]\n")
    code, _, err = command("gate", "--jobs", 1)
    assert code == 2 and "8 fail on both sides" in err


def test_one_family_of_two_that_compares_nothing_fails(repository: Path, command) -> None:
    farm_fakes.write_sweep(repository / "other", SWEEP.replace("name: toy", "name: other"))
    (repository / ".farm.yaml").write_text("baseline: {git: main}\nsweeps: [toy, other]\n")
    commit(repository, "two")
    git(repository, "branch", "-f", "main", "HEAD")
    (repository / "other" / "sweep.yaml").write_text(
        SWEEP.replace("name: toy", "name: other").replace("[64, 128, 256, 512]", "[96, 160]")
    )
    code, out, _ = command("gate", "--jobs", 1)
    assert code == 1 and "other: nothing was compared" in out


def test_baseline_from_a_file(repository: Path, cache: Path, command) -> None:
    assert command("gate", "--jobs", 1, "--write-baseline", "base/gate.parquet")[0] == 0
    assert pq.read_metadata("base/gate.parquet").num_rows == 8
    first = Path("base/gate.parquet").read_bytes()
    assert command("gate", "--jobs", 1, "--write-baseline", "base/gate.parquet")[0] == 0
    assert Path("base/gate.parquet").read_bytes() == first  # nothing in it changes by itself
    assert command("gate", "--jobs", 1, "--baseline", "base/gate.parquet")[0] == 0
    change(repository, "slow register")
    code, out, _ = command("gate", "--jobs", 1, "--baseline", "base/gate.parquet")
    assert code == 1 and "registers 32 → 40" in out and "kernel.cu:5 (0x0020)" in out
    (repository / ".farm.yaml").write_text("baseline: {parquet: base/gate.parquet}\nsweeps: [toy]\nl2: cold\n")
    code, _, err = command("gate", "--jobs", 1)
    assert code == 2 and "baseline with l2 warm" in err
    path = repository / "base" / "gate.parquet"
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    for harm, words in (
        (b"no Parquet", "not a Parquet file"),
        (bytes(content[: len(content) // 2]), "not a Parquet file"),
        (bytes(content), "gate.parquet: damaged"),
    ):
        path.write_bytes(harm)
        code, out, err = command("gate", "--jobs", 1)
        assert code == 2 and out == "" and words in err and err.count("\n") == 1, err
    pq.write_table(pq.read_table(next(cache.rglob("estimates-*.parquet"))), path)
    assert "not a baseline of a gate" in command("gate", "--jobs", 1)[2]
    path.unlink()
    path.mkdir()
    code, _, err = command("gate", "--jobs", 1)
    assert code == 2 and "is a folder, not a Parquet file" in err


def test_a_baseline_of_another_simulator(repository: Path, command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of two models are not compared: unchanged code passes, changed code asks for a new baseline."""
    assert command("gate", "--jobs", 1, "--write-baseline", "gate.parquet")[0] == 0
    monkeypatch.setattr(farm.submit, "model_digest", lambda: "a newer model")
    assert command("gate", "--jobs", 1, "--baseline", "gate.parquet")[0] == 0
    change(repository, "slow")
    code, _, err = command("gate", "--jobs", 1, "--baseline", "gate.parquet")
    assert code == 2 and "another version of the simulator" in err and "Make the baseline again" in err


def test_only_estimates_of_one_tier_are_compared(repository: Path, command, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    assert command("submit", "toy", "--jobs", 1, "--store", store, "--run", "static", "--tier", "static")[0] == 0
    code, _, err = command("gate", "--jobs", 1, "--baseline", f"{store}#static")
    assert code == 2 and "nothing was compared" in err and "8 variants are not in the baseline" in err
    (repository / ".farm.yaml").write_text("sweeps: [toy]\ntier: static\n")
    assert command("gate", "--jobs", 1, "--baseline", f"{store}#static")[0] == 0


def test_baseline_from_a_store(repository: Path, command, tmp_path: Path) -> None:
    store = tmp_path / "runs"
    assert command("submit", "toy", "--jobs", 1, "--store", store, "--run", "main-1")[0] == 0
    assert command("gate", "--jobs", 1, "--baseline", f"{store}#main-1")[0] == 0
    change(repository, "slow")
    code, out, _ = command("gate", "--jobs", 1, "--baseline", f"file://{store}#main")
    assert code == 1 and "#main-1" in out
    code, _, err = command("gate", "--jobs", 1, "--baseline", f"{store}#none")
    assert code == 2 and "none" in err
    code, _, err = command("gate", "--baseline", f"file://{store}")
    assert code == 2 and "#RUN" in err


def test_baseline_from_s3(repository: Path, command, s3: s3_server.Proxy) -> None:
    """A run that the main branch has put into a bucket; the store out of reach is the machine's fault."""
    store = f"s3://{s3.bucket}/farm"
    assert command("submit", "toy", "--jobs", 1, "--store", store, "--run", "main-1")[0] == 0
    (repository / ".farm.yaml").write_text(f'baseline: {{store: "{store}", run: main}}\nsweeps: [toy]\n')
    code, out, err = command("gate", "--jobs", 1)
    assert code == 0 and f"against {store}#main-1" in out, err
    change(repository, "slow register")
    code, out, _ = command("gate", "--jobs", 1, "--report", "json=gate.json")
    assert code == 1 and "registers 32 → 40" in out and "kernel.cu:5 (0x0020)" in out
    assert all(row["status"] == "slower" for row in json.loads(Path("gate.json").read_text())["rows"])
    code, _, err = command("gate", "--jobs", 1, "--baseline", f"{store}#none")
    assert code == 2 and f"run none: not in {store}" in err
    for fault, words in (
        (s3_server.Fault(status=403, code="AccessDenied"), "denied"),
        (s3_server.Fault(status=403, code="ExpiredToken"), "expired"),
    ):
        s3.plan = lambda _request, fault=fault: fault
        code, out, err = command("gate", "--jobs", 1)
        assert code == 3 and out == "" and err.startswith("error: ") and words in err.lower(), err


def test_places_that_cannot_be_written_are_said_before_the_work(repository: Path, command, fake: Path) -> None:
    (repository / "file").write_text("")
    (repository / "folder").mkdir()
    for arguments, words in (
        (("--report", "json=file/x.json"), "--report json=file/x.json: "),
        (("--report", "junit=folder"), "--report junit=folder: Is a directory"),
        (("--write-baseline", "file/base.parquet"), "--write-baseline file/base.parquet: "),
        (("--work", "file"), "--work file: "),
    ):
        code, out, err = command("gate", "--jobs", 1, *arguments)
        assert code == 2 and out == "" and err.startswith(f"error: {words}"), err


def test_reports_point_at_what_grew_most(repository: Path, command) -> None:
    """Of several counts the one that grew most comes first: its line is where annotations go."""
    lines = [Line(16 * n, "LDS R0, [R1]", n + 1, e, 32 * e, 0.0, w, np.ones(N_STALLS)) for n, e, w in
             ((0, 100.0, 100.0), (1, 103.0, 100.0), (2, 100.0, 300.0))]  # fmt: skip
    before = [dataclasses.replace(line, executed=100.0, wavefronts=100.0) for line in lines]
    row = {"bound": "lsu", "time_us": 1.0, "memory": [], "grid_dim": "1x1x1", "block_dim": "32x1x1"}
    row |= dict.fromkeys(("spill_store_bytes", "spill_load_bytes"), 0)
    sides = [Variant("r", "f", 0, "h200", row, side, {}, "kernel.cu") for side in (before, lines)]
    found = causes(*sides)
    assert found[0].startswith("shared-memory wavefronts +66.7 % at kernel.cu:3 (0x0020)")
    assert found[1].startswith("warp instructions +1.0 % at kernel.cu:2 (0x0010)")


def test_kernels_written_out(repository: Path, command) -> None:
    text = SWEEP.replace("source: kernel.cu", "source: toy/kernel.cu").replace("name: toy", "name: inline")
    indented = "".join(f"    {line}\n" for line in text.splitlines())
    (repository / ".farm.yaml").write_text(f"baseline: {{git: main}}\nkernels:\n  -\n{indented}")
    assert command("gate", "--jobs", 1)[0] == 0
    change(repository, "slow")
    code, out, _ = command("gate", "--jobs", 1, "--report", "sarif=gate.sarif")
    assert code == 1 and "inline BLOCK=64" in out
    place = json.loads(Path("gate.sarif").read_text())["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "toy/kernel.cu" and place["region"]["startLine"] in (4, 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sweeps: []\n", ["neither sweeps nor kernels"]),
        (GATE + "max_slowdwn: 1%\n", [".farm.yaml:3", "max_slowdwn", "did you mean max_slowdown"]),
        (GATE + "max_slowdown: 3\n", [".farm.yaml:3: max_slowdown", "300 %"]),
        (GATE + "max_slowdown: fast\n", ["should be a share such as 3%"]),
        (GATE + "targets: [mi300x]\n", [".farm.yaml:3", "AMD GPUs are not modelled"]),
        (GATE + "per_target: {gfx942: 3%}\n", ["AMD GPUs are not modelled"]),
        (GATE + "targets: [h200]\nper_target: {l40s: 3%}\n", ["l40s is not among targets"]),
        ("baseline: {git: a, parquet: b}\nsweeps: [toy]\n", ["one of git, parquet and store"]),
        ("baseline: {store: s}\nsweeps: [toy]\n", ["store and run belong together"]),
        ("baseline: {git: nowhere}\nsweeps: [toy]\n", ["git ref nowhere", "fetch-depth: 0"]),
        ("baseline: {git: '--output=x'}\nsweeps: [toy]\n", ["git ref --output=x"]),
        ("baseline: {parquet: none.parquet}\nsweeps: [toy]\n", ["none.parquet", "--write-baseline"]),
        ("sweeps: [toy]\n", ["no baseline"]),
        ("baseline: {git: main}\nkernels: [{name: x}]\n", ["kernels[0]", "missing"]),
        ("baseline: {git: main}\nsweeps: [nothing]\n", [".farm.yaml:2: sweeps: nothing", "no such file or folder"]),
        ("baseline: {git: main}\nsweeps: [toy/..]\n", [".farm.yaml:2", "holds no sweep.yaml"]),
        ("baseline: {git: main}\nsweeps: toy\n", [".farm.yaml:2: sweeps: should be a list: [toy]"]),
        ("baseline: {git: main}\nsweeps: [3]\n", [".farm.yaml:2: sweeps.0: should be a mapping"]),
        (
            "baseline: {git: main}\nsweeps: [{path: toy, limit: 0}]\n",
            [".farm.yaml:2: sweeps.0.limit", "greater", "(found 0)"],
        ),
        ("", ["a gate is a mapping of keys (baseline, sweeps"]),
        ("- toy\n", ["a gate is a mapping of keys"]),
    ],
)
def test_bad_gates_give_one_message(repository: Path, command, text: str, words: list[str]) -> None:
    (repository / ".farm.yaml").write_text(text)
    code, out, err = command("gate", "--jobs", 1)
    assert code == 2 and out == "", err
    assert "Traceback" not in err
    for word in words:
        assert word in err


def test_bad_options(repository: Path, command) -> None:
    for arguments in (
        ("--format", "html"), ("--report", "xml=a"), ("--report", "summary"), ("--only", "times"),
        ("--max-slowdown", "x"), ("--per-target", "h200"), ("-t", "rx7900"),
    ):  # fmt: skip
        code, _, err = command("gate", *arguments)
        assert code == 2 and err.startswith("error: "), arguments
    assert "AMD" in command("gate", "-t", "rx7900")[2]
    code, out, _ = command("gate", "--schema")
    assert code == 0 and "max_slowdown" in json.loads(out)["properties"]


def test_no_repository(repository: Path, command, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(repository, outside, ignore=shutil.ignore_patterns(".git"))
    code, _, err = command("gate", outside, "--jobs", 1)
    assert code == 2 and "baseline git main: " in err and "is in no git repository" in err


def test_a_shared_folder_that_is_in_use(repository: Path, command, tmp_path: Path) -> None:
    """Two gates of one machine at once: the second works in a folder of its own. Runs long unused are removed."""
    work = tmp_path / "work"
    assert command("gate", "--jobs", 1, "--work", work)[0] == 0
    (run,) = work.iterdir()
    with RunFolder(run).writing():
        assert command("gate", "--jobs", 1, "--work", work)[0] == 0
    old = work / "unused"
    shutil.copytree(run, old)
    os.utime(old / "manifest.json", (0, 0))
    os.utime(run / "manifest.json", (0, 0))  # this one is used again
    assert command("gate", "--jobs", 1, "--work", work)[0] == 0
    assert run.exists() and not old.exists()


@pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")
def test_one_extra_round_trip_through_shared_memory_fails(tmp_path: Path, command, monkeypatch) -> None:
    """On the real simulator: unchanged code passes at 0 %, one more store, barrier and load cost 3 % and fail."""
    folder = tmp_path / "repository"
    shutil.copytree(DATA, folder)
    (folder / ".farm.yaml").write_text("baseline: {git: main}\nsweeps: [{path: smooth, limit: 1}]\ntargets: [h200]\n")
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "first")
    monkeypatch.chdir(folder)
    source = folder / "smooth" / "kernel.cu"
    text = source.read_text()
    source.write_text("// moves every line by one\n" + text)
    code, out, err = command("gate", "--jobs", 1, "--max-slowdown", "0%", "--work", tmp_path / "work")
    assert code == 0 and "+0.00 %" in out, err
    trip = "  tile[threadIdx.x] = value;\n  __syncthreads();\n  value = tile[threadIdx.x ^ 1];\n  out[i] = value;"
    source.write_text(text.replace("  out[i] = value;", trip))
    code, out, err = command("gate", "--jobs", 1, "--work", tmp_path / "work", "--report", f"json={tmp_path}/gate.json")
    assert code == 1, err
    row = json.loads((tmp_path / "gate.json").read_text())["rows"][0]
    assert 0.015 < row["change"] < 0.05
    assert "shared-memory wavefronts +4.2 %" in out
    assert row["file"] == "smooth/kernel.cu" and 14 <= row["line"] <= 18
