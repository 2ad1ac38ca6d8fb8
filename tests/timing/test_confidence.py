"""Coverage and confidence come from the sources in the target files."""

from __future__ import annotations

import numpy as np
import pytest

from timing.confidence import DECISIVE, confidence, coverage, decisive_shares
from timing.target import ROW_TIMING, SOURCES, TARGETS, load_target


def test_coverage_weighs_by_issued_instructions() -> None:
    rows = np.zeros(5, ROW_TIMING)
    rows["source"] = [SOURCES.index(kind) for kind in ("measured", "vendor", "literature", "derived", "guess")]
    shares = coverage(rows, np.array([50, 10, 10, 10, 20]))
    assert shares == {"measured": pytest.approx(0.5), "quoted": pytest.approx(0.3), "guessed": pytest.approx(0.2)}


def test_coverage_of_nothing() -> None:
    assert sum(coverage(np.zeros(3, ROW_TIMING), np.zeros(3)).values()) == 0


@pytest.mark.parametrize("name", TARGETS)
def test_decisive_numbers_exist_in_every_target(name: str) -> None:
    assert sum(decisive_shares(load_target(name)).values()) == pytest.approx(1)


def test_confidence_follows_the_sources() -> None:
    target = load_target("l40s")
    known = {path: target.values[path] for path in DECISIVE}
    assert confidence(target.with_values(known, "measured", "a test")) == "high"
    assert confidence(target.with_values(known, "literature", "a test")) == "medium"
    assert confidence(target.with_values(known, "guess")) == "low"
    measured = target.with_values(known, "measured", "a test")
    assert confidence(measured, {"guessed": 0.5}) == "low"
    assert confidence(measured, scouted=False) == "low"


def test_thor_is_an_extrapolation() -> None:
    assert confidence(load_target("thor")) == "low"
