"""What all readers give: configurations with a measured time or a reason why there is none."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interpreter.errors import FarmError

FAILURES = ("compile", "runtime", "correctness", "timeout", "constraints")


class InterchangeError(FarmError):
    """A file of another tool that cannot be read as what it seems to be; the message names file and place."""


@dataclass(slots=True)
class Record:
    """One configuration. `variant` or `launch` identify it where a tool knows no parameters."""

    place: str  # where in the file it stands
    configuration: dict[str, Any] = field(default_factory=dict)
    time_us: float | None = None
    min_us: float | None = None
    spread: float | None = None  # (max - min) / median
    failure: str | None = None  # one of FAILURES
    variant: int | None = None
    launch: dict[str, Any] = field(default_factory=dict)  # columns of the table `variants`
    clock_mhz: float | None = None


@dataclass(slots=True)
class Records:
    """A file's records. `device` is the GPU's name as the tool gives it."""

    kind: str
    records: list[Record]
    device: str | None = None
    kernel: str | None = None
    notes: list[str] = field(default_factory=list)


def read_text(path: Path) -> str:
    """A text file, unzipped when its name ends in .gz. Raises InterchangeError."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
                return file.read()
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InterchangeError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InterchangeError(f"{path}: cannot be read: {error}") from None


def parse_json(path: Path, text: str) -> dict[str, Any]:
    """A JSON object. Raises InterchangeError with the line."""
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InterchangeError(f"{path}{line}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InterchangeError(f"{path}: a JSON object is expected, not {type(found).__name__}")
    return found


def finite(value: Any) -> float | None:
    """The value as a positive finite number, else None (booleans are no numbers)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


STEADY_FROM = 5  # repeated times from which a slow first one is taken for a cold one


def steady(times: Sequence[float]) -> Sequence[float]:
    """Repeated times without the first where that is the slowest of several: clocks and caches were cold then.

    Kernel Tuner's first run is 10 % longer as a rule, and says nothing of how far the others can be trusted.
    """
    return times[1:] if len(times) >= STEADY_FROM and times[0] == max(times) else times


def spread_of(times: Sequence[float]) -> tuple[float, float, float | None]:
    """(median, minimum, (max - min) / median) of repeated times; no spread for a single one."""
    median = statistics.median(times)
    return median, min(times), (max(times) - min(times)) / median if len(times) > 1 else None
