"""Drivers and workers that die, clocks that jump, two drivers at once: the tables are those of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import farm_fakes
import pytest
from drivers import start_driver, wait_for
from rich.console import Console
from same_tables import contents

import farm.submit
from farm.board import Board
from farm.events import Event, Telemetry
from farm.store import LocalStore
from farm.submit import submit
from farm.submit_options import Options
from jobs.run_folder import RunBusy, RunFolder

QUIET = Console(quiet=True)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return farm_fakes.write_sweep(tmp_path / "toy", farm_fakes.FUNNEL_SWEEP)


@pytest.fixture
def expected(sweep: Path, fake: Path, tmp_path: Path) -> dict[str, bytes]:
    """What an undisturbed run gives."""
    return contents(submit([sweep], Options(jobs=2), LocalStore(tmp_path / "undisturbed"), QUIET).folder)


def results(folder: RunFolder) -> int:
    if not folder.exists:
        return 0
    return len(folder.load().done("toy", "static")) + len(folder.done("toy", "sampled"))


def test_a_driver_killed_again_and_again(sweep: Path, expected: dict[str, bytes], fake: Path, tmp_path: Path) -> None:
    """Mid-write and mid-funnel: results are written all the time, and each driver is killed soon after its first."""
    folder = RunFolder(tmp_path / "store" / "r")
    moments = random.Random(7)
    killed = 0
    for _ in range(3):
        before = results(folder)
        driver = start_driver(sweep, tmp_path / "store", fake, "--jobs", "2")
        wait_for(lambda before=before: results(folder) > before or driver.poll() is not None, None)  # noqa: B023
        time.sleep(moments.random() * 0.2)
        if driver.poll() is None:
            os.kill(driver.pid, signal.SIGKILL)
            killed += 1
        driver.communicate()
    assert killed >= 2 and results(folder) < 3 * 17 + 3 * 8
    fake.write_text("")
    outcome = submit([sweep], Options(run="r", jobs=2), LocalStore(tmp_path / "store"), QUIET)
    assert contents(outcome.folder) == expected
    lines = fake.read_text().splitlines()
    assert 0 < len(lines) == len(set(lines)) < 2 * 17 + 3 * 8


def test_workers_killed_again_and_again(
    sweep: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(farm.submit, "EVALUATOR", "farm_fakes:evaluate_at_leisure")
    pools = []
    executor_for = farm.submit.ProcessPool

    def remember(*arguments: object):  # type: ignore[no-untyped-def]
        pools.append(executor_for(*arguments))  # type: ignore[arg-type]
        return pools[-1]

    monkeypatch.setattr(farm.submit, "ProcessPool", remember)
    killed: list[int] = []
    events: list[Event] = []

    def listen(telemetry: Telemetry) -> None:
        def hear(event: Event) -> None:
            events.append(event)
            busy = [child for child in pools[0]._children.values() if child.batch is not None]
            if event.kind == "variant_finished" and busy and len(killed) < 4:
                killed.append(busy[0].process.pid)
                os.kill(busy[0].process.pid, signal.SIGKILL)

        telemetry.listen(hear)

    outcome = submit([sweep], Options(jobs=2), LocalStore(tmp_path / "store"), QUIET, [listen])
    assert len(killed) == 4 and contents(outcome.folder) == expected
    told = [event.text for event in events if event.kind == "worker_lost"]
    assert told and all("SIGKILL" in text and "go back to the queue" in text for text in told)
    progress = Board(outcome.folder).progress()
    assert progress is not None and progress.state == "complete" and progress.workers_lost == len(told)


def test_a_clock_that_jumps(sweep: Path, expected: dict[str, bytes], fake: Path, tmp_path: Path) -> None:
    """The time of day goes back and forth by days at every look: nothing waits for it, nothing times out by it."""
    jumps = (
        "import random, time\n"
        "real, draw = time.time, random.Random(1)\n"
        "time.time = lambda: real() + draw.uniform(-1e6, 1e6)\n"
    )
    driver = start_driver(sweep, tmp_path / "store", fake, "--jobs", "2", first=jumps)
    _, err = driver.communicate(timeout=60)
    assert driver.returncode == 0, err
    assert contents(RunFolder(tmp_path / "store" / "r").load()) == expected


def test_two_drivers_on_the_same_run(sweep: Path, expected: dict[str, bytes], fake: Path, tmp_path: Path) -> None:
    first = start_driver(sweep, tmp_path / "store", fake, "--jobs", "2")
    folder = RunFolder(tmp_path / "store" / "r")
    wait_for(lambda: results(folder) > 0, first)
    with pytest.raises(RunBusy, match=f"process {first.pid}"):
        submit([sweep], Options(run="r"), LocalStore(tmp_path / "store"), QUIET)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 0, err
    assert contents(folder.load()) == expected


def test_a_disk_that_fails_stops_the_run_and_says_so(
    sweep: Path, fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "add", full)
    with pytest.raises(OSError, match="No space left"):
        submit([sweep], Options(jobs=1, run="r"), LocalStore(tmp_path / "store"), QUIET)
    progress = Board(RunFolder(tmp_path / "store" / "r")).progress()
    assert progress is not None and progress.state == "failed" and "No space left" in progress.why
