"""A sweep's work as a stream: every (variant, target, tier) once, whatever comes back in whatever order."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from jobs.plan import Plan, Settings, plan_sweep
from jobs.stream import SweepStream
from jobs.sweep import load_sweep
from jobs.tables import from_rows
from jobs.variants import VariantSpace, expand
from jobs.work import Finished, WorkItem

SWEEP = """\
name: toy
kernel: {language: cuda, source: kernel.cu, entry: toy}
problem: {N: 4096}
parameters: {BLOCK: [32, 64, 128, 256], ITEMS: [1, 2, 3, 4, 5]}
constraints: ["BLOCK * ITEMS < 1024", "ITEMS * 48 * 1024 <= smem_per_block"]
launch: {grid: ["ceildiv(N, BLOCK)"], block: [BLOCK]}
arguments: [{name: data, dtype: float32, shape: [N], output: true}]
targets: [h200, h100, l40s]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel.cu").write_text("")
    return tmp_path


def plan_of(folder: Path, funnel: str = "", limit: int | None = None) -> Plan:
    (folder / "sweep.yaml").write_text(SWEEP + funnel)
    return plan_sweep(load_sweep(folder), Settings("warm", 1.0, 1000, folder, limit=limit))


def time_us(variant: int, target: str) -> float | None:
    return None if variant % 7 == 3 else float((variant * 5) % 11 + (2 if target == "h100" else 1))


def result(item: WorkItem) -> Finished:
    times = {(target, tier): time_us(item.variant, target) for target, _ in item.targets for tier in item.tiers}
    return Finished(item.family, item.variant, item.build.arch, item.tiers, times)


def run(stream: SweepStream, order: random.Random, stop_after: int | None = None) -> Counter[tuple[int, str, str]]:
    """All the work, finished in a random order; how often each (variant, target, tier) was done."""
    done: Counter[tuple[int, str, str]] = Counter()
    waiting: list[WorkItem] = []
    fresh = stream.fresh()
    taken = 0
    while True:
        if item := next(fresh, None):
            waiting.append(item)
        stream.settle(all_of_it=not waiting)
        waiting += [item for p in stream.promotions() for item in stream.later_items(p.kind, p.variant)]
        if not waiting or taken == stop_after:
            return done
        if len(waiting) > 4 or item is None:
            item = waiting.pop(order.randrange(len(waiting)))
            taken += 1
            stream.take(result(item), node="n1")
            done.update((item.variant, target, tier) for target, _ in item.targets for tier in item.tiers)


@pytest.mark.parametrize("funnel", ["", "funnel: {sampled: 50%}\n", "funnel: {sampled: 40%, cycle: 3}\n"])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_results_does_not_matter(folder: Path, funnel: str, seed: int) -> None:
    plan = plan_of(folder, funnel)
    excluded: list[int] = []
    stream = SweepStream(plan, None, [], lambda r: excluded.append(r.variant))
    done = run(stream, random.Random(seed))
    assert set(done.values()) == {1}, "something was evaluated twice"
    first = run(SweepStream(plan, None, [], lambda _: None), random.Random(99))
    assert done == first
    tiers = Counter(tier for _, _, tier in done)
    assert excluded and tiers["static"] + len(excluded) == len(plan.numbers) * 3
    assert stream.remaining() == 0
    if funnel:
        assert tiers["sampled"] < tiers["static"]
    counts = stream.counts
    assert counts["static"].done == counts["static"].planned == len(plan.numbers) * 3
    assert all(c.decided and c.planned == c.done for c in counts.values())


def test_what_the_run_has_is_not_done_again(folder: Path) -> None:
    plan = plan_of(folder, "funnel: {sampled: 50%, cycle: 2}\n")
    whole = run(SweepStream(plan, None, [], lambda _: None), random.Random(1))
    begun = run(SweepStream(plan, None, [], lambda _: None), random.Random(2), stop_after=9)
    assert 0 < len(begun) < len(whole)
    rows = [
        {
            "family": "toy", "variant": variant, "target": target, "tier": tier,
            "status": "ok" if time_us(variant, target) else "failed", "time_us": time_us(variant, target),
        }
        for variant, target, tier in begun
    ]  # fmt: skip
    stream = SweepStream(plan, None, [from_rows("estimates", rows)], lambda _: None)
    rest = run(stream, random.Random(3))
    assert not set(rest) & set(begun) and rest + begun == whole
    assert sum(counts.resumed for counts in stream.counts.values()) == len(begun)


def test_targets_of_one_architecture_share_an_item(folder: Path) -> None:
    stream = SweepStream(plan_of(folder, limit=4), None, [], lambda _: None)
    shared = [[name for name, _ in item.targets] for item in stream.fresh()]
    assert shared == [["l40s"], ["h200", "h100"], ["h200", "h100"]]  # two ask for more shared memory than there is


def test_a_space_gives_the_variants_by_number(folder: Path) -> None:
    sweep = plan_of(folder).sweep
    limits = {"smem_per_block": 1 << 20, "regs_per_sm": 1, "max_warps": 1, "sm_count": 1}
    space = VariantSpace(sweep, limits)
    assert [space[n] for n in range(len(space))] == expand(sweep, limits)
    assert [variant.number for variant in space[2:5]] == [2, 3, 4] and space[-1].number == len(space) - 1
