"""The result type of every tier: an estimated time with its reasons. Always simulated, never a measurement."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from timing.occupancy import Occupancy
from timing.timeline import Timeline


@dataclass(slots=True)
class Estimate:
    """One kernel launch on one target, estimated by one tier.

    Times are in microseconds at `clock_mhz`, cycles are SM cycles. `stalls` has shape (instructions, N_STALLS) and
    holds warp-cycles of the simulated part (column order of `timing.stalls.STALLS`); `executed` is the warp-level count
    per instruction of the whole grid, extrapolated from the executed part (exact when `executed_share` is 1).
    `coverage` splits the issued instructions by where their timing comes from: "measured", "quoted", "guessed".
    """

    target: str
    tier: str
    time_us: float
    cycles: float
    clock_mhz: float
    bound: str
    occupancy: Occupancy
    waves: float
    l2: str
    confidence: str
    executed_share: float
    simulation_seconds: float
    bounds: dict[str, float] = field(default_factory=dict)  # each bound's time in microseconds
    stalls: np.ndarray | None = None
    executed: np.ndarray | None = None
    thread_executed: np.ndarray | None = None
    sectors: np.ndarray | None = None
    wavefronts: np.ndarray | None = None
    coverage: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)  # bytes and hit rates of the whole launch
    warp_instructions: float = 0.0  # of the whole grid
    expected_error: float | None = None  # relative, from how little was executed; None when everything was
    timeline: Timeline | None = None  # when asked for
