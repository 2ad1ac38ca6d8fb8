"""Who issued what when: a record an issued warp instruction, kept only when asked for.

The engine (`timing.sm_engine`) calls `note_throttle` and `note_issue` where it has a recorder. Without one it is
compiled without these calls, so that they cost nothing; with one it is compiled another time. What is recorded changes
no result. On a chip the recorders are emptied between stretches, in SM order, so that the records depend on no thread.

Records are kept up to a limit. What is beyond it is cut off at one cycle for all SMs: `Timeline.until`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from timing.instruction_fetch import SUB_CORES
from timing.jit import njit
from timing.sm_state import INFINITE, MAX_SLOTS
from timing.sm_steps import account
from timing.stalls import N_STALLS, Stall

DEFAULT_RECORDS = 4_000_000  # an estimate
MOST_RECORDS = 64_000_000  # that may be asked for: 1.5 GB while they are gathered
MOST_ROOM = 1 << 16  # records of one SM and stretch: far more than it can issue then, unless it lags far behind

# `cta` is the CTA's place in the order of its SM while the engine writes, its number in the grid afterwards.
RECORD = np.dtype(
    [
        ("cycle", np.int64),  # of the issue, SM cycles
        ("row", np.int32),  # of the program
        ("stalled", np.int32),  # cycles since the warp's issue before, or since it was launched, without these two
        ("cta", np.int32),
        ("warp", np.int16),  # within the CTA
        ("sub_core", np.uint8),
        ("reason", np.uint8),  # Stall that most of `stalled` belongs to; SELECTED when it did not wait
    ]
)

_DISPATCH, _SELECTED = int(Stall.DISPATCH_STALL), int(Stall.SELECTED)

# Indices into Recorder.counts
WRITTEN = 0  # records written
LOST_FROM = 1  # the first cycle with an issue for which there was no room


class Recorder(NamedTuple):
    """What one SM writes."""

    records: np.ndarray  # RECORD[room]
    counts: np.ndarray  # int64[2]
    waits: np.ndarray  # int64[MAX_SLOTS, N_STALLS], stalled cycles of each slot's warp since its last issue


def recorder(room: int) -> Recorder:
    """A recorder for one SM alone."""
    return Recorder(
        np.zeros(room, RECORD), np.array([0, INFINITE], np.int64), np.zeros((MAX_SLOTS, N_STALLS), np.int64)
    )  # fmt: skip


class ChipRecorders(NamedTuple):
    """What many SMs write, an SM a row. `room` is how many of the records an SM may write."""

    records: np.ndarray  # RECORD[SMs, most]
    room: np.ndarray  # int64[SMs]
    counts: np.ndarray  # int64[SMs, 2]
    waits: np.ndarray  # int64[SMs, MAX_SLOTS, N_STALLS]


@njit()
def note_throttle(timeline, slot, why, free, last_issue, wait_until, ready_at, now, reason):
    """A pipe or queue holds a slot's warp up from cycle `now` to `free`, for the reason `why`."""
    account(timeline.waits, slot, last_issue, wait_until, ready_at, now, reason)
    timeline.waits[slot, why] += free - now


@njit()
def note_issue(
    timeline, slot, row, sub_core, place, warps, ti, last_issue, wait_until, ready_at, now, reason,
):  # fmt: skip
    """A slot's warp, chosen at cycle `now`, issues a row at cycle `ti`. `place` is its CTA's in the SM's order, `warps`
    the slots of that CTA's warps."""
    waits = timeline.waits
    account(waits, slot, last_issue, wait_until, ready_at, now, reason)
    waits[slot, _DISPATCH] += ti - now
    stalled = 0
    longest = 0
    most = _SELECTED
    for why in range(waits.shape[1]):
        cycles = waits[slot, why]
        waits[slot, why] = 0
        stalled += cycles
        if cycles > longest:
            longest = cycles
            most = why
    n = timeline.counts[WRITTEN]
    if n >= timeline.records.shape[0]:
        timeline.counts[LOST_FROM] = min(timeline.counts[LOST_FROM], ti)
        return
    warp = 0
    while warps[warp] != slot:
        warp += 1
    record = timeline.records[n]
    record["cycle"] = ti
    record["row"] = row
    record["stalled"] = stalled
    record["cta"] = place
    record["warp"] = warp
    record["sub_core"] = sub_core
    record["reason"] = most
    timeline.counts[WRITTEN] = n + 1


@dataclass(slots=True)
class Timeline:
    """What was recorded of one estimate, warp after warp: in the order of SM, CTA, warp and cycle.

    `issued` counts all warp instructions that the `sms` recorded SMs issued. With `until` None all of them are here,
    otherwise those of the cycles before it.
    """

    records: np.ndarray  # RECORD
    sm: np.ndarray  # int16, of each record
    issued: int
    until: int | None
    sms: int


def in_order(records: np.ndarray, sm: np.ndarray, issued: int, until: int, sms: int) -> Timeline:
    """A timeline of the records before cycle `until` (INFINITE: all of them)."""
    if until < INFINITE:
        kept = records["cycle"] < until
        records, sm = records[kept], sm[kept]
    # A warp's own records come in their order. (In files one warp after the other takes less than half of the bytes
    # that one cycle after the other takes: a warp's rows follow each other as the program has them.)
    key = sm.astype(np.int64) << 48 | records["cta"].astype(np.int64) << 8 | records["warp"]
    order = np.argsort(key, kind="stable")
    return Timeline(records[order], sm[order], issued, until if until < INFINITE else None, sms)


def sm_timeline(found: Recorder, ctas: Sequence[int], sm: int, issued: int) -> Timeline:
    """The timeline of an SM simulated alone, which received `ctas` in this order."""
    records = found.records[: found.counts[WRITTEN]]
    records["cta"] = np.asarray(ctas, np.int32)[records["cta"]]
    return in_order(records, np.full(len(records), sm, np.int16), issued, int(found.counts[LOST_FROM]), 1)


class ChipTimeline:
    """Records of many SMs, at most `limit`; `chosen` names the SMs (None: all `sms`)."""

    def __init__(self, sms: int, limit: int, chosen: Sequence[int] | None = None) -> None:
        self.limit = limit
        self.wanted = np.zeros(sms, np.bool_)
        self.wanted[[sm for sm in range(sms) if chosen is None or sm in chosen]] = True
        self.on = limit > 0 and bool(self.wanted.any())
        self.until = INFINITE
        self.records = np.zeros((sms, 0), RECORD)
        self.room = np.zeros(sms, np.int64)
        self.count = np.zeros((sms, 2), np.int64)
        self.waits = np.zeros((sms, MAX_SLOTS if self.on else 0, N_STALLS), np.int64)
        self._kept: list[np.ndarray] = []
        self._sms: list[np.ndarray] = []
        self._total = 0

    def recorders(self) -> ChipRecorders | None:
        """For the engine; None when there is nothing to record any more."""
        return ChipRecorders(self.records, self.room, self.count, self.waits) if self.on else None

    def begin(self, earliest: int, until: int) -> None:
        """Make room for what the SMs can issue in the cycles from `earliest` to `until`."""
        needed = min(SUB_CORES * (max(until - earliest, 0) + 1), MOST_ROOM)
        if self.records.shape[1] < needed:
            self.records = np.zeros((len(self.room), needed), RECORD)
        self.room[self.wanted] = self.records.shape[1]
        self.count[:, WRITTEN], self.count[:, LOST_FROM] = 0, INFINITE

    def take(self, next_issue: int) -> None:
        """Keep what was recorded since `begin`; stop when that is enough. No SM issues before `next_issue` any more."""
        counts = self.count[:, WRITTEN]
        self._kept.append(np.concatenate([self.records[i, : counts[i]] for i in np.flatnonzero(self.wanted)]))
        self._sms.append(np.repeat(np.arange(len(counts), dtype=np.int16), counts))
        self._total += int(counts.sum())
        self.until = int(self.count[self.wanted, LOST_FROM].min())
        if self._total > self.limit:
            self._kept, self._sms = [np.concatenate(self._kept)], [np.concatenate(self._sms)]
            cycles = self._kept[0]["cycle"]
            first_beyond = int(np.partition(cycles, self.limit)[self.limit])
            self.until = min(self.until, first_beyond, next_issue)
        if self.until < INFINITE:
            self.on = False
            self.room[:] = 0
            self.records = self.records[:, :0]

    def result(self, cta: np.ndarray, issued: np.ndarray) -> Timeline:
        """`cta` is the number of each SM's CTAs in its order, `issued` the instructions of each SM."""
        none = np.zeros(0, RECORD), np.zeros(0, np.int16)
        records = np.concatenate([none[0], *self._kept])
        sm = np.concatenate([none[1], *self._sms])
        records["cta"] = cta[sm, records["cta"]]
        return in_order(records, sm, int(issued[self.wanted].sum()), self.until, int(self.wanted.sum()))


@njit()
def recorder_of(chip, i):
    """SM `i`'s recorder of a chip's, as views."""
    return Recorder(chip.records[i][: chip.room[i]], chip.counts[i], chip.waits[i])
