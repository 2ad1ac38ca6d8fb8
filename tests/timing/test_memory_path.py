"""The memory side of one SM, function by function."""

from __future__ import annotations

import numpy as np
import pytest

from timing import memory_path as mp
from timing import sm_parameters as sp
from timing.jit import njit_entry
from timing.launch_geometry import Geometry
from timing.occupancy import occupancy
from timing.target import load_target
from timing.target_parameters import parameters

H200 = load_target("h200")
LINES = np.arange(1 << 20, (1 << 20) + 20_000)


def engine_parameters() -> np.ndarray:
    return parameters(H200, occupancy(H200, 32, 256, 0, 0), Geometry(8 * H200.sm_count, H200.sm_count, 8), 1e9)


def regions() -> tuple[np.ndarray, np.ndarray]:
    """One region that all lines lie in, and whose every first touch misses L2."""
    shares = np.zeros((1, mp.N_SHARES))
    shares[0, [mp.S_READ, mp.S_WRITE, mp.S_FIRST]] = 1.0
    return np.array([[0, 1 << 40]], np.int64), shares


@njit_entry()
def lucks(lines, mix, p):
    found = np.zeros(len(lines))
    for k in range(len(lines)):
        found[k] = mp.dram_luck(lines[k], mix, p)
    return found


@njit_entry()
def distances(lines, p):
    found = np.zeros(len(lines))
    for k in range(len(lines)):
        found[k] = mp.l2_distance(lines[k], p)
    return found


@njit_entry()
def drive(lines, is_write, servers, traffic, p, where, shares, seen_line, seen_mask, seen_at):
    """Whole lines read or written one after another, all at cycle 0; when the last is there."""
    done = 0.0
    for k in range(len(lines)):
        if is_write[k]:
            done = mp.store(lines[k], 15, False, 0.0, servers, traffic, p, where, shares)
        else:
            done = mp.l2_read(lines[k], 15, 0, 0.0, servers, traffic, p, where, shares, seen_line, seen_mask, seen_at)
    return done


def driven(is_write: list[bool]) -> tuple[float, np.ndarray, np.ndarray]:
    """`drive` on fresh lines of a buffer far larger than L2: when the last is there, the servers, the parameters."""
    p, servers = engine_parameters(), np.zeros(mp.N_SERVERS)
    seen = (np.full(mp.SEEN_SLOTS, -1, np.int64), np.zeros(mp.SEEN_SLOTS, np.int64), np.zeros(mp.SEEN_SLOTS))
    lines = np.arange(1000, 1000 + len(is_write))
    done = drive(lines, np.array(is_write), servers, np.zeros(mp.N_TRAFFIC), p, *regions(), *seen)
    return float(done), servers, p


def test_the_luck_of_dram_reads_is_fair_and_as_wide_as_the_target_says() -> None:
    p = engine_parameters()
    for mix, deviation in ((1.0, H200.dram.latency_spread), (0.0, H200.dram.latency_spread / 3)):
        luck = lucks(LINES, mix, p)
        assert luck.mean() == pytest.approx(1.0, abs=0.01)
        assert np.log(luck).std() == pytest.approx(deviation, rel=0.05)


def test_lines_lie_around_the_mean_distance_from_l2() -> None:
    p = engine_parameters()
    away = distances(LINES, p)
    assert abs(away.mean()) < 1.0
    assert -H200.l2.hit_spread_cycles <= away.min() < away.max() <= H200.l2.hit_spread_cycles


def test_a_read_waits_for_the_data_of_the_stores_before_it() -> None:
    alone, _, p = driven([False])
    behind, servers, _ = driven([True] * 20 + [False])
    assert servers[mp.WRITE_PORT_FREE] == pytest.approx(20 * 4 * p[sp.WRITE_PORT_CYCLES])
    assert behind - alone > 0.5 * servers[mp.WRITE_PORT_FREE]


@pytest.mark.parametrize(("every", "efficiency"), [(0, "read"), (1, "read"), (2, "mixed")])
def test_dram_serves_reads_or_writes_faster_than_both(every: int, efficiency: str) -> None:
    n = 40_000
    _, servers, _ = driven([every > 0 and k % every == 0 for k in range(n)])
    share = H200.dram.read_efficiency if efficiency == "read" else H200.dram.mixed_efficiency
    bytes_per_clk = H200.dram_bytes_per_clk * share / H200.sm_count
    assert servers[mp.DRAM_FREE] == pytest.approx(n * 128 / bytes_per_clk, rel=0.02)


def test_writes_take_of_the_bandwidth_of_reads() -> None:
    _, servers, p = driven([True] * 10_000)
    used = 40_000 * p[sp.L2_CYCLES_PER_SECTOR] * H200.l2.write_weight
    assert servers[mp.L2_FREE] == pytest.approx(used, rel=0.05)
