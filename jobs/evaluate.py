"""Evaluating work items: compile, decode, execute, estimate. The only place where a variant's failure becomes a row.

For each item the SASS is executed once; every target of its architecture is estimated from the same traces.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from interpreter.compile import compile_cubin
from interpreter.decode import load_program, load_programs
from interpreter.disassembly import cache_directory
from interpreter.errors import CompileError, CubinError, FarmError, ToolchainError
from interpreter.isa import registry
from interpreter.launch import Launch, pack_arguments
from interpreter.machine import Machine
from interpreter.memory import Memory
from interpreter.program import Program
from interpreter.trace import Trace
from jobs.arguments import argument_values
from jobs.tables import STALL_COLUMNS
from jobs.timeline import encoded_timeline, recording_row
from jobs.work import (
    RUNTIME,
    TIMEOUT,
    VariantResult,
    VariantTimeout,
    WorkItem,
    classify,
    estimate_failure,
    failed_result,
    variant_row,
)
from timing.cycle_tier import cycle_estimate
from timing.estimate import Estimate
from timing.occupancy import CannotLaunch
from timing.sampled import TraceSource, sampled_estimate
from timing.static_tier import scout_of, static_estimate
from timing.target import Target, TargetError, load_target, row_timing
from timing.warm_up import compile_engine

Event = tuple[Literal["begin", "done"], int, VariantResult | None]


_progress: Callable[[float], None] | None = None
_recording: set[str] = set()  # tiers for which the engine that records is loaded


def report_progress_to(receiver: Callable[[float], None]) -> None:
    """From now on, tell `receiver` now and then what share of a long evaluation is done."""
    global _progress
    _progress = receiver


def prepare_worker(chip: bool = False, records: bool = False) -> None:
    """Load the timing engine, compiling it if this machine has not yet: one process of it at a time.

    `chip`: that of the cycle tier too; `records`: the one that records timelines.
    """
    lock = cache_directory(None) / "engine.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        compile_engine(chip, records)


@dataclass(slots=True)
class _Prepared:
    """An item's cubin and what is known of it; `columns` are of the table `variants`."""

    cubin: bytes
    columns: dict[str, Any] = field(default_factory=dict)
    spills: dict[str, tuple[int, int]] = field(default_factory=dict)
    seconds_left: float = 0.0


def evaluate(item: WorkItem) -> VariantResult:
    """One item's result. Failures of the variant are in the result; only ToolchainError (the machine's) is raised."""
    for kind, _, result in evaluate_batch([item]):
        if kind == "done" and result is not None:
            return result
    raise AssertionError("evaluate_batch gave no result")


def evaluate_batch(items: list[WorkItem]) -> Iterator[Event]:
    """Results of items of one architecture, disassembled together; before each step "begin" says whose it is."""
    wishes = {item.record.tier for item in items if item.record is not None}
    if wishes - _recording:
        prepare_worker(chip="cycle" in wishes, records=True)
        _recording.update(wishes)
    prepared: dict[int, _Prepared] = {}
    for index, item in enumerate(items):
        yield "begin", index, None
        outcome = _guarded(item, functools.partial(_cubin, item))
        if isinstance(outcome, VariantResult):
            yield "done", index, outcome
        else:
            prepared[index] = outcome
    programs = _disassembled(items, prepared)
    for index, ready in prepared.items():
        yield "begin", index, None
        item, program = items[index], programs.get(index)
        step = functools.partial(_estimated, item, ready, program)
        yield "done", index, _guarded(item, step, ready)


def _guarded(item: WorkItem, step: Callable[[], Any], ready: _Prepared | None = None) -> Any:
    """The step's value, or the failed result that its exception means."""
    started = time.perf_counter()
    columns = {} if ready is None else ready.columns  # filled in by the step
    try:
        with _time_limit(item.seconds), memory_limit(item.memory):
            return step()
    except ToolchainError:
        raise
    except VariantTimeout:
        message = f"more than {item.seconds:g} s of simulation (raise it with --seconds)"
        return failed_result(item, TIMEOUT, message, columns, time.perf_counter() - started)
    except (MemoryError, FarmError) as error:
        if isinstance(error, MemoryError) or os.strerror(errno.ENOMEM) in str(error):  # of numpy, or of a mapping
            message = f"more than {item.memory / 2**30:.3g} GiB of memory (raise it with --memory)"
            return failed_result(item, RUNTIME, message, columns, time.perf_counter() - started)
        message = _message(error)
        return failed_result(item, classify(error), message, columns, time.perf_counter() - started)
    except Exception as error:  # the boundary: a fault of the simulator costs one variant, and says where it is
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = f"simulator fault: {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
        return failed_result(item, RUNTIME, message, columns, time.perf_counter() - started)


def _message(error: FarmError) -> str:
    if isinstance(error, CompileError) and error.stderr:
        return f"{error}\n{error.stderr}"
    return str(error)


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise VariantTimeout after `seconds`. Code that never returns to Python is the pool's to stop."""

    def expired(_signal: int, _frame: object) -> None:
        raise VariantTimeout

    previous = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@contextlib.contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Let this process, and what it starts, allocate `more` bytes beyond what it has; then MemoryError."""
    held = data_bytes()
    if held is None:  # no /proc: only what watches the worker from outside limits it
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = held + more if hard == resource.RLIM_INFINITY else min(held + more, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def data_bytes() -> int | None:
    """Bytes that RLIMIT_DATA counts of this process: heap and private writable memory."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[5]
    except OSError:
        return None
    return int(pages) * resource.getpagesize()


def _cubin(item: WorkItem) -> _Prepared:
    build = item.build
    if build.source is not None:
        compiled = compile_cubin(build.source, build.arch, dict(build.macros), list(build.flags), item.cache)
        columns = {
            "cubin_sha": compiled.sha,
            "command": " ".join(compiled.command),
            "compile_seconds": compiled.seconds,
        }
        spills = {n: (r.spill_store_bytes, r.spill_load_bytes) for n, r in compiled.resources.items()}
        return _Prepared(compiled.cubin, columns, spills)
    assert build.cubin is not None
    try:
        return _Prepared(build.cubin.read_bytes())
    except OSError as error:
        raise CubinError(f"{build.cubin}: {error.strerror}") from None


def _disassembled(items: list[WorkItem], prepared: dict[int, _Prepared]) -> dict[int, Program]:
    """Programs of all cubins in one go; empty when one of them fails, so that each then fails on its own."""
    if len(prepared) < 2:
        return {}
    cache = next(iter(items)).cache
    try:
        wanted = [(p.cubin, items[i].build.entry) for i, p in prepared.items()]
        found = load_programs(wanted, cache=cache, lines=True)
    except ToolchainError:
        raise
    except FarmError:
        return {}
    return dict(zip(prepared, found, strict=True))


def _estimated(item: WorkItem, ready: _Prepared, program: Program | None) -> VariantResult:
    if program is None:
        program = load_program(ready.cubin, item.build.entry, cache=item.cache, lines=True)
    stores, loads = ready.spills.get(program.name, (program.spill_store_bytes, program.spill_load_bytes))
    ready.columns |= {
        "kernel": program.name,
        "cubin_sha": program.cubin_sha,
        "compiler": compiler_of(ready.cubin),
        "registers": program.registers,
        "static_shared_bytes": program.static_shared,
        "stack_bytes": program.stack,
        "spill_store_bytes": stores,
        "spill_load_bytes": loads,
        "code_bytes": program.code_bytes,
        "barriers": program.barriers,
    }
    registry.check(program)
    execution = _Execution(item, program)
    result = VariantResult(item.family, item.variant)
    for name, spec in item.targets:
        _one_target(item, ready, execution, load_target(spec), result)
        assert result.rows.variants[-1]["target"] == name
    failures = [row for row in result.rows.variants if row["status"] != "ok"]
    if len(failures) == len(result.rows.variants):
        result.failure, result.message = failures[0]["failure"], failures[0]["message"]
    return result


class _Execution:
    """The kernel in memory, run on demand; what it ran is shared by all targets."""

    def __init__(self, item: WorkItem, program: Program) -> None:
        self.program = program
        self._item = item
        memory = Memory()
        values, self.allocations = argument_values(memory, item.arguments)
        self.launch = Launch(item.grid, item.block, item.shared, pack_arguments(program, values))
        self.machine = Machine(program, memory, self.launch)
        threads = item.block[0] * item.block[1] * item.block[2]
        self.budgeted = _Budgeted(self.machine, item.instructions)
        self.traces = TraceSource(self.budgeted, -(-threads // 32), len(program.instructions))
        self._scout_cta = item.grid[0] * item.grid[1] * item.grid[2] // 2
        self._scout: tuple[np.ndarray, Trace] | None = None
        self.footprint = float(sum(size for _, size in self.allocations))

    def untouched(self) -> _Execution:
        """The kernel before any of it has run: this one, or another with its own memory."""
        if self.budgeted.used:
            return _Execution(self._item, self.program)
        return self

    def scout(self) -> tuple[np.ndarray, Trace]:
        """Counts and trace of one CTA from the middle of the grid, for the static tier."""
        if self._scout is None:
            trace = self.traces.fetch([self._scout_cta])
            assert self.traces.executed_ctas == 1, "the scout runs before any other CTA"
            self._scout = self.traces.counts.copy(), trace
        return self._scout


class _Budgeted:
    """A machine whose every run has the item's instruction budget."""

    def __init__(self, machine: Machine, instructions: int) -> None:
        self._machine = machine
        self._instructions = instructions
        self.used = False

    def run(self, ctas: Any = None, mode: Any = "plain", budget: int | None = None) -> Any:
        self.used = True
        return self._machine.run(ctas, mode=mode, budget=budget or self._instructions)


def _one_target(item: WorkItem, ready: _Prepared, execution: _Execution, target: Target, result: VariantResult) -> None:
    """Estimates of one target, or its own reason why there are none."""
    row = {**variant_row(item, target.name), **ready.columns}
    estimates: list[Estimate] = []
    try:
        for tier in item.tiers:
            estimates.append(_estimate(item, execution, target, tier))
    except (CannotLaunch, TargetError) as error:  # this target's alone: too little of something, another architecture
        message = str(error)
        result.rows.variants.append({**row, "status": "failed", "failure": RUNTIME, "message": message})
        for tier in item.tiers:
            result.rows.estimates.append(estimate_failure(item, target.name, tier, RUNTIME, message))
        return
    result.rows.variants.append(row)
    for estimate in estimates:
        result.rows.estimates.append(_estimate_row(item, estimate))
        result.rows.instructions.append(_instruction_block(item, execution, estimate))
        if estimate.timeline is not None:
            result.encoded += encoded_timeline(item, estimate, execution.program)
            result.rows.recordings.append(recording_row(item, estimate))
            estimate.timeline = None  # as large as all else together


def _estimate(item: WorkItem, execution: _Execution, target: Target, tier: str) -> Estimate:
    program, launch = execution.program, execution.launch
    record = item.record if item.record is not None and item.record.tier == tier else None
    records = record.records if record is not None else 0
    if tier == "sampled":
        return sampled_estimate(
            program, launch, target, execution.traces, execution.allocations, l2=item.l2, records=records
        )
    if tier == "cycle":
        fresh = execution.untouched()
        return cycle_estimate(
            program,
            launch,
            target,
            fresh.budgeted,
            fresh.allocations,
            l2=item.l2,
            threads=item.threads,
            progress=lambda done, ctas, _cycle: _progress(done / ctas) if _progress is not None else None,
            records=records,
            record_sms=record.sms or None if record is not None else None,
        )
    rows = row_timing(program, target)
    started = time.perf_counter()
    static_estimate(program, launch, target, rows=rows)  # CannotLaunch before anything is executed
    counts, trace = execution.scout()
    estimate = static_estimate(
        program,
        launch,
        target,
        scout=scout_of(counts, trace, rows),
        footprint_bytes=execution.footprint,
        l2=item.l2,
        rows=rows,
    )
    estimate.simulation_seconds = time.perf_counter() - started
    return estimate


def _estimate_row(item: WorkItem, estimate: Estimate) -> dict[str, Any]:
    occupancy = estimate.occupancy
    return {
        "family": item.family,
        "variant": item.variant,
        "target": estimate.target,
        "tier": estimate.tier,
        "l2": estimate.l2,
        "status": "ok",
        "time_us": float(estimate.time_us),
        "cycles": float(estimate.cycles),
        "clock_mhz": float(estimate.clock_mhz),
        "bound": estimate.bound,
        "ctas_per_sm": occupancy.ctas_per_sm,
        "warps_per_sm": occupancy.warps_per_sm,
        "occupancy": occupancy.fraction,
        "limiter": occupancy.limiter,
        "waves": float(estimate.waves),
        "warp_instructions": float(estimate.warp_instructions),
        "executed_share": float(estimate.executed_share),
        "expected_error": estimate.expected_error,
        "confidence": estimate.confidence,
        "coverage": _floats(estimate.coverage),
        "bounds_us": _floats(estimate.bounds),
        "memory": _floats(estimate.memory),
        "simulation_seconds": float(estimate.simulation_seconds),
    }


def _instruction_block(item: WorkItem, execution: _Execution, estimate: Estimate) -> dict[str, Any]:
    program = execution.program
    instructions = program.instructions
    block: dict[str, Any] = {
        "family": item.family,
        "variant": item.variant,
        "target": estimate.target,
        "tier": estimate.tier,
        "pc": np.array([instruction.address for instruction in instructions], np.int32),
        "sass": [instruction.text for instruction in instructions],
        "source_line": np.array([instruction.source_line for instruction in instructions], np.int32),
        "executed": estimate.executed,
        "thread_executed": estimate.thread_executed,
        "sectors": estimate.sectors,
        "wavefronts": estimate.wavefronts,
        "sectors_ideal": _ideal(execution.traces.counts, "l2_theoretical_sectors_global", estimate.sectors),
        "wavefronts_ideal": _ideal(execution.traces.counts, "l1_wavefronts_shared", estimate.wavefronts),
        "control": control_words(program),
        "source_file": [_beside(instruction.source_file, item.build.source) for instruction in instructions],
    }
    if estimate.stalls is not None:
        stalls = np.asarray(estimate.stalls, np.float32)
        block |= {column: stalls[:, index] for index, column in enumerate(STALL_COLUMNS)}
    return block


def _beside(file: str, source: Path | None) -> str | None:
    """A source file's path from the kernel's folder (its name alone where it lies elsewhere): the same everywhere."""
    if not file:
        return None
    path = Path(file)
    if source is not None and path.is_relative_to(source.parent):
        return path.relative_to(source.parent).as_posix()
    return path.name


def _ideal(counts: np.ndarray, counter: str, actual: np.ndarray | None) -> np.ndarray | None:
    """`actual` of the whole grid times the share that would be ideal, as the executed CTAs show it."""
    if actual is None:
        return None
    found, ideal = counts[counter].astype(np.float64), counts[f"{counter}_ideal"].astype(np.float64)
    return np.asarray(actual, np.float64) * np.divide(ideal, found, out=np.ones_like(found), where=found > 0)


_TOOLS = re.compile(rb"Cuda compilation tools, release [\d.]+, V(\d[\d.]*)")


def compiler_of(cubin: bytes) -> str | None:
    """ "ptxas 13.0.88", from the note that ptxas leaves in a cubin; None when there is none."""
    found = _TOOLS.search(cubin)
    return None if found is None else f"ptxas {found[1].decode()}"


def control_words(program: Program) -> np.ndarray:
    """Bits 125:105 of each instruction's encoding, int32, as the table `instructions` keeps them."""
    high = np.array([instruction.high for instruction in program.instructions], np.uint64)
    return ((high >> np.uint64(105 - 64)) & np.uint64((1 << 21) - 1)).astype(np.int32)


def _floats(values: dict[str, Any]) -> list[tuple[str, float]]:
    return [(name, float(value)) for name, value in values.items() if isinstance(value, int | float | np.number)]
