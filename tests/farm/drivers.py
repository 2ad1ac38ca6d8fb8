"""Drivers as processes of their own, with the fake simulator, to be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TEST_PATH = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])


def start_driver(
    sweep: Path,
    store: Path,
    log: Path,
    *options: str,
    environment: dict[str, str] | None = None,
    command: str = "submit",
    first: str = "",
) -> subprocess.Popen[str]:
    """`farm submit SWEEP --run r`, slowly; `first` is Python that runs before."""
    code = (
        f"{first}\n"
        "import sys; sys.path.insert(0, sys.argv[1]); import farm.submit, farm.cli, farm.sink, farm.scheduler;"
        "farm.submit.EVALUATOR = 'farm_fakes:evaluate_at_leisure'; farm.sink.FLUSH_SECONDS = 0.1;"
        "farm.scheduler.TASK_SECONDS = 0.5;"
        "farm.submit.model_digest = lambda: 'fake model'; farm.submit.is_compiled = lambda _: True;"
        "sys.argv = ['farm', *sys.argv[2:]]; farm.cli.main()"
    )
    arguments = [command, *([str(sweep), "--run", "r"] if command == "submit" else ["r"]), *options]
    return subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent), *arguments],
        env={
            **os.environ, **(environment or {}),
            "PYTHONPATH": TEST_PATH, "FARM_STORE": str(store), "FARM_TEST_LOG": str(log),
        },
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def wait_for(true: Callable[[], bool], process: subprocess.Popen[str] | None, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert process is None or process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.05)
