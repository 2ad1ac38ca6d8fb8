"""`farm watch`, `cancel`, `resume`: a run that another shell or machine drives, by its name and through the store."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import time
from typing import Annotated

import typer

from farm.board import CANCEL, Board
from farm.commands.observation import LogFormatOption, LogLevelOption, MetricsOption, Observation
from farm.events import Progress
from farm.liveness import SILENT_SECONDS, driver_state, surely_dead
from farm.store import open_store
from jobs.run_folder import RunFolder

POLL_SECONDS = 0.5

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
    store: StoreOption = None,
) -> None:
    """Follow a run until it ends: rate, tiers, failures, the best so far.

    Exit code 0 when it is complete (or with --once), 1 when it was cancelled or stopped, 3 when its driver failed or is
    gone.
    """
    folder = open_store(store).find(run)
    board = Board(folder)
    progress = board.progress()
    if json_output:
        if progress is None:
            raise _nothing(folder)
        sys.stdout.write(progress.to_json() + "\n")
        return
    if progress is None:
        raise _nothing(folder)
    if once:
        _print(progress, driver_state(folder, progress))
        return
    state = _follow(board, progress)
    state = driver_state(folder.load()) if state == "over" else state
    print(_ending(folder.name, state, board.progress() or progress), file=sys.stderr)
    raise typer.Exit({"complete": 0, "cancelled": 1, "interrupted": 1}.get(state, 3))


def _follow(board: Board, progress: Progress) -> str:
    """Print what changes until the driver ends ("over") or says nothing any more ("gone")."""
    shown, heard, seen = -1, time.monotonic(), 0
    while True:
        if progress.sequence != shown:
            shown, heard = progress.sequence, time.monotonic()
            new = [event for event in progress.events if (event.at, event.text) not in _SAID]
            for event in new:
                _SAID.add((event.at, event.text))
                if event.kind not in ("run_started", "worker_started", "run_finished"):
                    print(f"{event.at}  {event.text}")
            if progress.items_done != seen or shown == 0:
                seen = progress.items_done
                print(_line(progress))
            sys.stdout.flush()
        if progress.over:
            return "over"
        if surely_dead(progress) or time.monotonic() - heard > SILENT_SECONDS:
            return "gone"
        time.sleep(POLL_SECONDS)
        progress = board.progress() or progress


_SAID: set[tuple[str, str]] = set()


def _print(progress: Progress, state: str) -> None:
    print(f"{progress.run}: {state}{', ' + progress.why if progress.why else ''}")
    print(_line(progress))
    for tier in progress.tiers:
        about = "" if tier.decided else "about "
        failed = f", {tier.failed} failed" if tier.failed else ""
        print(f"  {tier.family} {tier.tier}: {tier.done} of {about}{tier.planned} (variant, target) pairs{failed}")
    for best in progress.best:
        values = " ".join(f"{name}={value}" for name, value in best.parameters.items())
        print(f"  best on {best.target}: {best.family}:{best.variant} {values}, {best.time_us:.4g} us ({best.tier})")
    for event in progress.events[-5:]:
        print(f"  {event.at} {event.text}")


def _line(progress: Progress) -> str:
    parts = [f"{progress.items_done} done, {progress.items_left} left", f"{progress.busy} of {progress.workers} busy"]
    if progress.items_per_second:
        parts.append(f"{progress.items_per_second:.2f}/s")
    if progress.seconds_left and not progress.over:
        parts.append(f"about {progress.seconds_left:.0f} s left")
    failed = ", ".join(f"{count} {name}" for name, count in sorted(progress.failures.items()))
    if failed:
        parts.append(f"failed: {failed}")
    parts.append(f"{progress.worker_seconds:.0f} worker seconds")
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
    retry: Annotated[bool, typer.Option("--retry", help="Try failed variants of the run again.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="In the background.")] = False,
    metrics: MetricsOption = None,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = None,
    store: StoreOption = None,
) -> None:
    """Go on with a run that was stopped, cancelled or killed, from any machine that sees the store.

    The sweep's files are taken from where they were submitted or, if they are not there, from the run's own copy.
    """
    from farm.commands.submission import run_and_report, run_detached
    from farm.inputs import recall

    observation = Observation(metrics, log_format, log_level)
    folder = open_store(store).find(run)
    sweeps, options = recall(folder, Board(folder))
    options.jobs, options.ray, options.retry = jobs, ray, retry
    if detach:
        run_detached(sweeps, options, store, [word for word in sys.argv[1:] if word not in ("--detach", "-d")])
    else:
        run_and_report(sweeps, options, store, observation)
