"""How grids spread over SMs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from timing.launch_geometry import Geometry


@given(st.integers(1, 100_000), st.integers(1, 200), st.integers(1, 32))
def test_every_cta_reaches_exactly_one_sm(ctas: int, sms: int, resident: int) -> None:
    geometry = Geometry(ctas, sms, resident)
    if ctas > 3000:
        ctas = 3000
        geometry = Geometry(ctas, sms, resident)
    dealt = sorted(c for sm in range(sms) for c in geometry.ctas_of(sm, 0, ctas))
    assert dealt == list(range(ctas))


@given(st.integers(1, 100_000), st.integers(1, 200), st.integers(1, 32))
def test_the_most_loaded_sm_has_at_least_the_mean(ctas: int, sms: int, resident: int) -> None:
    geometry = Geometry(ctas, sms, resident)
    assert geometry.most >= ctas / sms
    assert geometry.most <= -(-ctas // sms) + resident
    assert 0 <= geometry.sampled_sm() < sms
    assert geometry.ctas_of(geometry.sampled_sm(), 0, 1)


def test_one_cta_over_a_full_wave_adds_one() -> None:
    assert Geometry(132 * 2, 132, 2).most == 2
    assert Geometry(132 * 2 + 1, 132, 2).most == 3
