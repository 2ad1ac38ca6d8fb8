"""The dashboard's queries in a real Prometheus that scrapes a run with the configuration in deploy/."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import farm_fakes
import pytest
import yaml
from rich.console import Console

import farm.submit
from farm.observability.metrics import RunMetrics, served
from farm.store import LocalStore
from farm.submit import submit
from farm.submit_options import Options

DEPLOY = Path(__file__).parents[2] / "deploy"
STEP = 0.5  # seconds between scrapes

# 32 values of BLOCK: some ten seconds, a score of scrapes
SWEEP = farm_fakes.SWEEP.replace("[64, 128, 256, 512]", str(list(range(32, 1025, 32))))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def prometheus(folder: Path, target: int) -> Iterator[str]:
    """A server with the project's configuration, but for the ports and the interval; yields its address."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": f"{int(STEP * 1000)}ms", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{target}"]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(DEPLOY / "prometheus" / "farm.rules.yml", folder)
    port = free_port()
    server = subprocess.Popen(
        [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=(folder / "log").open("wb"),
    )  # fmt: skip
    try:
        for _ in range(100):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2)
                break
            assert server.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=20)


def ask(address: str, path: str, **arguments: Any) -> Any:
    try:
        with urllib.request.urlopen(
            f"{address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}", timeout=10
        ) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{arguments}: {error.read().decode()}") from None


def wait_until(true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_every_panel_has_data(tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farm.submit, "EVALUATOR", "farm_fakes:evaluate_slowly")
    toy = farm_fakes.write_sweep(tmp_path / "toy", SWEEP)
    metrics = RunMetrics()
    board = json.loads((DEPLOY / "grafana" / "farm.json").read_text())
    with served(metrics.registry, "0") as (_, port), prometheus(tmp_path, port) as address:
        started = time.time()
        submit([toy], Options(run="r", jobs=2), LocalStore(tmp_path / "store"), Console(quiet=True), [metrics])
        time.sleep(3 * STEP)
        ended = time.time()
        for panel in board["panels"]:
            for target in panel["targets"]:
                query = target["expr"]
                for name, text in (("$__rate_interval", "6s"), ("$job", ".*"), ("$instance", ".*"), ("$price", "0.04")):
                    query = query.replace(name, text)
                found = ask(address, "query_range", query=query, start=started, end=ended, step=STEP)
                values = [value for series in found["result"] for _, value in series["values"] if value != "NaN"]
                assert values, f"{panel['title']}: {query}"
        (failed,) = ask(address, "query", query='sum(farm_failures_total{failure="compile"})')["result"]
        assert failed["value"][1] == "2"
        (state,) = ask(address, "query", query="farm_run_state == 1")["result"]
        assert state["metric"]["state"] == "complete" and state["metric"]["job"] == "farm"
        names = ask(address, "label/instance/values")
        assert names == [f"127.0.0.1:{port}"]
        rules = ask(address, "rules")["groups"][0]["rules"]
        assert len(rules) == 4 and {rule["health"] for rule in rules} == {"ok"}
