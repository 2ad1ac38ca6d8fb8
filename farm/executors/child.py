"""The parent's view of one worker process: what it is at, until when, with how much memory, and how it ended.

The process pool has one of these a job; a Ray worker has one of its own, so that whatever a kernel does to the process
that evaluates it, the Ray worker lives on and knows who did it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

from farm.executors.interface import Answer, Batch, Cause, Done, Ended, ExecutorError
from farm.executors.worker import environment

GRACE_SECONDS = 15.0  # over an item's own limit, which the worker keeps itself wherever Python code runs
START_SECONDS = 300.0  # for a worker to import what it needs, and to compile the timing engine if it must
MEMORY_SLACK = 256 << 20  # bytes over an item's budget before the process is stopped from outside

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from farm.executors.worker import main; main(int(sys.argv[1]), sys.argv[2])"
)


class Child:
    """One worker process. `hand` it a batch; `receive` when its pipe is readable; `check` now and then."""

    def __init__(self, evaluator: str) -> None:
        ours, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, str(theirs.fileno()), evaluator, json.dumps(sys.path)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environment(dict(os.environ)),
            start_new_session=True,  # its own process group: a compiler it runs is stopped with it
        )
        theirs.close()
        self.pipe = Connection(ours.detach())
        self.ready = False
        self.gone = False
        self.batch: Batch | None = None
        self.share: float | None = None  # of the item it is at, where the evaluator says
        self._at = 0
        self._finished: set[int] = set()
        self._began = 0.0
        self._deadline = self.started + START_SECONDS
        self._resident = 0  # bytes it held when it was idle

    @property
    def label(self) -> str:
        """What it is at."""
        return self.batch.items[self._at].label if self.batch is not None else "idle"

    def hand(self, batch: Batch) -> None:
        """Give it a batch. It must be ready and idle."""
        assert self.ready and self.batch is None
        self.batch, self._at, self._finished, self.share = batch, 0, set(), None
        self._began = time.monotonic()
        self._deadline = self._began + batch.items[0].seconds * len(batch.items) + GRACE_SECONDS
        self._resident = self.resident_bytes()
        with contextlib.suppress(OSError):  # that it is dead shows in `receive`
            self.pipe.send(list(batch.items))

    def receive(self) -> Iterator[Answer]:
        """One message, or the process's end. Raises ExecutorError when the worker or a tool is broken."""
        try:
            kind, index, payload = self.pipe.recv()
        except (EOFError, OSError):
            yield from self._died()
            return
        if kind == "ready":
            self.ready = True
        elif kind == "failed":
            self.stop()
            raise ExecutorError(payload)
        elif self.batch is None:
            raise ExecutorError(f"a worker answered '{kind}' without work")
        elif kind == "progress":
            self.share = payload
        elif kind == "begin":
            self._at, self.share = index, None
            self._deadline = time.monotonic() + self.batch.items[index].seconds + GRACE_SECONDS
        elif kind == "done":
            self._finished.add(index)
            self.share = None
            yield Done(self.batch.number, index, payload)
        elif kind == "tool":
            self._at = index
            yield self._end("tool", payload)
        else:  # "idle": the batch is through
            missing = self._unfinished()
            if missing:
                raise ExecutorError(f"a worker left out {self.batch.items[missing[0]].label}")
            ended = Ended(self.batch.number, seconds=payload)
            self.batch = None
            yield ended

    def check(self) -> Iterator[Answer]:
        """Stop it if it is over its time or memory. Raises ExecutorError when it does not start."""
        now = time.monotonic()
        if self.batch is None:
            if not self.ready and now > self._deadline:
                self.stop()
                raise ExecutorError(f"a worker process did not start within {START_SECONDS:.0f} s; run `farm doctor`")
            return
        item = self.batch.items[self._at]
        if now > self._deadline:
            yield self._end("overdue", f"more than {item.seconds:g} s of simulation (raise it with --seconds)")
        elif self.resident_bytes() > self._resident + item.memory + MEMORY_SLACK:
            yield self._end("memory", f"more than {item.memory / 2**30:.3g} GiB of memory (raise it with --memory)")

    def seconds_left(self) -> float:
        """Until `check` would find it overdue."""
        return max(0.0, self._deadline - time.monotonic())

    def resident_bytes(self) -> int:
        """Memory the process holds; 0 when that cannot be known."""
        try:
            with open(f"/proc/{self.process.pid}/statm") as file:
                return int(file.read().split()[1]) * resource.getpagesize()
        except (OSError, IndexError, ValueError):
            return 0

    def stop(self) -> None:
        """Kill it and what it started."""
        self.gone = True
        with contextlib.suppress(OSError):
            self.pipe.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)

    def _unfinished(self) -> tuple[int, ...]:
        assert self.batch is not None
        return tuple(index for index in range(len(self.batch.items)) if index not in self._finished)

    def _end(self, cause: Cause, detail: str) -> Ended:
        """Stop the process; the item it was at is to blame, unless that was finished."""
        assert self.batch is not None
        unfinished = self._unfinished()
        culprit = self._at if self._at in unfinished else None
        ended = Ended(
            self.batch.number,
            unfinished,
            culprit,
            cause if unfinished else "",
            detail,
            time.monotonic() - self._began,
        )
        self.batch = None
        self.stop()
        return ended

    def _died(self) -> Iterator[Answer]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
        reason = self.exit_reason()
        if self.batch is not None:
            # nothing that a kernel does ends its process this way: somebody did, or the system, out of memory
            killed = self.process.poll() == -signal.SIGKILL
            yield self._end("lost" if killed else "crash", f"its process ended by {reason}" if killed else reason)
        self.stop()

    def exit_reason(self) -> str:
        """How the process ended, in words."""
        code = self.process.poll()
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"signal {name}" + (", as when the machine runs out of memory" if name == "SIGKILL" else "")
        return f"exit code {code}"
