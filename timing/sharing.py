"""Which CTA fetches what several CTAs read: of neighbours that run in step, the one whose program asks first.

A stencil's tile ends in rows that the CTA below begins with: by the time this CTA reads them they are in L2. One next
neighbour in each dimension of the grid is looked at. Who is first where both read the same at the same point of their
programs is left to chance; the traffic as a whole stays what `timing.traffic` finds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interpreter.isa.pipes import MemoryKind
from interpreter.trace import Trace
from timing.jit import njit_entry
from timing.memory_path import MARK_SHIFT
from timing.reuse import GLOBAL_LOADS, LINE_SHIFT, SECTOR_MASK
from timing.sm_rows import ACTION_BARRIER, ACTION_DEPBAR
from timing.traffic import Region

SECTORS = 4  # of a line
NO_SCOREBOARD = 7


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The CTA that comes next in one dimension of the grid, and whether both run at one time."""

    trace: Trace
    together: bool


@dataclass(frozen=True, slots=True)
class Sharing:
    """`marks` (uint8, one a line entry of a CTA's loads): sectors that another CTA has asked for before. `pays`
    (float64[regions, 2]): share of the other sectors, and of those marked, that DRAM is asked for."""

    marks: np.ndarray
    pays: np.ndarray

    def marked(self, rows: np.ndarray, trace: Trace) -> Trace:
        """The trace with the marks in the top bits of the line entries, for the CTAs that read as the one marked."""
        if not self.marks.any():
            return trace
        lines = trace.lines.copy()
        loads = np.flatnonzero(np.repeat(_are_loads(rows, trace), trace.events["lines"]))
        w = trace.warps_per_cta
        bounds = np.searchsorted(loads, trace.line_start[::w])
        for begin, end in itertools.pairwise(bounds):
            if end - begin == len(self.marks):
                lines[loads[begin:end]] |= self.marks.astype(np.uint64) << np.uint64(MARK_SHIFT)
        return Trace(trace.ctas, w, trace.events, trace.warp_start, lines, trace.line_start)


def sharing_of(
    rows: np.ndarray, cta: Trace | None, neighbours: Sequence[Neighbour], regions: Sequence[Region]
) -> Sharing:
    """From the trace of one CTA and those of its next neighbours in the grid.

    Neighbours before it are taken to be to it as it is to those after it. Without `cta` nothing is known but how much
    the CTAs share in all.
    """
    marks, pays = np.zeros(0, np.uint8), np.ones((len(regions), 2))
    if cta is None:
        for i, region in enumerate(regions):
            if region.scatter == 0.0 and region.read_bytes > 0.0:
                pays[i] = region.read_unique / region.read_bytes
        return Sharing(marks, pays)
    mine = _reads(rows, cta)
    given = np.zeros(len(mine.keys), np.bool_)
    for neighbour in neighbours:
        given |= _given(mine, _reads(rows, neighbour.trace), neighbour.together)
    line = mine.keys // SECTORS
    for i, region in enumerate(regions):
        inside = (line >= region.first_line) & (line <= region.last_line)
        if region.scatter == 0.0 and region.read_bytes > 0.0:
            needed = region.read_unique / region.read_bytes * inside.sum()
            for k, chosen in enumerate((inside & ~given, inside & given)):
                count = int(chosen.sum())
                pays[i, k] = min(1.0, needed / count) if count else 0.0
                needed -= pays[i, k] * count
    return Sharing(_marks_of(mine, given), pays)


@dataclass(frozen=True, slots=True)
class _Reads:
    """What one CTA reads from global memory."""

    line: np.ndarray  # int64, of each line entry of its loads, in the order of the trace
    mask: np.ndarray  # int64, sectors, likewise
    keys: np.ndarray  # int64, sorted: line * SECTORS + sector of all that it reads
    phase: np.ndarray  # int64, of each key: how many waits for loads lie before it is read first
    place: np.ndarray  # int64, of each key: entry * SECTORS + sector that reads it first in the trace


def _given(mine: _Reads, other: _Reads, together: bool) -> np.ndarray:
    """Which keys of `mine` a neighbour reads before: `other`, or the one that is to `mine` as `mine` is to `other`."""
    given = np.zeros(len(mine.keys), np.bool_)
    shared, place = _in_both(mine.keys, other.keys)
    if together:
        given[shared] = other.phase[place] < mine.phase[shared]
    if len(other.line) == len(mine.line):
        # the same places of the program: what `other` shares with `mine`, `mine` shares with the one before it
        if together:
            earlier = mine.phase[shared] < other.phase[place]
            place = place[earlier]
        entry, sector = other.place[place] // SECTORS, other.place[place] % SECTORS
        given[_in_both(mine.keys, np.unique(mine.line[entry] * SECTORS + sector))[0]] = True
    return given


def _in_both(keys: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices into `keys` and into `others` (both sorted, no value twice) of the values that are in both."""
    _, mine, theirs = np.intersect1d(keys, others, assume_unique=True, return_indices=True)
    return mine, theirs


def _marks_of(reads: _Reads, given: np.ndarray) -> np.ndarray:
    marks = np.zeros(len(reads.line), np.uint8)
    for sector in range(SECTORS):
        here = np.flatnonzero(reads.mask >> sector & 1)
        key = np.searchsorted(reads.keys, reads.line[here] * SECTORS + sector)
        marks[here] |= given[key].astype(np.uint8) << sector
    return marks


def _are_loads(rows: np.ndarray, trace: Trace) -> np.ndarray:
    return np.isin(rows["memory"], GLOBAL_LOADS)[trace.events["row"]]


def _reads(rows: np.ndarray, trace: Trace) -> _Reads:
    """The loads of a trace of one CTA."""
    loads = _are_loads(rows, trace)
    n = trace.events["lines"].astype(np.int64)
    entries = trace.lines[np.repeat(loads, n)]
    line, mask = (entries >> LINE_SHIFT).astype(np.int64), (entries & SECTOR_MASK).astype(np.int64)
    entry = np.repeat(np.arange(len(line)), np.bitwise_count(mask))
    sector = np.nonzero(mask[:, None] >> np.arange(SECTORS) & 1)[1]
    key = line[entry] * SECTORS + sector
    keys, first_at = np.unique(key, return_index=True)
    fetching = np.zeros(len(trace.events), np.bool_)  # loads of something that the CTA has not read before
    of_event = np.repeat(np.flatnonzero(loads), n[loads])
    fetching[of_event[entry[first_at]]] = True
    phase_of = _phases(
        trace.events["row"].astype(np.int64),
        trace.warp_start - trace.warp_start[0],
        fetching,
        rows["write_barrier"].astype(np.int64),
        rows["wait_mask"].astype(np.int64),
        rows["action"].astype(np.int64),
        rows["memory"] == int(MemoryKind.COPY_ASYNC),
    )[of_event]
    phase = np.full(len(keys), np.iinfo(np.int64).max)
    np.minimum.at(phase, np.searchsorted(keys, key), phase_of[entry])
    return _Reads(line, mask, keys, phase, (entry * SECTORS + sector)[first_at])


@njit_entry()
def _phases(
    row_of: np.ndarray,
    warp_start: np.ndarray,
    fetching: np.ndarray,
    write_barrier: np.ndarray,
    wait_mask: np.ndarray,
    action: np.ndarray,
    copies: np.ndarray,
) -> np.ndarray:
    """For each event of a CTA, how often its warp has waited for loads before; barriers bring warps level."""
    warps = warp_start.shape[0] - 1
    phase = np.zeros(row_of.shape[0], np.int64)
    at = warp_start[:-1].copy()
    now = np.zeros(warps, np.int64)
    pending = np.zeros(warps, np.int64)  # scoreboards of loads
    copying = np.zeros(warps, np.bool_)
    running = True
    while running:
        running = False
        level = 0
        for w in range(warps):
            while at[w] < warp_start[w + 1]:
                e = at[w]
                row = row_of[e]
                if wait_mask[row] & pending[w] != 0:
                    now[w] += 1
                    pending[w] &= ~wait_mask[row]
                if action[row] == ACTION_DEPBAR and copying[w]:
                    now[w] += 1
                    copying[w] = False
                phase[e] = now[w]
                if fetching[e]:
                    if copies[row]:
                        copying[w] = True
                    elif write_barrier[row] < NO_SCOREBOARD:
                        pending[w] |= 1 << write_barrier[row]
                at[w] += 1
                if action[row] == ACTION_BARRIER:
                    running = True
                    break
            level = max(level, now[w])
        if running:
            now[:] = level
    return phase
