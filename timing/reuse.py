"""How much of what a CTA loads from global memory its L1 can keep: reuse distances from a trace.

A trace has each warp's accesses in order but not how warps interleave; they are taken to advance together, one load
each in turn. The number of different lines between two accesses is estimated from the distribution of reuse times
(Eklov and Hagersten, StatStack, 2010), which needs one sort instead of an LRU stack.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from interpreter.isa.pipes import MemoryKind
from interpreter.trace import Trace

LINE_BYTES = 128
LINE_SHIFT, SECTOR_MASK = np.uint64(4), np.uint64(15)  # fields of a trace's line entry
GLOBAL_LOADS = (MemoryKind.LOAD_GLOBAL, MemoryKind.COPY_ASYNC)


@dataclass(frozen=True, slots=True)
class LoadReuse:
    """Sectors that a mean CTA loads: `first` are touched the first time, `distances` (ascending, one entry a sector
    loaded again, of all traced CTAs) are the different lines its CTA touched since.
    """

    first: float
    distances: np.ndarray
    ctas: int

    def missed(self, l1_bytes: float) -> float:
        """Sectors a CTA asks of L2 when its share of L1 is `l1_bytes`."""
        kept = np.searchsorted(self.distances, l1_bytes / LINE_BYTES, side="right")
        return self.first + (len(self.distances) - int(kept)) / self.ctas


def load_reuse(trace: Trace, rows: np.ndarray) -> LoadReuse:
    """Reuse of the global loads of the traced CTAs; `rows` is row_timing's array."""
    wanted = np.isin(rows["memory"], GLOBAL_LOADS)
    first = 0
    distances = [np.zeros(0, np.float32)]
    for cta in range(len(trace.ctas)):
        lines = _interleaved(trace, cta, wanted)
        if len(lines):
            touched, again = _distances(lines)
            first += touched
            distances.append(again)
    count = max(1, len(trace.ctas))
    return LoadReuse(first / count, np.sort(np.concatenate(distances)), count)


def lines_of(trace: Trace, cta: int, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Events of one traced CTA whose row is wanted (bool, one a row), and their line entries."""
    first, last = cta * trace.warps_per_cta, (cta + 1) * trace.warps_per_cta
    events = trace.events[trace.warp_start[first] : trace.warp_start[last]]
    lines = trace.lines[trace.line_start[first] : trace.line_start[last]]
    chosen = wanted[events["row"]]
    return events[chosen], lines[np.repeat(chosen, events["lines"])]


def _interleaved(trace: Trace, cta: int, wanted: np.ndarray) -> np.ndarray:
    """Line entries of the CTA's wanted events, its warps taking turns event by event."""
    begin, end = cta * trace.warps_per_cta, (cta + 1) * trace.warps_per_cta
    starts = trace.warp_start[begin : end + 1] - trace.warp_start[begin]
    events = trace.events[trace.warp_start[begin] : trace.warp_start[end]]
    chosen, lines = lines_of(trace, cta, wanted)
    before = np.concatenate([[0], np.cumsum(wanted[events["row"]])])
    per_warp = before[starts[1:]] - before[starts[:-1]]
    warp = np.repeat(np.arange(len(per_warp)), per_warp)
    turn = np.arange(len(chosen)) - np.repeat(before[starts[:-1]], per_warp)
    place = np.empty(len(chosen), np.int64)
    place[np.lexsort((warp, turn))] = np.arange(len(chosen))
    return lines[np.argsort(np.repeat(place, chosen["lines"]), kind="stable")]


def _distances(lines: np.ndarray) -> tuple[int, np.ndarray]:
    """First touches of sectors, and for every later touch the different lines since, from entries in order."""
    number, mask = lines >> LINE_SHIFT, (lines & SECTOR_MASK).astype(np.uint8)
    order = np.argsort(number, kind="stable")
    same = number[order[1:]] == number[order[:-1]]
    times = (order[1:] - order[:-1])[same]
    # share of accesses whose line comes again later than t: its sum over a window is the window's different lines
    seen = np.bincount(times, minlength=len(lines) + 1)
    different = np.concatenate([[0.0], np.cumsum(1.0 - np.cumsum(seen)[:-1] / len(lines))])
    first, again = 0, []
    for sector in range(4):
        touching = order[(mask[order] >> sector & 1).astype(bool)]
        repeat = number[touching[1:]] == number[touching[:-1]]
        first += len(touching) - int(repeat.sum())
        again.append(different[(touching[1:] - touching[:-1])[repeat]].astype(np.float32))
    return first, np.concatenate(again)
