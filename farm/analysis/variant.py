"""One variant on one target as the tables have it, by its name RUN:N."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from farm.analysis.sass import Access, access_of
from farm.database import RunDatabase
from interpreter.errors import FarmError
from jobs.tables import STALL_COLUMNS
from timing.stalls import N_STALLS
from timing.target import Target, TargetError, load_target

REASONS = tuple(column.removeprefix("stall_") for column in STALL_COLUMNS)


class VariantError(FarmError):
    """A variant that is not there, or has no estimate to speak of."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One SASS line: counts of the whole grid, `stalls` (N_STALLS) in warp-cycles of the simulated part."""

    pc: int
    sass: str
    source_line: int
    executed: float
    thread_executed: float
    sectors: float
    wavefronts: float
    stalls: np.ndarray
    sectors_ideal: float | None = None  # of neighbouring lanes
    wavefronts_ideal: float | None = None  # without bank conflicts
    source_file: str = ""
    control: int | None = None  # bits 125:105 of the encoding

    @property
    def cycles(self) -> float:
        return float(self.stalls.sum())

    @property
    def lanes(self) -> float:
        """Mean active lanes of an execution."""
        return self.thread_executed / self.executed if self.executed and self.thread_executed else 32.0

    @property
    def access(self) -> Access | None:
        return access_of(self.sass)


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """A variant's row (columns of `variants` and `estimates` of its best tier) and its SASS lines in order."""

    run: str
    family: str
    number: int
    target: str
    row: dict[str, Any]
    lines: list[Line]
    parameters: dict[str, int]
    source: str  # name of the kernel's source file, "" for cubins

    @property
    def label(self) -> str:
        return f"{self.run}:{self.number}"

    def map(self, column: str) -> dict[str, float]:
        """A column that holds a map."""
        return dict(self.row.get(column) or [])

    def place(self, line: Line) -> str:
        """Where a line is: source file and line when the cubin has a line table, and the SASS address."""
        where = f"{line.pc:#06x}"
        name = Path(line.source_file or self.source).name
        return f"{name}:{line.source_line} ({where})" if line.source_line else where

    @property
    def threads(self) -> int:
        return _product(self.row["block_dim"])

    @property
    def ctas(self) -> int:
        return _product(self.row["grid_dim"])

    @property
    def total_cycles(self) -> float:
        return sum(line.cycles for line in self.lines)

    def busy(self, resource: str) -> float:
        """Share of the estimated time that a resource is busy; a bound may round to a little more than all of it."""
        time_us = self.row["time_us"]
        return min(1.0, self.map("bounds_us").get(resource, 0.0) / time_us) if time_us else 0.0

    def mix(self) -> dict[str, float]:
        """Share of all warp-cycles a stall reason has, largest first; empty when nothing was simulated."""
        total = self.total_cycles
        if total <= 0:
            return {}
        sums = np.sum([line.stalls for line in self.lines], axis=0) / total
        order = np.argsort(-sums, kind="stable")
        return {REASONS[i]: float(sums[i]) for i in order if sums[i] > 0}

    def model(self) -> Target | None:
        """What is known of the GPU; None for a target described by a file that is not here any more."""
        return _model(self.target)


@functools.lru_cache(maxsize=64)
def _model(name: str) -> Target | None:
    try:
        return load_target(name)
    except TargetError:
        return None


def _product(dimensions: str) -> int:
    value = 1
    for part in dimensions.split("x"):
        value *= int(part)
    return value


def split_name(text: str, number: int | None = None) -> tuple[str, int | None]:
    """("RUN:N" or "RUN", N) -> (run, number or None). Raises VariantError for RUN:something."""
    if number is not None:
        return text, number
    run, separator, last = text.rpartition(":")
    if not separator:
        return text, None
    if not run or not last.isdigit():
        raise VariantError(f"variant {text}: name it RUN:N, N being its number (the column `variant` of farm rank)")
    return run, int(last)


def required_name(text: str, number: int | None = None) -> tuple[str, int]:
    """As `split_name`, for a command that needs one variant."""
    run, found = split_name(text, number)
    if found is None:
        raise VariantError(f"variant {text}: name it RUN:N, N being its number (the column `variant` of farm rank)")
    return run, found


def load_variant(database: RunDatabase, family: str, number: int, target: str | None = None) -> Variant:
    """The variant by its best tier, on `target` or the target that comes first. Raises VariantError."""
    where = "AND v.variant = ?"
    arguments: list[Any] = [number]
    if target is not None:
        where, arguments = where + " AND v.target = ?", [*arguments, target]
    rows = _rows(database, family, where, arguments)
    run = database.folder.manifest.run
    if not rows:
        on = f" on {target}" if target else ""
        raise VariantError(f"run {run}: no variant {number} of {family}{on} with a result")
    row = rows[0]
    lines = database.table(
        "SELECT * FROM instructions WHERE family = ? AND variant = ? AND target = ? AND tier = ? ORDER BY pc",
        [family, number, row["target"], row["tier"]],
    )
    return _variant(database, row, _lines(lines))


class VariantTable:
    """All variants of a family on one target. The tables are read once, a variant's lines are made on demand.

    Each is there by its best tier; with `tier`, by that one alone, or as failed.
    """

    def __init__(self, database: RunDatabase, family: str, target: str, tier: str | None = None) -> None:
        self._database = database
        self._best: dict[int, dict[str, Any]] = {}
        where, arguments = "AND v.target = ?", [target]
        if tier is not None:
            where, arguments = where + " AND (e.tier = ? OR e.status <> 'ok')", [*arguments, tier]
        for row in _rows(database, family, where, arguments):
            self._best.setdefault(row["variant"], row)
        self._table = database.table(
            "SELECT * FROM instructions WHERE family = ? AND target = ? ORDER BY variant, tier, pc", [family, target]
        )
        numbers = self._table.column("variant").to_numpy()
        tiers = self._table.column("tier").to_numpy(zero_copy_only=False)
        changes = np.flatnonzero((numbers[1:] != numbers[:-1]) | (tiers[1:] != tiers[:-1])) + 1
        bounds = [0, *changes.tolist(), len(numbers)] if len(numbers) else [0]
        self._places = {(int(numbers[a]), str(tiers[a])): (a, b) for a, b in itertools.pairwise(bounds)}

    def __iter__(self) -> Iterator[Variant]:
        return (self.get(number) for number in sorted(self._best))

    def numbers(self) -> dict[tuple[tuple[str, int], ...], int]:
        """Number of each variant by its parameters."""
        return {tuple(row["parameters"]): number for number, row in self._best.items()}

    def get(self, number: int) -> Variant:
        """The variant of that number, which must be there."""
        row = self._best[number]
        first, last = self._places.get((number, row["tier"]), (0, 0))
        return _variant(self._database, row, _lines(self._table.slice(first, last - first)))


def _rows(database: RunDatabase, family: str, where: str, arguments: list[Any]) -> list[dict[str, Any]]:
    """Rows of `variants` and `estimates`, the best first: with an estimate, of the last tier."""
    return database.rows(
        f"""
        SELECT v.* EXCLUDE (status, failure, message), e.* EXCLUDE (family, variant, target),
               m.time_us AS measured_us, m.spread AS measured_spread
        FROM variants v
        JOIN estimates e USING (family, variant, target)
        LEFT JOIN measurements m USING (family, variant, target)
        WHERE v.family = ? {where} ORDER BY e.status <> 'ok', tier <> 'cycle', tier <> 'sampled', target
        """,
        [family, *arguments],
    )


def _variant(database: RunDatabase, row: dict[str, Any], lines: list[Line]) -> Variant:
    manifest = database.folder.manifest
    source = manifest.families[row["family"]].sweep.get("kernel", {}).get("source") or ""
    parameters = dict(row["parameters"])
    return Variant(manifest.run, row["family"], row["variant"], row["target"], row, lines, parameters, source)


def _lines(table: pa.Table) -> list[Line]:
    """Lines of rows of `instructions`, in their order."""

    def column(name: str, missing: Any) -> list[Any]:
        if name not in table.column_names:
            return [missing] * len(table)
        return [missing if value is None else value for value in table.column(name).to_pylist()]

    stalls = np.zeros((len(table), N_STALLS))
    for i, name in enumerate(STALL_COLUMNS):
        stalls[:, i] = table.column(name).fill_null(0.0).to_numpy()
    return [
        Line(*values)
        for values in zip(
            column("pc", 0), column("sass", ""), column("source_line", 0), column("executed", 0.0),
            column("thread_executed", 0.0), column("sectors", 0.0), column("wavefronts", 0.0), stalls,
            column("sectors_ideal", None), column("wavefronts_ideal", None), column("source_file", ""),
            column("control", None), strict=True,
        )
    ]  # fmt: skip
