"""One measured number, and the list of them that a calibration makes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Measured:
    """`value` in `unit` is the median of `n` repeats; `spread` is (max - min) / median of them."""

    group: str
    name: str
    value: float
    unit: str
    spread: float
    n: int
    params: dict[str, int | float | str] = field(default_factory=dict)

    def row(self) -> dict[str, object]:
        data = asdict(self)
        data["value"] = float(f"{self.value:.6g}")
        data["spread"] = float(f"{self.spread:.3g}")
        return data


class Results:
    """Collects measurements in order."""

    def __init__(self) -> None:
        self.rows: list[Measured] = []

    def add(self, group: str, name: str, values: Sequence[float], unit: str, **params: int | float | str) -> float:
        middle = float(statistics.median(values))
        spread = (max(values) - min(values)) / abs(middle) if middle else 0.0
        self.rows.append(Measured(group, name, middle, unit, float(spread), len(values), params))
        return middle
