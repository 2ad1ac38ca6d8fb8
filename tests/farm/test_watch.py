"""`farm watch`: a run followed from another process, live on a real terminal, line by line, once, as JSON."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import driver
import pytest
from rich.console import Console

from farm.events import Best, Event, Progress, TierProgress
from farm.observability.view import as_record, cost, duration, failures, sparkline, view
from farm.store import LocalStore
from farm.submit import submit
from farm.submit_options import Options

WATCH = "import sys; from farm.cli import main; sys.argv = ['farm', *sys.argv[1:]]; main()"
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def a_run() -> Progress:
    progress = Progress("sgemm-1234abcd", state="running", host="here", pid=7, executor="ray")
    progress.workers, progress.busy, progress.nodes = 8, 7, {"a": 4, "b": 4}
    progress.items_done, progress.items_left, progress.elapsed_seconds = 300, 700, 131.0
    progress.items_per_second, progress.seconds_left = 2.5, 280.0
    progress.worker_seconds, progress.cpu_seconds = 7200.0, 7000.0
    progress.tiers = [
        TierProgress("sgemm", "static", 1000, 300, 3, 20),
        TierProgress("sgemm", "sampled", 500, 120, 0, 0, decided=False),
    ]
    progress.best = [Best("sgemm", "h200", 17, {"BM": 64, "BN": 128}, "sampled", 123.456)]
    progress.failures = {"compile": 3, "timeout": 1}
    progress.retried, progress.set_aside, progress.workers_lost = 2, 1, 1
    progress.under_way = [("sgemm variant 3 (sm_90a)", 0.42)]
    progress.events = [
        Event("worker_started", "worker 1 on a", "2026-01-02T03:04:05+00:00"),
        Event("worker_lost", "worker 2 on b: its node is gone", "2026-01-02T03:05:06+00:00"),
    ]
    return progress


def shown(progress: Progress, width: int = 120, **options: object) -> str:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(view(progress, progress.state, **options))  # type: ignore[arg-type]
    return console.export_text()


def test_everything_is_on_the_screen() -> None:
    text = shown(a_run(), price=0.05, rates=[0.0, 1.25, 2.5])
    for part in (
        "sgemm-1234abcd  running  ray, 2 nodes, 2 min 11 s",
        "300 of about 1000 work items",
        "7 of 8 workers busy  2.50 items/s  about 4 min 40 s left  ▁▅█",
        "~500",
        "sgemm:17",
        "123.5",
        "BM=64 BN=128",
        "3 compile, 1 timeout, 2 tried again, 1 set aside, 1 worker lost",
        "7200 s of workers, 7000 s of CPU; 2 core hours at 0.05: 0.1, about 0.3333 in the end",
        "sgemm variant 3 (sm_90a) 42%",
        "03:05:06  worker 2 on b: its node is gone",
    ):
        assert part in text, part
    assert "worker 1 on a" not in text, "workers that start are no news"
    assert re.search(r"sgemm +sampled +120 +~500", text) and re.search(r"sgemm +static +300 +1000 +3 +20", text)


def test_it_fits_the_screen() -> None:
    progress = a_run()
    progress.tiers = [TierProgress(f"family{n}", "static", 10) for n in range(60)]
    progress.best = [Best(f"family{n}", "h200", 0, {}, "static", 1.0) for n in range(60)]
    for rows in (24, 40):
        text = shown(progress, width=80, rows=rows)
        assert len(text.splitlines()) <= rows
        assert text.count("and ") >= 2 and " more" in text


def test_words_and_figures() -> None:
    assert [duration(s) for s in (0.4, 59, 61, 3599, 7500)] == [
        "0 s",
        "59 s",
        "1 min 01 s",
        "59 min 59 s",
        "2 h 05 min",
    ]
    assert sparkline([]) == sparkline([0.0, 0.0]) == ""
    assert sparkline([0, 1, 2, 4]) == "▁▃▅█"
    assert failures(Progress("r")) == "none"
    empty = Progress("r")
    assert cost(empty, 1.0) == "0 s of workers, 0 s of CPU; 0 core hours at 1: 0"
    record = as_record(a_run(), "running", 0.05)
    assert (record["core_hours"], record["cost"], record["driver"]) == (2.0, 0.1, "running")
    assert as_record(a_run(), "running", None)["cost"] is None
    shown(empty)  # a driver that has only begun


def test_once_and_json(
    command: Callable[..., tuple[int, str, str]], toy: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("submit", toy, "--run", "r", "--jobs", 1)[0] == 0
    code, out, _ = command("watch", "r", "--once")
    assert code == 0 and "r  complete  processes on" in out and "12 of 12 work items" in out
    assert re.search(r"toy:\d +h200 +1\d\.\d\d +sampled +BLOCK=\d+ MISHAP=0", out) and "2 compile" in out
    monkeypatch.setenv("FARM_PRICE", "36")
    code, out, _ = command("watch", "r", "--json")
    record = json.loads(out)
    assert record["driver"] == "complete" and record["items_done"] == 12 and record["failures"] == {"compile": 2}
    assert record["cost"] == pytest.approx(record["worker_seconds"] / 100, abs=1e-5)
    assert record["cpu_seconds"] > 0
    assert command("watch", "r", "--price", "-1")[0] == 2
    assert command("watch", "s")[0] == 2
    code, out, err = command("watch", "r")
    assert (code, err) == (0, "run r: complete\n") and out.startswith("12 done, 0 left")


def test_no_driver_has_told(
    command: Callable[..., tuple[int, str, str]], toy: Path, fake: Path, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path / "store")
    outcome = submit([toy], Options(run="r", jobs=1), store, Console(quiet=True))
    (outcome.folder.blobs.local_path("progress.json") or tmp_path).unlink()
    code, out, err = command("watch", "r", "--json")
    assert (code, out) == (0, "") and "no driver has told of it" in err


def test_live_on_a_terminal_until_the_driver_is_killed(toy: Path, tmp_path: Path) -> None:
    """Another process watches on a pseudo-terminal: the view is redrawn in place, and ends when the driver does."""
    store = LocalStore(tmp_path / "store")
    process = driver.start(toy, str(tmp_path / "store"))
    try:
        driver.wait_for_results(store, 1)
        watcher, terminal = _on_a_terminal("watch", "r", "--store", str(tmp_path / "store"), "--price", "0.04")
        text = _read(terminal, watcher, until="r  running  processes on", seconds=30)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        text += _read(terminal, watcher, until=None, seconds=30)
        assert watcher.wait(timeout=10) == 3
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    plain = CODES.sub("", text)
    assert "\x1b[" in text and "\x1b[1A" in text, "redrawn in place"
    assert "r  running  processes on" in plain and "r  gone  processes on" in plain
    assert "core hours at 0.04" in plain and "To go on: farm resume r" in plain


def test_ctrl_c_stops_the_watching_only(toy: Path, tmp_path: Path) -> None:
    process = driver.start(toy, str(tmp_path / "store"))
    try:
        driver.wait_for_results(LocalStore(tmp_path / "store"), 1)
        watcher, terminal = _on_a_terminal("watch", "r", "--store", str(tmp_path / "store"))
        _read(terminal, watcher, until="work items", seconds=30)
        watcher.send_signal(signal.SIGINT)
        text = _read(terminal, watcher, until=None, seconds=10)
        assert watcher.wait(timeout=10) == 0
        assert "not watching any more; run r goes on" in text
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "r\n")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _on_a_terminal(*arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    watcher = subprocess.Popen(
        [sys.executable, "-c", WATCH, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    return watcher, ours


def _read(terminal: int, watcher: subprocess.Popen[bytes], until: str | None, seconds: float) -> str:
    """What the terminal shows until `until` is there, or (None) until the watcher has ended."""
    text, deadline = "", time.monotonic() + seconds
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 0.2)
        if ready:
            try:
                text += os.read(terminal, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                return text
        elif until is None and watcher.poll() is not None:
            return text
        if until is not None and until in CODES.sub("", text):
            return text
    raise AssertionError(f"not in {seconds} s: {until}; {text}")
