"""What a run says of itself while it goes: events as they happen, and a snapshot of its progress.

Whoever wants to show or count something (a progress bar, `farm watch`, metrics, logs) listens here: `Telemetry.listen`
gets every `Event`, `Telemetry.progress` is the snapshot. The driver writes the snapshot into the run's folder about
once a second (`farm.board`), where another shell or machine reads it. Its size does not depend on the run's.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from farm.observability.redact import redacted

State = Literal["starting", "running", "complete", "cancelled", "interrupted", "failed"]

# Kinds of events:
#   run_started, run_finished    once each; `text` says what, or how it ended
#   variant_finished             a work item has a result: family, variant, arch, tiers, failure, seconds, cpu_seconds,
#                                peak_bytes (of the worker), worker, node, times ((target, tier) -> us or None)
#   retried                      an item whose worker died is tried again
#   set_aside                    an item is given up after its attempts, or for its time or memory; it has a failure row
#   worker_started, worker_lost  with worker and node
#   node_joined, node_lost       of a cluster
#   funnel                       which variants go on
#   warning                      anything else the user should know
RECENT_EVENTS = 50  # kept in a snapshot
BEST_KEPT = 1  # a family and target


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `at` is UTC, for people; durations come from the monotonic clock."""

    kind: str
    text: str
    at: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class TierProgress:
    """(variant, target) pairs of a family in one tier. `planned` is an expectation until the funnel has decided."""

    family: str
    tier: str
    planned: int
    done: int = 0
    failed: int = 0
    resumed: int = 0  # of `done`, found in the run
    decided: bool = True


@dataclass(slots=True)
class Best:
    """The fastest variant so far of a family on a target, by the last tier it has been through. Simulated."""

    family: str
    target: str
    variant: int
    parameters: dict[str, int]
    tier: str
    time_us: float


@dataclass(slots=True)
class Progress:
    """A run as it stands. Seconds are of this submission; `sequence` grows with every snapshot."""

    run: str
    state: State = "starting"
    why: str = ""  # of a state that is an end
    sequence: int = 0
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    executor: str = ""  # "processes" or "ray"
    started_at: str = ""
    updated_at: str = ""
    elapsed_seconds: float = 0.0
    workers: int = 0
    busy: int = 0
    nodes: dict[str, int] = field(default_factory=dict)  # node -> workers
    items_done: int = 0  # work items: a variant on the targets of one architecture
    items_left: int = 0
    items_per_second: float = 0.0
    seconds_left: float | None = None
    worker_seconds: float = 0.0  # spent evaluating: what the run has cost so far
    cpu_seconds: float = 0.0  # of workers and their tools, for items with a result
    tiers: list[TierProgress] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)  # class -> work items
    retried: int = 0
    set_aside: int = 0
    workers_lost: int = 0
    bytes_written: int = 0
    best: list[Best] = field(default_factory=list)
    under_way: list[tuple[str, float]] = field(default_factory=list)  # long evaluations: label, share done
    events: list[Event] = field(default_factory=list)  # the latest, except variant_finished

    @property
    def over(self) -> bool:
        """Whether the driver has ended, as far as it could say so itself."""
        return self.state not in ("starting", "running")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Progress:
        """Raises ValueError, KeyError or TypeError for anything else. Unknown keys of a later version are ignored."""
        content = json.loads(text)
        known = {f.name for f in fields(cls)}
        content = {key: value for key, value in content.items() if key in known}
        content["tiers"] = [TierProgress(**tier) for tier in content.get("tiers", [])]
        content["best"] = [Best(**best) for best in content.get("best", [])]
        content["events"] = [Event(**event) for event in content.get("events", [])]
        content["under_way"] = [(label, share) for label, share in content.get("under_way", [])]
        return cls(**content)


Listener = Callable[[Event], None]


class Telemetry:
    """Events and the snapshot of one submission. Listeners run in the driver's loop: they must be quick."""

    def __init__(self, run: str) -> None:
        self.progress = Progress(run, started_at=now_text())
        self._recent: deque[Event] = deque(maxlen=RECENT_EVENTS)
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """From now on, call `listener` with every event. What it raises is ignored: telling must not harm a run."""
        self._listeners.append(listener)

    def say(self, kind: str, text: str, **details: Any) -> None:
        """Something happened."""
        event = Event(kind, redacted(text) if text else "", now_text(), details)
        if kind != "variant_finished":
            self._recent.append(event)
            self.progress.events = list(self._recent)
        for listener in self._listeners:
            with contextlib.suppress(Exception):
                listener(event)


def now_text() -> str:
    """The time of day in UTC, for people to read."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
