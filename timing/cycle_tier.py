"""The cycle tier: every CTA executed and timed, on every SM, with one L2 and DRAM for all.

Slower than the sampled tier by the number of SMs and waves, and free of its assumptions: that the SMs do the same, that
the executed CTAs stand for the others, and how much of what one SM fetches another finds in L2. The result does not
depend on the number of threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from interpreter.isa.pipes import MemoryKind, Pipe
from interpreter.launch import Launch
from interpreter.program import Program
from interpreter.trace import COUNTS, EVENT
from timing import memory_path as mp
from timing import sm_parameters as sp
from timing.chip_engine import Chip
from timing.chip_l2 import (
    LINE_BYTES,
    R_DRAM,
    R_READ,
    R_WRITE,
    T_DRAM_READS,
    T_L2_HITS,
    T_LOCAL_READS,
    T_LOCAL_WRITES,
    T_READS,
    T_WRITE_BACKS,
    ChipL2,
    chip_l2,
    fill,
)
from timing.confidence import confidence, coverage
from timing.estimate import Estimate
from timing.launch_geometry import Geometry
from timing.occupancy import occupancy
from timing.sampled import Executor
from timing.sm_rows import build_rows
from timing.sm_state import END_TIME, ISSUED
from timing.target import Target, row_timing
from timing.target_parameters import l2_hit_share, local_dram_share, parameters
from timing.timeline import ChipTimeline
from timing.trace_pool import DEFAULT_LIMIT, TracePool
from timing.traffic import SECTOR_BYTES, access_table, local_bytes_per_warp

BATCH_BYTES = 128 << 20  # of traces fresh from the interpreter, about; whole CTAs always
PROGRESS_SECONDS = 0.5

Progress = Callable[[int, int, float], None]
"""Called now and then with CTAs done, CTAs in all, and the cycle reached."""


class _Feeder:
    """Executes the grid in launch order, batch by batch, as the chip has places for its CTAs."""

    def __init__(self, machine: Executor, grid: int, rows: int, warps: int, limit: int) -> None:
        self.machine = machine
        self.grid = grid
        self.pool = TracePool(warps, limit)
        self.counts = np.zeros(rows, COUNTS)
        self.executed = 0
        self.seconds = 0.0
        self.bytes_per_cta = 0.0

    def next(self, count: int) -> list[int]:
        """Places in the pool of the next CTAs, `count` of them or fewer when their traces are long."""
        if self.bytes_per_cta == 0.0:
            count = 1  # to see how long they are
        else:
            count = min(count, max(1, int(BATCH_BYTES / self.bytes_per_cta)))
        first = self.executed
        ctas = range(first, min(first + count, self.grid))
        started = time.perf_counter()
        result = self.machine.run(ctas, mode="trace")
        self.seconds += time.perf_counter() - started
        trace = result.trace
        assert trace is not None and result.counts is not None
        for name in COUNTS.names or ():
            self.counts[name] += result.counts[name]
        self.executed += len(ctas)
        size = len(trace.events) * EVENT.itemsize + trace.lines.nbytes
        self.bytes_per_cta = max(self.bytes_per_cta, size / len(ctas), 1.0)
        self.last = trace
        return self.pool.add(trace)


def cycle_estimate(
    program: Program,
    launch: Launch,
    target: Target,
    machine: Executor,
    allocations: Sequence[tuple[int, int]],
    *,
    l2: str = "warm",
    threads: int = 1,
    progress: Progress | None = None,
    memory_limit: int = DEFAULT_LIMIT,
    records: int = 0,
    record_sms: Sequence[int] | None = None,
) -> Estimate:
    """Estimate one launch on one target by simulating all of it.

    `machine` must be fresh: every CTA is executed once, in launch order, so that kernels whose control flow depends on
    data see what they wrote. `allocations` are (guest address, bytes) of the buffers; `l2` is "warm" (the launch is
    repeated on the same buffers) or "cold". `threads` changes the wall-clock time only. With `records` the estimate has
    a timeline of at most so many, of all SMs or those of `record_sms`. Raises CannotLaunch, and TraceMemoryError when
    the CTAs that run at once need more than `memory_limit` bytes of traces.
    """
    started = time.perf_counter()
    block = launch.block[0] * launch.block[1] * launch.block[2]
    warps = -(-block // 32)
    grid = launch.grid[0] * launch.grid[1] * launch.grid[2]
    occ = occupancy(target, program.registers, block, program.static_shared, launch.dynamic_shared, program.barriers)
    geometry = Geometry(grid, target.sm_count, occ.ctas_per_sm)
    rows = build_rows(program, target)
    feeder = _Feeder(machine, grid, len(rows), warps, memory_limit)
    first = feeder.next(1)

    sms = geometry.active_sms
    local = local_bytes_per_warp(feeder.last) * min(occ.warps_per_sm, warps * geometry.most) * sms
    footprint = float(sum(size for _, size in allocations)) + local
    p = parameters(target, occ, geometry, footprint)
    p[sp.LOCAL_DRAM_SHARE] = local_dram_share(target, occ, local)
    p[sp.SHARE_CREDIT] = 0.0  # shares follow the use that is made of them
    p[sp.TAIL_AFTER] = 0.0
    p[sp.L2_REUSE_SECTORS] = np.inf  # L2's tags decide
    memory = chip_l2(kept_bytes(target), sms, p)
    ranges = [(a // LINE_BYTES, (a + max(size, 1) - 1) // LINE_BYTES) for a, size in sorted(allocations)]
    present = l2_hit_share(target, footprint) if l2 == "warm" else 0.0
    fill(np.array(ranges, np.int64).reshape(-1, 2), present, _written_share(rows, feeder), memory)

    interval = 1.0 / target.launch.ctas_per_clk
    chip = Chip(
        rows, p, memory, feeder.pool, sms=sms, resident=geometry.resident, grid=grid, warps=warps,
        launch_cycles=interval, timeline=ChipTimeline(sms, records, record_sms),
    )  # fmt: skip
    chip.take(first)

    def feed(count: int) -> None:
        chip.release_done()
        # ahead of the need: a call of the interpreter is worth a good many CTAs
        chip.take(feeder.next(max(count, geometry.slots // 2)))

    told = started

    def tick() -> None:
        nonlocal told
        if progress is not None and time.perf_counter() - told >= PROGRESS_SECONDS:
            told = time.perf_counter()
            progress(chip.completed, grid, float(chip.now))

    chip.run(feed, threads, tick)
    # the last reductions may still be on their way to their line
    cycles = float(max(chip.state.scalars[:, END_TIME].max(), memory.front.atomic_free.max()))
    if not np.isfinite(cycles):  # a division by zero in the engine: a fault, never a number
        raise ArithmeticError(f"the timing engine gave {cycles} cycles")
    time_us = target.microseconds(cycles) + target.launch.kernel_overhead_us
    bound, bounds = _bound(chip, memory, target, grid, cycles, time_us)
    counts = feeder.counts
    covered = coverage(row_timing(program, target), counts["instructions_executed"])
    return Estimate(
        target=target.name,
        tier="cycle",
        time_us=time_us,
        cycles=cycles,
        clock_mhz=target.clock_mhz,
        bound=bound,
        occupancy=occ,
        waves=geometry.waves,
        l2=l2,
        confidence=confidence(target, covered),
        executed_share=feeder.executed / grid,
        simulation_seconds=time.perf_counter() - started,
        bounds=bounds,
        stalls=chip.stalls.sum(axis=0),
        executed=counts["instructions_executed"].astype(np.float64),
        thread_executed=counts["thread_instructions_executed"].astype(np.float64),
        sectors=counts["l2_theoretical_sectors_global"].astype(np.float64),
        wavefronts=counts["l1_wavefronts_shared"].astype(np.float64),
        coverage=covered,
        memory={**_memory(chip, memory), "footprint_bytes": footprint},
        warp_instructions=float(chip.state.scalars[:, ISSUED].sum()),
        timeline=chip.recorded() if records else None,
    )


def kept_bytes(target: Target) -> float:
    """What L2 keeps of a repeated sweep, in bytes: midway between the footprint that stays whole and the one of which
    nothing is found again (`l2.warm_full_share` and `l2.warm_none_share` of its size)."""
    return (target.l2.warm_full_share + target.l2.warm_none_share) / 2.0 * target.l2.bytes


def _written_share(rows: np.ndarray, feeder: _Feeder) -> float:
    """Share of stores in the lines that the first CTA touches: what of L2's old content is to be written back."""
    line, _, kind, _ = access_table(rows, feeder.last)
    stores = np.isin(kind, _WRITING)
    written, read = np.unique(line[stores]).size, np.unique(line[~stores]).size
    return written / max(written + read, 1)


_WRITING = [int(k) for k in (MemoryKind.STORE_GLOBAL, MemoryKind.ATOMIC_GLOBAL, MemoryKind.REDUCE_GLOBAL)]


def _bound(
    chip: Chip, memory: ChipL2, target: Target, grid: int, cycles: float, time_us: float
) -> tuple[str, dict[str, float]]:
    """The busiest resource of the whole chip, or "latency" when none is busy for half the time."""
    span = max(cycles, 1.0)
    sms = len(chip.state.scalars)
    busy = chip.state.pipe_busy.sum(axis=0) / (sms * span)
    shares = {
        "dram": float(memory.work[R_DRAM] / span),
        "l2": float(max(memory.work[R_READ], memory.work[R_WRITE]) / span),
        "issue": float(chip.state.scalars[:, ISSUED].sum() / (4.0 * sms * span)),
        "cta_launch": grid / target.launch.ctas_per_clk / span,
    }
    for pipe in Pipe:
        if pipe not in (Pipe.NONE, Pipe.BRANCH, Pipe.BARRIER):
            shares[pipe.name.lower()] = float(busy[pipe] / (1.0 if pipe == Pipe.LSU else 4.0))
    bounds = {name: share * time_us for name, share in shares.items() if share > 0.001}
    name = max(shares, key=lambda n: shares[n])
    return (name if shares[name] >= 0.5 else "latency"), bounds


def _memory(chip: Chip, memory: ChipL2) -> dict[str, float]:
    """Hit shares and bytes of the whole launch."""
    traffic = chip.state.traffic.sum(axis=0)
    totals = memory.totals
    reads = float(totals[T_DRAM_READS] + totals[T_LOCAL_READS])
    written = float(totals[T_WRITE_BACKS] + totals[T_LOCAL_WRITES])
    return {
        "l1_hit_share": float(traffic[mp.C_L1_HITS] / max(traffic[mp.C_L1_SECTORS], 1.0)),
        "l2_hit_share": float(totals[T_L2_HITS] / max(totals[T_READS], 1.0)),
        "l2_read_bytes": float(traffic[mp.C_L2_READ_SECTORS] * SECTOR_BYTES),
        "l2_write_bytes": float(traffic[mp.C_L2_WRITE_SECTORS] * SECTOR_BYTES),
        "dram_read_bytes": reads * SECTOR_BYTES,
        "dram_write_bytes": written * SECTOR_BYTES,
    }
