"""What `farm submit` can be asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from interpreter.errors import FarmError
from jobs.sweep import Sweep
from jobs.work import DEFAULT_INSTRUCTIONS, DEFAULT_MEMORY


class SubmitError(FarmError):
    """A submission that contradicts itself or the run it would extend."""


@dataclass(slots=True)
class Options:
    """What `farm submit` was asked for."""

    targets: tuple[str, ...] = ()
    tier: str | None = None  # the last tier: "static", "sampled" or "cycle"; None: as the sweep's funnel says
    run: str | None = None
    limit: int | None = None
    jobs: int | None = None
    measured: tuple[str, ...] = ()
    l2: str = "warm"
    seconds: float | None = None  # None: the tier's default
    instructions: int = DEFAULT_INSTRUCTIONS
    memory: int = DEFAULT_MEMORY  # bytes
    allow_outside: bool = False
    retry: bool = False
    adjust: Callable[[Sweep], Sweep] | None = None  # a change to every sweep before it is planned
    timeline: int = 0  # records an estimate of the last tier may have; 0: no timelines
    timeline_variants: tuple[int, ...] = ()  # of these only; empty: of all
    timeline_sms: tuple[int, ...] = ()  # in the cycle tier; empty: all
    ray: str | None = None  # address of a Ray cluster, "local" for a Ray of this run's own; None: processes
