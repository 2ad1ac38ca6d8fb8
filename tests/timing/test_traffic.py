"""Which reads look drawn at random, and what L2 makes of footprints and waves."""

from __future__ import annotations

import numpy as np
import pytest

from interpreter.errors import FarmError
from timing.target import check_gpu_is, load_target
from timing.target_parameters import l2_latency
from timing.traffic import _all_over, _parts_per_line, _scattered

H200 = load_target("h200")
SIZE = 64 << 20


def distinct(parts: list[np.ndarray]) -> tuple[float, float]:
    return float(sum(len(np.unique(p)) for p in parts) * 32), float(len(np.unique(np.concatenate(parts))) * 32)


def test_random_parts_coincide_as_chance_has_it() -> None:
    random = np.random.default_rng(1)
    parts = [random.integers(0, SIZE // 32, 4096) for _ in range(32)]
    assert _scattered(*distinct(parts), SIZE)


def test_dealt_parts_and_shared_tiles_are_not_random() -> None:
    dealt = [np.arange(k * 4096, (k + 1) * 4096) for k in range(32)]
    assert not _scattered(*distinct(dealt), SIZE)
    shared = [np.arange(4096) for _ in range(32)]
    assert not _scattered(*distinct(shared), SIZE)
    assert not _scattered(0.0, 0.0, SIZE)


def test_tiles_with_halos_reach_over_a_part_only() -> None:
    cta = np.repeat(np.arange(16), 100)
    tiles = cta * 90 + np.tile(np.arange(100), 16)
    assert not _all_over(tiles, cta, 90 * 16 + 10)
    drawn = np.random.default_rng(2).integers(0, 5000, 1600)
    assert _all_over(drawn, cta, 5000)
    assert not _all_over(np.zeros(0, np.int64), np.zeros(0, np.int64), 10)


def test_parts_per_line() -> None:
    cta = np.zeros(8, np.int64)
    assert _parts_per_line(np.arange(8), cta) == pytest.approx(1 / 8)
    assert _parts_per_line(np.arange(8) * 10, cta) == 1.0
    assert _parts_per_line(np.array([0, 1, 10, 11]), np.zeros(4, np.int64)) == 0.5


def test_latency_of_l2_where_copies_no_longer_fit() -> None:
    """Measured: 282 cycles while SMs read their own parts up to 38 MB, or others' up to 28; 379 for others' at 40."""
    mb = 1 << 20
    near = l2_latency(H200, 1 * mb, 10.0)
    assert near == pytest.approx(282, abs=4)
    assert l2_latency(H200, 38 * mb, 1.0) == near
    assert l2_latency(H200, 28 * mb, 100.0) == pytest.approx(near, abs=1)
    assert l2_latency(H200, 41 * mb, 100.0) == pytest.approx(373, abs=8)
    one_partition = load_target("rtx4090")
    assert l2_latency(one_partition, 60 * mb, 100.0) == l2_latency(one_partition, 1 * mb, 1.0)


def test_a_gpu_is_measured_under_its_own_name_only() -> None:
    check_gpu_is(H200, "NVIDIA H200")
    with pytest.raises(FarmError, match="this machine's GPU is 'NVIDIA L4'"):
        check_gpu_is(H200, "NVIDIA L4")
