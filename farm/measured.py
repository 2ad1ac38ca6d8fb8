"""Times measured on real hardware: reading a CSV and matching its rows to a sweep's variants."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interpreter.errors import FarmError
from jobs.expression import close_match
from jobs.variants import Variant

# A replay whose times differ by more than this share of their median was disturbed: left out of correlations.
MAX_SPREAD = 0.05


class MeasuredError(FarmError):
    """A file of measured times that cannot be used; the message names file, line and column."""


@dataclass(slots=True)
class Measured:
    """Rows for the `measurements` table, and what was left out of them."""

    rows: list[dict[str, Any]]
    disturbed: int  # kept in the table, not used for correlation
    failed: int  # no time: the kernel did not run on the hardware
    unmatched: int  # rows that are no variant of the sweep

    def summary(self) -> str:
        parts = [f"{len(self.rows)} measured times"]
        if self.disturbed:
            parts.append(f"{self.disturbed} with a spread above {MAX_SPREAD:g} left out of correlations")
        if self.failed:
            parts.append(f"{self.failed} without a time")
        if self.unmatched:
            parts.append(f"{self.unmatched} that match no variant")
        return ", ".join(parts)


def read_measured(path: Path, target: str, variants: Sequence[Variant]) -> Measured:
    """Match the CSV's rows to `variants` of one family.

    Columns: `time_us`, and either one column for each parameter or `variant` (the variant's number); optionally
    `spread`, `min_us`, `status` (anything but ok: no time), `clock_mhz`, `l2`. Raises MeasuredError.
    """
    header, lines = _read(path)
    if "time_us" not in header:
        raise MeasuredError(f"{path}: no column time_us{close_match('time_us', header)} (columns: {', '.join(header)})")
    parameters = list(variants[0].parameters)
    missing = [name for name in parameters if name not in header]
    by_parameters = not missing
    if missing and "variant" not in header:
        raise MeasuredError(
            f"{path}: rows match variants by their parameters or by a column variant; "
            f"missing: {', '.join(missing)} (columns: {', '.join(header)})"
        )
    places: dict[tuple[int, ...], Variant] = (
        {tuple(v.parameters.values()): v for v in variants} if by_parameters else {(v.number,): v for v in variants}
    )
    keys = parameters if by_parameters else ["variant"]
    measured = Measured([], 0, 0, 0)
    seen: dict[int, int] = {}
    for number, line in lines:
        if line.get("status", "ok") not in ("", "ok"):
            measured.failed += 1
            continue
        variant = places.get(tuple(int(_number(path, number, line, key)) for key in keys))
        if variant is None:
            measured.unmatched += 1
            continue
        if variant.number in seen:
            raise MeasuredError(
                f"{path}:{number}: variant {variant.number} again (first in line {seen[variant.number]})"
            )
        seen[variant.number] = number
        time_us = _number(path, number, line, "time_us")
        if time_us <= 0:
            raise MeasuredError(f"{path}:{number}: time_us: {time_us:g} is not a time")
        spread = _optional(path, number, line, "spread")
        used = spread is None or spread <= MAX_SPREAD
        measured.disturbed += not used
        measured.rows.append(
            {
                "family": variant.family,
                "variant": variant.number,
                "target": target,
                "time_us": time_us,
                "min_us": _optional(path, number, line, "min_us"),
                "spread": spread,
                "used": used,
                "l2": line.get("l2") or None,
                "clock_mhz": _optional(path, number, line, "clock_mhz"),
                "source": path.name,
            }
        )
    if not measured.rows:
        raise MeasuredError(f"{path}: no row gives a time for a variant of {variants[0].family} ({measured.summary()})")
    return measured


def _read(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = [name.strip() for name in reader.fieldnames or []]
            reader.fieldnames = header
            lines = []
            for line in reader:
                if None in line or None in line.values():
                    raise MeasuredError(f"{path}:{reader.line_num}: not as many fields as the header ({len(header)})")
                lines.append((reader.line_num, line))
            return header, lines
    except FileNotFoundError:
        raise MeasuredError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MeasuredError(f"{path}: cannot be read: {error}") from None


def _number(path: Path, number: int, line: dict[str, str], column: str) -> float:
    try:
        return float(line[column])
    except ValueError:
        raise MeasuredError(f"{path}:{number}: {column}: '{line[column]}' is not a number") from None


def _optional(path: Path, number: int, line: dict[str, str], column: str) -> float | None:
    return _number(path, number, line, column) if line.get(column, "").strip() else None
