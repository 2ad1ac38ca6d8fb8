"""`farm watch`, `cancel`, `resume`, `submit --detach`: from another process, by the run's name."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import farm_fakes
import pytest
from drivers import start_driver, wait_for
from rich.console import Console
from same_tables import contents

import farm.commands.control
from farm.board import SUBMISSION, Board
from farm.commands.ray_option import complete_ray_option
from farm.events import Best, Event, Progress, TierProgress
from farm.store import LocalStore
from farm.submit import submit
from farm.submit_options import Options
from interpreter.errors import ToolchainError
from interpreter.toolchain import find_tools
from jobs.run_folder import RunFolder

QUIET = Console(quiet=True)
BAD = Path(__file__).parents[1] / "data" / "bad"


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return farm_fakes.write_sweep(tmp_path / "toy", farm_fakes.FUNNEL_SWEEP)


@pytest.fixture
def expected(sweep: Path, fake: Path, tmp_path: Path) -> dict[str, bytes]:
    return contents(submit([sweep], Options(jobs=2), LocalStore(tmp_path / "undisturbed"), QUIET).folder)


def begun(folder: RunFolder) -> bool:
    return folder.exists and len(folder.load().done("toy", "static")) > 0


def test_cancelled_watched_and_resumed(
    sweep: Path, expected: dict[str, bytes], fake: Path, tmp_path: Path, command
) -> None:
    driver = start_driver(sweep, tmp_path / "store", fake, "--jobs", "1")
    folder = RunFolder(tmp_path / "store" / "r")
    wait_for(lambda: begun(folder), driver)
    code, out, _ = command("status", "r")
    assert code == 0 and "running" in out
    wait_for(lambda: bool((Board(folder).progress() or Progress("r")).tiers), driver)
    code, out, _ = command("watch", "r", "--once")
    assert code == 0 and "r  running" in out and re.search(r"toy +static", out)
    assert "simulated" in out or "best" not in out  # a time shown is said to be simulated
    code, _, err = command("cancel", "r")
    assert code == 0 and "run r: cancelled: cancelled by" in err and "farm resume r" in err
    _, err = driver.communicate(timeout=30)
    assert driver.returncode == 130 and "Traceback" not in err
    assert 0 < len(folder.load().done("toy", "static")) < 51
    assert "cancelled" in command("status", "r")[1]
    code, _, err = command("watch", "r")
    assert code == 1 and "run r: cancelled" in err
    code, _, err = command("cancel", "r")
    assert code == 0 and "nothing to cancel" in err
    code, out, err = command("resume", "r", "--jobs", "2")
    assert code == 0 and out.strip() == "r", err
    assert contents(folder.load()) == expected
    code, _, err = command("watch", "r")
    assert code == 0 and "run r: complete" in err


def test_a_killed_driver_is_missed_and_its_run_resumed_from_the_runs_own_copy(
    sweep: Path, expected: dict[str, bytes], fake: Path, tmp_path: Path, command, monkeypatch
) -> None:
    monkeypatch.setenv("FARM_CACHE", str(tmp_path / "cache"))
    driver = start_driver(sweep, tmp_path / "store", fake, "--jobs", "1")
    folder = RunFolder(tmp_path / "store" / "r")
    wait_for(lambda: begun(folder), driver)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    assert "gone" in command("status", "r")[1]
    code, _, err = command("watch", "r")
    assert code == 3 and f"process {driver.pid}" in err and "farm resume r" in err
    shutil.rmtree(sweep.parent)  # as on another machine
    code, out, err = command("resume", "r")
    assert code == 0 and out.strip() == "r", err
    assert contents(folder.load()) == expected


def test_a_driver_on_another_machine_counts_as_gone_when_it_falls_silent(
    sweep: Path, fake: Path, tmp_path: Path, command, monkeypatch
) -> None:
    folder = submit([sweep], Options(jobs=1, run="r", limit=1), LocalStore(tmp_path / "store"), QUIET).folder
    board = Board(folder)
    board.write("progress.json", Progress("r", "running", host="elsewhere", pid=1, sequence=5).to_json().encode())
    assert "running" in command("status", "r")[1]
    monkeypatch.setattr(farm.commands.control, "SILENT_SECONDS", 0.5)
    code, _, err = command("watch", "r")
    assert code == 3 and "process 1 on elsewhere) is gone" in err
    code, _, err = command("cancel", "r", "--wait", "0.2")
    assert code == 3 and "has not stopped" in err and board.read_json("cancel.json") is not None


def test_a_changed_sweep_is_resumed_as_it_was(sweep: Path, fake: Path, tmp_path: Path, command, monkeypatch) -> None:
    monkeypatch.setenv("FARM_CACHE", str(tmp_path / "cache"))
    folder = submit([sweep], Options(jobs=1, run="r"), LocalStore(tmp_path / "store"), QUIET).folder
    (sweep.parent / "kernel.cu").write_text("// changed\n")
    code, _, err = command("resume", "r")
    assert code == 0 and "results were there already" in err, err
    Board(folder).remove(SUBMISSION)
    code, _, err = command("resume", "r")
    assert code == 2 and "does not say what was submitted" in err


def _nvcc() -> bool:
    try:
        return find_tools().nvcc is not None
    except ToolchainError:
        return False


@pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")
def test_detached_with_the_real_simulator(tmp_path: Path, command, monkeypatch) -> None:
    monkeypatch.setenv("FARM_STORE", str(tmp_path / "store"))
    farm_command = [sys.executable, "-c", "from farm.cli import main; main()"]
    started = time.monotonic()
    arguments = ["submit", str(BAD), "--target", "h200", "--limit", "1", "--tier", "static", "--jobs", "1"]
    done = subprocess.run([*farm_command, *arguments, "--detach"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    run = done.stdout.strip()
    assert "farm watch" in done.stderr and time.monotonic() - started < 60
    code, out, err = command("watch", run)
    assert code == 0 and f"run {run}: complete" in err
    assert "1 done, 0 left" in out
    code, out, _ = command("watch", run, "--json")
    assert json.loads(out)["best"][0]["tier"] == "static"
    done = subprocess.run(
        [*farm_command, "submit", str(tmp_path / "nothing"), "--detach"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2 and "nothing" in done.stderr and not done.stdout


def test_a_snapshot_survives_the_way_through_the_store() -> None:
    progress = Progress("r", "running", tiers=[TierProgress("f", "static", 4, 2, 1)], failures={"compile": 1})
    progress.best.append(Best("f", "h200", 3, {"A": 1}, "sampled", 12.5))
    progress.events.append(Event("retried", "text", "now", {"node": "n"}))
    progress.under_way.append(("f variant 3", 0.5))
    assert Progress.from_json(progress.to_json()) == progress
    assert Progress.from_json(progress.to_json().replace('"run"', '"later_version": 1, "run"')).run == "r"


@pytest.mark.parametrize(
    ("given", "completed"),
    [
        (["submit", "x", "--ray"], ["submit", "x", "--ray", "local"]),
        (["submit", "--ray", "folder"], ["submit", "--ray", "local", "folder"]),
        (["submit", "--ray", "head:6379", "x"], ["submit", "--ray", "head:6379", "x"]),
        (["submit", "x", "--ray", "auto", "--jobs", "3"], ["submit", "x", "--ray", "auto", "--jobs", "3"]),
        (["submit", "x", "--ray", "--jobs", "3"], ["submit", "x", "--ray", "local", "--jobs", "3"]),
        (["submit", "--", "--ray"], ["submit", "--", "--ray"]),
    ],
)
def test_the_address_may_be_left_out(given: list[str], completed: list[str]) -> None:
    assert complete_ray_option(given) == completed
