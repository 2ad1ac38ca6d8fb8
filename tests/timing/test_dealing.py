"""Dealing CTAs to SMs, against what an H200 did (recorded by the microbenchmark `waves`)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timing.calibrate import build
from timing.dealing import deal

RESULTS = Path(build.__file__).parent / "results" / "h200.json"
SMS = 132


def measured(kind: str, threads: int) -> list[tuple[int, int, float]]:
    """(resident, CTAs of the grid, most CTAs on one SM) of each recorded launch."""
    return [
        (row["params"]["resident"], row["params"]["ctas"], row["value"])
        for row in json.loads(RESULTS.read_text())["rows"]
        if row["group"] == "waves" and row["name"] == "most_ctas"
        and row["params"]["kind"] == kind and row["params"]["threads"] == threads
    ]  # fmt: skip


def test_ctas_that_end_one_after_the_other_are_dealt_evenly() -> None:
    """FMAs without end, two warps of each CTA on a sub-core: the oldest CTA gets all it can use."""
    cases = measured("issue", 256)
    assert len(cases) == 50
    for resident, ctas, most in cases:
        assert deal(ctas, SMS, resident, np.arange(1.0, 8.0 * resident), 0.003).most == most, (resident, ctas)


def test_ctas_that_end_together_are_replaced_together() -> None:
    """A dependent chain, one warp of each CTA on a sub-core: they do not compete."""
    cases = [case for case in measured("latency", 128) if case[0] == 2]
    assert len(cases) == 10
    for resident, ctas, most in cases:
        ends = np.repeat(np.arange(1.0, 9.0), resident)
        assert deal(ctas, SMS, resident, ends, 0.003).most == most, ctas


def test_sms_out_of_step_take_whole_fillings() -> None:
    """Loads from L2: the SMs differ by more than the CTAs of one SM do."""
    cases = [case for case in measured("l2", 128) if case[0] in (2, 3, 4)]
    close = 0
    for resident, ctas, most in cases:
        ends = np.repeat(np.arange(1.0, 9.0), resident) + np.tile(np.linspace(0, 0.01, resident), 8)
        close += abs(deal(ctas, SMS, resident, ends, 0.025).most - most) <= 1
    assert close == len(cases)


@given(
    st.integers(1, 4000), st.integers(1, 40), st.integers(1, 8), st.floats(0, 0.05),
    st.lists(st.floats(1, 1000), min_size=1, max_size=40),
)  # fmt: skip
def test_every_cta_is_dealt_once(ctas: int, sms: int, resident: int, jitter: float, gaps: list[float]) -> None:
    dealt = deal(ctas, sms, resident, np.cumsum(gaps), jitter)
    assert dealt.least * sms <= ctas <= dealt.most * sms
    assert (dealt.most == dealt.least) == (dealt.above_least == 0)
    assert ctas <= dealt.least * (sms - dealt.above_least) + dealt.most * dealt.above_least
    assert abs(dealt.pace - 1) <= jitter + 1e-12
    if ctas <= sms * resident:
        assert dealt.most == -(-ctas // sms)


def test_one_cta_over_a_full_wave_waits_for_a_place() -> None:
    assert deal(2 * SMS, SMS, 2, np.array([1.0, 1.0]), 0.0).most == 2
    assert deal(2 * SMS + 1, SMS, 2, np.array([1.0, 2.0]), 0.0).most == 3


@pytest.mark.parametrize("resident", [1, 4])
def test_later_ctas_go_on_at_the_mean_rate(resident: int) -> None:
    assert deal(SMS * resident * 5, SMS, resident, np.array([10.0, 20.0]), 0.0).most == 5 * resident


def test_a_grid_of_one_wave_lasts_as_long_as_its_slowest_sm() -> None:
    """The more SMs, the nearer to the slowest there can be; one has nobody to be slower than."""
    paces = [deal(ctas, SMS, 2, np.array([1.0]), 0.02).pace for ctas in (1, 2, 8, SMS, 2 * SMS)]
    assert paces[0] == 1.0
    assert paces == sorted(paces)
    assert paces[-2] == paces[-1] == pytest.approx(1.02, abs=0.001)
