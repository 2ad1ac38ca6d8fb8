"""The static tier: bounds on a kernel's time from its code, launch and (when a scout ran) executed counts.

Nothing is replayed. Each bound is the time the launch would take if one resource were the only limit: issue slots, each
pipe, the load/store unit, L2 and DRAM bandwidth, the rate at which CTAs start, and latency (a warp's own dependences,
with as many warps at once as occupancy allows: Little's law). The estimate is their combination, and the largest one
names the bottleneck. Costs a few milliseconds; meant to drop the hopeless before the sampled tier.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from interpreter.isa.pipes import MemoryKind, Pipe
from interpreter.program import Program
from interpreter.trace import COUNTS, Trace
from timing.confidence import confidence, coverage
from timing.estimate import Estimate
from timing.occupancy import Occupancy, Waves, occupancy, waves
from timing.reuse import GLOBAL_LOADS, LINE_SHIFT, SECTOR_MASK, LoadReuse, lines_of, load_reuse
from timing.serial_pass import serial_cycles
from timing.target import Target, row_timing
from timing.target_parameters import l2_hit_share
from timing.traffic import local_bytes_per_warp

SECTOR_BYTES = 32
# A launch takes as long as its CTAs need to start, or as long as the busiest resource works plus the latency that the
# resident warps do not hide, whichever is longer. How much stays exposed is the p-norm of the two: p = 1 would add
# them, a large p hide the shorter one entirely. 1.5 is the best for 435 launches of 12 kernel families measured on an
# H200 (median error 8 %, mean Kendall tau within a family 0.81; p = 2: 12 % and 0.80, p = 4: 17 % and 0.77).
OVERLAP_NORM = 1.5

_GLOBAL_ATOMICS = (MemoryKind.ATOMIC_GLOBAL, MemoryKind.REDUCE_GLOBAL)
_SHARED = (MemoryKind.LOAD_SHARED, MemoryKind.STORE_SHARED, MemoryKind.ATOMIC_SHARED)
_MIO_PIPES = (Pipe.LSU, Pipe.XU, Pipe.SPECIAL, Pipe.ASYNC)


@dataclass(frozen=True, slots=True)
class AtomicUse:
    """Global atomics of a mean CTA: `sectors` requested; the most lanes on one address, summed over instructions, for
    integers (`same_word_lanes`) and floating-point additions; `lines` different 128-byte lines that all scouted CTAs
    use, `shared` when they are the same ones.
    """

    sectors: float
    same_word_lanes: float
    same_word_float_lanes: float
    lines: float
    shared: bool


@dataclass(frozen=True, slots=True)
class Scout:
    """What a few executed CTAs tell about the rest.

    `counts` has dtype COUNTS, one row an instruction, summed over `ctas` CTAs. `reuse` says what L1 can keep of the
    global loads (None: not known, every access then goes to L2), `atomics` where the global atomics go (None: not
    known, no line is then a bottleneck), `local_bytes_per_warp` what a warp uses of its stack (None: all of it).
    """

    counts: np.ndarray
    ctas: int
    reuse: LoadReuse | None = None
    atomics: AtomicUse | None = None
    local_bytes_per_warp: float | None = None

    def __post_init__(self) -> None:
        if self.counts.dtype != COUNTS or self.ctas < 1:
            raise ValueError("a scout needs counts of dtype COUNTS and at least one CTA")


@dataclass(frozen=True, slots=True)
class StaticBounds:
    """Bounds of one launch on one target, in SM cycles of the whole launch.

    `bounds` maps a resource to its time in cycles, without launch overhead; `bound` is the largest. `cycles` combines
    them and adds the overhead. `warp_cycles` is what one warp takes alone; `in_flight_bytes` what an SM's resident
    warps keep outstanding on average by Little's law, `needed_in_flight_bytes` what the DRAM (or L2) bandwidth of one
    SM's share takes at its latency.
    """

    target: str
    occupancy: Occupancy
    waves: Waves
    bounds: dict[str, float]
    bound: str
    cycles: float
    time_us: float
    warp_cycles: float
    warp_instructions: float  # whole grid
    l2_bytes: float
    dram_bytes: float
    in_flight_bytes: float
    needed_in_flight_bytes: float
    scouted: bool
    coverage: dict[str, float] = field(default_factory=dict)

    def microseconds(self) -> dict[str, float]:
        """Each bound's time in microseconds, without launch overhead."""
        rate = self.time_us / self.cycles
        return {name: value * rate for name, value in self.bounds.items()}


def atomic_use(trace: Trace, rows: np.ndarray) -> AtomicUse | None:
    """Where the traced CTAs' global atomics go, None when there are none. One CTA alone is taken to share its lines."""
    wanted = np.isin(rows["memory"], _GLOBAL_ATOMICS)
    sectors, each = 0, 0
    same = [0, 0]  # integers, floating point
    union: set[int] = set()
    for cta in range(len(trace.ctas)):
        events, touched = lines_of(trace, cta, wanted)
        sectors += int(np.bitwise_count(touched & SECTOR_MASK).sum())
        floating = rows["floating"][events["row"]] > 0
        same[0] += int(events["wavefronts"][~floating].sum())
        same[1] += int(events["wavefronts"][floating].sum())
        lines = np.unique(touched >> LINE_SHIFT)
        each += len(lines)
        union.update(lines.tolist())
    n = len(trace.ctas)
    if not sectors:
        return None
    shared = n == 1 or len(union) < 0.75 * each
    return AtomicUse(sectors / n, same[0] / n, same[1] / n, len(union) if shared else each / n, shared)


def scout_of(counts: np.ndarray, trace: Trace, rows: np.ndarray) -> Scout:
    """The scout of traced CTAs: `counts` (dtype COUNTS) summed over them, `rows` row_timing's array."""
    return Scout(counts, len(trace.ctas), load_reuse(trace, rows), atomic_use(trace, rows), local_bytes_per_warp(trace))


class LaunchShape(Protocol):
    """What is needed of `interpreter.launch.Launch`: sizes (x, y, z) and dynamic shared memory in bytes."""

    @property
    def grid(self) -> Sequence[int]: ...
    @property
    def block(self) -> Sequence[int]: ...
    @property
    def dynamic_shared(self) -> int: ...


def static_estimate(
    program: Program,
    launch: LaunchShape,
    target: Target,
    *,
    scout: Scout | None = None,
    footprint_bytes: float | None = None,
    l2: str = "warm",
    rows: np.ndarray | None = None,
) -> Estimate:
    """The static tier's estimate of one launch; arguments and errors as `static_bounds`."""
    started = time.perf_counter()
    grid, threads = math.prod(launch.grid), math.prod(launch.block)
    found = static_bounds(
        program, target, grid, threads, launch.dynamic_shared,
        scout=scout, footprint_bytes=footprint_bytes, l2=l2, rows=rows,
    )  # fmt: skip
    counts = None if scout is None else scout.counts
    scale = 1.0 if scout is None else grid / scout.ctas
    return Estimate(
        target=target.name,
        tier="static",
        time_us=found.time_us,
        cycles=found.cycles,
        clock_mhz=target.clock_mhz,
        bound=found.bound,
        occupancy=found.occupancy,
        waves=found.waves.waves,
        l2=l2,
        confidence=confidence(target, found.coverage, scout is not None),
        executed_share=0.0 if scout is None else min(1.0, scout.ctas / grid),
        simulation_seconds=time.perf_counter() - started,
        bounds=found.microseconds(),
        executed=None if counts is None else counts["instructions_executed"] * scale,
        thread_executed=None if counts is None else counts["thread_instructions_executed"] * scale,
        sectors=None if counts is None else counts["l2_theoretical_sectors_global"] * scale,
        wavefronts=None if counts is None else counts["l1_wavefronts_shared"] * scale,
        coverage=found.coverage,
        memory={"l2_bytes": found.l2_bytes, "dram_bytes": found.dram_bytes},
        warp_instructions=found.warp_instructions,
    )


def static_bounds(
    program: Program,
    target: Target,
    grid_ctas: int,
    threads: int,
    dynamic_shared: int = 0,
    *,
    scout: Scout | None = None,
    footprint_bytes: float | None = None,
    l2: str = "warm",
    rows: np.ndarray | None = None,
) -> StaticBounds:
    """Bounds of launching `grid_ctas` CTAs of `threads` threads.

    Without a scout every instruction counts once a warp and accesses are taken as coalesced. `footprint_bytes` is the
    memory the whole launch touches (its buffers); with `l2` "warm" what fits L2 is found there, with "cold" it comes
    from DRAM once; None leaves DRAM out. `rows` may pass in `row_timing(program, target)`. Raises CannotLaunch,
    TargetError, UnsupportedInstruction.
    """
    if l2 not in ("warm", "cold"):
        raise ValueError(f"l2 must be 'warm' or 'cold', is {l2!r}")
    rows = row_timing(program, target) if rows is None else rows
    resident = occupancy(target, program.registers, threads, program.static_shared, dynamic_shared, program.barriers)
    spread = waves(grid_ctas, target.sm_count, resident.ctas_per_sm)
    executed = _executed(program, resident.warps_per_cta, scout)
    at_once = min(resident.ctas_per_sm, spread.busiest_sm_ctas)
    stack = program.stack * target.limits.warp_size if scout is None else scout.local_bytes_per_warp
    stack = program.stack * target.limits.warp_size if stack is None else stack
    spilled = stack * resident.warps_per_cta * at_once
    local_misses = max(0.0, 1.0 - resident.l1_bytes / spilled) if spilled else 0.0
    traffic = _traffic(rows, executed, scout, local_misses, resident.l1_bytes / at_once)

    dram_bytes = 0.0
    if footprint_bytes is not None:
        dram_bytes = footprint_bytes * (1.0 if l2 == "cold" else 1.0 - l2_hit_share(target, footprint_bytes))
        if scout is not None and scout.reuse is not None:
            dram_bytes += grid_ctas * _reread(target, scout.reuse, min(grid_ctas, spread.slots), footprint_bytes)
    # stacks have one reader, so L2 keeps one copy of them and all of its capacity counts
    stacks = spilled * min(target.sm_count, grid_ctas) * target.l2.warm_full_share
    dram_bytes += grid_ctas * traffic.local_bytes * (1.0 - l2_hit_share(target, stacks))
    moved = grid_ctas * traffic.l2_bytes
    miss_share = min(1.0, dram_bytes / moved) if moved else 0.0
    global_latency = _global_latency(target, miss_share)
    if traffic.l1_miss_share < 1.0:
        hit = target.class_timing("ldg").latency
        global_latency = hit + traffic.l1_miss_share * (global_latency - hit)
    issued = executed / resident.warps_per_cta  # of an average warp
    warp_cycles = serial_cycles(program, target, rows, issued, global_latency)

    bounds = _sm_bounds(target, rows, executed, traffic, spread, resident)
    bounds.update(_gpu_bounds(target, grid_ctas, traffic, dram_bytes, spread, scout))
    rounds = -(-grid_ctas // spread.slots)
    start = target.launch.cta_start_cycles + target.launch.cta_end_cycles
    bounds["latency"] = rounds * (warp_cycles + start)
    bound = max(bounds, key=lambda name: bounds[name])
    throughput = max(value for name, value in bounds.items() if name not in ("latency", "launch"))
    working = _norm(throughput, bounds["latency"], OVERLAP_NORM)
    cycles = max(bounds["launch"], working)
    cycles += target.launch.kernel_overhead_us * target.clock_mhz

    share = target.dram_bytes_per_clk * target.dram.read_efficiency if dram_bytes else target.l2.bytes_per_clk
    warp_bytes = traffic.l2_load_bytes / resident.warps_per_cta
    return StaticBounds(
        target=target.name,
        occupancy=resident,
        waves=spread,
        bounds=bounds,
        bound=bound,
        cycles=cycles,
        time_us=target.microseconds(cycles),
        warp_cycles=warp_cycles,
        warp_instructions=float(executed.sum()) * grid_ctas,
        l2_bytes=moved,
        dram_bytes=dram_bytes,
        in_flight_bytes=resident.warps_per_sm * warp_bytes * global_latency / max(warp_cycles, 1.0),
        needed_in_flight_bytes=share / target.sm_count * global_latency,
        scouted=scout is not None,
        coverage=coverage(rows, executed),
    )


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Memory work of one CTA: cycles of the SM's data stage, bytes between L1 and L2, atomic sectors."""

    dispatched: float  # instructions through the MIO stage
    stage_wavefronts: float
    tag_lines: float
    global_sectors: float
    l2_load_bytes: float
    l2_store_bytes: float
    local_bytes: float  # of the two above, stack
    atomic_sectors: float
    atomic_lanes: float
    l1_miss_share: float  # of loaded global sectors, those that L1 does not have

    @property
    def l2_bytes(self) -> float:
        return self.l2_load_bytes + self.l2_store_bytes


def _executed(program: Program, warps_per_cta: int, scout: Scout | None) -> np.ndarray:
    """Warp instructions a CTA executes, per row."""
    if scout is None:
        return np.full(len(program.instructions), float(warps_per_cta))
    if len(scout.counts) != len(program.instructions):
        raise ValueError(
            f"the scout counted {len(scout.counts)} instructions, {program.name} has {len(program.instructions)}"
        )
    return scout.counts["instructions_executed"] / scout.ctas


def _traffic(
    rows: np.ndarray, executed: np.ndarray, scout: Scout | None, local_misses: float, l1_bytes: float
) -> _Traffic:
    """`local_misses`: the share of local loads that L1 cannot keep (a swept working set larger than L1); `l1_bytes`
    of L1 are there for each CTA's global loads.

    Stores go through L1 to L2, local ones too (measured on an H200: local stores run at L2's write rate).
    """
    memory, width = rows["memory"], rows["width"].astype(np.float64)
    loads = np.isin(memory, GLOBAL_LOADS)
    stores = memory == MemoryKind.STORE_GLOBAL
    atomics = np.isin(memory, _GLOBAL_ATOMICS)
    anywhere = loads | stores | atomics
    shared = np.isin(memory, _SHARED)
    if scout is None:
        sectors = executed * width * anywhere  # 32 lanes * width bytes / 32-byte sectors
        lines = executed * np.maximum(1.0, width / 4) * anywhere
        wavefronts = executed * np.maximum(1.0, width / 4) * shared
        lanes = executed * 32.0
    else:
        sectors = scout.counts["l2_theoretical_sectors_global"] / scout.ctas
        lines = scout.counts["l1_tag_requests_global"] / scout.ctas
        wavefronts = scout.counts["l1_wavefronts_shared"] / scout.ctas
        lanes = scout.counts["predicated_on_thread_instructions_executed"] / scout.ctas
    local_loads, local_stores = memory == MemoryKind.LOAD_LOCAL, memory == MemoryKind.STORE_LOCAL
    local = local_loads | local_stores
    local_bytes = executed * width * SECTOR_BYTES  # 32 lanes
    shuffles = memory == MemoryKind.SHUFFLE
    loaded = needed = float(sectors[loads].sum())
    if scout is not None and scout.reuse is not None:
        needed = min(loaded, scout.reuse.missed(l1_bytes))
    refilled = float(local_bytes[local_loads].sum()) * local_misses
    stored = float(local_bytes[local_stores].sum())
    return _Traffic(
        dispatched=float(executed[np.isin(rows["pipe"], _MIO_PIPES)].sum()),
        stage_wavefronts=float(
            wavefronts[shared].sum() + executed[shuffles].sum() + (executed * np.maximum(1.0, width / 4))[local].sum()
        ),
        tag_lines=float(lines[anywhere].sum()),
        global_sectors=float(sectors[anywhere].sum()),
        l2_load_bytes=needed * SECTOR_BYTES + refilled,
        l2_store_bytes=float(sectors[stores].sum()) * SECTOR_BYTES + stored,
        local_bytes=refilled + stored,
        atomic_sectors=float(sectors[atomics].sum()),
        atomic_lanes=float(lanes[atomics].sum()),
        l1_miss_share=needed / loaded if loaded else 1.0,
    )


def _norm(a: float, b: float, p: float) -> float:
    larger = max(a, b)
    return larger * ((a / larger) ** p + (b / larger) ** p) ** (1 / p)


def _reread(target: Target, reuse: LoadReuse, resident: int, footprint: float) -> float:
    """Bytes a CTA loads from DRAM a second time since what all `resident` CTAs touched meanwhile exceeds L2."""
    capacity = target.l2.warm_full_share * target.l2.bytes
    if footprint <= capacity:
        return 0.0
    return (reuse.missed(capacity / resident) - reuse.first) * SECTOR_BYTES


def _global_latency(target: Target, miss_share: float) -> float:
    l2 = target.l2
    near = (l2.hit_cycles + (l2.partitions - 1) * l2.hit_far_cycles) / l2.partitions
    return near + miss_share * max(0.0, target.dram.latency_cycles - near)


def _sm_bounds(
    target: Target, rows: np.ndarray, executed: np.ndarray, traffic: _Traffic, spread: Waves, resident: Occupancy
) -> dict[str, float]:
    """Cycles of the busiest SM for each of its resources."""
    sub_cores = min(target.limits.sub_cores, min(spread.busiest_sm_ctas, resident.ctas_per_sm) * resident.warps_per_cta)
    ctas = spread.busiest_sm_ctas
    bounds = {"issue": ctas * float(executed.sum()) / target.issue.per_clk / sub_cores}
    held = executed * rows["interval"]
    per_sm = rows["shared_per_sm"] > 0
    use = {pipe: float(held[(rows["pipe"] == pipe) & ~per_sm].sum()) for pipe in Pipe}
    if target.issue.fma_halves == 2:  # FMA may use either half, FMA_HEAVY only one
        use[Pipe.FMA] = max(use[Pipe.FMA_HEAVY], use[Pipe.FMA] + use[Pipe.FMA_HEAVY] / 2)
    else:
        use[Pipe.FMA] += use[Pipe.FMA_HEAVY]
    for pipe in (Pipe.ALU, Pipe.FMA, Pipe.FP16, Pipe.FP64, Pipe.XU, Pipe.UNIFORM, Pipe.TENSOR):
        bounds[pipe.name.lower()] = ctas * use[pipe] / sub_cores
    if per_sm.any():
        bounds["fp64"] = max(bounds["fp64"], ctas * float(held[per_sm].sum()))
    # a global access takes the data stage for its tags or its data, whichever is longer
    data = traffic.global_sectors * SECTOR_BYTES / target.l1.bytes_per_clk
    stage = traffic.stage_wavefronts * target.shared.pass_cycles
    stage += max(traffic.tag_lines / target.l1.tag_lines_per_clk, data)
    bounds["lsu"] = ctas * max(stage, traffic.dispatched * target.mio.dispatch_interval_cycles)
    bounds["l1"] = ctas * max(
        traffic.l2_load_bytes / target.l2.bytes_per_clk_per_sm,
        traffic.l2_store_bytes / target.l2.write_bytes_per_clk_per_sm
        + traffic.atomic_sectors * target.l2.atomic_sm_sector_cycles
        + traffic.atomic_lanes * target.l2.atomic_sm_lane_cycles,
    )
    return bounds


def _gpu_bounds(
    target: Target, grid_ctas: int, traffic: _Traffic, dram_bytes: float, spread: Waves, scout: Scout | None
) -> dict[str, float]:
    """Cycles of the whole launch for resources that the SMs share."""
    atomics = grid_ctas * traffic.atomic_sectors / target.l2.atomics_per_clk
    if scout is not None and scout.atomics is not None:
        use = scout.atomics
        lines = use.lines if use.shared else use.lines * grid_ctas
        requests = max(
            use.sectors / 2.0 * target.l2.atomic_line_request_cycles,
            use.same_word_lanes / target.l2.same_address_atomics_per_clk
            + use.same_word_float_lanes / target.l2.same_address_float_atomics_per_clk,
        )
        atomics = max(atomics, grid_ctas * requests / lines)
    l2 = target.l2
    reads, writes = grid_ctas * traffic.l2_load_bytes, grid_ctas * traffic.l2_store_bytes
    written = writes / (reads + writes) if reads + writes else 0.0
    dram = target.dram
    # reads or writes alone are fastest, a copy is half of each
    mixed = 4.0 * written * (1.0 - written)
    efficiency = 1.0 / (1.0 / dram.read_efficiency + mixed * (1.0 / dram.mixed_efficiency - 1.0 / dram.read_efficiency))
    return {
        # reads and writes share the slices' data paths
        "l2": max((reads + l2.write_weight * writes) / l2.bytes_per_clk, writes / l2.write_bytes_per_clk),
        "atomics": atomics,
        "dram": dram_bytes / (target.dram_bytes_per_clk * efficiency),
        "launch": max(
            grid_ctas / target.launch.ctas_per_clk, spread.busiest_sm_ctas / target.launch.ctas_per_clk_per_sm
        ),
    }
