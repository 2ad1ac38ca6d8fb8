"""A run as it stands, for a terminal: how far, how fast, the funnel, the best so far, failures, cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from farm.events import Best, Progress, TierProgress
from farm.render import microseconds

SPARKS = "▁▂▃▄▅▆▇█"
SPARKS_SHOWN = 30  # of the latest rates
EVENTS_SHOWN = 5
QUIET_EVENTS = ("run_started", "worker_started", "run_finished")
_STYLES = {"running": "green", "starting": "yellow", "complete": "bold green", "cancelled": "yellow"}


def core_hours(progress: Progress) -> float:
    """What the run has taken so far: a core each while workers were at work, in hours."""
    return progress.worker_seconds / 3600


def as_record(progress: Progress, state: str, price: float | None) -> dict[str, Any]:
    """The snapshot with what follows from it: the driver's state, core hours, and their cost at `price` an hour."""
    hours = core_hours(progress)
    cost = None if price is None else round(hours * price, 6)
    return {**asdict(progress), "driver": state, "core_hours": round(hours, 6), "price": price, "cost": cost}


def view(
    progress: Progress, state: str, price: float | None = None, rates: Sequence[float] = (), rows: int = 40
) -> RenderableType:
    """Everything about the run, in about `rows` lines. `rates` are items a second of late, the latest last."""
    head: list[RenderableType] = [_title(progress, state), _bar(progress), Text("  ".join(_pace(progress, rates)))]
    tail: list[RenderableType] = [
        Text(),
        Text("failures  " + failures(progress)),
        Text("cost      " + cost(progress, price)),
    ]
    for label, share in progress.under_way[:3]:
        tail.append(Text(f"under way {label} {share:.0%}"))
    events = [event for event in progress.events if event.kind not in QUIET_EVENTS][-EVENTS_SHOWN:]
    if events:
        tail.append(Text())
        for event in events:
            tail.append(Text(f"{event.at[11:19]}  {event.text}", style="dim", overflow="ellipsis", no_wrap=True))
    # each table has an empty line, its header and perhaps "and n more" besides; the cost may take a second line
    room = max(2, (rows - len(head) - len(tail) - 1 - 2 * 3) // 2)
    tables: list[RenderableType] = []
    if progress.tiers:
        tables += [Text(), _funnel(progress.tiers, room)]
    if progress.best:
        tables += [Text(), _best(progress.best, room)]
    return Group(*head, *tables, *tail)


def failures(progress: Progress) -> str:
    """Failed items by class, and what became of workers, in words."""
    found = [f"{count} {name}" for name, count in sorted(progress.failures.items())] or ["none"]
    for count, what in ((progress.retried, "tried again"), (progress.set_aside, "set aside")):
        if count:
            found.append(f"{count} {what}")
    if progress.workers_lost:
        found.append(f"{progress.workers_lost} worker{'s' if progress.workers_lost > 1 else ''} lost")
    return ", ".join(found)


def cost(progress: Progress, price: float | None) -> str:
    """Core time so far, and what it costs at `price` a core hour."""
    text = f"{progress.worker_seconds:.0f} s of workers, {progress.cpu_seconds:.0f} s of CPU"
    if price is not None:
        hours = core_hours(progress)
        text += f"; {hours:.4g} core hours at {price:g}: {hours * price:.4g}"
        if progress.items_left and progress.items_done and not progress.over:
            whole = hours * (progress.items_done + progress.items_left) / progress.items_done
            text += f", about {whole * price:.4g} in the end"
    return text


def duration(seconds: float) -> str:
    """Seconds for people: 42 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def sparkline(values: Sequence[float]) -> str:
    """The values as bars of text, from zero to the largest."""
    shown = list(values)[-SPARKS_SHOWN:]
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    return "".join(SPARKS[min(len(SPARKS) - 1, int(value / top * len(SPARKS)))] for value in shown)


def _title(progress: Progress, state: str) -> Text:
    text = Text(f"{progress.run}  ", style="bold")
    text.append(state, style=_STYLES.get(state, "red"))
    why = f": {progress.why}" if progress.why and state != "complete" else ""
    where = f"{progress.executor or 'driver'} on {progress.host}"
    if progress.nodes:
        where = f"{progress.executor}, {len(progress.nodes)} node{'s' if len(progress.nodes) > 1 else ''}"
    return text.append(f"{why}  {where}, {duration(progress.elapsed_seconds)}", style="not bold")


def _bar(progress: Progress) -> RenderableType:
    total = progress.items_done + progress.items_left
    about = "" if all(tier.decided for tier in progress.tiers) else "about "
    grid = Table.grid(padding=(0, 1))
    grid.add_row(
        ProgressBar(total=max(1, total), completed=progress.items_done if total else progress.over, width=40),
        Text(f"{progress.items_done} of {about}{total} work items"),
    )
    return grid


def _pace(progress: Progress, rates: Sequence[float]) -> list[str]:
    parts = [f"{progress.busy} of {progress.workers} workers busy"]
    if progress.items_per_second:
        rate = progress.items_per_second
        parts.append(f"{rate:.2f} items/s" if rate >= 1 else f"{60 * rate:.1f} items/min")
    if progress.seconds_left is not None and not progress.over:
        parts.append(f"about {duration(progress.seconds_left)} left")
    sparks = sparkline(rates)
    if len(sparks) > 1:
        parts.append(sparks)
    return parts


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, side in columns:
        table.add_column(name, justify="right" if side == "right" else "left", no_wrap=True)
    return table


def _funnel(tiers: Sequence[TierProgress], room: int) -> Table:
    table = _table(
        ("funnel", ""), ("tier", ""), ("done", "right"), ("of", "right"), ("failed", "right"), ("from before", "right")
    )
    for tier in tiers[:room]:
        table.add_row(
            tier.family,
            tier.tier,
            str(tier.done),
            f"{'' if tier.decided else '~'}{tier.planned}",
            str(tier.failed) if tier.failed else "",
            str(tier.resumed) if tier.resumed else "",
        )
    if len(tiers) > room:
        table.add_row(f"and {len(tiers) - room} more", *[""] * 5)
    return table


def _best(best: Sequence[Best], room: int) -> Table:
    table = _table(("best so far, simulated", ""), ("target", ""), ("us", "right"), ("tier", ""), ("parameters", ""))
    for row in best[:room]:
        values = " ".join(f"{name}={value}" for name, value in row.parameters.items())
        table.add_row(f"{row.family}:{row.variant}", row.target, microseconds(row.time_us), row.tier, values)
    if len(best) > room:
        table.add_row(f"and {len(best) - room} more", *[""] * 4)
    return table
