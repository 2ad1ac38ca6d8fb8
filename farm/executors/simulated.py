"""A cluster that is not there: workers that take as long as they are told, in a clock of their own.

For measuring the scheduler and the driver with more workers than there are: the CPU time that the driver's thread
spends between its calls passes in this clock too, so a driver that is too slow leaves workers idle here as it would on
a real cluster. (CPU time, since results come much faster here, and the thread that writes them falls behind.)
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping

from farm.executors.interface import Answer, Batch, Done, Ended, Worker
from jobs.work import Finished, WorkItem


class SimulatedCluster:
    """`count` workers. An item takes `seconds_of(item)`, a batch `call_seconds` besides; `result_of` makes results."""

    kind = "simulated"

    def __init__(
        self,
        count: int,
        seconds_of: Callable[[WorkItem], float],
        result_of: Callable[[WorkItem, float], Finished],
        call_seconds: float = 0.005,
    ) -> None:
        self._count = count
        self._seconds_of = seconds_of
        self._result_of = result_of
        self._call_seconds = call_seconds
        self._free = [Worker(f"worker {n}", f"node {n // 32}") for n in range(count)]
        self._ends: list[tuple[float, int, Worker, Batch, float]] = []
        self.now = 0.0  # seconds since the start, in the cluster's clock
        self.worked = 0.0  # seconds of evaluation, of all workers
        self.driver_seconds = 0.0  # what the driver spent
        self.batches = 0
        self.steady_share = 0.0  # of the workers' time that went into evaluations until the last batch was handed out
        self._begun = 0.0  # sum of the beginnings of the batches at work
        self._left = time.thread_time()

    @property
    def workers(self) -> int:
        return self._count

    @property
    def busy_share(self) -> float:
        """Share of the workers' time that went into evaluations, start and end included."""
        return self.worked / (self._count * self.now) if self.now else 0.0

    def idle(self, wanted: int) -> list[Worker]:
        self._enter()
        found = self._free[:wanted]
        self._leave()
        return found

    def start(self, worker: Worker, batch: Batch) -> None:
        self._enter()
        self._free.remove(worker)
        seconds = sum(map(self._seconds_of, batch.items))
        self.batches += 1
        self._begun += self.now
        at_work = len(self._ends) + 1
        self.steady_share = (self.worked + at_work * self.now - self._begun) / max(1e-9, self._count * self.now)
        heapq.heappush(self._ends, (self.now + self._call_seconds + seconds, batch.number, worker, batch, seconds))
        self._leave()

    def wait(self, timeout: float) -> list[Answer]:
        self._enter()
        if self._ends and self._ends[0][0] > self.now:
            self.now = min(self._ends[0][0], self.now + timeout)
        answers: list[Answer] = []
        while self._ends and self._ends[0][0] <= self.now:
            end, number, worker, batch, seconds = heapq.heappop(self._ends)
            self.worked += seconds
            self._begun -= end - seconds - self._call_seconds
            self._free.append(worker)
            for index, item in enumerate(batch.items):
                answers.append(Done(number, index, self._result_of(item, self._seconds_of(item))))
            answers.append(Ended(number, seconds=seconds))
        self._leave()
        return answers

    def under_way(self) -> list[tuple[str, float]]:
        return []

    def nodes(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        self._free.clear()
        self._ends.clear()

    def _enter(self) -> None:
        spent = time.thread_time() - self._left
        self.driver_seconds += spent
        self.now += spent

    def _leave(self) -> None:
        self._left = time.thread_time()
