"""The scheduler by itself: sizes of batches, order, and what becomes of items whose worker died."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

from farm.executors.interface import Batch, Cause, Done, Ended, Worker
from farm.scheduler import LOST_ATTEMPTS, MAX_BATCH, Scheduler, kind_of
from jobs.plan import Settings, plan_sweep
from jobs.stream import Promotion
from jobs.sweep import load_sweep
from jobs.work import Finished, Kind, WorkItem


@pytest.fixture
def item(toy: Path, tmp_path: Path) -> WorkItem:
    plan = plan_sweep(load_sweep(toy), Settings("warm", 60.0, 1000, tmp_path, targets=("h200",)))
    return plan.items(("static",), {"h200": [0]}, ())[0][0]


def many(item: WorkItem, count: int) -> list[WorkItem]:
    return [dataclasses.replace(item, variant=n) for n in range(count)]


def later_of(item: WorkItem):
    """What makes the items of variants that go on: as `item`."""
    return lambda kind, variant: [dataclasses.replace(item, variant=variant, tiers=kind[2])]


def promote(scheduler: Scheduler, item: WorkItem, priority: float, home: str = "") -> None:
    scheduler.promote(Promotion(kind_of(item), item.variant, priority, home))


def scheduler_of(items: list[WorkItem]) -> Scheduler:
    left = [len(items)]

    def fresh():
        for item in items:
            left[0] -= 1
            yield item

    return Scheduler(fresh(), lambda: left[0], later_of(items[0]))


def finish(scheduler: Scheduler, batch: Batch, seconds: float) -> None:
    for index, item in enumerate(batch.items):
        result = Finished(item.family, item.variant, item.build.arch, item.tiers, {}, seconds=seconds)
        scheduler.done(Done(batch.number, index, result))
    scheduler.ended(Ended(batch.number))


def test_batches_grow_to_seconds_and_shrink_towards_the_end(item: WorkItem) -> None:
    scheduler = scheduler_of(many(item, 1000))
    sizes = []
    while (batch := scheduler.next_batch(Worker("w"), 4, 0.0)) is not None:
        sizes.append(len(batch.items))
        finish(scheduler, batch, 0.1)
    assert sum(sizes) == 1000
    assert sizes[0] == 2 and max(sizes) == 40  # of 0.1 s each, four seconds
    assert all(later <= 2 * earlier for earlier, later in itertools.pairwise(sizes))
    assert sizes[-1] == 1 and len(sizes) < 60


def test_quick_items_are_bounded_too(item: WorkItem) -> None:
    scheduler = scheduler_of(many(item, 5000))
    sizes = []
    for _ in range(30):
        batch = scheduler.next_batch(Worker("w"), 1, 0.0)
        assert batch is not None
        sizes.append(len(batch.items))
        finish(scheduler, batch, 1e-5)
    assert max(sizes) == MAX_BATCH


def test_batches_hold_one_kind_of_item(item: WorkItem) -> None:
    other = dataclasses.replace(item, family="other")
    scheduler = scheduler_of([*many(item, 1), *many(other, 9)])
    kinds = []
    while (batch := scheduler.next_batch(Worker("w"), 1, 0.0)) is not None:
        kinds.append({i.family for i in batch.items})
        finish(scheduler, batch, 0.1)
    assert kinds[0] == {"toy"} and all(kind == {"other"} for kind in kinds[1:])


def test_the_promising_come_first_and_stay_near_their_cubins(item: WorkItem) -> None:
    scheduler = scheduler_of(many(item, 4))
    later = [dataclasses.replace(i, tiers=("sampled",)) for i in many(item, 6)]
    for n, home in enumerate(["a", "b", "a", "b", "a", "b"]):
        promote(scheduler, later[n], float(n), home)
    scheduler._size = lambda *_: 2  # type: ignore[method-assign]
    batch = scheduler.next_batch(Worker("w1", "b"), 2, 0.0)
    assert batch is not None and [i.variant for i in batch.items] == [1, 3] and batch.homes == ()
    batch = scheduler.next_batch(Worker("w2", "c"), 2, 0.0)  # has none of them: says where they are
    assert batch is not None and [i.variant for i in batch.items] == [0, 2] and batch.homes == ("a",)
    batch = scheduler.next_batch(Worker("w2", "a"), 2, 0.0)
    assert batch is not None and [i.variant for i in batch.items] == [4]
    batch = scheduler.next_batch(Worker("w2", "a"), 2, 0.0)
    assert batch is not None and [i.variant for i in batch.items] == [5] and batch.homes == ("b",)
    batch = scheduler.next_batch(Worker("w2", "a"), 2, 0.0)  # only now those that nobody has begun
    assert batch is not None and [i.tiers for i in batch.items] == [("static",)] * 2


def end(scheduler: Scheduler, cause: Cause, culprit: int | None = None):
    batch = scheduler.next_batch(Worker("w", "node"), 1, 0.0)
    assert batch is not None
    places = tuple(range(len(batch.items)))
    return batch, scheduler.ended(Ended(batch.number, places, culprit, cause, "signal SIGSEGV"))


def test_an_item_that_kills_its_worker_twice_is_set_aside(item: WorkItem) -> None:
    scheduler = scheduler_of(many(item, 20))
    batch, verdict = end(scheduler, "crash", culprit=1)
    assert len(batch.items) == 2 and not verdict.results and "tried again" in verdict.notes[0][1]
    retries = [scheduler.next_batch(Worker("w"), 1, 0.0) for _ in range(2)]
    assert [[i.variant for i in b.items] for b in retries if b] == [[0], [1]]  # each alone
    assert retries[0] is not None and retries[1] is not None
    finish(scheduler, retries[0], 0.1)
    verdict = scheduler.ended(Ended(retries[1].number, (0,), 0, "crash", "signal SIGSEGV"))
    (result,) = verdict.results
    assert result.variant == 1 and result.failure == "runtime"
    assert "simulator crashed (signal SIGSEGV) twice" in str(result.message)
    assert result.tables["estimates"].num_rows == result.tables["variants"].num_rows == 1
    assert scheduler.counts.set_aside == 1 and not scheduler._trouble


@pytest.mark.parametrize(("cause", "failure"), [("overdue", "timeout"), ("memory", "runtime")])
def test_time_and_memory_are_not_tried_again(item: WorkItem, cause: Cause, failure: str) -> None:
    scheduler = scheduler_of(many(item, 1))
    _, verdict = end(scheduler, cause, culprit=0)
    assert [r.failure for r in verdict.results] == [failure] and not scheduler.has_work()


def test_lost_workers_are_nobodys_fault_until_it_goes_on(item: WorkItem) -> None:
    scheduler = scheduler_of(many(item, 1))
    for attempt in range(LOST_ATTEMPTS):
        assert scheduler.has_work()
        _, verdict = end(scheduler, "lost")
        assert any("go back to the queue" in text for _, text in verdict.notes)
        assert bool(verdict.results) == (attempt == LOST_ATTEMPTS - 1)
    assert verdict.results[0].failure == "runtime" and "lost 4 times" in str(verdict.results[0].message)
    assert not scheduler.has_work() and scheduler.counts.retried == LOST_ATTEMPTS - 1


def ending_scheduler(item: WorkItem, fresh: int, took: dict[int, float]) -> Scheduler:
    """One that knows how long its kinds take; `took` says what later items took in the tier before."""
    items, left = iter(many(item, fresh)), [fresh]

    def count_down():
        for found in items:
            left[0] -= 1
            yield found

    def before(kind: Kind, variant: int) -> float:
        return took.get(variant, 0.0) if kind[2] == ("sampled",) else 0.0

    return Scheduler(count_down(), lambda: left[0], later_of(item), before=before)


def test_at_the_end_the_longest_come_first_and_before_them_what_nobody_has_begun(item: WorkItem) -> None:
    took = {n: 1.0 + n % 7 for n in range(100, 130)}
    scheduler = ending_scheduler(item, 20, took)
    later = [dataclasses.replace(i, variant=n, tiers=("sampled",)) for n, i in zip(took, many(item, 30), strict=True)]
    for place, found in enumerate(later):
        promote(scheduler, found, float(place))
    first = scheduler.next_batch(Worker("w"), 50, 0.0)  # nothing is known yet: the promising first
    assert first is not None and first.items[0] == later[0]
    finish(scheduler, first, 3.0)
    order: list[WorkItem] = []
    while (batch := scheduler.next_batch(Worker("w"), 50, 0.0)) is not None:
        order += batch.items
        finish(scheduler, batch, 3.0)
    assert len(order) == 20 + 30 - len(first.items)
    assert all(i.tiers == ("static",) for i in order[:20])
    expected = [took[i.variant] for i in order[20:]]
    assert expected == sorted(expected, reverse=True)


def test_at_the_end_an_item_nearby_is_taken_unless_it_is_much_shorter(item: WorkItem) -> None:
    took = {0: 10.0, 1: 6.0, 2: 4.0, 9: 3.0}
    scheduler = ending_scheduler(item, 0, took)
    known = dataclasses.replace(item, variant=9, tiers=("sampled",))
    promote(scheduler, known, 0.0)
    batch = scheduler.next_batch(Worker("w"), 8, 0.0)
    assert batch is not None
    finish(scheduler, batch, 3.0)
    for n, home in ((0, "a"), (1, "b"), (2, "b")):
        promote(scheduler, dataclasses.replace(known, variant=n), float(n), home)
    taken = [scheduler.next_batch(Worker("w", "b"), 8, 0.0) for _ in range(3)]
    assert [[i.variant for i in batch.items] for batch in taken if batch] == [[1], [0], [2]]
    assert [batch.homes for batch in taken if batch] == [(), ("a",), ()]


def test_the_end_waits_for_what_the_funnels_may_still_send(item: WorkItem) -> None:
    coming = [1000]
    items = iter(many(item, 6))
    scheduler = Scheduler(items, lambda: 3, later_of(item), coming=lambda: coming[0])
    batch = scheduler.next_batch(Worker("w"), 2, 0.0)
    assert batch is not None
    finish(scheduler, batch, 3.0)
    later = dataclasses.replace(item, variant=50, tiers=("sampled",))
    promote(scheduler, later, 1.0)
    batch = scheduler.next_batch(Worker("w"), 2, 0.0)
    assert batch is not None and batch.items == (later,)  # not the end: what goes on comes first
    promote(scheduler, later, 1.0)
    coming[0] = 2
    batch = scheduler.next_batch(Worker("w"), 2, 0.0)
    assert batch is not None and batch.items[0].tiers == ("static",)
