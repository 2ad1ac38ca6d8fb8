"""The sampled tier: execute representative CTAs, time one SM in detail, extend to the grid.

The SM looked at is one of the most loaded. Its CTAs run on the interpreter with traces; the SM engine replays them with
the SM's share of L2 and DRAM. When the SM receives more CTAs than the budget allows, the rest advance at the steady
rate seen between the first and the last wave.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from interpreter.isa.pipes import Pipe
from interpreter.launch import Launch
from interpreter.program import Program
from interpreter.trace import COUNTS, RunResult, Trace
from timing import memory_path as mp
from timing import sm_parameters as sp
from timing.confidence import confidence, coverage
from timing.dealing import deal
from timing.estimate import Estimate
from timing.imbalance import UnevenWork, makespan, traced_work, uneven_work
from timing.launch_geometry import Geometry
from timing.occupancy import Occupancy, occupancy
from timing.sharing import Neighbour, Sharing, sharing_of
from timing.sm_engine import run_sm
from timing.sm_rows import build_rows
from timing.stalls import N_STALLS, Stall
from timing.target import Target, row_timing
from timing.target_parameters import l2_hit_share, l2_reach, local_dram_share, parameters
from timing.timeline import Timeline, recorder, sm_timeline
from timing.traffic import SECTOR_BYTES, Region, local_bytes_per_warp, regions_of

TENSOR_IN_USE = 0.1  # share of the time from which on the clock is that of tensor work
FEW_WAVES = 8.0  # up to here it counts how the last wave is dealt; in longer launches all SMs end about together
NEIGHBOURS_SHARE = 0.25  # of the budget, at most, for CTAs that are only executed to see what is shared with them
INSTRUCTION_BUDGET = 1_500_000  # warp instructions timed for one estimate, about; whole CTAs always


class Executor(Protocol):
    """What the tier needs of `interpreter.machine.Machine`."""

    def run(self, ctas: Sequence[int] | None = None, mode: str = "plain", budget: int = ...) -> RunResult: ...


class TraceSource:
    """Traces of a launch's CTAs, executed on demand and kept: targets of one architecture share them."""

    def __init__(self, machine: Executor, warps_per_cta: int, rows: int) -> None:
        self._machine = machine
        self._warps = warps_per_cta
        self._traces: dict[int, Trace] = {}
        self.counts = np.zeros(rows, COUNTS)
        self.executed_ctas = 0
        self.seconds = 0.0

    def fetch(self, ctas: Sequence[int]) -> Trace:
        """One trace holding `ctas` in the order given."""
        self._execute(ctas)
        return _join([self._traces[cta] for cta in ctas], self._warps)

    def _execute(self, ctas: Sequence[int]) -> None:
        """Run those of `ctas` that have no trace yet."""
        missing = [cta for cta in ctas if cta not in self._traces]
        if missing:
            started = time.perf_counter()
            result = self._machine.run(missing, mode="trace")
            self.seconds += time.perf_counter() - started
            assert result.trace is not None and result.counts is not None
            for name in COUNTS.names or ():
                self.counts[name] += result.counts[name]
            self.executed_ctas += len(missing)
            for position, cta in enumerate(missing):
                self._traces[cta] = _slice(result.trace, position)

    def work(self, ctas: Sequence[int]) -> np.ndarray:
        """Warp instructions of each of `ctas`."""
        self._execute(ctas)
        return np.array([len(self._traces[cta].events) for cta in ctas], np.float64)


def _slice(trace: Trace, position: int) -> Trace:
    w = trace.warps_per_cta
    first, last = position * w, (position + 1) * w
    events = trace.events[trace.warp_start[first] : trace.warp_start[last]]
    lines = trace.lines[trace.line_start[first] : trace.line_start[last]]
    return Trace(
        [trace.ctas[position]],
        w,
        events,
        trace.warp_start[first : last + 1] - trace.warp_start[first],
        lines,
        trace.line_start[first : last + 1] - trace.line_start[first],
    )


def _join(traces: list[Trace], warps_per_cta: int) -> Trace:
    if len(traces) == 1:
        return traces[0]
    event_counts = np.concatenate([np.diff(t.warp_start) for t in traces])
    line_counts = np.concatenate([np.diff(t.line_start) for t in traces])
    return Trace(
        [t.ctas[0] for t in traces],
        warps_per_cta,
        np.concatenate([t.events for t in traces]),
        np.concatenate([[0], np.cumsum(event_counts)]).astype(np.int64),
        np.concatenate([t.lines for t in traces]),
        np.concatenate([[0], np.cumsum(line_counts)]).astype(np.int64),
    )


def sampled_estimate(
    program: Program,
    launch: Launch,
    target: Target,
    traces: TraceSource,
    allocations: Sequence[tuple[int, int]],
    *,
    l2: str = "warm",
    budget: int = INSTRUCTION_BUDGET,
    records: int = 0,
) -> Estimate:
    """Estimate one launch on one target.

    `allocations` are (guest address, bytes) of the buffers. `l2` is "warm" (the launch is repeated on the same buffers)
    or "cold". With `records` the estimate has a timeline of the SM looked at, of at most so many. Raises `CannotLaunch`
    when the target cannot hold one CTA.
    """
    started = time.perf_counter()
    executed_before = traces.seconds
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    warps = -(-threads // 32)
    grid = launch.grid[0] * launch.grid[1] * launch.grid[2]
    occ = occupancy(target, program.registers, threads, program.static_shared, launch.dynamic_shared, program.barriers)
    geometry = Geometry(grid, target.sm_count, occ.ctas_per_sm)
    rows = build_rows(program, target)
    uneven = uneven_work(geometry.ctas, traces, budget)
    if uneven is None:
        trace = _choose(geometry, traces, budget)
    else:
        trace = traces.fetch(uneven.representative(geometry.resident, budget))
    regions = regions_of(rows, trace, allocations, grid)
    cta, neighbours = (None, []) if uneven is not None else _neighbours(geometry, launch, trace.ctas, traces, budget)
    sharing = sharing_of(rows, cta, neighbours, regions)
    run = _simulate(
        rows, trace, geometry, target, occ, regions, sharing, warps, l2, len(program.instructions), uneven, records
    )
    scale = grid / max(traces.executed_ctas, 1)
    cycles = run.cycles
    overhead = target.launch.kernel_overhead_us
    clock = loaded_clock_mhz(target, run.busy[Pipe.TENSOR] / (4.0 * max(run.simulated_cycles, 1.0)))
    time_us = cycles / clock + overhead
    if not np.isfinite(time_us):  # a division by zero in the engine: a fault, never a number
        raise ArithmeticError(f"the timing engine gave {cycles} cycles")
    counts = traces.counts
    issued_total = float(counts["instructions_executed"].sum()) * scale
    bound, bounds = _bound(run, geometry, target, issued_total, time_us)
    elapsed = time.perf_counter() - started
    covered = coverage(row_timing(program, target), counts["instructions_executed"])
    share = min(1.0, traces.executed_ctas / grid)
    return Estimate(
        target=target.name,
        tier="sampled",
        time_us=time_us,
        cycles=cycles,
        clock_mhz=clock,
        bound=bound,
        occupancy=occ,
        waves=geometry.waves,
        l2=l2,
        confidence=confidence(target, covered),
        executed_share=share,
        simulation_seconds=elapsed if traces.seconds > executed_before else elapsed + executed_before,
        bounds=bounds,
        stalls=run.stalls,
        executed=counts["instructions_executed"] * scale,
        thread_executed=counts["thread_instructions_executed"] * scale,
        sectors=counts["l2_theoretical_sectors_global"] * scale,
        wavefronts=counts["l1_wavefronts_shared"] * scale,
        coverage=covered,
        memory=run.memory,
        warp_instructions=issued_total,
        expected_error=None if share >= 1.0 else run.spread,
        timeline=run.timeline,
    )


def loaded_clock_mhz(target: Target, tensor_use: float) -> float:
    """SM clock while the tensor cores are busy for `tensor_use` of the time.

    They draw it down as soon as they work at all: H200's profiles show 1833 MHz at 7 % use, 1766 to 1785 at 14 to 50 %.
    """
    drop = target.gpu.clock_mhz - min(target.gpu.tensor_clock_mhz, target.gpu.clock_mhz)
    return target.gpu.clock_mhz - drop * min(max(tensor_use, 0.0) / TENSOR_IN_USE, 1.0)


def _choose(geometry: Geometry, traces: TraceSource, budget: int) -> Trace:
    """The CTAs of the sampled SM to execute: all of them, or whole waves within the budget."""
    sm = geometry.sampled_sm()
    own = geometry.ctas_of(sm, 0, geometry.most)
    most = len(own)
    first = geometry.ctas_of(sm, 0, 1)
    length = max(int(traces.fetch(first).events.shape[0]), 1)
    resident = min(geometry.resident, most)
    affordable = max(budget // length, 1)
    if most <= affordable:
        # an SM may get a filling more than its even share
        few = 1.0 < geometry.waves < FEW_WAVES
        return traces.fetch(own + geometry.more_ctas(sm, resident) if few else own)
    else:
        waves = max(affordable // resident, 1)
        # a steady rate needs waves between the first and the last; more than a few add nothing
        wanted = min(most, resident * min(max(waves, 1), 6))
        if waves < 3 and 3 * resident * length <= 4 * budget:
            wanted = min(most, 3 * resident)
    return traces.fetch(geometry.ctas_of(sm, 0, wanted))


def _neighbours(
    geometry: Geometry, launch: Launch, executed: Sequence[int], traces: TraceSource, budget: int
) -> tuple[Trace | None, list[Neighbour]]:
    """Of `executed` a CTA inside the grid, and the next one in each dimension.

    None where the grid has no inside, and where the neighbours would cost a good part of the budget.
    """
    strides = np.cumprod([1, *launch.grid[:2]])
    wide = [(int(stride), extent) for stride, extent in zip(strides, launch.grid, strict=True) if extent > 2]
    inside = [cta for cta in executed if all(0 < cta // stride % extent < extent - 1 for stride, extent in wide)]
    if not wide or not inside:
        return None, []
    cta = inside[len(inside) // 2]
    own = traces.fetch([cta])
    if len(wide) * len(own.events) > NEIGHBOURS_SHARE * budget:
        return None, []
    return own, [Neighbour(traces.fetch([cta + stride]), stride < geometry.slots) for stride, _ in wide]


class _Run:
    """What one replay of the sampled SM gave."""

    def __init__(self) -> None:
        self.cycles = 0.0
        self.stalls = np.zeros((0, N_STALLS))
        self.busy = np.zeros(0)
        self.simulated_cycles = 0.0
        self.issued = 0
        self.memory: dict[str, float] = {}
        self.traffic = np.zeros(mp.N_TRAFFIC)
        self.dram_busy = 0.0
        self.l2_busy = 0.0
        self.launch_cycles = 0.0
        self.spread = 0.0
        self.done = np.zeros(0)  # when each CTA ended, cycles,
        self.issued_at = np.zeros(0, np.int64)  # and what the SM had issued by then
        self.timeline: Timeline | None = None


def _simulate(
    rows: np.ndarray,
    trace: Trace,
    geometry: Geometry,
    target: Target,
    occ: Occupancy,
    regions: list[Region],
    sharing: Sharing,
    warps: int,
    l2: str,
    n_rows: int,
    uneven: UnevenWork | None,
    records: int,
) -> _Run:
    local = local_bytes_per_warp(trace) * min(occ.warps_per_sm, warps * geometry.most) * geometry.active_sms
    footprint = sum(max(r.read_unique, r.write_unique) for r in regions) + local

    def parameters_of(geometry: Geometry) -> np.ndarray:
        p = parameters(target, occ, geometry, footprint)
        p[sp.LOCAL_DRAM_SHARE] = local_dram_share(target, occ, local)
        p[sp.REPEATED] = l2 == "warm"
        return p

    p = parameters_of(geometry)
    hit = l2_hit_share(target, footprint) if l2 == "warm" else 0.0
    lines = np.array([(r.first_line, r.last_line) for r in regions], np.int64).reshape(-1, 2)
    shares = np.zeros((len(regions), mp.N_SHARES))
    moved = sum(r.read_bytes + r.write_bytes for r in regions)
    for i, r in enumerate(regions):
        if r.scatter > 0.0 and l2 == "warm":
            # drawn at random: a sector is read again after this many bytes on average, if it is still there
            gap = moved * r.read_unique / r.read_bytes
            shares[i, mp.S_READ] = float(np.exp(-l2_reach(target) / gap))
        else:
            shares[i, mp.S_READ] = 1.0 - hit
        shares[i, mp.S_WRITE] = (1.0 - hit) * (r.write_unique / r.write_bytes if r.write_bytes else 0.0)
        shares[i, mp.S_CONTENTION] = r.atomic_contention
        shares[i, mp.S_SCATTER] = r.scatter * target.dram.scatter_sectors
    shares[:, mp.S_FIRST : mp.S_GIVEN + 1] = sharing.pays
    trace = sharing.marked(rows, trace)
    m = len(trace.ctas)
    looked_at = geometry.sampled_sm()
    pace, uneven_cycles = 1.0, 0.0
    run = _replay(rows, trace, m, geometry.resident, warps, p, lines, shares, n_rows, records)
    if uneven is not None:
        rate, run.spread = _work_rate(run, min(geometry.resident, m))
        work = traced_work(trace)
        longest = int(np.argmax(work))
        single = _replay(rows, _slice(trace, longest), 1, 1, warps, p, lines, shares, n_rows)
        alone = work[longest] / single.simulated_cycles
        uneven_cycles = makespan(uneven.grid(), geometry.sm_count, geometry.resident, rate, min(alone, rate))
    elif geometry.waves < FEW_WAVES:
        dealt = deal(
            geometry.ctas, geometry.sm_count, geometry.resident, np.sort(run.done), _jitter(target, run.stalls)
        )
        pace = dealt.pace
        if geometry.waves > 1.0:
            geometry = replace(geometry, dealt=dealt)
            p = parameters_of(geometry)
            # again with the CTAs it really gets, and with the larger shares at the end when other SMs are done
            if geometry.most > m:  # leave out whole fillings, so that what is timed ends as the launch does
                resident = geometry.resident
                m = max(geometry.most - -(-(geometry.most - m) // resident) * resident, min(resident, m))
            m = min(m, geometry.most)
            p[sp.TAIL_AFTER] = max(p[sp.TAIL_AFTER] - (geometry.most - m), 1.0) if dealt.above_least else 0.0
            run = _replay(rows, trace, m, geometry.resident, warps, p, lines, shares, n_rows, records)
    traffic = run.traffic
    total = geometry.most
    cycles = run.simulated_cycles
    if uneven is not None:
        cycles = uneven_cycles
    elif total > m:
        rate, run.spread = _steady_rate(np.sort(run.done), min(geometry.resident, m))
        cycles += (total - m) * rate
    run.cycles = cycles * pace
    reads, writes = traffic[mp.C_DRAM_READ_SECTORS], traffic[mp.C_DRAM_WRITE_SECTORS]
    mix = 4.0 * reads * writes / max(reads + writes, 1.0) ** 2
    run.dram_busy = (reads + writes) * p[sp.DRAM_CYCLES_PER_SECTOR] * (1.0 + mix * p[sp.DRAM_MIX_COST])
    if run.timeline is not None:
        run.timeline.sm[:] = looked_at
    run.l2_busy = max(
        traffic[mp.C_L2_READ_SECTORS] * p[sp.L2_CYCLES_PER_SECTOR],
        traffic[mp.C_L2_WRITE_SECTORS] * p[sp.L2_WRITE_CYCLES_PER_SECTOR],
    )
    run.launch_cycles = m * p[sp.CTA_LAUNCH_INTERVAL]
    scale = geometry.ctas / max(m, 1) * SECTOR_BYTES
    run.memory = {
        "l1_hit_share": float(traffic[mp.C_L1_HITS] / max(traffic[mp.C_L1_SECTORS], 1.0)),
        "l2_hit_share": float(1.0 - traffic[mp.C_DRAM_READ_SECTORS] / max(traffic[mp.C_L2_READ_SECTORS], 1.0)),
        "l2_read_bytes": float(traffic[mp.C_L2_READ_SECTORS] * scale),
        "l2_write_bytes": float(traffic[mp.C_L2_WRITE_SECTORS] * scale),
        "dram_read_bytes": float(traffic[mp.C_DRAM_READ_SECTORS] * scale),
        "dram_write_bytes": float(traffic[mp.C_DRAM_WRITE_SECTORS] * scale),
        "footprint_bytes": float(footprint),
    }
    return run


def _replay(
    rows: np.ndarray,
    trace: Trace,
    ctas: int,
    resident: int,
    warps: int,
    p: np.ndarray,
    lines: np.ndarray,
    shares: np.ndarray,
    n_rows: int,
    records: int = 0,
) -> _Run:
    """Time the first `ctas` of the trace on one SM, `resident` at a time."""
    run = _Run()
    run.stalls = np.zeros((n_rows, N_STALLS))
    run.done = np.full(ctas, -1.0)
    run.issued_at = np.zeros(ctas, np.int64)
    record = recorder(min(records, int(trace.warp_start[ctas * warps]))) if records else None
    end, issued, _, run.traffic, run.busy = run_sm(
        rows,
        trace.events,
        trace.warp_start,
        trace.lines,
        trace.line_start,
        warps,
        np.arange(ctas, dtype=np.int64),
        min(resident, ctas),
        p,
        lines,
        shares,
        1 << 60,
        run.stalls,
        run.done,
        run.issued_at,
        record,
    )
    run.simulated_cycles = float(end)
    run.issued = int(issued)
    if record is not None:
        run.timeline = sm_timeline(record, trace.ctas, 0, run.issued)
    return run


def _jitter(target: Target, stalls: np.ndarray) -> float:
    """How far SMs are out of step (see `deal`): more, the more their warps wait for memory."""
    waited = float(stalls[:, Stall.LONG_SCOREBOARD].sum() / max(stalls.sum(), 1.0))
    return target.launch.sm_jitter + waited * target.launch.sm_memory_jitter


def _steady_rate(done: np.ndarray, resident: int) -> tuple[float, float]:
    """Cycles a CTA in the steady state, from sorted completion times, and its relative uncertainty.

    The first wave starts together on empty queues and the last drains: both are left out when enough is there.
    """
    m = len(done)
    if m >= 3 * resident and m > 2:
        first, last = resident - 1, m - resident - 1
        if last - first >= max(resident, 2):
            middle = (first + last) // 2
            rate = (done[last] - done[first]) / (last - first)
            halves = [
                (done[middle] - done[first]) / max(middle - first, 1),
                (done[last] - done[middle]) / max(last - middle, 1),
            ]
            return float(rate), float(abs(halves[0] - halves[1]) / max(rate, 1e-9) / 2)
    return float(done[-1] / m), 0.2


def _work_rate(run: _Run, resident: int) -> tuple[float, float]:
    """Warp instructions a cycle of an SM that is kept full, and the uncertainty."""
    order = np.argsort(run.done)
    edge = min(resident, len(order) // 3)
    first, last = order[max(edge - 1, 0)], order[max(len(order) - edge - 1, 0)]
    span = run.done[last] - run.done[first]
    if span <= 0.0:
        return float(run.issued / run.simulated_cycles), 0.2
    return float((run.issued_at[last] - run.issued_at[first]) / span), 0.1


def _bound(
    run: _Run, geometry: Geometry, target: Target, issued_total: float, time_us: float
) -> tuple[str, dict[str, float]]:
    """The busiest resource of the simulated stretch, or "latency" when none is busy for half the time."""
    span = max(run.simulated_cycles, 1.0)
    shares = {
        "dram": run.dram_busy / span,
        "l2": run.l2_busy / span,
        "issue": run.issued / (4.0 * span),
        "cta_launch": run.launch_cycles / span,
    }
    for pipe in Pipe:
        if pipe in (Pipe.NONE, Pipe.BRANCH, Pipe.BARRIER):
            continue
        if pipe == Pipe.LSU:
            shares["lsu"] = run.busy[pipe] / span
        else:
            shares[pipe.name.lower()] = run.busy[pipe] / (4.0 * span)
    bounds = {name: share * time_us for name, share in shares.items() if share > 0.001}
    name = max(shares, key=lambda n: shares[n])
    if shares[name] < 0.5:
        name = "latency"
    return name, bounds
