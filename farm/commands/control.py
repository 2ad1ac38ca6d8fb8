"""`farm watch`, `cancel`, `resume`: a run that another shell or machine drives, by its name and through the store."""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console

from farm.board import CANCEL, Board
from farm.commands.observation import LogFormatOption, LogLevelOption, MetricsOption, Observation
from farm.commands.timeline_options import (
    TimelineLimitOption,
    TimelineOption,
    TimelineSmsOption,
    TimelineVariantsOption,
    timeline_options,
)
from farm.events import Progress
from farm.liveness import SILENT_SECONDS, driver_state, surely_dead
from farm.store import open_store
from jobs.run_folder import RunFolder

POLL_SECONDS = 0.5
PIPED_COLUMNS = 200

StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Folder, file:// or s3:// URI of the runs (default: FARM_STORE, else ./farm-runs)."),
]
RunArgument = Annotated[str, typer.Argument(help="Name of the run, or the beginning of it.", metavar="RUN")]


def register(app: typer.Typer) -> None:
    """Add the commands to `farm`."""
    app.command()(watch)
    app.command()(cancel)
    app.command()(resume)


def watch(
    run: RunArgument,
    once: Annotated[bool, typer.Option("--once", help="Say how it stands and return.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="The latest snapshot as JSON on stdout.")] = False,
    price: Annotated[
        float | None,
        typer.Option("--price", envvar="FARM_PRICE", min=0, help="Price of a core hour, to show what the run costs."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Follow a run until it ends: rate, tiers, failures, the best so far, cost. Live on a terminal, else line by line.

    Ctrl-C stops the watching, not the run. Exit code 0 when it is complete (or with --once), 1 when it was cancelled
    or stopped, 3 when its driver failed or is gone.
    """
    from farm.observability.view import as_record, view

    folder = open_store(store).find(run)
    board = Board(folder)
    progress = board.progress()
    if progress is None:
        raise _nothing(folder)
    if json_output:
        sys.stdout.write(json.dumps(as_record(progress, driver_state(folder, progress), price)) + "\n")
        return
    console = Console() if sys.stdout.isatty() else Console(width=PIPED_COLUMNS)
    if once:
        console.print(view(progress, driver_state(folder, progress), price), highlight=False)
        return
    try:
        state = (
            _follow_live(board, progress, console, price)
            if console.is_terminal
            else _follow(board, progress, console, price)
        )
    except KeyboardInterrupt:
        print(f"not watching any more; run {folder.name} goes on (farm cancel {folder.name} stops it)", file=sys.stderr)
        return
    state = driver_state(folder.load()) if state == "over" else state
    print(_ending(folder.name, state, board.progress() or progress), file=sys.stderr)
    raise typer.Exit({"complete": 0, "cancelled": 1, "interrupted": 1}.get(state, 3))


def _snapshots(board: Board, progress: Progress) -> Iterator[tuple[Progress, str]]:
    """Each new snapshot with "running", until the driver ends ("over") or says nothing any more ("gone")."""
    shown, heard = -1, time.monotonic()
    while True:
        state = "over" if progress.over else "running"
        if state == "running" and (surely_dead(progress) or time.monotonic() - heard > SILENT_SECONDS):
            state = "gone"
        if progress.sequence != shown or state != "running":
            shown, heard = progress.sequence, time.monotonic()
            yield progress, state
        if state != "running":
            return
        time.sleep(POLL_SECONDS)
        progress = board.progress() or progress


def _follow_live(board: Board, first: Progress, console: Console, price: float | None) -> str:
    """The whole view, kept up to date in place; the last one stays."""
    from rich.live import Live

    from farm.observability.view import SPARKS_SHOWN, view

    rates: deque[float] = deque(maxlen=SPARKS_SHOWN)
    state = "running"
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for progress, state in _snapshots(board, first):
            rates.append(progress.items_per_second)
            shown = progress.state if state != "gone" else "gone"
            live.update(view(progress, shown, price, rates, console.height - 1), refresh=True)
    return state


def _follow(board: Board, first: Progress, _console: Console, price: float | None) -> str:
    """Print what changes, a line each."""
    said: set[tuple[str, str]] = set()
    done, state = -1, "running"
    for progress, now in _snapshots(board, first):
        state = now
        for event in progress.events:
            if (event.at, event.text) not in said:
                said.add((event.at, event.text))
                if event.kind not in ("run_started", "worker_started", "run_finished"):
                    print(f"{event.at}  {event.text}")
        if progress.items_done != done:
            done = progress.items_done
            print(_line(progress, price))
        sys.stdout.flush()
    return state


def _line(progress: Progress, price: float | None) -> str:
    from farm.observability.view import cost, duration, failures

    parts = [f"{progress.items_done} done, {progress.items_left} left", f"{progress.busy} of {progress.workers} busy"]
    if progress.items_per_second:
        parts.append(f"{progress.items_per_second:.2f}/s")
    if progress.seconds_left is not None and not progress.over:
        parts.append(f"about {duration(progress.seconds_left)} left")
    parts += [f"failures: {failures(progress)}", cost(progress, price)]
    return "  ".join(parts)


def _ending(name: str, state: str, progress: Progress) -> str:
    if state == "gone":
        return (
            f"run {name}: its driver (process {progress.pid} on {progress.host}) is gone; what it finished is kept. "
            f"To go on: farm resume {name}"
        )
    why = f": {progress.why}" if progress.why and state != "complete" else ""
    more = "" if state == "complete" else f". To go on: farm resume {name}"
    return f"run {name}: {state}{why}{more}"


def _nothing(folder: RunFolder) -> typer.Exit:
    print(f"run {folder.name}: {driver_state(folder)}; no driver has told of it", file=sys.stderr)
    return typer.Exit(0 if folder.manifest.complete else 3)


def cancel(
    run: RunArgument,
    seconds: Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for the driver to stop.")] = 60.0,
    store: StoreOption = None,
) -> None:
    """Ask a run's driver, wherever it is, to stop. What is finished is kept: `farm resume` goes on with it."""
    folder = open_store(store).find(run)
    board = Board(folder)
    deadline = time.monotonic() + seconds
    wish = f'{{"by": "{getpass.getuser()} on {socket.gethostname()} (process {os.getpid()})"}}'
    asked = False
    while True:
        progress = board.progress()
        state = driver_state(folder, progress) if progress is not None else driver_state(folder.load())
        if progress is None or state != "running":
            board.remove(CANCEL)
            said = "" if asked else "nothing to cancel: "
            last = progress or Progress(folder.name)
            print(f"{said}{_ending(folder.name, state, last)}", file=sys.stderr)
            return
        if board.read(CANCEL) is None:  # also when a driver that was just starting has swept it away
            board.write(CANCEL, wish.encode())
            asked = True
        if time.monotonic() >= deadline:
            print(
                f"run {folder.name}: asked, but its driver (process {progress.pid} on {progress.host}) has not stopped "
                f"in {seconds:g} s; it will when it looks, unless it is gone (farm watch {folder.name})",
                file=sys.stderr,
            )
            raise typer.Exit(3)
        time.sleep(min(POLL_SECONDS, max(0.05, deadline - time.monotonic())))


def resume(
    run: RunArgument,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Workers (default: one a core).")] = None,
    ray: Annotated[
        str | None,
        typer.Option("--ray", envvar="RAY_ADDRESS", metavar="[ADDRESS]", help="As in `farm submit`."),
    ] = None,
    timeline: TimelineOption = False,
    timeline_limit: TimelineLimitOption = None,
    timeline_variants: TimelineVariantsOption = None,
    timeline_sms: TimelineSmsOption = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try failed variants of the run again.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="In the background.")] = False,
    metrics: MetricsOption = None,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = None,
    store: StoreOption = None,
) -> None:
    """Go on with a run that was stopped, cancelled or killed, from any machine that sees the store.

    With --timeline, of a run that is complete too: what has an estimate and no timeline gets one.

    The sweep's files are taken from where they were submitted or, if they are not there, from the run's own copy.
    """
    from farm.commands.submission import run_and_report, run_detached
    from farm.inputs import recall

    observation = Observation(metrics, log_format, log_level)
    folder = open_store(store).find(run)
    sweeps, options = recall(folder, Board(folder))
    options.jobs, options.ray, options.retry = jobs, ray, retry
    wanted = timeline_options(timeline, timeline_limit, timeline_variants, timeline_sms)
    if timeline:
        options = replace(options, **wanted)
    if detach:
        run_detached(sweeps, options, store, [word for word in sys.argv[1:] if word not in ("--detach", "-d")])
    else:
        run_and_report(sweeps, options, store, observation)
