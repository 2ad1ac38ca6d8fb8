"""What an executor is: workers that are handed batches and answer with events. The scheduler decides everything else.

An executor never gives up a batch silently: each batch handed out ends in exactly one `Ended`, whatever happens to the
process, node or network under it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from interpreter.errors import FarmError
from jobs.packed import Packed
from jobs.work import Finished, VariantResult, WorkItem

# What an evaluator yields: it has begun item n, or item n's result.
Event = tuple[Literal["begin", "done"], int, VariantResult | None]
Evaluator = Callable[[list[WorkItem]], Iterable[Event]]

# Why a batch ended before its time:
#   crash    the worker process died while evaluating the culprit
#   overdue  the culprit took longer than its seconds and could not be stopped from within
#   memory   the culprit's process held more memory than its budget
#   tool     a compiler or disassembler was killed or ran out of memory on the culprit
#   lost     a worker, its node or the way to it is gone: nobody's fault
Cause = Literal["", "crash", "overdue", "memory", "tool", "lost"]


class ExecutorError(FarmError):
    """Workers cannot be started, or a tool is broken: the machine's fault, not a variant's."""


@dataclass(frozen=True, slots=True)
class Batch(Packed):
    """Items of one family, architecture and tiers that one worker evaluates together.

    `homes` are the nodes whose caches hold the items' cubins, where that is another than the worker's.
    """

    number: int
    items: tuple[WorkItem, ...]
    homes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """An item's result. `index` is its place in the batch."""

    batch: int
    index: int
    result: Finished


@dataclass(frozen=True, slots=True)
class Ended:
    """A batch is over: nothing more comes of it. `unfinished` are the places of items that gave no result."""

    batch: int
    unfinished: tuple[int, ...] = ()
    culprit: int | None = None
    cause: Cause = ""
    detail: str = ""
    seconds: float = 0.0  # on the worker


@dataclass(frozen=True, slots=True)
class Note:
    """Something the user should know about workers or nodes. `kind` as in farm.events."""

    kind: str
    text: str
    node: str = ""


Answer = Done | Ended | Note


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that can be handed a batch now."""

    name: str
    node: str = ""  # its id
    place: str = ""  # the node's name, for people

    @property
    def shown(self) -> str:
        return f"{self.name} on {self.place}" if self.place else self.name


class Executor(Protocol):
    """Workers of one kind. Used by one thread; times are seconds of the monotonic clock."""

    kind: str

    @property
    def workers(self) -> int:
        """How many work or could, now; grows and shrinks with a cluster."""

    def idle(self, wanted: int) -> list[Worker]:
        """At most `wanted` workers without a batch; starts some when there are fewer than would be of use."""

    def start(self, worker: Worker, batch: Batch) -> None:
        """Hand a batch to an idle worker."""

    def wait(self, timeout: float) -> list[Answer]:
        """What has happened since; waits at most `timeout` seconds for the first of it."""

    def under_way(self) -> list[tuple[str, float]]:
        """Long evaluations of which a share is known to be done: (label, share)."""

    def nodes(self) -> Mapping[str, int]:
        """Workers a node; empty when there is only this machine."""

    def close(self) -> None:
        """Stop all workers and what they started; also after an error, and twice."""


def default_jobs() -> int:
    """CPUs this process may run on."""
    return len(os.sched_getaffinity(0))
