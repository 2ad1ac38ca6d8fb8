"""`farm timeline`: the issued instructions of one variant, for Perfetto and other viewers of trace events."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from farm.commands.names import FamilyOption, StoreOption, TargetOption, family_of, open_run, target_of
from farm.commands.timeline_options import numbers_of
from interpreter.errors import FarmError


def timeline(
    variant: Annotated[str, typer.Argument(help="RUN:N, or the run's name followed by N.", metavar="RUN:N")],
    number: Annotated[int | None, typer.Argument(help="Number of the variant.", metavar="[N]")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write, e.g. trace.json (default: stdout).")
    ] = None,
    target: TargetOption = None,
    family: FamilyOption = None,
    tier: Annotated[
        str | None, typer.Option(help="sampled or cycle (default: the cycle tier's, if there is one).")
    ] = None,
    cycles: Annotated[
        str | None, typer.Option(metavar="FROM:TO", help="Only these SM cycles; either end may be left out.")
    ] = None,
    sm: Annotated[str | None, typer.Option("--sm", metavar="N,N-N", help="Only these SMs.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Records to write at most; said when there are more.")] = 250_000,
    store: StoreOption = None,
) -> None:
    """A recorded timeline (farm submit --timeline) as trace events: open the file in ui.perfetto.dev.

    A process is an SM, a thread the place of a warp on one of its sub-cores. A microsecond there is one SM cycle.
    """
    from farm.analysis.variant import required_name
    from farm.interchange.trace_events import Window, choose, write_trace
    from farm.output import whole_or_not

    if tier is not None and tier not in ("sampled", "cycle"):
        raise FarmError(f"--tier {tier}: one of sampled, cycle")
    window = Window(*_cycles(cycles), numbers_of("--sm", sm) if sm is not None else (), limit)
    run, found = required_name(variant, number)
    database = open_run(run, store)
    chosen = choose(database, family_of(database, family), found, target_of(database, target), tier)
    with whole_or_not(output) as sink:
        written = write_trace(database, chosen, window, sink)
    place = f": {output}" if output is not None else ""
    print(
        f"{written.records:,} records of {chosen.label}, cycles {written.first} to {written.last}{place}",
        file=sys.stderr,
    )
    if written.more:
        print(f"from cycle {written.last} on there is more: --limit, --cycles {written.last}:, --sm", file=sys.stderr)
    elif chosen.until_cycle is not None and (window.until is None or window.until > chosen.until_cycle):
        print(
            f"the recording ends before cycle {chosen.until_cycle}, at its limit (farm submit --timeline-limit)",
            file=sys.stderr,
        )


def _cycles(text: str | None) -> tuple[int, int | None]:
    if text is None:
        return 0, None
    first, colon, last = text.partition(":")
    try:
        found = int(first or 0), int(last) if last else None
    except ValueError:
        found = -1, None
    if not colon or found[0] < 0 or (found[1] is not None and found[1] <= found[0]):
        raise FarmError(f"--cycles {text}: FROM:TO, SM cycles, as in 1000:5000 or 1000:")
    return found
