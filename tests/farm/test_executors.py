"""The process pool under the scheduler: a crash or an endless evaluation costs its own variant and nothing else."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import farm.executors.child
from farm.executors.interface import Done, Ended, Executor, ExecutorError
from farm.executors.process_pool import ProcessPool
from farm.scheduler import Scheduler
from jobs.plan import Settings, plan_sweep
from jobs.sweep import load_sweep
from jobs.work import Finished, WorkItem


@pytest.fixture
def items(toy: Path, tmp_path: Path) -> list[WorkItem]:
    plan = plan_sweep(load_sweep(toy), Settings("warm", 60.0, 1000, tmp_path, targets=("h200",)))
    items, excluded = plan.items(("static", "sampled"), {"h200": plan.numbers}, ())
    assert not excluded
    return items


def drive(executor: Executor, items: list[WorkItem], notes: list[str] | None = None) -> list[Finished]:
    """All results, by the scheduler's rules."""
    left = list(items)
    scheduler = Scheduler(iter(left), lambda: len(left), lambda kind, variant: [])
    found: list[Finished] = []
    while scheduler.has_work() or scheduler.running:
        for worker in executor.idle(scheduler.waiting()):
            batch = scheduler.next_batch(worker, executor.workers, time.monotonic())
            if batch is not None:
                executor.start(worker, batch)
        for answer in executor.wait(0.2):
            if isinstance(answer, Done):
                found.append(scheduler.done(answer))
            elif isinstance(answer, Ended):
                verdict = scheduler.ended(answer)
                found += verdict.results
                if notes is not None:
                    notes += [text for _, text in verdict.notes]
    assert len(found) == len({(result.variant, result.arch) for result in found}), "a variant came twice"
    return found


def outcomes(pool: ProcessPool, items: list[WorkItem]) -> dict[int, tuple[str | None, str | None]]:
    with pool:
        return {result.variant: (result.failure, result.message) for result in drive(pool, items)}


def test_a_crash_and_a_hang_cost_only_their_variants(items: list[WorkItem], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farm.executors.child, "GRACE_SECONDS", 0.5)
    quick = [dataclasses.replace(item, seconds=0.5) for item in items]
    found = outcomes(ProcessPool(2, "farm_fakes:evaluate_with_mishaps"), quick)
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    assert found[1][0] == "runtime" and "simulator crashed (signal SIGSEGV)" in str(found[1][1])
    assert found[2][0] == "timeout" and "0.5 s" in str(found[2][1])
    assert all(found[n] == (None, None) for n in (0, 3, 4, 5))


def test_a_batch_survives_the_crash_of_one_of_its_items(items: list[WorkItem], monkeypatch) -> None:
    monkeypatch.setattr("farm.scheduler.FIRST_BATCH", 5)
    monkeypatch.setattr(Scheduler, "_size", lambda *_: 5)
    found = outcomes(ProcessPool(1, "farm_fakes:evaluate_with_mishaps"), items[:2] + items[3:])
    assert [n for n, (failure, _) in found.items() if failure] == [1]
    assert sorted(found) == [0, 1, 3, 4, 5]


def test_memory_beyond_the_budget_costs_only_its_variant(items: list[WorkItem], monkeypatch) -> None:
    # the evaluator allocates without limits of its own: what stops it watches from outside
    monkeypatch.setattr(farm.executors.child, "MEMORY_SLACK", 16 << 20)
    small = [dataclasses.replace(item, memory=64 << 20) for item in items]
    found = outcomes(ProcessPool(1, "farm_fakes:evaluate_with_a_hoard"), small)
    assert found[1][0] == "runtime" and "GiB of memory (raise it with --memory)" in str(found[1][1])
    assert all(found[n] == (None, None) for n in (0, 2, 3, 4, 5))


def test_a_worker_killed_from_outside_costs_nothing(items: list[WorkItem]) -> None:
    notes: list[str] = []
    with ProcessPool(1, "farm_fakes:evaluate_slowly") as pool:
        killed = False
        wait = pool.wait

        def wait_and_kill(timeout: float) -> list:
            nonlocal killed
            answers = wait(timeout)
            busy = [child for child in pool._children.values() if child.batch is not None]
            if busy and not killed:
                killed = True
                os.kill(busy[0].process.pid, signal.SIGKILL)
            return answers

        pool.wait = wait_and_kill  # type: ignore[method-assign]
        found = drive(pool, items, notes)
    assert killed and sorted(result.variant for result in found) == [0, 1, 2, 3, 4, 5]
    assert [result.variant for result in found if result.failure] == [1]
    assert any("SIGKILL" in note and "go back to the queue" in note for note in notes)


def test_an_evaluator_that_cannot_be_loaded_is_not_a_variants_fault(items: list[WorkItem]) -> None:
    with pytest.raises(ExecutorError, match="no_such_module"), ProcessPool(1, "no_such_module:evaluate") as pool:
        drive(pool, items)


def test_closing_stops_the_workers(items: list[WorkItem]) -> None:
    pool = ProcessPool(2, "farm_fakes:evaluate_slowly")
    pool.idle(2)
    pool.wait(5.0)
    processes = [child.process for child in pool._children.values()]
    assert len(processes) == 2
    pool.close()
    assert all(process.poll() is not None for process in processes)


def test_workers_stay_for_the_next_batches(items: list[WorkItem]) -> None:
    with ProcessPool(1, "farm_fakes:evaluate_batch") as pool:
        assert len(drive(pool, items[:2])) == 2
        (first,) = pool._children.values()
        assert len(drive(pool, items)) == 6
        assert list(pool._children.values()) == [first] and first.process.poll() is None
    assert first.process.poll() is not None


def test_credentials_stay_out_of_the_workers(items: list[WorkItem], monkeypatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do not tell")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "do not tell")
    with ProcessPool(1, "farm_fakes:evaluate_batch") as pool:
        pool.idle(1)
        (child,) = pool._children.values()
        while not child.ready:
            pool.wait(1.0)
        environment = Path(f"/proc/{child.process.pid}/environ").read_bytes()
    assert b"FARM_PARENT=" in environment and b"do not tell" not in environment


DIGESTS = """
from farm.executors.ray_worker import code_digest
from jobs.plan import model_digest
print(model_digest(), code_digest())
"""


def test_a_node_whose_rows_are_made_otherwise_has_another_digest_though_its_model_is_the_same(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for package in ("interpreter", "timing", "jobs", "farm"):
        shutil.copytree(root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    seen = []
    for changed in (None, "jobs/tables.py", "farm/executors/worker.py"):
        if changed is not None:
            with (tmp_path / changed).open("a") as file:
                file.write("\n# changed\n")
        command = [sys.executable, "-c", DIGESTS]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        seen.append(done.stdout.split())
    models, codes = zip(*seen, strict=True)
    assert len(set(models)) == 1 and len(set(codes)) == 3
