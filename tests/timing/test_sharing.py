"""Who fetches what neighbouring CTAs read: the one whose program asks first; the traffic as a whole stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interpreter.isa.pipes import MemoryKind
from interpreter.trace import EVENT, Trace
from timing.memory_path import MARK_SHIFT, entry_of
from timing.sharing import Neighbour, sharing_of
from timing.sm_rows import ACTION_BARRIER, ROW
from timing.traffic import Region

LOAD, USE, BARRIER, STORE = range(4)  # rows of a program: a load on scoreboard 0, what waits for it, and so on
PITCH = 64  # lines from one row of the image to the next


def rows() -> np.ndarray:
    found = np.zeros(4, ROW)
    found["write_barrier"], found["read_barrier"] = 7, 7
    found["memory"][LOAD], found["write_barrier"][LOAD] = int(MemoryKind.LOAD_GLOBAL), 0
    found["wait_mask"][USE] = 1
    found["action"][BARRIER] = ACTION_BARRIER
    found["memory"][STORE] = int(MemoryKind.STORE_GLOBAL)
    return found


def trace(warps: list[list[tuple[int, int, int]]], cta: int = 0) -> Trace:
    """A CTA whose warps execute (row, line, sector mask)."""
    events, lines, starts, line_starts = [], [], [0], [0]
    for warp in warps:
        for row, line, mask in warp:
            touches = row in (LOAD, STORE)
            events.append((row, 32, 1, int(touches)))
            lines += [line << 4 | mask] * touches
        starts.append(len(events))
        line_starts.append(len(lines))
    return Trace(
        [cta], len(warps), np.array(events, EVENT), np.array(starts, np.int64), np.array(lines, np.uint64),
        np.array(line_starts, np.int64),
    )  # fmt: skip


def tile(y: int, height: int = 4, mask: int = 15) -> Trace:
    """A CTA of one warp that reads `height` rows and one more below, waiting for each before it asks for the next."""
    steps = [(row, (y + k) * PITCH, mask) for k in range(height + 1) for row in (LOAD, USE)]
    return trace([[*steps, (STORE, 1 << 20, 15)]])


def image(read: float, unique: float, scatter: float = 0.0) -> Region:
    return Region(0, 1 << 19, read, unique, 0.0, 0.0, 0.0, scatter)


def test_rows_below_come_from_the_cta_that_begins_with_them() -> None:
    sharing = sharing_of(rows(), tile(4), [Neighbour(tile(8), True)], [image(5.0, 4.0)])
    assert sharing.marks.tolist() == [0, 0, 0, 0, 15]  # and its own first row is asked for again only later
    assert sharing.pays[0] == pytest.approx([1.0, 0.0])


def test_the_cta_before_has_read_all_that_is_shared_when_its_wave_is_over() -> None:
    sharing = sharing_of(rows(), tile(4), [Neighbour(tile(8), False)], [image(5.0, 4.0)])
    assert sharing.marks.tolist() == [15, 0, 0, 0, 0]


def test_only_the_sectors_that_a_neighbour_reads_are_marked() -> None:
    sharing = sharing_of(rows(), tile(4), [Neighbour(tile(8, mask=3), True)], [image(5.0, 4.5)])
    assert sharing.marks.tolist() == [0, 0, 0, 0, 3]


def test_reads_at_the_same_point_are_left_to_chance() -> None:
    """Two CTAs that read the same tile in the same order: half of the traffic each, as the region says."""
    sharing = sharing_of(rows(), tile(4), [Neighbour(tile(4), True)], [image(10.0, 5.0)])
    assert not sharing.marks.any()
    assert sharing.pays[0, 0] == pytest.approx(0.5)


def test_barriers_bring_the_warps_of_a_cta_level() -> None:
    """Warp 1 waits for nothing itself, but reads behind a barrier that warp 0 comes to late."""
    shared = 7 * PITCH
    first = [(LOAD, 1 * PITCH, 15), (USE, 0, 0), (BARRIER, 0, 0)]
    mine = trace([first, [(BARRIER, 0, 0), (LOAD, shared, 15)]])
    early = trace([[(LOAD, shared, 15), (BARRIER, 0, 0)], [(BARRIER, 0, 0)]])
    assert sharing_of(rows(), mine, [Neighbour(early, True)], [image(2.0, 1.0)]).marks.tolist() == [0, 15]
    level = trace([[(LOAD, 1 << 10, 15), (USE, 0, 0), (LOAD, shared, 15), (BARRIER, 0, 0)], [(BARRIER, 0, 0)]])
    assert not sharing_of(rows(), mine, [Neighbour(level, True)], [image(2.0, 1.0)]).marks.any()


def test_marks_go_to_the_ctas_that_read_alike_and_leave_lines_as_they_are() -> None:
    sharing = sharing_of(rows(), tile(4), [Neighbour(tile(8), True)], [image(5.0, 4.0)])
    a, b = tile(20), tile(40, height=2)
    both = Trace(
        [0, 1], 1, np.concatenate([a.events, b.events]),
        np.concatenate([a.warp_start, b.warp_start[1:] + len(a.events)]), np.concatenate([a.lines, b.lines]),
        np.concatenate([a.line_start, b.line_start[1:] + len(a.lines)]),
    )  # fmt: skip
    marked = sharing.marked(rows(), both)
    assert (marked.lines >> np.uint64(MARK_SHIFT)).tolist() == [0, 0, 0, 0, 15] + [0] * (len(both.lines) - 5)
    for before, after in zip(both.lines, marked.lines, strict=True):
        line, mask, _ = entry_of.py_func(after)
        assert (int(line), int(mask)) == (int(before) >> 4, int(before) & 15)
    assert not (both.lines >> np.uint64(MARK_SHIFT)).any()  # the traces are kept for other targets


def test_parts_drawn_at_random_are_not_shared_in_that_way() -> None:
    sharing = sharing_of(rows(), tile(4), [Neighbour(tile(8), True)], [image(5.0, 4.0, scatter=0.5)])
    assert sharing.pays[0].tolist() == [1.0, 1.0]


@settings(max_examples=60, deadline=None)
@given(
    mine=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 15)), min_size=1, max_size=12),
    other=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 15)), min_size=1, max_size=12),
    together=st.booleans(),
    share=st.floats(0.05, 1.0),
)
def test_the_traffic_stays_what_it_is(mine, other, together: bool, share: float) -> None:
    """Whatever two CTAs read: the sectors that DRAM is asked for are the share that the grid needs in all."""

    def of(reads: list[tuple[int, int]]) -> Trace:
        return trace([[step for line, mask in reads for step in ((LOAD, line, mask), (USE, 0, 0))]])

    sharing = sharing_of(rows(), of(mine), [Neighbour(of(other), together)], [image(1.0, share)])
    marked: dict[tuple[int, int], bool] = {}
    for (line, mask), mark in zip(mine, sharing.marks.tolist(), strict=True):
        for sector in range(4):
            if mask >> sector & 1:
                known = marked.setdefault((line, sector), bool(mark >> sector & 1))
                assert known == bool(mark >> sector & 1)  # a sector has one fate, however often it is read
        assert mark & ~mask == 0
    asked = sum(sharing.pays[0, 1] if given_ else sharing.pays[0, 0] for given_ in marked.values())
    assert asked == pytest.approx(share * len(marked))
