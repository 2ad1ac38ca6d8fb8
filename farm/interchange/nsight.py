"""Nsight Compute's CSV: the raw and details pages as measured times, the source page as a profile of SASS lines."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farm.interchange.records import InterchangeError, Record, Records, spread_of
from timing.stalls import NSIGHT_SHORT, STALLS, stall_name

DURATIONS = ("gpu__time_duration.sum", "gpu__time_duration.avg", "Duration")
_MICROSECONDS = {
    "ns": 1e-3, "nsecond": 1e-3, "nanosecond": 1e-3, "us": 1.0, "usecond": 1.0, "microsecond": 1.0, "ms": 1e3,
    "msecond": 1e3, "millisecond": 1e3, "s": 1e6, "second": 1e6,
}  # fmt: skip
_LAUNCH = {
    "launch__registers_per_thread": "registers",
    "Registers Per Thread": "registers",
    "launch__shared_mem_per_block_static": "static_shared_bytes",
    "launch__shared_mem_per_block_dynamic": "dynamic_shared_bytes",
}
CLOCK_NOTE = "Nsight Compute locks clocks to base unless told --clock-control none: such times are longer"


@dataclass(slots=True)
class ProfileLine:
    """One line of a source page. `stalls` maps reasons to samples."""

    sass: str
    executed: float
    thread_executed: float
    sectors: float | None
    wavefronts: float | None
    samples: float
    stalls: dict[str, float]


@dataclass(slots=True)
class SourcePage:
    """A source page: the kernel's name, the address of its first line, and its SASS lines in order."""

    kernel: str
    lines: list[ProfileLine]
    simulated: bool


def table_of(path: Path, text: str) -> list[list[str]]:
    """The CSV's rows without what the profiler printed around them."""
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith("==")]
    try:
        return [row for row in csv.reader(io.StringIO("".join(kept))) if row]
    except csv.Error as error:
        raise InterchangeError(f"{path}: not CSV: {error}") from None


def is_source(rows: list[list[str]]) -> bool:
    return any("Source" in row and "Address" in row for row in rows[:3])


def read_source(path: Path, rows: list[list[str]]) -> SourcePage:
    """The source page (SASS view). Raises InterchangeError naming the line."""
    header = next(i for i, row in enumerate(rows) if "Source" in row)
    columns = {name: place for place, name in enumerate(rows[header])}
    for name in ("Source", "Instructions Executed"):
        if name not in columns:
            raise InterchangeError(f"{path}: no column {name!r}: is it the source page, in the SASS view?")
    first = rows[0] if header > 0 else []
    kernel = first[1] if len(first) > 1 and first[0] == "Kernel Name" else ""
    simulated = any("simulated" in cell for cell in first[2:])
    lines: list[ProfileLine] = []
    base: int | None = None
    for number, row in enumerate(rows[header + 1 :], header + 2):
        if len(row) != len(rows[header]):
            raise InterchangeError(f"{path}:{number}: {len(row)} fields, the header has {len(rows[header])}")

        def cell(name: str, row: list[str] = row, number: int = number) -> float | None:
            if name not in columns or row[columns[name]] in ("", "-"):
                return None
            return _number(path, number, name, row[columns[name]])

        base = _address(row, columns) if base is None else base
        stalls = {stall_name(s): cell(f"stall_{NSIGHT_SHORT[s]}") or 0.0 for s in STALLS}
        samples = cell("# Samples")
        lines.append(
            ProfileLine(
                plain_sass(row[columns["Source"]], base or 0),
                cell("Instructions Executed") or 0.0,
                cell("Thread Instructions Executed") or 0.0,
                cell("L2 Theoretical Sectors Global"),
                cell("L1 Wavefronts Shared"),
                sum(stalls.values()) if samples is None else samples,
                stalls,
            )
        )
    if not lines:
        raise InterchangeError(f"{path}: no lines below the header")
    return SourcePage(kernel, lines, simulated)


def _address(row: list[str], columns: dict[str, int]) -> int:
    try:
        return int(row[columns["Address"]], 16)
    except (KeyError, ValueError):
        return 0


_HEX_TARGET = re.compile(r"\b0x([0-9a-f]{5,16})\b")


def plain_sass(text: str, base: int) -> str:
    """SASS with single spaces, without reuse flags, and with addresses of the loaded code as offsets."""

    def offset(match: re.Match[str]) -> str:
        value = int(match[1], 16)
        return f"{value - base:#x}" if base and base <= value < base + (1 << 24) else match[0]

    return _HEX_TARGET.sub(offset, " ".join(text.replace(".reuse", "").split()))


def read_launches(path: Path, rows: list[list[str]]) -> Records:
    """Times from the raw page (a column a metric), the details page (a row a metric), or a table with `variant`."""
    header = rows[0]
    if "Metric Name" in header and "Metric Value" in header:
        launches = _from_details(path, rows)
    else:
        launches = _from_raw(path, rows)
    merged: dict[tuple[Any, ...], list[tuple[Record, float]]] = {}
    for record, time in launches:
        merged.setdefault((record.variant, *sorted(record.launch.items())), []).append((record, time))
    records = []
    for found in merged.values():
        record = found[0][0]
        record.time_us, record.min_us, record.spread = spread_of([time for _, time in found])
        records.append(record)
    kernels = {str(record.launch.get("kernel")) for record, _ in launches if record.launch.get("kernel")}
    return Records("Nsight Compute", records, None, kernels.pop() if len(kernels) == 1 else None, [CLOCK_NOTE])


def is_launches(rows: list[list[str]]) -> bool:
    header = set(rows[0]) if rows else set()
    return "Metric Name" in header or bool(header & set(DURATIONS[:2]))


def _from_raw(path: Path, rows: list[list[str]]) -> list[tuple[Record, float]]:
    header = rows[0]
    columns = {name: place for place, name in enumerate(header)}
    if any("simulated" in row[columns["Provenance"]] for row in rows[1:] if "Provenance" in columns):
        raise InterchangeError(f"{path}: holds simulated times, which are no measurements")
    duration = next((name for name in DURATIONS if name in columns), None)
    if duration is None:
        raise InterchangeError(
            f"{path}: no column {DURATIONS[0]}: collect it (ncu --metrics {DURATIONS[0]}, or --set basic)"
        )
    body = rows[1:]
    units = [""] * len(header)
    if body and not _is_number(body[0][columns[duration]]):
        units, body = body[0], body[1:]
    out = []
    for number, row in enumerate(body, 2 + len(rows) - 1 - len(body)):
        if len(row) != len(header):
            raise InterchangeError(f"{path}:{number}: {len(row)} fields, the header has {len(header)}")
        values = {name: row[place] for name, place in columns.items()}
        record = Record(f"{path}:{number}", launch=_launch(path, number, values))
        if "variant" in values:
            record.variant = int(_number(path, number, "variant", values["variant"]))
            record.launch = {}
        time = _number(path, number, duration, values[duration]) * _scale(path, duration, units[columns[duration]])
        out.append((record, time))
    return out


def _from_details(path: Path, rows: list[list[str]]) -> list[tuple[Record, float]]:
    columns = {name: place for place, name in enumerate(rows[0])}
    kernels: dict[str, tuple[int, dict[str, str], float | None]] = {}
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(rows[0]):
            raise InterchangeError(f"{path}:{number}: {len(row)} fields, the header has {len(rows[0])}")
        name, value = row[columns["Metric Name"]], row[columns["Metric Value"]]
        unit = row[columns["Metric Unit"]] if "Metric Unit" in columns else ""
        key = row[columns["ID"]] if "ID" in columns else row[columns["Kernel Name"]]
        place, values, time = kernels.get(key, (number, {}, None))
        if not values:
            values = {column: row[at] for column, at in columns.items()}
        values[name] = value
        if name in DURATIONS:
            time = _number(path, number, name, value) * _scale(path, name, unit)
        kernels[key] = place, values, time
    out = []
    for place, values, time in kernels.values():
        if time is not None:
            out.append((Record(f"{path}:{place}", launch=_launch(path, place, values)), time))
    if not out:
        raise InterchangeError(f"{path}: no metric {' or '.join(DURATIONS)}: nothing says how long a kernel took")
    return out


def _launch(path: Path, number: int, values: dict[str, str]) -> dict[str, Any]:
    """What identifies a launch, as columns of the table `variants`."""
    found: dict[str, Any] = {}
    for name, column in (("Grid Size", "grid_dim"), ("Block Size", "block_dim")):
        if values.get(name):
            found[column] = "x".join(re.findall(r"\d+", values[name]))
    for prefix, column in (("launch__grid_dim_", "grid_dim"), ("launch__block_dim_", "block_dim")):
        sizes = [values.get(prefix + axis) for axis in "xyz"]
        if column not in found and all(sizes):
            found[column] = "x".join(str(int(_number(path, number, prefix, size or ""))) for size in sizes)
    for name, column in _LAUNCH.items():
        if values.get(name) and _is_number(values[name]):
            found[column] = int(_number(path, number, name, values[name]))
    kernel = values.get("Kernel Name") or values.get("launch__kernel_name")
    if kernel:
        found["kernel"] = kernel.split("(")[0].split("<")[0].strip()
    return found


def _scale(path: Path, name: str, unit: str) -> float:
    if unit in ("", None):
        return _MICROSECONDS["ns"]  # the base unit
    if unit not in _MICROSECONDS:
        raise InterchangeError(f"{path}: {name}: unknown unit {unit!r} (one of {', '.join(_MICROSECONDS)})")
    return _MICROSECONDS[unit]


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True


def _number(path: Path, number: int, name: str, text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        raise InterchangeError(f"{path}:{number}: {name}: {text!r} is not a number") from None
