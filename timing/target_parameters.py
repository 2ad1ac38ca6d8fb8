"""From a Target to the SM engine's parameter vector, for one launch's occupancy and spread over the chip."""

from __future__ import annotations

import numpy as np

from timing import sm_parameters as sp
from timing.launch_geometry import Geometry
from timing.occupancy import Occupancy
from timing.target import Target

SECTOR = 32.0
L1_WAYS = 4
# Issue to the SM's load/store stage: an LDS that finds everything idle is in its data stage this long after issue. Only
# where queueing starts depends on it; latencies are end to end.
MIO_LATENCY = 8.0
# SMs out of step: what one leaves of its share of L2 and DRAM others use, and it gets it back later. The credit is
# bounded by about the life of a short CTA, and by how far SMs are out of step since the launch (`launch.sm_drift`).
SHARE_CREDIT = 4000.0
# DRAM time of the sectors waiting in L2 to be written back before stores feel it: a few percent of a 60 MB L2.
WRITE_BACK_CYCLES = 1500.0
# How long a store or atomic may wait for L2 before the SM's load/store stage waits with it (Nsight then shows
# lg_throttle instead of long_scoreboard): about a dozen requests.
STORE_BUFFER_CYCLES = 150.0


def parameters(target: Target, occ: Occupancy, geometry: Geometry, footprint: float) -> np.ndarray:
    """Parameters of one SM that has its fair share of L2, DRAM and the work distributor.

    `footprint` is the bytes that the whole launch touches.
    """
    p = sp.blank()
    active = max(geometry.active_sms, 1)
    l1_bytes = target.l1.unified_kb * 1024 - occ.carveout_bytes
    p[sp.L1_SECTORS] = max(l1_bytes / SECTOR, 4.0 * L1_WAYS)
    p[sp.L1_WAYS] = L1_WAYS
    hit = target.class_timing("ldg").latency
    p[sp.L1_HIT_LATENCY] = hit - MIO_LATENCY
    l2_hit = l2_latency(target, footprint, geometry.waves)
    p[sp.L2_LATENCY] = l2_hit - MIO_LATENCY
    p[sp.DRAM_LATENCY] = target.dram.latency_cycles - MIO_LATENCY
    p[sp.L2_SPREAD] = target.l2.hit_spread_cycles
    p[sp.DRAM_SPREAD] = target.dram.latency_spread
    p[sp.READ_PORT_CYCLES] = SECTOR / target.l2.bytes_per_clk_per_sm
    p[sp.WRITE_PORT_CYCLES] = SECTOR / target.l2.write_bytes_per_clk_per_sm
    p[sp.DRAM_LOADED_CYCLES] = target.dram.loaded_cycles
    p[sp.DRAM_QUEUE_CYCLES] = target.dram.queue_cycles
    p[sp.DRAM_LOADED_WRITE_CYCLES] = target.dram.loaded_write_cycles
    p[sp.DRAM_QUEUE_WRITE_CYCLES] = target.dram.queue_write_cycles
    p[sp.DRAM_MIX_COST] = target.dram.read_efficiency / target.dram.mixed_efficiency - 1.0
    p[sp.WRITE_BACK_CYCLES] = WRITE_BACK_CYCLES
    p[sp.STORE_BUFFER_CYCLES] = STORE_BUFFER_CYCLES
    p[sp.L2_REUSE_SECTORS] = l2_reach(target) / SECTOR / active
    p[sp.PARTIAL_WRITE_FACTOR] = target.l2.partial_write_factor
    p[sp.SLICES] = max(target.l2.slices // target.l2.partitions, 1)
    p[sp.SLICE_CYCLES] = 1.0 / (target.l2.slice_reads_per_clk * target.l2.partitions)
    p[sp.L2_LEAST_SECTORS] = target.l2.bytes_per_clk / SECTOR / target.l2.requests_per_clk
    p[sp.L2_WRITE_WEIGHT] = target.l2.write_weight
    p[sp.SHARE_CREDIT] = SHARE_CREDIT
    p[sp.SM_DRIFT] = target.launch.sm_drift
    shares = _shares(target, active)
    for index, value in zip(_SHARES, shares, strict=True):
        p[index] = value
    if geometry.tail_sms and geometry.full_rounds:
        p[sp.TAIL_AFTER] = geometry.full_rounds
        for index, value in zip(_TAIL_SHARES, _shares(target, geometry.tail_sms), strict=True):
            p[index] = value
    p[sp.ATOMIC_LATENCY] = l2_hit + target.l2.atomic_extra_cycles - MIO_LATENCY
    l2 = target.l2
    p[sp.ATOMIC_LANE_CYCLES] = l2.atomic_sm_lane_cycles
    p[sp.ATOMIC_SECTOR_CYCLES] = l2.atomic_sm_sector_cycles
    p[sp.ATOMIC_SAME_CYCLES] = l2.atomic_sm_same_word_cycles
    p[sp.ATOMIC_CHIP_CYCLES] = active / l2.atomics_per_clk
    p[sp.HOT_REQUEST_CYCLES] = active * l2.atomic_line_request_cycles
    p[sp.HOT_SAME_CYCLES] = active / l2.same_address_atomics_per_clk
    p[sp.HOT_SAME_FLOAT_CYCLES] = active / l2.same_address_float_atomics_per_clk
    p[sp.MIO_LATENCY] = MIO_LATENCY
    p[sp.MIO_QUEUE] = target.mio.queue_entries + target.mio.latch_entries
    p[sp.LG_QUEUE] = target.mio.lg_queue_entries + target.mio.latch_entries
    p[sp.PENDING_LOADS] = min(target.l1.pending_requests, sp.PENDING_ROOM)
    p[sp.LSU_MIN_CYCLES] = target.mio.dispatch_interval_cycles
    p[sp.LSU_TURN_CYCLES] = target.mio.turn_cycles
    p[sp.TAG_CYCLES] = 1.0 / target.l1.tag_lines_per_clk
    p[sp.WAVEFRONT_CYCLES] = target.shared.pass_cycles
    p[sp.ATOMS_CYCLES] = target.shared.atomic_pass_cycles
    p[sp.SHUFFLE_CYCLES] = target.mio.dispatch_interval_cycles
    wide = target.class_timing("ldg")
    p[sp.WIDTH_CYCLES] = max(wide.latency_of(16) - wide.latency, 0.0) / 16.0
    front = target.front_end
    p[sp.L0_LINES] = max(front.l0_bytes // front.line_bytes, 4)
    p[sp.L1I_LINES] = max(front.l1i_bytes // front.line_bytes, 4)
    p[sp.STREAM_LINES] = front.stream_buffer_lines
    p[sp.L1I_LATENCY] = front.l0_miss_cycles
    p[sp.L1I_INTERVAL] = front.l1i_line_cycles
    p[sp.L1I_SHARED_INTERVAL] = 1.0 / max(front.l1i_lines_per_clk, 1e-3)
    p[sp.L2I_LATENCY] = front.l1i_miss_cycles
    p[sp.L2I_INTERVAL] = front.l2_line_cycles
    p[sp.BRANCH_LATENCY] = target.issue.branch_redirect_cycles
    p[sp.BARRIER_LATENCY] = target.class_timing("barrier").latency
    p[sp.BARRIER_ARRIVAL] = target.issue.barrier_arrival_cycles
    p[sp.STORE_ACK] = l2_hit
    p[sp.SLEEP_CYCLES] = target.class_timing("nanosleep").latency
    launch = target.launch
    p[sp.CTA_LAUNCH_INTERVAL] = max(1.0 / launch.ctas_per_clk_per_sm, active / launch.ctas_per_clk)
    p[sp.CTA_LAUNCH_LATENCY] = launch.cta_start_cycles
    p[sp.WARP_LAUNCH_INTERVAL] = 2.0
    p[sp.EXIT_LATENCY] = launch.cta_end_cycles
    return p


_SHARES = (
    sp.L2_CYCLES_PER_SECTOR,
    sp.L2_WRITE_CYCLES_PER_SECTOR,
    sp.DRAM_CYCLES_PER_SECTOR,
)
_TAIL_SHARES = (
    sp.TAIL_L2_CYCLES,
    sp.TAIL_L2_WRITE_CYCLES,
    sp.TAIL_DRAM_CYCLES,
)


def _shares(target: Target, active: int) -> tuple[float, float, float]:
    """Cycles a sector takes of an SM's share, `active` SMs sharing: L2 reads, L2 writes, DRAM."""
    dram = target.dram_bytes_per_clk / active
    return (
        SECTOR * active / target.l2.bytes_per_clk,
        SECTOR * active / target.l2.write_bytes_per_clk,
        SECTOR / (dram * target.dram.read_efficiency),
    )


def l2_latency(target: Target, footprint: float, waves: float) -> float:
    """Mean latency of an L2 hit, cycles.

    Each line has its home in one partition, and a copy in the other once an SM there has read it. When a launch is
    repeated, the first wave's CTAs find the copies that the same SMs made; which SM gets a later CTA changes, so both
    partitions need a copy, and of footprints beyond `copies_full_share` some are gone again.
    """
    l2 = target.l2
    mean = (l2.hit_cycles + (l2.partitions - 1) * l2.hit_far_cycles) / l2.partitions
    full, none = l2.copies_full_share * l2.bytes, l2.copies_none_share * l2.bytes
    gone = float(np.clip((footprint - full) / max(none - full, 1.0), 0.0, 1.0))
    turning = max(1.0 - 1.0 / max(waves, 1e-9), 0.0)  # share of CTAs after the first wave
    far = (l2.partitions - 1) / l2.partitions
    return mean + gone * turning * far * max(l2.far_fetch_cycles - mean, 0.0)


def l2_reach(target: Target) -> float:
    """Bytes of different data that L2 holds, copies in both partitions allowed for."""
    return (target.l2.warm_full_share + target.l2.warm_none_share) / 2.0 * target.l2.bytes


def l2_hit_share(target: Target, footprint: float) -> float:
    """Share of a repeated launch's first touches that still find their sector in L2.

    A footprint up to `l2.warm_full_share` of the capacity stays whole; one beyond `l2.warm_none_share`, swept in the
    same order each time, is gone when its turn comes again; in between the share falls evenly.
    """
    full = target.l2.warm_full_share * target.l2.bytes
    none = target.l2.warm_none_share * target.l2.bytes
    return float(np.clip((none - footprint) / max(none - full, 1.0), 0.0, 1.0))


def local_dram_share(target: Target, occ: Occupancy, local_bytes: float) -> float:
    """Share of local memory's L2 accesses that go on to DRAM, for the stacks of all resident threads.

    One CTA's stacks are reused by the next, so only a set larger than L1 and L2 together reaches DRAM. A stack has one
    owner, so no second copies take place in L2: spills of 74 MB stay on an H200 (60 MB of L2, 30 of L1), 112 MB do not.
    """
    l1 = (target.l1.unified_kb * 1024 - occ.carveout_bytes) * target.sm_count
    beyond_l1 = local_bytes - l1
    return float(np.clip((beyond_l1 - target.l2.bytes) / (0.25 * target.l2.bytes), 0.0, 1.0))
