"""Units of work and their results: what travels to a worker process and back.

A work item is one variant's code for one architecture, with all the targets of that architecture that share its launch:
the SASS is executed once for all of them. Failures are results too, in Kernel Tuner's words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from interpreter.errors import (
    BudgetExceeded,
    CompileError,
    CubinError,
    ExecutionError,
    LaunchError,
    UnsupportedInstruction,
)
from jobs.packed import Packed
from jobs.parts import Encoded
from jobs.tables import Rows
from jobs.variants import ArgumentSpec, Dim3
from timing.occupancy import CannotLaunch

# Kernel Tuner's classes of invalid configurations.
COMPILE, RUNTIME, CORRECTNESS, TIMEOUT, CONSTRAINTS = "compile", "runtime", "correctness", "timeout", "constraints"

TIERS = ("static", "sampled", "cycle")

Kind = tuple[str, str, tuple[str, ...]]  # of work items: family, architecture, tiers

# Wall-clock seconds a variant may take on one architecture, and warp instructions each warp of it may issue.
DEFAULT_SECONDS = 120.0
CYCLE_SECONDS = 3600.0  # the cycle tier executes whole grids
DEFAULT_INSTRUCTIONS = 20_000_000
DEFAULT_MEMORY = 8 << 30  # bytes a variant may need beyond what its worker holds anyway


class VariantTimeout(Exception):
    """Raised inside a worker when the variant's seconds are used up."""


@dataclass(frozen=True, slots=True)
class KernelBuild(Packed):
    """How to get the cubin: compile `source` with `macros` and `flags`, or read the file `cubin`."""

    arch: str  # sm_90a and so on
    entry: str | None
    source: Path | None = None
    cubin: Path | None = None
    macros: tuple[tuple[str, int], ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """A wish for timelines: of the estimates of one tier, at most `records` each; in the cycle tier of `sms` (empty:
    all)."""

    tier: str
    records: int
    sms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkItem(Packed):
    """One variant on the targets of one architecture. Pure data; `targets` are (name, what `load_target` takes)."""

    family: str
    variant: int
    parameters: tuple[tuple[str, int], ...]
    names: tuple[tuple[str, int], ...]
    build: KernelBuild
    grid: Dim3
    block: Dim3
    shared: int
    arguments: tuple[ArgumentSpec, ...]
    targets: tuple[tuple[str, str], ...]
    tiers: tuple[str, ...] = ("static", "sampled")
    l2: str = "warm"
    seconds: float = DEFAULT_SECONDS
    instructions: int = DEFAULT_INSTRUCTIONS
    memory: int = DEFAULT_MEMORY
    cache: Path = Path(".")
    threads: int = 1  # for the cycle tier; results do not depend on it
    shown: tuple[tuple[str, str], ...] = ()  # path here -> path on the submitting machine, for messages
    record: Recording | None = None
    record_only: bool = False  # the estimates are there already: nothing but the timeline is kept

    @property
    def label(self) -> str:
        return f"{self.family} variant {self.variant} ({self.build.arch})"


@dataclass(slots=True)
class VariantResult:
    """Rows for the result tables. `failure` is set when no target got an estimate."""

    family: str
    variant: int
    rows: Rows = field(default_factory=Rows)
    failure: str | None = None
    message: str | None = None
    encoded: list[Encoded] = field(default_factory=list)  # rows too many to travel as they are


@dataclass(slots=True)
class Finished:
    """A result as it travels to the driver: what the funnel and the progress need, and the rows as Arrow tables.

    `times` holds estimated us by (target, tier), None where that failed; `seconds` what it took, compilation included.
    """

    family: str
    variant: int
    arch: str
    tiers: tuple[str, ...]
    times: dict[tuple[str, str], float | None]
    failure: str | None = None
    message: str | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the worker and the tools it ran
    peak_bytes: int = 0  # of the worker process so far
    tables: dict[str, pa.Table] = field(default_factory=dict)
    encoded: list[Encoded] = field(default_factory=list)
    record_only: bool = False


def finish(item: WorkItem, result: VariantResult, seconds: float = 0.0) -> Finished:
    """Make a result ready to travel. A later pass writes no `variants`: the first has written them."""
    rows = result.rows
    for local, original in item.shown:
        for row in (*rows.variants, *rows.estimates):
            if row.get("message"):
                row["message"] = row["message"].replace(local, original)
        result.message = result.message and result.message.replace(local, original)
    times = {(row["target"], row["tier"]): row.get("time_us") for row in rows.estimates}
    kept = Rows(rows.variants if "static" in item.tiers else [], rows.estimates, rows.instructions, rows.recordings)
    if item.record_only:
        times, kept = {}, Rows(recordings=rows.recordings)
    return Finished(
        item.family,
        item.variant,
        item.build.arch,
        item.tiers,
        times,
        result.failure,
        result.message,
        seconds,
        tables=kept.tables(),
        encoded=result.encoded,
        record_only=item.record_only,
    )


def classify(error: BaseException) -> str:
    """Kernel Tuner's class of a failure."""
    if isinstance(error, CompileError | CubinError):
        return COMPILE
    if isinstance(error, BudgetExceeded | VariantTimeout):
        return TIMEOUT
    if isinstance(error, MemoryError):
        return RUNTIME
    if isinstance(error, CannotLaunch | LaunchError | ExecutionError | UnsupportedInstruction):
        return RUNTIME
    return RUNTIME


def variant_row(item: WorkItem, target: str) -> dict[str, Any]:
    """The row of `variants` as far as the sweep decides it; status is to be filled in."""
    return {
        "family": item.family,
        "variant": item.variant,
        "target": target,
        "arch": item.build.arch,
        "parameters": list(item.parameters),
        "names": list(item.names),
        "grid_dim": "x".join(map(str, item.grid)),
        "block_dim": "x".join(map(str, item.block)),
        "dynamic_shared_bytes": item.shared,
        "status": "ok",
    }


def failed_result(
    item: WorkItem, failure: str, message: str, known: dict[str, Any] | None = None, seconds: float = 0.0
) -> VariantResult:
    """A result in which every target of `item` failed. `known` adds columns of `variants` found out before that."""
    result = VariantResult(item.family, item.variant, failure=failure, message=message)
    status = {"status": "failed", "failure": failure, "message": message}
    for target, _ in item.targets:
        result.rows.variants.append({**variant_row(item, target), **(known or {}), **status})
        for tier in item.tiers:
            result.rows.estimates.append(estimate_failure(item, target, tier, failure, message, seconds))
    return result


def estimate_failure(
    item: WorkItem, target: str, tier: str, failure: str, message: str, seconds: float = 0.0
) -> dict[str, Any]:
    """The row of `estimates` for a target that got no estimate."""
    return {
        "family": item.family,
        "variant": item.variant,
        "target": target,
        "tier": tier,
        "l2": item.l2,
        "status": "failed",
        "failure": failure,
        "message": message,
        "simulation_seconds": seconds,
    }
