"""Metrics and logs of runs: counted as the tables have it, labels bounded, off unless asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

import farm.submit
from farm.events import Progress, Telemetry, TierProgress
from farm.observability import logs
from farm.observability.metrics import (
    TARGETS_SHOWN,
    MetricsError,
    RunMetrics,
    is_loopback,
    parse_address,
    served,
)
from farm.store import LocalStore
from farm.submit import submit
from farm.submit_options import Options
from interpreter.errors import FarmError

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(autouse=True)
def _no_logs() -> Iterator[None]:
    yield
    logs.reset()


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text: str = answer.read().decode()
    return text


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def test_counted_as_the_tables_have_it(toy: Path, fake: Path, tmp_path: Path) -> None:
    metrics = RunMetrics()
    store = LocalStore(tmp_path / "store")
    with served(metrics.registry, "0") as (host, port):
        assert host == "127.0.0.1"
        before = samples(scrape(port))
        outcome = submit([toy], Options(run="r", jobs=2), store, Console(quiet=True), [metrics])
        text = scrape(port)
    found = samples(text)
    assert not any(name == "farm_run_state" for name, _ in before), "nothing is said of a run before there is one"
    rows = outcome.folder.load().read("estimates").to_pylist()
    by_target = Counter((row["target"], row["tier"], row["status"]) for row in rows)
    assert len(by_target) == 8  # two targets, two tiers, ok and failed
    for (target, tier, status), count in by_target.items():
        assert value(found, "farm_estimates_total", target=target, tier=tier, result=status) == count
    for arch in ("sm_90a", "sm_89"):
        assert value(found, "farm_work_items_total", arch=arch, tier="sampled", result="ok") == 5
        assert value(found, "farm_work_items_total", arch=arch, tier="sampled", result="compile") == 1
    assert value(found, "farm_work_item_duration_seconds_count", tier="sampled") == 12
    assert value(found, "farm_failures_total", failure="compile") == 2
    assert value(found, "farm_failures_total", failure="timeout") == 0, "classes are there before they happen"
    assert value(found, "farm_worker_cpu_seconds_total", tier="sampled") > 0
    assert 10e6 < value(found, "farm_worker_peak_resident_bytes_sum") / 12 < 2e9
    assert value(found, "farm_run_state", state="complete") == 1
    assert value(found, "farm_run_state", state="running") == 0
    assert value(found, "farm_work_items_remaining") == 0
    assert value(found, "farm_funnel_pairs", tier="sampled", state="done") == 12
    assert value(found, "farm_funnel_pairs", tier="sampled", state="failed") == 2
    assert value(found, "farm_store_written_bytes_total") > 1000
    assert value(found, "process_resident_memory_bytes") > 1e6
    names = {name for name, _ in found}
    assert not [name for name in names if name.endswith("_created")]
    # labels are bounded: neither runs, families nor variants
    labels = {label for _, pairs in found for label, _ in pairs}
    assert labels == {
        "arch", "tier", "result", "target", "failure", "state", "kind", "le", "version",
        "implementation", "major", "minor", "patchlevel",
    }  # fmt: skip
    assert "toy" not in text and '"r"' not in text
    for name in names:
        assert name.startswith(("farm_", "process_", "python_"))


def test_promtool_finds_nothing_wrong(toy: Path, fake: Path, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    metrics = RunMetrics()
    with served(metrics.registry, "127.0.0.1:0") as (_, port):
        submit([toy], Options(jobs=1), LocalStore(tmp_path / "store"), Console(quiet=True), [metrics])
        text = scrape(port)
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "farm_" not in checked.stdout + checked.stderr, "lint warnings"


def test_targets_are_bounded() -> None:
    metrics = RunMetrics()
    telemetry = Telemetry("r")
    metrics(telemetry)
    for number in range(TARGETS_SHOWN + 10):
        telemetry.say("variant_finished", "", arch="sm_90a", tiers=["static"], times={(f"own{number}", "static"): 1.0})
    shown = {
        s.labels["target"] for f in metrics.registry.collect() for s in f.samples if s.name == "farm_estimates_total"
    }
    assert len(shown) == TARGETS_SHOWN + 1 and "other" in shown


def test_remaining_time_is_absent_while_unknown() -> None:
    metrics = RunMetrics()
    telemetry = Telemetry("r")
    metrics(telemetry)
    telemetry.progress.state = "running"
    assert metrics.registry.get_sample_value("farm_run_remaining_seconds") is None
    telemetry.progress.seconds_left = 90.0
    telemetry.progress.tiers = [TierProgress("a", "static", 10, 4), TierProgress("b", "static", 5, 1)]
    telemetry.progress.workers, telemetry.progress.busy = 4, 3
    assert metrics.registry.get_sample_value("farm_run_remaining_seconds") == 90.0
    pairs = {"tier": "static", "state": "planned"}
    assert metrics.registry.get_sample_value("farm_funnel_pairs", pairs) == 15, "families are summed up"
    assert metrics.registry.get_sample_value("farm_workers", {"state": "idle"}) == 1


def test_addresses() -> None:
    assert parse_address("9464") == ("127.0.0.1", 9464)
    assert parse_address("0.0.0.0:9464") == ("0.0.0.0", 9464)
    assert parse_address("[::1]:0") == ("::1", 0)
    assert parse_address("localhost:80") == ("localhost", 80)
    for text in ("", "abc", "host:", ":9464", "1.2.3.4", "70000", "-1", "a:b:c"):
        with pytest.raises(MetricsError, match="--metrics"):
            parse_address(text)
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("::") and not is_loopback("example.org")


def test_a_port_in_use(command: Callable[..., tuple[int, str, str]], toy: Path, fake: Path) -> None:
    with served(RunMetrics().registry, "0") as (_, port):
        code, out, err = command("submit", toy, "--metrics", port)
    assert (code, out) == (2, "")
    assert err == f"error: --metrics {port}: cannot listen on 127.0.0.1 port {port}: Address already in use\n"
    assert command("submit", toy, "--metrics", "everywhere")[0] == 2


def test_log_lines(command: Callable[..., tuple[int, str, str]], toy: Path, fake: Path) -> None:
    code, out, err = command("submit", toy, "--jobs", 1, "--run", "r", "--log-format", "json", "--metrics", 0)
    assert (code, out) == (0, "r\n")
    lines = [json.loads(line) for line in err.splitlines()]
    assert all(line["time"].endswith("Z") and line["level"] in logs.LEVELS for line in lines)
    assert lines[0]["message"].startswith("metrics: http://127.0.0.1:")
    finished = [line for line in lines if line["event"] == "variant_finished"]
    assert len(finished) == 12 and {line["run"] for line in finished} == {"r"}
    assert {(line["family"], line["variant"], line["arch"]) for line in finished} == {
        ("toy", number, arch) for number in range(6) for arch in ("sm_90a", "sm_89")
    }
    (broken,) = [line for line in finished if line["level"] == "warning" and line["arch"] == "sm_89"]
    assert broken["failure"] == "compile" and "expected a ;" in broken["message"]
    of_the_run = [line["event"] for line in lines if line.get("run") == "r"]
    assert (of_the_run[0], of_the_run[-1]) == ("run_started", "run_finished")


def test_log_levels(command: Callable[..., tuple[int, str, str]], toy: Path, fake: Path) -> None:
    _, _, err = command("submit", toy, "--jobs", 1, "--run", "r", "--log-format", "json", "--log-level", "warning")
    assert {json.loads(line)["level"] for line in err.splitlines()} == {"warning"}
    logs.reset()
    _, _, err = command("submit", toy, "--jobs", 1, "--run", "s", "--log-level", "warning")
    (line, _) = [line for line in err.splitlines() if "event=variant_finished" in line]
    assert " warning " in line and "run=s family=toy variant=1" in line.replace("event=variant_finished ", "")
    assert "times simulated" in err, "the usual is there as well"


def test_errors_are_log_lines(command: Callable[..., tuple[int, str, str]], toy: Path, fake: Path) -> None:
    code, out, err = command("submit", toy, "--target", "h201", "--log-format", "json")
    (line,) = [json.loads(text) for text in err.splitlines()]
    assert (code, out) == (2, "") and line["level"] == "error" and "h201" in line["message"]
    logs.reset()
    assert "text, json" in command("submit", toy, "--log-format", "xml")[2]
    assert "debug, info" in command("submit", toy, "--log-level", "loud")[2]


def test_a_failing_run_says_so_in_the_log(
    command: Callable[..., tuple[int, str, str]], toy: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise FarmError("out of luck, token tok-12345678")

    monkeypatch.setenv("LUCKY_TOKEN", "tok-12345678")
    monkeypatch.setattr(farm.submit.Drive, "run", broken)
    code, _, err = command("submit", toy, "--log-format", "json", "--run", "r")
    lines = [json.loads(text) for text in err.splitlines()]
    assert code == 2 and [(x["level"], x["event"]) for x in lines[-2:]] == [
        ("error", "run_finished"),
        ("error", "error"),
    ]
    assert "tok-12345678" not in err and "out of luck, token [hidden]" in err
    assert "tok-12345678" not in command("watch", "r", "--json")[1]


def test_a_snapshot_of_an_earlier_version_is_read() -> None:
    old = json.loads(Progress("r").to_json())
    del old["cpu_seconds"]
    assert Progress.from_json(json.dumps(old)).cpu_seconds == 0.0
