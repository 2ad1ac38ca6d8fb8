"""Timelines in the Trace Event Format, which Perfetto, Chrome and others read.

Of its events two kinds are written: complete ones (`ph` "X", with `ts` and `dur`) for issues and the waits before them,
and metadata (`ph` "M") with the names of processes and threads. A process is an SM, a thread the place of a warp on its
sub-core: places are used again, as on the hardware, so that a thread shows warp after warp. Numbers of both begin
above 0, which Perfetto takes for the idle process.

The format counts microseconds and viewers keep nanoseconds, of which a cycle is about a half: so a cycle is written
as a microsecond.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from farm.database import RunDatabase
from interpreter.errors import FarmError

FIRST_PID = 1  # SM 0's
CORE = 1000  # between the numbers of two sub-cores' threads; those of the first begin here


@dataclass(frozen=True, slots=True)
class Window:
    """What of a timeline is wanted: cycles from `first` to before `until`, some SMs (none: all), `limit` records."""

    first: int = 0
    until: int | None = None
    sms: tuple[int, ...] = ()
    limit: int = 250_000


@dataclass(frozen=True, slots=True)
class Chosen:
    """One recorded timeline. `until_cycle`: where the recording ends, if early."""

    run: str
    family: str
    number: int
    target: str
    tier: str
    until_cycle: int | None

    @property
    def label(self) -> str:
        return f"{self.run}:{self.number} on {self.target} ({self.tier} tier)"

    @property
    def key(self) -> list[Any]:
        return [self.family, self.number, self.target, self.tier]


@dataclass(frozen=True, slots=True)
class Written:
    """What a file has: records issued from cycle `first` to before `last`; `more` says that the limit ended it."""

    records: int
    first: int
    last: int
    more: bool


def choose(database: RunDatabase, family: str, number: int, target: str | None, tier: str | None) -> Chosen:
    """The variant's timeline, of the cycle tier if there is one. Raises FarmError when there is none, or several."""
    run = database.folder.manifest.run
    rows = [
        row
        for row in database.rows(
            "SELECT target, tier, until_cycle FROM recordings WHERE family = ? AND variant = ? "
            "ORDER BY tier <> 'cycle', target",
            [family, number],
        )
        if target in (None, row["target"]) and tier in (None, row["tier"])
    ]
    if not rows:
        raise FarmError(_how_to_record(database, family, number, target, tier))
    found = [row for row in rows if row["tier"] == rows[0]["tier"]]
    if len(found) > 1:
        names = ", ".join(row["target"] for row in found)
        raise FarmError(f"variant {run}:{number} has timelines of several targets; name one with --target ({names})")
    return Chosen(run, family, number, found[0]["target"], found[0]["tier"], found[0]["until_cycle"])


def _how_to_record(database: RunDatabase, family: str, number: int, target: str | None, tier: str | None) -> str:
    run = database.folder.manifest.run
    tiers = database.rows(
        "SELECT DISTINCT tier FROM estimates WHERE family = ? AND variant = ? AND status = 'ok'", [family, number]
    )
    if not tiers:
        return f"run {run}: no variant {number} of {family} with an estimate"
    if tier is not None and all(row["tier"] != tier for row in tiers):
        return f"variant {run}:{number} has no estimate of the {tier} tier"
    of = f" on {target}" if target else ""
    of += f" in the {tier} tier" if tier else ""
    return (
        f"variant {run}:{number} has no timeline{of}. To record that of the run's last tier: "
        f"farm resume {run} --timeline --timeline-variants {number}"
    )


def write_trace(database: RunDatabase, chosen: Chosen, window: Window, sink: IO[bytes]) -> Written:
    """Write the window of a timeline as one JSON object, some thousand records at a time."""
    where = "family = ? AND variant = ? AND target = ? AND tier = ? AND cycle >= ?"
    arguments = [*chosen.key, window.first]
    if window.sms:
        where += f" AND sm IN ({', '.join(map(str, window.sms))})"
    until, more = window.until, False
    beyond = database.rows(
        f"SELECT cycle FROM timeline WHERE {where} AND cycle < ? ORDER BY cycle LIMIT 1 OFFSET {window.limit}",
        [*arguments, _NEVER if until is None else until],
    )
    if beyond:
        until, more = max(beyond[0]["cycle"], window.first + 1), True
    (counted,) = database.rows(
        f"SELECT count(*) AS records, coalesce(max(cycle) + 1, {window.first}) AS last FROM timeline "
        f"WHERE {where} AND cycle < ?",
        [*arguments, _NEVER if until is None else until],
    )
    end = counted["last"] if until is None else until
    # waits that reach into the window belong to it, though the issue after them does not
    where, arguments = f"{where} AND cycle - stalled < ?", [*arguments, end]
    places = _places(database, where, arguments)
    sink.write(_head(chosen, _clock(database, chosen)))
    first = True
    for line in _names(places):
        sink.write((b"\n" if first else b",\n") + line.encode())
        first = False
    sass = _lines(database, chosen)
    reader = database.reader(
        "SELECT sm, sub_core, cta, warp, cycle, pc, stalled, reason::VARCHAR AS reason "
        f"FROM timeline WHERE {where} ORDER BY sm, cta, warp, cycle",
        arguments,
    )
    for batch in reader:
        lines = list(_events(batch.to_pydict(), places, sass, window.first, end))
        if lines:
            sink.write((b"\n" if first else b",\n") + ",\n".join(lines).encode())
            first = False
    sink.write(b"\n]}\n")
    return Written(counted["records"], window.first, end, more)


_NEVER = (1 << 63) - 1
_Warp = tuple[int, int, int]  # SM, CTA, warp


def _places(database: RunDatabase, where: str, arguments: list[Any]) -> dict[_Warp, int]:
    """The thread of each warp: a place of its sub-core that is free while the warp runs."""
    rows = database.rows(
        "SELECT sm, sub_core, cta, warp, min(cycle - stalled) AS begins, max(cycle) AS ends "
        f"FROM timeline WHERE {where} GROUP BY ALL ORDER BY sm, sub_core, begins, cta, warp",
        arguments,
    )
    found: dict[_Warp, int] = {}
    running: dict[tuple[int, int], list[tuple[int, int]]] = {}  # SM, sub-core -> (end, place)
    free: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        where_it_is = row["sm"], row["sub_core"]
        busy, idle = running.setdefault(where_it_is, []), free.setdefault(where_it_is, [])
        while busy and busy[0][0] < row["begins"]:
            heapq.heappush(idle, heapq.heappop(busy)[1])
        place = heapq.heappop(idle) if idle else len(busy)
        heapq.heappush(busy, (row["ends"], place))
        found[row["sm"], row["cta"], row["warp"]] = (row["sub_core"] + 1) * CORE + place
    return found


def _head(chosen: Chosen, clock_mhz: float | None) -> bytes:
    other = {
        "what": f"{chosen.family} variant {chosen.number} on {chosen.target}, simulated ({chosen.tier} tier of farm)",
        "unit": "1 us is 1 SM cycle",
        "clock_mhz": clock_mhz,
    }
    return f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(other)}, "traceEvents": ['.encode()


def _clock(database: RunDatabase, chosen: Chosen) -> float | None:
    rows = database.rows(
        "SELECT clock_mhz FROM estimates WHERE family = ? AND variant = ? AND target = ? AND tier = ?", chosen.key
    )
    return rows[0]["clock_mhz"] if rows else None


def _lines(database: RunDatabase, chosen: Chosen) -> dict[int, tuple[str, str]]:
    """Of each PC its opcode and its address with the SASS text, as JSON."""
    rows = database.rows(
        "SELECT pc, sass FROM instructions WHERE family = ? AND variant = ? AND target = ? AND tier = ?", chosen.key
    )
    return {
        row["pc"]: (json.dumps(_opcode(row["sass"])), json.dumps(f"{row['pc']:#06x} {row['sass']}")) for row in rows
    }


def _opcode(sass: str) -> str:
    words = sass.split()
    return next((word for word in words if not word.startswith("@")), sass).rstrip(";")


def _names(places: dict[_Warp, int]) -> Iterator[str]:
    for sm in sorted({sm for sm, _, _ in places}):
        yield _metadata("process_name", sm, CORE, {"name": f"SM {sm}"})
        yield _metadata("process_sort_index", sm, CORE, {"sort_index": sm})
    for sm, thread in sorted({(warp[0], thread) for warp, thread in places.items()}):
        core, place = divmod(thread, CORE)
        yield _metadata("thread_name", sm, thread, {"name": f"sub-core {core - 1} warp {place}"})
        yield _metadata("thread_sort_index", sm, thread, {"sort_index": thread})


def _metadata(name: str, sm: int, tid: int, arguments: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": sm + FIRST_PID, "tid": tid, "args": arguments})


def _events(
    rows: dict[str, list[Any]], places: dict[_Warp, int], sass: dict[int, tuple[str, str]], first: int, end: int
) -> Iterator[str]:
    for sm, cta, warp, cycle, pc, stalled, reason in zip(
        *(rows[name] for name in ("sm", "cta", "warp", "cycle", "pc", "stalled", "reason")), strict=True
    ):
        opcode, text = sass.get(pc, ('"?"', f'"{pc:#06x}"'))
        where = f'"pid": {sm + FIRST_PID}, "tid": {places[sm, cta, warp]}'
        whose = f'"cta": {cta}, "warp": {warp}, "line": {text}'
        begins, ends = max(cycle - stalled, first), min(cycle, end)
        if ends > begins:
            yield (
                f'{{"ph": "X", "cat": "stall", "name": "{reason}", "ts": {begins}, "dur": {ends - begins}, {where}, '
                f'"args": {{{whose}}}}}'
            )
        if cycle < end:
            yield (
                f'{{"ph": "X", "cat": "issue", "name": {opcode}, "ts": {cycle}, "dur": 1, {where}, '
                f'"args": {{{whose}}}}}'
            )
