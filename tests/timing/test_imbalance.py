"""Grids whose CTAs differ in work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timing.imbalance import UnevenWork, makespan, uneven_work


class Known:
    """CTAs of known work."""

    def __init__(self, work: np.ndarray) -> None:
        self.all = work
        self.asked = 0

    def work(self, ctas: Sequence[int]) -> np.ndarray:
        self.asked += len(ctas)
        return self.all[list(ctas)]


@settings(deadline=None)
@given(
    st.lists(st.floats(1, 1000), min_size=1, max_size=60), st.integers(1, 8), st.integers(1, 4), st.floats(0.1, 1.0)
)
def test_no_launch_is_faster_than_its_work_or_its_longest_cta(
    work: list[float], sms: int, resident: int, alone: float
) -> None:
    found = makespan(np.array(work), sms, resident, 1.0, alone)
    assert found >= sum(work) / sms * (1 - 1e-9)
    assert found >= max(work) / alone * (1 - 1e-9)
    assert found <= sum(work) / alone * (1 + 1e-9)


def test_equal_ctas_take_whole_rounds() -> None:
    work = np.full(40, 10.0)
    assert makespan(work, 4, 2, 1.0, 1.0) == pytest.approx(100)  # ten each, whatever shares an SM
    assert makespan(work[:33], 4, 1, 1.0, 1.0) == pytest.approx(90)  # one SM does nine
    assert makespan(work[:1], 4, 2, 1.0, 0.25) == pytest.approx(40)  # alone it cannot use the SM


def test_a_long_cta_at_the_end_is_waited_for() -> None:
    work = np.full(80, 10.0)
    work[-1] = 400.0
    late = makespan(work, 4, 2, 1.0, 1.0)
    early = makespan(work[::-1].copy(), 4, 2, 1.0, 1.0)
    assert late == pytest.approx(590)  # all else is done by then, and it takes as long as it takes
    assert early == pytest.approx(520)  # from the start, it shares its SM with the others


def test_equal_work_is_not_looked_at_further() -> None:
    known = Known(np.full(5000, 1000.0))
    assert uneven_work(5000, known, 1_500_000) is None
    assert known.asked < 20
    assert uneven_work(8, known, 1_500_000) is None  # all of a small grid is timed anyway


def test_uneven_work_is_sampled_all_over_the_grid() -> None:
    random = np.random.default_rng(3)
    work = np.concatenate([np.full(20_000, 100.0), random.uniform(1000, 9000, 20_000)])
    found = uneven_work(len(work), Known(work), 1_500_000)
    assert isinstance(found, UnevenWork)
    grid = found.grid()
    assert len(grid) == len(work)
    assert grid.sum() == pytest.approx(work.sum(), rel=0.05)
    assert grid[:19_000].max() == 100.0 and grid[21_000:].min() >= 1000
    chosen = found.representative(4, 1_500_000)
    assert len(set(chosen)) == len(chosen) and set(chosen) <= set(found.sampled.tolist())
    assert chosen != sorted(chosen)
