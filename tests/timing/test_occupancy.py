"""Occupancy: the occupancy header's answers, the driver's carve-outs on an H200, and properties."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from timing.occupancy import CannotLaunch, Occupancy, occupancy, waves
from timing.target import TARGETS, Target, load_target

# Resident CTAs by NVIDIA's occupancy header (CUDA 13.5) with the largest carve-out.
# Columns: threads, registers, static, dynamic shared bytes, then CTAs for CC 8.6, 8.7, 8.9, 9.0, 10.0, 11.0, 12.0.
GOLDEN = [
    (128, 32, 0, 0, 12, 12, 12, 16, 16, 12, 12),
    (256, 33, 0, 0, 6, 6, 6, 6, 6, 6, 6),
    (96, 40, 1000, 0, 16, 16, 16, 16, 16, 16, 16),
    (1024, 64, 0, 0, 1, 1, 1, 1, 1, 1, 1),
    (160, 255, 0, 0, 1, 1, 1, 1, 1, 1, 1),
    (64, 16, 0, 0, 16, 16, 24, 32, 32, 24, 24),
    (32, 24, 0, 0, 16, 16, 24, 32, 32, 24, 24),
    (256, 64, 49152, 0, 2, 3, 2, 4, 4, 4, 2),
    (128, 128, 0, 40000, 2, 4, 2, 4, 4, 4, 2),
    (384, 168, 0, 98000, 1, 1, 1, 1, 1, 1, 1),
    (512, 32, 16384, 0, 3, 3, 3, 4, 4, 3, 3),
    (128, 255, 4096, 90000, 1, 1, 1, 2, 2, 2, 1),
    (192, 80, 12345, 0, 4, 4, 4, 4, 4, 4, 4),
]
BY_TARGET = {"orin": 5, "l40s": 6, "rtx4090": 6, "h100": 7, "h200": 7, "b200": 8, "thor": 9, "rtx5090": 10}

# Carve-outs (KB) an H200's driver picked, from profiles: threads, static, dynamic shared bytes, registers, KB.
CARVEOUTS = [
    (32, 0, 0, 18, 32), (32, 408, 0, 30, 64), (32, 0, 3072, 58, 132), (64, 0, 0, 40, 32), (64, 16, 0, 32, 64),
    (64, 1024, 0, 64, 64), (64, 4096, 0, 39, 132), (64, 4096, 0, 64, 132), (64, 16384, 0, 72, 228),
    (64, 0, 65536, 127, 196), (128, 0, 0, 27, 32), (128, 0, 0, 48, 32), (128, 0, 256, 22, 64), (128, 516, 0, 20, 64),
    (128, 4096, 0, 80, 64), (128, 8192, 0, 80, 132), (128, 9360, 0, 28, 164), (128, 0, 32768, 56, 228),
    (128, 32784, 0, 36, 228), (128, 0, 65536, 220, 132), (128, 0, 73728, 130, 228), (256, 0, 0, 16, 32),
    (256, 0, 0, 124, 32), (256, 0, 32, 32, 32), (256, 0, 64, 70, 8), (256, 1584, 0, 32, 64), (256, 13312, 0, 64, 132),
    (256, 0, 16384, 22, 164), (256, 24576, 0, 83, 100), (256, 0, 24576, 62, 132), (256, 0, 49152, 58, 196),
    (512, 0, 0, 28, 16), (512, 0, 0, 64, 16), (512, 64, 0, 26, 16), (512, 0, 64, 40, 8), (512, 2048, 0, 31, 32),
    (512, 9360, 0, 31, 100), (512, 0, 12288, 32, 132), (512, 16640, 0, 20, 132), (512, 32832, 0, 32, 164),
    (1024, 0, 0, 32, 8), (1024, 0, 256, 22, 8),
]  # fmt: skip
UNEXPLAINED = [(1024, 0, 4096, 22, 16), (128, 32, 0, 31, 32), (128, 0, 16, 32, 32)]  # the rule gives more here


@pytest.mark.parametrize("name", TARGETS)
def test_golden_vectors(name: str) -> None:
    target = load_target(name)
    for row in GOLDEN:
        threads, registers, static, dynamic = row[:4]
        assert occupancy(target, registers, threads, static, dynamic).ctas_per_sm == row[BY_TARGET[name]], row


def test_compute_capability_8_0_and_8_6_by_changed_limits() -> None:
    base = load_target("orin")
    cc86 = base.with_values(
        {
            "limits.shared_per_sm_bytes": 102400,
            "limits.shared_per_block_optin_bytes": 101376,
            "limits.shared_carveouts_kb": (0, 8, 16, 32, 64, 100),
            "limits.carveout_headroom_kb": 64,
        }
    )
    for row in GOLDEN:
        assert occupancy(cc86, row[1], row[0], row[2], row[3]).ctas_per_sm == row[4], row


def test_carveouts_of_the_driver() -> None:
    target = load_target("h200")
    for threads, static, dynamic, registers, kb in CARVEOUTS:
        found = occupancy(target, registers, threads, static, dynamic)
        assert found.carveout_bytes == kb * 1024, (threads, static, dynamic, registers)
        assert found.l1_bytes == (256 - kb) * 1024


def test_carveout_always_fits_what_is_resident_where_the_rule_is_unsure() -> None:
    target = load_target("h200")
    for threads, static, dynamic, registers, kb in UNEXPLAINED:
        found = occupancy(target, registers, threads, static, dynamic)
        assert found.carveout_bytes >= kb * 1024 >= found.ctas_per_sm * found.shared_per_cta_bytes


def test_prefer_shared_takes_the_largest_carveout() -> None:
    target = load_target("h200")
    assert occupancy(target, 197, 256, 0, 98304, prefer_shared=True).carveout_bytes == 228 * 1024


@pytest.mark.parametrize(
    ("arguments", "limiter", "ctas"),
    [
        ((32, 128, 0, 0, 1), "warps", 16),
        ((24, 32, 0, 0, 1), "blocks", 32),
        ((128, 128, 0, 0, 1), "registers", 4),
        ((32, 128, 0, 100_000, 1), "shared_memory", 2),
        ((16, 32, 0, 0, 16), "barriers", 4),
    ],
)
def test_limiter(arguments: tuple[int, ...], limiter: str, ctas: int) -> None:
    found = occupancy(load_target("h200"), *arguments)
    assert (found.limiter, found.ctas_per_sm) == (limiter, ctas)
    assert found.fraction == found.warps_per_sm / 64
    assert limiter.replace("_", " ") in found.detail


@pytest.mark.parametrize(
    ("target", "arguments", "resource", "words"),
    [
        ("l40s", (32, 128, 0, 147456), "shared_memory",
         "needs 147,456 B shared memory a block, the limit is 101,376 B"),
        ("h200", (32, 128, 1024, 232448), "shared_memory", "(1,024 static + 232,448 dynamic), the limit is 232,448 B"),
        ("h200", (32, 128, 50000, 0), "shared_memory", "50,000 B static shared memory a block, the limit is 49,152 B"),
        ("h200", (32, 1025, 0, 0), "threads", "1,025 threads a block, the limit is 1,024"),
        ("h200", (32, 0, 0, 0), "threads", "at least 1 thread"),
        ("h200", (256, 32, 0, 0), "registers", "256 registers a thread, the limit is 255"),
        ("h200", (128, 1024, 0, 0), "registers",
         "need 131,072 registers a block (4,096 a warp x 32 warps), the limit is 65,536"),
        ("h200", (32, 32, 0, 0, 17), "barriers", "17 named barriers a block, the limit is 16"),
    ],
)  # fmt: skip
def test_cannot_launch(target: str, arguments: tuple[int, ...], resource: str, words: str) -> None:
    with pytest.raises(CannotLaunch) as caught:
        occupancy(load_target(target), *arguments)
    assert words in str(caught.value)
    assert target in str(caught.value)
    assert caught.value.resource == resource
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.needed, again.limit) == (str(caught.value), caught.value.needed, caught.value.limit)


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        occupancy(load_target("h200"), 32, 128, -1, 0)


targets = st.sampled_from([load_target(name) for name in TARGETS])
launches = st.tuples(
    st.integers(1, 255), st.integers(1, 1024), st.integers(0, 49152), st.integers(0, 232448), st.integers(0, 16)
)


def residency(target: Target, launch: tuple[int, ...]) -> Occupancy | None:
    try:
        return occupancy(target, *launch)
    except CannotLaunch:
        return None


@settings(max_examples=300, deadline=None)
@given(targets, launches)
def test_never_exceeds_the_limits(target: Target, launch: tuple[int, ...]) -> None:
    found = residency(target, launch)
    assume(found is not None)
    assert found is not None
    limits = target.limits
    assert 1 <= found.ctas_per_sm <= limits.max_blocks_per_sm
    assert found.warps_per_sm <= limits.max_warps_per_sm
    assert found.warps_per_sm * found.registers_per_warp <= limits.registers_per_sm
    assert found.ctas_per_sm * found.shared_per_cta_bytes <= found.carveout_bytes <= limits.shared_per_sm_bytes
    assert found.carveout_bytes // 1024 in limits.shared_carveouts_kb
    assert found.l1_bytes > 0
    assert found.ctas_per_sm == min(found.limits.values())


@settings(max_examples=300, deadline=None)
@given(targets, launches, st.integers(0, 4), st.integers(1, 200))
def test_more_of_a_resource_never_means_more_ctas(
    target: Target, launch: tuple[int, ...], which: int, more: int
) -> None:
    bigger = tuple(value + more * (which == index) for index, value in enumerate(launch))
    before, after = residency(target, launch), residency(target, bigger)
    if before is None:
        assert after is None
    elif after is not None:
        assert after.ctas_per_sm <= before.ctas_per_sm


def test_waves() -> None:
    exact = waves(132 * 8, 132, 4)
    assert (exact.waves, exact.full, exact.tail_ctas, exact.busiest_sm_ctas, exact.efficiency) == (2.0, 2, 0, 8, 1.0)
    tail = waves(132 * 4 + 1, 132, 4)
    assert (tail.full, tail.tail_ctas, tail.busiest_sm_ctas) == (1, 1, 5)
    assert tail.efficiency == pytest.approx(529 / 660)
    assert waves(1, 132, 16).busiest_sm_ctas == 1
    with pytest.raises(ValueError, match="at least 1"):
        waves(0, 132, 4)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 200), st.integers(1, 32))
def test_waves_account_for_every_cta(grid: int, sms: int, slots: int) -> None:
    found = waves(grid, sms, slots)
    assert found.full * found.slots + found.tail_ctas == grid
    assert 0 < found.efficiency <= 1
    assert found.busiest_sm_ctas * sms >= grid
