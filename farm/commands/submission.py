"""Running a submission from the command line: here with its tables at the end, or in the background."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import typer
from rich.console import Console

from farm.board import Board
from farm.commands.observation import Observation
from farm.observability.logs import complain
from farm.store import open_store
from farm.submit_options import Options
from interpreter.disassembly import cache_directory

PIPED_COLUMNS = 200
START_SECONDS = 300.0  # for a background driver to take the run: Ray may have to start
LOG = "driver.log"


def stderr_console() -> Console:
    """A console on stderr; tables are not squeezed to 80 columns when no terminal limits them."""
    console = Console(stderr=True)
    return console if console.is_terminal else Console(stderr=True, width=PIPED_COLUMNS)


def run_and_report(
    sweeps: list[Path], options: Options, store: str | None, observation: Observation | None = None
) -> None:
    """Submit, then the ranking and the agreement with measured times on stderr and the run's name on stdout."""
    from farm.database import RunDatabase
    from farm.render import correlation_rows, print_correlation, print_ranking, ranking_rows
    from farm.submit import submit

    observation = observation or Observation()
    console = Console(stderr=True, quiet=True) if observation.lines_only else stderr_console()
    with observation.active(console):
        outcome = submit(sweeps, options, open_store(store), console, observation.listeners)
    database = RunDatabase(open_store(store).find(outcome.run))
    if not observation.lines_only:
        ranking = ranking_rows(database, best=10)  # of each group: a sweep's rows may be hundreds of thousands
        tables = len({(row["family"], row["target"], row["group"]) for row in ranking})
        print_ranking(console, database, ranking, limit=10 if tables <= 3 else 3)
        print_correlation(console, correlation_rows(database))
    for note in outcome.notes:
        observation.say(console, note)
    there = f", {outcome.resumed} results were there already" if outcome.resumed else ""
    observation.say(
        console,
        f"{outcome.evaluated} evaluations in {outcome.seconds:.1f} s{there}. More: farm rank {outcome.run} --all, "
        f"farm show {outcome.run}:N",
    )
    print(outcome.run)
    if not database.rows("SELECT 1 FROM estimates WHERE status = 'ok' LIMIT 1"):
        complain("error: every variant failed")
        raise typer.Exit(1)


def run_detached(sweeps: list[Path], options: Options, store: str | None, arguments: list[str]) -> None:
    """Start `farm` with `arguments` as a process of its own, and return when it has taken the run.

    Everything wrong with the input is said here and now. The run's name goes to stdout.
    """
    from farm.submit import default_run_name, plan_all

    plans = plan_all(sweeps, options)
    name = options.run or default_run_name(plans, options)
    folder = open_store(store).folder(name)
    log = folder.blobs.local_path(LOG) or cache_directory(None) / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as output:
        driver = subprocess.Popen(
            [sys.executable, "-c", "from farm.cli import main; main()", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    board, deadline = Board(folder), time.monotonic() + START_SECONDS
    while True:
        progress = board.progress()
        if progress is not None and progress.pid == driver.pid:
            break
        if driver.poll() is not None or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    if driver.poll() not in (None, 0):
        with contextlib.suppress(OSError):
            lines = log.read_text(errors="replace").splitlines()
            print("\n".join(lines[-5:]), file=sys.stderr)
        raise typer.Exit(driver.returncode)
    print(f"running in the background as process {driver.pid}; log: {log}; farm watch {name}", file=sys.stderr)
    print(name)
