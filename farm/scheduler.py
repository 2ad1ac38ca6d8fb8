"""What is handed to which worker next, and what becomes of an item whose worker died. No processes, files, clocks here.

Three kinds of work, in this order: items to be tried again, each alone; items that go on to a later tier, the most
promising first, on the node that has their cubins if it asks; items nobody has begun, in the sweep's order. A batch
holds as many items as take about TASK_SECONDS, by what such items took so far. What is held grows with the workers and,
by a number each, with the variants waiting for a later tier: items are made when they are handed out.

The last turns are dealt so that the workers finish together: what nobody has begun comes first, since others may have
to wait for what it gives; then the longest, by what they took in the tier before; and batches get smaller.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from farm.executors.interface import Batch, Done, Ended, Worker
from jobs.stream import Promotion
from jobs.work import COMPILE, RUNTIME, TIMEOUT, Finished, Kind, WorkItem, failed_result, finish

TASK_SECONDS = 4.0  # a batch's length: long beside what handing it out costs, short beside a run
MAX_BATCH = 64
FIRST_BATCH = 2  # while nothing is known of such items
RECORDED_BATCH = 4  # of items that bring timelines: a Ray worker hands over a batch's results together
ENDING_TURNS = 3.0  # tasks of TASK_SECONDS (or of the longest items) a worker that are left when the end begins
SHARES = 3  # of what is left at the end, a worker's batch is at most one of so many
NEARBY = 0.5  # at the end, an item of the worker's own node is taken if it is at least so long, beside the longest
GROWTH = 2.0  # of a batch over the last one of its kind: the first items may be the quick ones
BLAMED_ATTEMPTS = 2  # an item at which the worker died is tried again alone; then it is set aside
LOST_ATTEMPTS = 4  # workers lost under an item, for no known fault of its own


def kind_of(item: WorkItem) -> Kind:
    """Items of one kind may share a batch, and take about as long as each other."""
    return item.family, item.build.arch, item.tiers


@dataclass(slots=True)
class _Pace:
    """How long items of a kind take, beside what they took in the tier before, and how large a batch of them was."""

    seconds: float = 0.0
    items: float = 0.0
    before: float = 0.0  # seconds in the tier before, of those items where they are known, and in this one
    after: float = 0.0
    last: int = 0

    def learn(self, seconds: float, before: float) -> None:
        # older experience fades, so that a change (a warm cache, another region of the sweep) is followed
        self.seconds = 0.8 * self.seconds + seconds
        self.items = 0.8 * self.items + 1
        if before > 0:
            self.before = 0.8 * self.before + before
            self.after = 0.8 * self.after + seconds

    @property
    def each(self) -> float | None:
        return self.seconds / self.items if self.items > 0 else None

    def expected(self, before: float) -> float:
        """Of an item that took so long in the tier before (0: not known)."""
        if before > 0 and self.before > 0:
            return before * self.after / self.before
        return self.each or 0.0


@dataclass(slots=True)
class _Trouble:
    """An item whose workers died, and how often."""

    item: WorkItem
    blamed: int = 0
    lost: int = 0


@dataclass(slots=True)
class Running:
    """A batch at a worker."""

    batch: Batch
    worker: Worker
    since: float
    done: int = 0  # items with a result

    @property
    def left(self) -> int:
        return len(self.batch.items) - self.done


@dataclass(slots=True)
class Verdict:
    """What followed from an executor's answer: results to be kept, and sentences for the user."""

    results: list[Finished] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)  # kind (as in farm.events), text


@dataclass(slots=True)
class Counts:
    """Of a scheduler, since it began."""

    batches: int = 0
    items: int = 0
    retried: int = 0
    set_aside: int = 0
    lost_batches: int = 0


class Scheduler:
    """`fresh` gives the work nobody has begun; `remaining` says how much of it there still is; `later` makes the items
    of a variant that goes on.

    `coming` says how many items may still come of any kind, those with workers and those that funnels will send on
    included; `before` how long a variant took in the tier before (0 when that is not known).
    """

    def __init__(
        self,
        fresh: Iterator[WorkItem],
        remaining: Callable[[], int],
        later: Callable[[Kind, int], list[WorkItem]],
        task_seconds: float = TASK_SECONDS,
        coming: Callable[[], int] = lambda: 0,
        before: Callable[[Kind, int], float] = lambda kind, variant: 0.0,
    ) -> None:
        self._fresh = fresh
        self._remaining = remaining
        self._later = later
        self._coming = coming
        self._before = before
        self._ending = False
        self._task_seconds = task_seconds
        self._next: WorkItem | None = None
        self._exhausted = False
        self._retries: list[_Trouble] = []
        self._trouble: dict[tuple[str, int, str], _Trouble] = {}
        # by kind and node: priority, a number in the order of coming, variant
        self._promoted: dict[Kind, dict[str, list[tuple[float, int, int]]]] = {}
        self._promoted_count = 0
        self._sequence = itertools.count()
        self._pace: dict[Kind, _Pace] = {}
        self.running: dict[int, Running] = {}
        self.running_items = 0  # of those batches, without a result yet
        self.counts = Counts()

    # ---- work comes in

    def promote(self, promotion: Promotion) -> None:
        """A variant goes on to a later tier. The lowest priority is first."""
        kind, variant, priority, home = promotion
        if self._ending:
            priority = -self._expected(kind, variant)
        heap = self._promoted.setdefault(kind, {}).setdefault(home, [])
        heapq.heappush(heap, (priority, next(self._sequence), variant))
        self._promoted_count += 1

    # ---- work goes out

    def waiting(self) -> int:
        """Items that could be handed out now (of those nobody has begun, as the sweep counts them)."""
        fresh = 0 if self._exhausted else max(1, self._remaining())
        return fresh + self._promoted_count + len(self._retries)

    def has_work(self) -> bool:
        """Whether there is anything to hand out."""
        return bool(self._retries) or self._promoted_count > 0 or self._peek() is not None

    def next_batch(self, worker: Worker, workers: int, now: float) -> Batch | None:
        """What `worker`, one of `workers`, should do; None when there is nothing for it."""
        items, homes = self._choose(worker, workers)
        if not items:
            return None
        self.counts.batches += 1
        self.counts.items += len(items)
        batch = Batch(self.counts.batches, tuple(items), homes)
        self.running[batch.number] = Running(batch, worker, now)
        self.running_items += len(items)
        return batch

    def _choose(self, worker: Worker, workers: int) -> tuple[list[WorkItem], tuple[str, ...]]:
        if self._retries:
            return [self._retries.pop(0).item], ()
        self._see_the_end(workers)
        if self._ending and self._peek() is None:
            return self._choose_longest(worker, workers)
        if self._promoted_count and not self._ending:
            return self._choose_promoted(worker, workers)
        items: list[WorkItem] = []
        size = 1
        while (item := self._peek()) is not None and len(items) < size:
            if not items:
                size = self._limited(item, self._size(kind_of(item), workers))
            elif kind_of(item) != kind_of(items[0]):
                break
            items.append(item)
            self._next = None
        return items, ()

    def _choose_promoted(self, worker: Worker, workers: int) -> tuple[list[WorkItem], tuple[str, ...]]:
        # the kind with the most promising item; then, of that kind, what this node has the cubins of
        kind = min(self._promoted, key=lambda k: min(heap[0][:2] for heap in self._promoted[k].values()))
        heaps = self._promoted[kind]
        size = self._size(kind, workers)
        items: list[WorkItem] = []
        homes: list[str] = []
        while heaps and len(items) < size:
            home = worker.node if worker.node in heaps else max(heaps, key=lambda h: len(heaps[h]))
            _, _, variant = heapq.heappop(heaps[home])
            self._promoted_count -= 1
            made = self._later(kind, variant)
            items += made
            size = min([self._limited(item, size) for item in made], default=size)
            if home and home != worker.node and home not in homes:
                homes.append(home)
            if not heaps[home]:
                del heaps[home]
                if home == worker.node:
                    break  # what other nodes have is theirs, unless this one has nothing else to do
        if not heaps:
            del self._promoted[kind]
        return items, tuple(homes)

    def _see_the_end(self, workers: int) -> None:
        """Begin the end when what is left is a few turns' work."""
        if self._ending:
            return
        longest = max((pace.each for pace in self._pace.values() if pace.each is not None), default=None)
        if longest is None:
            return
        fresh = self.waiting() - self._promoted_count
        seconds = max(0, self._items_left() - self.waiting()) * longest  # what funnels have not decided
        upcoming = self._peek()
        if upcoming is not None:
            seconds += fresh * self._each(kind_of(upcoming), longest)
        for kind, heaps in self._promoted.items():
            seconds += sum(map(len, heaps.values())) * self._each(kind, longest)
        if seconds > ENDING_TURNS * max(self._task_seconds, longest) * workers:
            return
        self._ending = True
        for kind, heaps in self._promoted.items():
            for home, heap in heaps.items():
                heaps[home] = [(-self._expected(kind, variant), number, variant) for _, number, variant in heap]
                heapq.heapify(heaps[home])

    def _items_left(self) -> int:
        """About how many are to be handed out."""
        return max(self.waiting(), self._coming() - self.running_items)

    def _each(self, kind: Kind, unknown: float) -> float:
        """Seconds of an item of a kind."""
        pace = self._pace.get(kind)
        return unknown if pace is None or pace.each is None else pace.each

    def _expected(self, kind: Kind, variant: int) -> float:
        pace, before = self._pace.get(kind), self._before(kind, variant)
        return pace.expected(before) if pace is not None else before

    def _choose_longest(self, worker: Worker, workers: int) -> tuple[list[WorkItem], tuple[str, ...]]:
        items: list[WorkItem] = []
        homes: list[str] = []
        if not self._promoted:
            return items, ()
        kind = min(self._promoted, key=lambda k: min(heap[0][:2] for heap in self._promoted[k].values()))
        heaps = self._promoted[kind]
        each = self._each(kind, self._task_seconds)
        # what is expected may be wrong: no more items than there would be if they took as long as each other
        most = max(1, min(MAX_BATCH, self._items_left() // (SHARES * max(1, workers))))
        room = min(self._task_seconds, most * each)
        while heaps and len(items) < most:
            home = min(heaps, key=lambda h: heaps[h][0][:2])
            if worker.node in heaps and heaps[worker.node][0][0] <= NEARBY * heaps[home][0][0]:
                home = worker.node
            room += heaps[home][0][0]  # less the time it takes
            if items and room < 0:
                break
            _, _, variant = heapq.heappop(heaps[home])
            self._promoted_count -= 1
            items += self._later(kind, variant)
            if home and home != worker.node and home not in homes:
                homes.append(home)
            if not heaps[home]:
                del heaps[home]
        if not heaps:
            del self._promoted[kind]
        return items, tuple(homes)

    def _size(self, kind: Kind, workers: int) -> int:
        pace = self._pace.setdefault(kind, _Pace())
        each = pace.each
        if each is None:
            size = FIRST_BATCH
        else:
            size = max(1, min(MAX_BATCH, int(self._task_seconds / max(each, 1e-6))))
            size = min(size, max(FIRST_BATCH, int(pace.last * GROWTH)))
        pace.last = size
        # each worker gets its share in two turns at least
        return max(1, min(size, -(-self.waiting() // (2 * max(1, workers)))))

    @staticmethod
    def _limited(item: WorkItem, size: int) -> int:
        return size if item.record is None else min(size, RECORDED_BATCH)

    def _peek(self) -> WorkItem | None:
        if self._next is None and not self._exhausted:
            self._next = next(self._fresh, None)
            self._exhausted = self._next is None
        return self._next

    # ---- answers come back

    def done(self, answer: Done) -> Finished:
        """An item of a running batch has a result."""
        running = self.running[answer.batch]
        running.done += 1
        self.running_items -= 1
        item = running.batch.items[answer.index]
        self._trouble.pop(_identity(item), None)
        kind = kind_of(item)
        self._pace.setdefault(kind, _Pace()).learn(answer.result.seconds, self._before(kind, item.variant))
        return answer.result

    def ended(self, answer: Ended) -> Verdict:
        """A batch is over; what it left goes back to the queue, or is set aside with the reason."""
        running = self.running.pop(answer.batch)
        self.running_items -= running.left
        verdict = Verdict()
        if not answer.unfinished:
            return verdict
        items = running.batch.items
        where = running.worker.shown
        if answer.cause == "lost":
            self.counts.lost_batches += 1
            verdict.notes.append(
                ("worker_lost", f"{where}: {answer.detail}; {len(answer.unfinished)} work item(s) go back to the queue")
            )
        for index in answer.unfinished:
            item = items[index]
            if index == answer.culprit and answer.cause != "lost":
                self._blame(item, answer, where, verdict)
            elif answer.cause == "lost":
                trouble = self._trouble.setdefault(_identity(item), _Trouble(item))
                trouble.lost += 1
                if trouble.lost >= LOST_ATTEMPTS:
                    text = f"its worker was lost {trouble.lost} times ({answer.detail})"
                    self._set_aside(item, RUNTIME, text, verdict)
                else:
                    self._again(item)
            else:
                self._again(item)
        return verdict

    def _blame(self, item: WorkItem, answer: Ended, where: str, verdict: Verdict) -> None:
        if answer.cause == "overdue":
            self._set_aside(item, TIMEOUT, answer.detail, verdict, item.seconds)
            return
        if answer.cause == "memory":
            self._set_aside(item, RUNTIME, answer.detail, verdict)
            return
        trouble = self._trouble.setdefault(_identity(item), _Trouble(item))
        trouble.blamed += 1
        what = "a tool failed" if answer.cause == "tool" else "simulator crashed"
        if trouble.blamed < BLAMED_ATTEMPTS:
            verdict.notes.append(("retried", f"{item.label}: {what} on {where} ({answer.detail}); it is tried again"))
            self._again(item)
            return
        times = "twice" if trouble.blamed == 2 else f"{trouble.blamed} times"
        failure = COMPILE if answer.cause == "tool" else RUNTIME
        self._set_aside(item, failure, f"{what} ({answer.detail}) {times} on {item.label}", verdict)

    def _again(self, item: WorkItem) -> None:
        self.counts.retried += 1
        self._retries.append(self._trouble.get(_identity(item)) or _Trouble(item))

    def _set_aside(self, item: WorkItem, failure: str, text: str, verdict: Verdict, seconds: float = 0.0) -> None:
        self._trouble.pop(_identity(item), None)
        self.counts.set_aside += 1
        verdict.notes.append(("set_aside", f"{item.label}: {text}"))
        verdict.results.append(finish(item, failed_result(item, failure, text, seconds=seconds), seconds))


def _identity(item: WorkItem) -> tuple[str, int, str]:
    return item.family, item.variant, item.build.arch
