"""The process pool: spawned workers that evaluate batches of work items, each item's fate its own.

`concurrent.futures` gives up the whole pool when a worker dies and cannot stop one task, so this is a small pool of its
own: the parent knows which item each worker is at, kills a worker whose item is over its time, replaces a worker that
crashed, tries the crashed item once more alone, and goes on with the rest.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import importlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from interpreter.errors import FarmError
from jobs.work import RUNTIME, TIMEOUT, VariantResult, WorkItem, failed_result

# What an evaluator yields: it has begun item n, or item n's result.
Event = tuple[Literal["begin", "done"], int, VariantResult | None]
Evaluator = Callable[[list[WorkItem]], Iterable[Event]]

GRACE_SECONDS = 15.0  # over an item's own limit, which the worker keeps itself wherever Python code runs
START_SECONDS = 120.0  # for a worker to import what it needs
MAX_BATCH = 16
ATTEMPTS = 2


class ExecutorError(FarmError):
    """Workers cannot be started: the machine's fault, not a variant's."""


def default_jobs() -> int:
    """CPUs this process may run on."""
    return len(os.sched_getaffinity(0))


@dataclass(slots=True)
class _Batch:
    items: list[WorkItem]
    attempt: int = 1


@dataclass(slots=True)
class _Worker:
    process: Any
    pipe: Connection
    batch: _Batch | None = None
    at: int = 0  # index of the item it is at
    finished: set[int] = field(default_factory=set)
    deadline: float = 0.0
    ready: bool = False
    share: float | None = None  # of the item it is at, where the evaluator says


class ProcessPool:
    """`jobs` worker processes that run `evaluator` ("module:function") on batches of items.

    They start when there is work for them. Use as a context manager, or call `close`.
    """

    def __init__(self, jobs: int, evaluator: str) -> None:
        if jobs < 1:
            raise ValueError("at least one worker is needed")
        self.jobs = jobs
        self._evaluator = evaluator
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        self._queue: collections.deque[_Batch] = collections.deque()
        self._failed_starts = 0

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, items: list[WorkItem]) -> Generator[VariantResult | None, None, None]:
        """Results as they finish, one an item, and None about once a second in between.

        Workers stay for the next `run`; closing the generator (or an exception) stops them.
        """
        self._queue.extend(_Batch(batch) for batch in batches(items, self.jobs))
        try:
            while self._queue or any(worker.batch is not None for worker in self._workers):
                self._hand_out()
                yield from self._collect()
                yield None
        except BaseException:
            self.close()
            raise

    def under_way(self) -> list[tuple[str, float]]:
        """Items being evaluated of which a share is known to be done: (label, share)."""
        return [
            (worker.batch.items[worker.at].label, worker.share)
            for worker in self._workers
            if worker.batch is not None and worker.share is not None
        ]

    def close(self) -> None:
        """Stop all workers and what they started."""
        for worker in self._workers:
            _stop(worker)
        self._workers.clear()
        self._queue.clear()

    def _hand_out(self) -> None:
        busy = sum(worker.batch is not None for worker in self._workers)
        while len(self._workers) < min(self.jobs, busy + len(self._queue)):
            self._workers.append(self._start())
        for worker in self._workers:
            if worker.batch is None and worker.ready and self._queue:
                batch = self._queue.popleft()
                worker.batch, worker.at, worker.finished = batch, 0, set()
                worker.deadline = time.monotonic() + batch.items[0].seconds * len(batch.items) + GRACE_SECONDS
                with contextlib.suppress(OSError):  # a dead worker shows in _collect
                    worker.pipe.send(batch.items)

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs, self._evaluator), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours, deadline=time.monotonic() + START_SECONDS)

    def _collect(self) -> Iterator[VariantResult]:
        now = time.monotonic()
        active = [worker for worker in self._workers if worker.batch is not None or not worker.ready]
        timeout = max(0.0, min((worker.deadline for worker in active), default=now + 1.0) - now)
        ready = wait([worker.pipe for worker in active], timeout=min(timeout, 1.0))
        for worker in active:
            if worker.pipe in ready:
                yield from self._receive(worker)
            elif time.monotonic() > worker.deadline:
                yield from self._overdue(worker)

    def _receive(self, worker: _Worker) -> Iterator[VariantResult]:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._crashed(worker)
            return
        kind, index, payload = message
        batch = worker.batch
        if kind == "ready":
            worker.ready = True
            self._failed_starts = 0
        elif kind == "failed":  # the evaluator itself is broken, not one item
            raise ExecutorError(payload)
        elif batch is None:
            raise ExecutorError(f"a worker answered '{kind}' without work")
        elif kind == "progress":
            worker.share = payload
        elif kind == "begin":
            worker.at = index
            worker.share = None
            worker.deadline = time.monotonic() + batch.items[index].seconds + GRACE_SECONDS
        elif kind == "done":
            worker.finished.add(index)
            worker.share = None
            yield payload
        else:  # "idle": the batch is through
            worker.batch = None
            missing = [item for i, item in enumerate(batch.items) if i not in worker.finished]
            if missing:
                raise ExecutorError(f"a worker left out {missing[0].label}")

    def _crashed(self, worker: _Worker) -> Iterator[VariantResult]:
        worker.process.join(timeout=5)
        code = worker.process.exitcode
        reason = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        self._discard(worker)
        batch = worker.batch
        if batch is None:
            self._failed_starts += 1
            if self._failed_starts >= 3:
                raise ExecutorError(f"worker processes do not start ({reason}); run `farm doctor`")
            return
        culprit = batch.items[worker.at]
        self._requeue(worker, batch)
        if worker.at in worker.finished:
            return
        if batch.attempt < ATTEMPTS:
            self._queue.appendleft(_Batch([culprit], batch.attempt + 1))
        else:
            yield failed_result(culprit, RUNTIME, f"simulator crashed ({reason}) twice on {culprit.label}")

    def _overdue(self, worker: _Worker) -> Iterator[VariantResult]:
        batch = worker.batch
        self._discard(worker)
        if batch is None:
            raise ExecutorError(f"a worker process did not start within {START_SECONDS:.0f} s; run `farm doctor`")
        culprit = batch.items[worker.at]
        self._requeue(worker, batch)
        if worker.at not in worker.finished:
            message = f"more than {culprit.seconds:g} s of simulation (raise it with --seconds)"
            yield failed_result(culprit, TIMEOUT, message, seconds=culprit.seconds)

    def _requeue(self, worker: _Worker, batch: _Batch) -> None:
        """Put back what the worker had not begun."""
        rest = [item for i, item in enumerate(batch.items) if i not in worker.finished and i != worker.at]
        if rest:
            self._queue.appendleft(_Batch(rest))

    def _discard(self, worker: _Worker) -> None:
        _stop(worker)
        self._workers.remove(worker)


def batches(items: list[WorkItem], jobs: int) -> Iterator[list[WorkItem]]:
    """Items of one architecture together, in batches small enough to share out evenly."""
    size = max(1, min(MAX_BATCH, len(items) // (4 * jobs)))
    batch: list[WorkItem] = []
    for item in items:
        if batch and (len(batch) == size or item.build.arch != batch[0].build.arch or item.family != batch[0].family):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def _stop(worker: _Worker) -> None:
    """Kill a worker with its process group (a compiler it runs, too)."""
    with contextlib.suppress(OSError):
        worker.pipe.close()
    pid = worker.process.pid
    if worker.ready and pid:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    worker.process.kill()
    worker.process.join(timeout=5)


def _work(pipe: Connection, evaluator: str) -> None:
    """A worker's main loop. Interrupts are the parent's business; the worker dies with its parent."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")  # one thread a worker: the pool is the parallelism
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        module, _, function = evaluator.partition(":")
        loaded = importlib.import_module(module)
        evaluate: Evaluator = getattr(loaded, function)
        tell: Callable[[Callable[[float], None]], None] | None = getattr(loaded, "report_progress_to", None)
        if tell is not None:
            tell(lambda share: pipe.send(("progress", 0, share)))
    except Exception as error:
        pipe.send(("failed", 0, f"worker cannot load {evaluator}: {type(error).__name__}: {error}"))
        return
    pipe.send(("ready", 0, None))
    while True:
        try:
            items = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            for event in evaluate(items):
                pipe.send(event)
                if event[2] is not None and event[2].failure == TIMEOUT:
                    return  # what was cut short may have left anything behind; the pool starts a new worker
        except BrokenPipeError:
            return
        except FarmError as error:
            pipe.send(("failed", 0, str(error)))
            return
        pipe.send(("idle", 0, None))


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, even by SIGKILL."""
    if hasattr(ctypes, "CDLL"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
