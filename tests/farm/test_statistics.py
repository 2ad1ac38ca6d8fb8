"""Kendall's tau against its definition, pair by pair."""

from __future__ import annotations

import math

import numpy as np
import pytest

from farm.statistics import TIE, kendall_tau


def by_pairs(scores: np.ndarray, measured: np.ndarray, noise: np.ndarray) -> float | None:
    total = times = places = 0
    for a in range(len(scores)):
        for b in range(a):
            overlap = abs(measured[a] - measured[b]) <= noise[a] + noise[b]
            same = abs(scores[a] - scores[b]) <= TIE * max(abs(scores[a]), abs(scores[b]))
            sign_time = 0 if overlap else np.sign(measured[a] - measured[b])
            sign_score = 0 if same else np.sign(scores[a] - scores[b])
            total += sign_time * sign_score
            times += sign_time != 0
            places += sign_score != 0
    if times == 0:
        return None
    return 0.0 if places == 0 else float(total / math.sqrt(times * places))


@pytest.mark.parametrize("seed", range(12))
def test_as_defined(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    measured = rng.integers(1, 20, n) * 1.0 + rng.uniform(0, 0.3, n)
    scores = measured + rng.normal(0, 3, n) if seed % 2 else rng.integers(-3, 4, n) * 0.1
    noise = rng.uniform(0, 0.8, n)
    expected, found = by_pairs(scores, measured, noise), kendall_tau(scores, measured, noise)
    assert found == (None if expected is None else pytest.approx(expected, abs=1e-12))


def test_ends() -> None:
    times = [1.0, 2.0, 3.0, 4.0]
    none = [0.0] * 4
    assert kendall_tau(times, times, none) == 1.0
    assert kendall_tau([-t for t in times], times, none) == -1.0
    assert kendall_tau([5.0] * 4, times, none) == 0.0
    assert kendall_tau(times, times, [9.0] * 4) is None
    assert kendall_tau([1.0], [1.0], [0.0]) is None
    assert kendall_tau(times, [2.0, 2.0, 2.0, 2.0], none) is None  # equal times overlap
