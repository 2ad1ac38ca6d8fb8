"""How far long evaluations on a cluster have come: a few workers are asked now and then, and none is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Protocol

from farm.executors.interface import Batch

ASK_SECONDS = 5.0  # between questions, and before a batch's first
ASKED = 4  # workers at a time, those longest at work: more than are shown would only cost the driver time
TIERS_ASKED = ("cycle",)  # the others take seconds, and do not say how far they are


class Asked(Protocol):
    """A worker, as far as it matters here."""

    handle: Any
    name: str
    batch: Batch | None
    since: float


class Inquiry:
    """Questions to workers and what they last said."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._open: dict[Any, tuple[str, int]] = {}  # reference to an answer -> worker, batch
        self._said: dict[str, tuple[int, str, float]] = {}  # worker -> batch, label, share
        self._last = 0.0

    def go_on(self, workers: Iterable[Asked]) -> None:
        """Take the answers that have come; ask again when it is time."""
        if self._open:
            ready, _ = self._ray.wait(list(self._open), num_returns=len(self._open), timeout=0)
            for reference in ready:
                name, batch = self._open.pop(reference)
                try:
                    said = self._ray.get(reference)
                except self._ray.exceptions.RayError:  # it is gone: whoever waits for its batch hears of that
                    continue
                if said is not None:
                    self._said[name] = (batch, *said)
        now = time.monotonic()
        if now - self._last < ASK_SECONDS:
            return
        self._last = now
        waited_for = {name for name, _ in self._open.values()}
        long = [
            worker
            for worker in workers
            if worker.batch is not None
            and now - worker.since >= ASK_SECONDS
            and worker.name not in waited_for
            and any(tier in TIERS_ASKED for tier in worker.batch.items[0].tiers)
        ]
        for worker in sorted(long, key=lambda worker: worker.since)[: ASKED - len(self._open)]:
            assert worker.batch is not None
            self._open[worker.handle.at.remote()] = worker.name, worker.batch.number

    def shares(self, workers: Iterable[Asked]) -> list[tuple[str, float]]:
        """(label, share done) of what is still at work."""
        working = {worker.name: worker.batch.number for worker in workers if worker.batch is not None}
        self._said = {name: said for name, said in self._said.items() if working.get(name) == said[0]}
        return [(label, share) for _, label, share in self._said.values()]
