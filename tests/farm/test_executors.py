"""The process pool: a crash or an endless evaluation costs its own variant and nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import farm.executors
from farm.executors import ExecutorError, ProcessPool, batches
from jobs.plan import Settings, plan_sweep
from jobs.sweep import load_sweep
from jobs.work import WorkItem


@pytest.fixture
def items(toy: Path, tmp_path: Path) -> list[WorkItem]:
    plan = plan_sweep(load_sweep(toy), Settings("warm", 60.0, 1000, tmp_path, targets=("h200",)))
    items, excluded = plan.items(("static", "sampled"), {"h200": plan.numbers}, ())
    assert not excluded
    return items


def outcomes(pool: ProcessPool, items: list[WorkItem]) -> dict[int, tuple[str | None, str | None]]:
    with pool:
        found = [result for result in pool.run(items) if result is not None]
    assert len(found) == len({result.variant for result in found}), "a variant came twice"
    return {result.variant: (result.failure, result.message) for result in found}


def test_a_crash_and_a_hang_cost_only_their_variants(items: list[WorkItem], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farm.executors, "GRACE_SECONDS", 0.5)
    quick = [dataclasses.replace(item, seconds=0.5) for item in items]
    found = outcomes(ProcessPool(2, "farm_fakes:evaluate_with_mishaps"), quick)
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    assert found[1][0] == "runtime" and "simulator crashed (signal SIGSEGV)" in str(found[1][1])
    assert found[2][0] == "timeout" and "0.5 s" in str(found[2][1])
    assert all(found[n] == (None, None) for n in (0, 3, 4, 5))


def test_a_batch_survives_the_crash_of_one_of_its_items(items: list[WorkItem], monkeypatch) -> None:
    monkeypatch.setattr(farm.executors, "batches", lambda items, jobs: [items[:2] + items[3:]])
    found = outcomes(ProcessPool(1, "farm_fakes:evaluate_with_mishaps"), items)
    assert [n for n, (failure, _) in found.items() if failure] == [1]
    assert sorted(found) == [0, 1, 3, 4, 5]


def test_an_evaluator_that_cannot_be_loaded_is_not_a_variants_fault(items: list[WorkItem]) -> None:
    with pytest.raises(ExecutorError, match="no_such_module"):
        list(ProcessPool(1, "no_such_module:evaluate").run(items))


def test_closing_stops_the_workers(items: list[WorkItem]) -> None:
    pool = ProcessPool(2, "farm_fakes:evaluate_slowly")
    results = pool.run(items)
    next(results)
    processes = [worker.process for worker in pool._workers]
    results.close()
    assert processes and not any(process.is_alive() for process in processes)


def test_batches_keep_architectures_apart(toy: Path, tmp_path: Path) -> None:
    plan = plan_sweep(load_sweep(toy), Settings("warm", 60.0, 1000, tmp_path))
    items, _ = plan.items(("static",), dict.fromkeys(plan.targets, plan.numbers), ())
    parts = list(batches(items * 20, 2))
    assert [item for part in parts for item in part] == items * 20
    assert all(len({item.build.arch for item in part}) == 1 and len(part) <= 16 for part in parts)


def test_workers_stay_for_the_next_run(items: list[WorkItem]) -> None:
    with ProcessPool(1, "farm_fakes:evaluate_batch") as pool:
        assert len([r for r in pool.run(items[:2]) if r is not None]) == 2
        (first,) = pool._workers
        assert len([r for r in pool.run(items) if r is not None]) == 6
        assert pool._workers == [first] and first.process.is_alive()
    assert not first.process.is_alive()
