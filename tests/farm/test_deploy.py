"""What is in deploy/ against the programs it is for: Prometheus, Grafana, Kubernetes, KubeRay, Ray, builders."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kuberay
import kubernetes_validate
import pytest
import yaml

from farm.events import Telemetry, TierProgress
from farm.observability.metrics import RunMetrics

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = "1.31"
TOOLS = "is not installed (Debian: apt-get install prometheus)"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def cluster_specs() -> dict[str, dict[str, Any]]:
    (cluster,), (job,) = documents("kubernetes/raycluster.yaml"), documents("kubernetes/rayjob.yaml")
    return {"raycluster": cluster["spec"], "rayjob": job["spec"]["rayClusterSpec"]}


def templates() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, spec in cluster_specs().items():
        yield f"{name} head", spec["headGroupSpec"]["template"]
        for group in spec["workerGroupSpecs"]:
            yield f"{name} worker", group["template"]


# ---- Prometheus


def test_prometheus_takes_its_files() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(f"promtool {TOOLS}")
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "farm.rules.test.yml"]):
        done = subprocess.run([promtool, *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True)
        assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def test_promtool_would_object(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(f"promtool {TOOLS}")
    text = (DEPLOY / "prometheus" / "farm.rules.yml").read_text()
    (tmp_path / "farm.rules.yml").write_text(text.replace("> 0.2", "> 0.9"))
    shutil.copy(DEPLOY / "prometheus" / "farm.rules.test.yml", tmp_path)
    done = subprocess.run([promtool, "test", "rules", "farm.rules.test.yml"], cwd=tmp_path, capture_output=True)
    assert done.returncode != 0


def exported_names() -> dict[str, set[str]]:
    """Names of the samples that a run exports, with their labels."""
    metrics, telemetry = RunMetrics(), Telemetry("r")
    metrics(telemetry)
    telemetry.progress.seconds_left = 1.0
    telemetry.progress.tiers = [TierProgress("f", "static", 2)]
    telemetry.say("run_started", "")
    telemetry.say(
        "variant_finished", "", arch="sm_90a", tiers=["static"], seconds=1.0, cpu_seconds=1.0, peak_bytes=1,
        times={("h200", "static"): 1.0},
    )  # fmt: skip
    found: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> list[str]:
    board = json.loads((DEPLOY / "grafana" / "farm.json").read_text())
    rules = documents("prometheus/farm.rules.yml")[0]["groups"][0]["rules"]
    panels = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    variables = [v["query"]["query"] for v in board["templating"]["list"] if v["type"] == "query"]
    assert len(panels) >= 20 and len(rules) >= 4 and len(variables) == 2
    return panels + variables + [rule["expr"] for rule in rules]


def test_queries_ask_for_what_is_exported() -> None:
    exported = exported_names()
    used = set()
    for text in expressions():
        for name, selectors in re.findall(r"\b((?:farm|process)_\w+)(\{[^}]*\})?", text):
            assert name in exported, f"{name} in {text}"
            used.add(name)
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors)) - {"job", "instance"}
            assert labels <= exported[name], f"{labels} of {name}"
    assert {name for name in exported if name.startswith("farm_")} - used <= {
        "farm_build_info", "farm_nodes", "farm_events_total", "farm_work_item_duration_seconds_count",
        "farm_work_item_duration_seconds_sum", "farm_worker_peak_resident_bytes_count",
        "farm_worker_peak_resident_bytes_sum",
    }  # fmt: skip


# ---- Grafana


def test_grafana_reads_the_dashboard_and_loses_nothing() -> None:
    """Grafana's own schema (its foundation SDK): read into its types and written again, nothing is missing."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    raw = json.loads((DEPLOY / "grafana" / "farm.json").read_text())
    again = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(copy.deepcopy(raw))))
    assert list(lost(raw, again)) == []
    assert list(lost({**raw, "tittle": "x"}, again)) == ["/tittle"]


def lost(before: Any, after: Any, place: str = "") -> Iterator[str]:
    if isinstance(before, dict):
        for key, value in before.items():
            if not isinstance(after, dict) or key not in after:
                yield f"{place}/{key}"
            else:
                yield from lost(value, after[key], f"{place}/{key}")
    elif isinstance(before, list):
        if not isinstance(after, list) or len(before) != len(after):
            yield place
        else:
            for index, (one, other) in enumerate(zip(before, after, strict=True)):
                yield from lost(one, other, f"{place}/{index}")
    elif before != after:
        yield place


def test_panels_do_not_overlap() -> None:
    board = json.loads((DEPLOY / "grafana" / "farm.json").read_text())
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken.get((x, y))}"
                taken[x, y] = panel["title"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


# ---- Kubernetes


def test_kuberay_takes_the_manifests() -> None:
    for name in ("raycluster", "rayjob"):
        (document,) = documents(f"kubernetes/{name}.yaml")
        jsonschema.validate(document, kuberay.SCHEMAS[document["kind"]])
        broken = copy.deepcopy(document)
        broken["spec"].get("rayClusterSpec", broken["spec"])["workerGroupSpecs"][0]["replica"] = 1
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, kuberay.SCHEMAS[document["kind"]])


def test_kubernetes_takes_the_pods_and_policies() -> None:
    for name, template in templates():
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x", **template["metadata"]},
            "spec": template["spec"],
        }
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        broken = copy.deepcopy(pod)
        broken["spec"]["containers"][0]["resource"] = {}
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(broken, KUBERNETES, strict=True)
        assert name
    policies = documents("kubernetes/networkpolicy.yaml")
    for policy in policies:
        kubernetes_validate.validate(policy, KUBERNETES, strict=True)
    ingress, egress = policies
    assert ingress["spec"]["policyTypes"] == ["Ingress"] and egress["spec"]["policyTypes"] == ["Egress"]


def test_pods_have_what_they_need_and_no_more() -> None:
    policy = documents("kubernetes/networkpolicy.yaml")[0]["spec"]["podSelector"]["matchLabels"]
    for name, template in templates():
        spec = template["spec"]
        (container,) = spec["containers"]
        assert policy.items() <= template["metadata"]["labels"].items()
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 1000
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(mounted) == {volume["name"] for volume in spec["volumes"]}
        assert {"/tmp", "/cache", "/home/farm"} <= set(mounted.values()), "what is written to, as the root is read-only"
        assert container["resources"]["requests"] == container["resources"]["limits"]
        secrets = json.dumps(container.get("envFrom", []) + container.get("env", []))
        assert ("farm-store" in secrets) == ("head" in name), "workers hold no credentials"
        assert spec.get("automountServiceAccountToken", True) == ("head" in name)
    for spec in cluster_specs().values():
        assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
        assert spec["headGroupSpec"]["serviceType"] == "ClusterIP", "not reachable from outside"


def test_one_version_of_ray_everywhere() -> None:
    containerfile = (DEPLOY / "container" / "Containerfile").read_text()
    (version,) = re.findall(r"^ARG RAY_VERSION=(\S+)$", containerfile, re.MULTILINE)
    assert {spec["rayVersion"] for spec in cluster_specs().values()} == {version}
    for name, template in templates():
        assert template["spec"]["containers"][0]["image"] == "registry.example.com/farm:0.1.0", name


def test_the_entry_point_is_a_command_of_farm(command: Any) -> None:
    (job,) = documents("kubernetes/rayjob.yaml")
    words = job["spec"]["entrypoint"].split()
    assert words[:2] == ["farm", "submit"]
    code, out, _ = command("submit", "--help")
    assert code == 0
    options = set(re.findall(r"--[a-z-]+", out))
    assert {word for word in words if word.startswith("--")} <= options


# ---- Ray


def test_ray_takes_the_cluster_files() -> None:
    ray_util = pytest.importorskip("ray.autoscaler._private.util")
    schema = json.loads((Path(ray_util.__file__).parents[1] / "ray-schema.json").read_text())
    for name in ("aws", "machines"):
        (config,) = documents(f"ray/{name}.yaml")
        jsonschema.validate(config, schema)
        prepared = ray_util.prepare_config(copy.deepcopy(config))  # as `ray up` does
        ray_util.validate_config(prepared)
        assert prepared["cluster_name"] == "farm" and "worker_start_ray_commands" in prepared
        with pytest.raises(jsonschema.ValidationError):
            ray_util.validate_config({**prepared, "minimal_workers": 1})


# ---- container


def test_the_containerfile() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    assert len(stages) == 2 and re.search(r"^USER 1000:1000$", stages[1], re.MULTILINE)
    assert "pip install" not in stages[1], "the compiler of wheels stays in the first stage"
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", stages[0], re.MULTILINE)
    ignored = (DEPLOY / "container" / "Containerfile.dockerignore").read_text()
    for source in " ".join(copied).split():
        assert (DEPLOY.parent / source).exists() and f"!{source}\n" in ignored
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if hadolint is not None:
        done = subprocess.run(
            [hadolint, "--ignore", "DL3008", str(DEPLOY / "container" / "Containerfile")],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout


def test_nothing_of_nvidia_is_committed() -> None:
    tracked = subprocess.run(["git", "ls-files", "deploy"], cwd=DEPLOY.parent, capture_output=True, text=True)
    for name in tracked.stdout.split():
        assert (DEPLOY.parent / name).read_bytes()[:4] != b"\x7fELF"
