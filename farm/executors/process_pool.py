"""The process pool: worker processes on this machine, each item's fate its own.

`concurrent.futures` gives up the whole pool when a worker dies and cannot stop one task, so this is a small pool of its
own: the parent knows which item each worker is at, kills a worker whose item is over its time or memory, and replaces a
worker that crashed.
"""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import wait

from farm.executors.child import Child
from farm.executors.interface import Answer, Batch, ExecutorError, Note, Worker

START_ATTEMPTS = 3


class ProcessPool:
    """`jobs` worker processes that run `evaluator` ("module:function"). They start when there is work for them.

    Use as a context manager, or call `close`.
    """

    kind = "processes"

    def __init__(self, jobs: int, evaluator: str) -> None:
        if jobs < 1:
            raise ValueError("at least one worker is needed")
        self.jobs = jobs
        self._evaluator = evaluator
        self._children: dict[str, Child] = {}
        self._count = 0
        self._failed_starts = 0

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def workers(self) -> int:
        return self.jobs

    def idle(self, wanted: int) -> list[Worker]:
        free = [name for name, child in self._children.items() if child.batch is None]
        for _ in range(min(wanted - len(free), self.jobs - len(self._children))):
            self._count += 1
            name = f"process {self._count}"
            self._children[name] = Child(self._evaluator)
        return [Worker(name) for name in free if self._children[name].ready][:wanted]

    def start(self, worker: Worker, batch: Batch) -> None:
        self._children[worker.name].hand(batch)

    def wait(self, timeout: float) -> list[Answer]:
        active = {n: c for n, c in self._children.items() if c.batch is not None or not c.ready}
        if not active:
            return []
        timeout = min([timeout, *(child.seconds_left() for child in active.values())])
        readable = wait([child.pipe for child in active.values()], timeout=timeout)
        answers: list[Answer] = []
        for name, child in active.items():
            was_ready = child.ready
            while not child.gone and (child.pipe in readable or child.pipe.poll()):
                readable = [pipe for pipe in readable if pipe is not child.pipe]
                answers += child.receive()
                if child.batch is None and child.ready:
                    break
            if not child.gone:
                answers += child.check()
            if child.ready and not was_ready:
                self._failed_starts = 0
            if child.gone:
                del self._children[name]
                if not child.ready:
                    answers += self._did_not_start(child)
        return answers

    def under_way(self) -> list[tuple[str, float]]:
        return [(c.label, c.share) for c in self._children.values() if c.batch is not None and c.share is not None]

    def nodes(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        for child in self._children.values():
            child.stop()
        self._children.clear()

    def _did_not_start(self, child: Child) -> list[Answer]:
        self._failed_starts += 1
        reason = child.exit_reason()
        if self._failed_starts >= START_ATTEMPTS:
            raise ExecutorError(f"worker processes do not start ({reason}); run `farm doctor`")
        return [Note("worker_lost", f"a worker process ended before it was ready ({reason}); another is started")]
