"""Reuse of loads: exact for what the statistics can tell exactly, and close to an LRU stack elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from interpreter.isa.pipes import MemoryKind
from interpreter.trace import EVENT, Trace
from timing.reuse import load_reuse
from timing.target import ROW_TIMING

ROWS = np.zeros(2, ROW_TIMING)
ROWS["memory"] = [MemoryKind.LOAD_GLOBAL, MemoryKind.STORE_GLOBAL]


def trace(*ctas: list[list[tuple[int, int, int]]]) -> Trace:
    """CTAs of warps of accesses (row, line, sector mask)."""
    warps = [warp for cta in ctas for warp in cta]
    accesses = [access for warp in warps for access in warp]
    events = np.zeros(len(accesses), EVENT)
    events["row"], events["lines"] = [a[0] for a in accesses], 1
    lines = np.array([line << 4 | mask for _, line, mask in accesses], np.uint64)
    starts = np.concatenate([[0], np.cumsum([len(warp) for warp in warps])])
    return Trace(list(range(len(ctas))), len(ctas[0]), events, starts, lines, starts)


def test_sectors_are_counted_once_each_and_stores_not_at_all() -> None:
    found = load_reuse(trace([[(0, 5, 0b0011), (1, 9, 0b1111), (0, 5, 0b0110)]]), ROWS)
    assert found.first == 3
    assert len(found.distances) == 1
    assert found.missed(1 << 20) == 3
    assert found.missed(0) == 4


def test_ctas_do_not_share_and_the_mean_is_reported() -> None:
    found = load_reuse(trace([[(0, 1, 1), (0, 1, 1)]], [[(0, 1, 1), (0, 2, 1)]]), ROWS)
    assert found.first == 1.5
    assert found.missed(0) == 2.0


def test_a_sweep_repeated_needs_room_for_all_of_it() -> None:
    lines = 200
    sweep = [(0, line, 0b1111) for line in range(lines)]
    found = load_reuse(trace([sweep * 4]), ROWS)
    assert found.first == 4 * lines
    assert found.missed(lines * 128 * 1.1) == 4 * lines
    assert found.missed(lines * 128 * 0.6) == 4 * 4 * lines


def test_warps_advance_together() -> None:
    """Each warp's own line comes again after the other's turn: two different lines in between, not one or a hundred."""
    first = [(0, 2 * k, 1) for k in range(100) for _ in range(2)]
    second = [(0, 2 * k + 1, 1) for k in range(100) for _ in range(2)]
    found = load_reuse(trace([first, second]), ROWS)
    assert found.first == 200
    assert found.distances.max() <= 3


def test_nothing_loaded() -> None:
    found = load_reuse(trace([[(1, 3, 1)]]), ROWS)
    assert (found.first, len(found.distances), found.missed(0)) == (0, 0, 0)


def test_close_to_an_lru_stack_on_random_accesses() -> None:
    rng = np.random.default_rng(7)
    chosen = np.minimum(rng.geometric(0.01, 4000), 900)
    found = load_reuse(trace([[(0, int(line), 1) for line in chosen]]), ROWS)
    for capacity in (32, 64, 128, 256):
        stack: list[int] = []
        missed = 0
        for line in chosen:
            if line in stack[-capacity:]:
                stack.remove(line)
            else:
                missed += 1
                if line in stack:
                    stack.remove(line)
            stack.append(line)
        assert found.missed(capacity * 128) == pytest.approx(missed, rel=0.1)
