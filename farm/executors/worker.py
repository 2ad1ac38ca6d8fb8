"""What runs inside a worker process: it takes batches from a pipe, evaluates them, and says what it is at.

Started by `farm.executors.child` with the pipe's descriptor as its argument. One message a step:

    ("ready", 0, None)           it has loaded what it needs
    ("begin", n, None)           it is at item n of the batch
    ("progress", 0, share)       of a long evaluation
    ("done", n, Finished)        item n's result
    ("tool", n, text)            a tool was killed or ran out of memory on item n; the worker ends
    ("failed", 0, text)          the worker or a tool is broken; the worker ends
    ("idle", 0, seconds)         the batch is through
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import re
import resource
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from farm.executors.interface import Evaluator
from interpreter.errors import FarmError, ToolchainError
from jobs.work import TIMEOUT, WorkItem, finish

# A tool that was killed, or found no memory, may have met a kernel that no compiler can digest.
_OVERLOADED = re.compile(r"died due to signal|killed|segmentation|cannot allocate|out of memory|exit status -", re.I)


def main(descriptor: int, evaluator: str) -> None:
    """Serve batches until the pipe closes. Interrupts are the parent's business; the worker dies with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    pipe = Connection(descriptor)
    try:
        evaluate = _load(evaluator, pipe)
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
            if not _evaluate(evaluate, items, pipe):
                return
        except BrokenPipeError:
            return


def _load(evaluator: str, pipe: Connection) -> Evaluator:
    module, _, function = evaluator.partition(":")
    loaded = importlib.import_module(module)
    tell: Callable[[Callable[[float], None]], None] | None = getattr(loaded, "report_progress_to", None)
    if tell is not None:
        tell(lambda share: pipe.send(("progress", 0, share)))
    prepare: Callable[[], None] | None = getattr(loaded, "prepare_worker", None)
    if prepare is not None:
        prepare()
    evaluate: Evaluator = getattr(loaded, function)
    return evaluate


def _evaluate(evaluate: Evaluator, items: list[WorkItem], pipe: Connection) -> bool:
    """One batch; False when this process should not go on."""
    started = time.monotonic()
    since = started
    used = _cpu_seconds()
    at = 0
    try:
        for kind, index, result in evaluate(items):
            at = index
            if result is None:
                pipe.send((kind, index, None))
                continue
            now = time.monotonic()
            finished = finish(items[index], result, now - since)
            since, before, used = now, used, _cpu_seconds()
            finished.cpu_seconds = used - before
            finished.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            pipe.send((kind, index, finished))
            if result.failure == TIMEOUT:
                return False  # what was cut short may have left anything behind: a new process goes on
    except ToolchainError as error:
        pipe.send(("tool" if _OVERLOADED.search(str(error)) else "failed", at, str(error)))
        return False
    except FarmError as error:
        pipe.send(("failed", 0, str(error)))
        return False
    pipe.send(("idle", 0, time.monotonic() - started))
    return True


def _cpu_seconds() -> float:
    """CPU time so far of this process and of the tools it ran to their end."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, even by SIGKILL."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() == 1 and os.environ.get("FARM_PARENT") not in (None, "1"):
        os._exit(1)  # it had died before that


def environment(base: dict[str, str]) -> dict[str, Any]:
    """A worker's environment: one thread for libraries (workers are the parallelism), and no credentials, which
    kernels and compilers that run there have no business with."""
    kept = {name: value for name, value in base.items() if not _SECRET.search(name)}
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        kept.setdefault(name, "1")
    kept["FARM_PARENT"] = str(os.getpid())
    return kept


_SECRET = re.compile(r"^AWS_|TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE_KEY|API_?KEY", re.I)
