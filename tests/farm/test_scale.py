"""The driver with more workers and variants than this machine could serve, on a simulated cluster."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

from farm.drive import Drive
from farm.events import Telemetry
from farm.executors.simulated import SimulatedCluster
from farm.sink import Sink
from jobs.plan import Settings, plan_sweep
from jobs.stream import SweepStream
from jobs.sweep import load_sweep
from jobs.work import Finished, WorkItem

SWEEP = """\
name: scale
kernel: {{language: cuda, source: kernel.cu, entry: k}}
problem: {{N: 4096}}
parameters: {{A: {a}, B: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}}
launch: {{grid: [64], block: [128]}}
arguments: [{{name: data, dtype: float32, shape: [N], output: true}}]
targets: [h200, rtx4090, l40s]
funnel: {{sampled: 50%}}
"""


def seconds_of(item: WorkItem) -> float:
    return random.Random(f"{item.variant} {item.build.arch} {item.tiers}").lognormvariate(-0.2, 0.5)


def result_of(item: WorkItem, seconds: float) -> Finished:
    time_us = 10.0 + random.Random(item.variant).random()
    times: dict[tuple[str, str], float | None] = {(t, tier): time_us for t, _ in item.targets for tier in item.tiers}
    return Finished(item.family, item.variant, item.build.arch, item.tiers, times, seconds=seconds)


def drive_of(folder: Path, variants: int, workers: int) -> tuple[SimulatedCluster, Drive]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.cu").write_text("")
    (folder / "sweep.yaml").write_text(SWEEP.format(a=list(range(variants // 10))))
    plan = plan_sweep(load_sweep(folder), Settings("warm", None, 1000, folder))
    cluster = SimulatedCluster(workers, seconds_of, result_of)
    stream = SweepStream(plan, None, [], lambda _: None)
    return cluster, Drive([stream], cluster, Sink(lambda _: None), Telemetry("scale"))


@pytest.mark.parametrize(("workers", "variants"), [(10, 500), (500, 10_000)])
def test_workers_are_kept_busy(tmp_path: Path, workers: int, variants: int) -> None:
    cluster, drive = drive_of(tmp_path, variants, workers)
    drive.run()
    counts = drive.scheduler.counts
    # two architectures in the static tier; of the later tier those that went on, on either
    assert counts.items >= 3 * variants and drive.evaluated == counts.items
    assert cluster.steady_share > 0.95, cluster.steady_share
    assert cluster.busy_share > 0.9, "the end included"
    assert counts.batches < counts.items / 2.5, "tasks of seconds, not one an item"
    assert cluster.driver_seconds / counts.batches < 0.004


def test_memory_does_not_grow_with_the_sweep(tmp_path: Path) -> None:
    peaks = []
    for variants in (500, 5000):
        _, drive = drive_of(tmp_path / str(variants), variants, 16)
        tracemalloc.start()
        drive.run()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # bytes a variant on three targets (62 measured): arrays, and of those that wait for the next tier a number
    assert peaks[1] - peaks[0] < 4500 * 120, peaks
