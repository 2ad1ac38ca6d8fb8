"""What a finding of `farm explain` is, and from when something is worth one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

BUSY = 0.8  # share of the time from which a resource bounds the kernel, whatever else is said
MINOR = 0.02  # findings about less than this share of accesses or time are left out


@dataclass(slots=True)
class Finding:
    """One thing that costs time, and what would relieve it. `weight` orders findings: roughly the share it touches."""

    kind: str
    weight: float
    text: str
    relief: str
    place: str = ""
    numbers: dict[str, float] = field(default_factory=dict)


def us(value: float) -> str:
    """Microseconds to four digits."""
    digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{digits}f}"
