"""A stand-in for the simulator, so that sweeps, pools and tables are tested without compiling or executing anything.

Estimated times are `10 + BLOCK / 64 + NOISE` for the tests' small sweep. Parameters named after a mishap cause it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jobs.tables import STALL_COLUMNS
from jobs.work import VariantResult, WorkItem, failed_result, variant_row

SWEEP = """\
name: toy
kernel: {language: cuda, source: kernel.cu, entry: toy}
problem: {N: 4096}
parameters:
  BLOCK: [64, 128, 256, 512]
  MISHAP: [0, 1, 2]
constraints:
  - MISHAP == 0 or BLOCK == 64
launch: {grid: ["ceildiv(N, BLOCK)"], block: [BLOCK]}
arguments:
  - {name: data, dtype: float32, shape: [N], output: true}
targets: [h200, rtx4090]
"""
# variants: 0 BLOCK=64, 1 and 2 its mishaps, then BLOCK=128, 256, 512


# seventeen variants, of which the funnel takes half
FUNNEL_SWEEP = """\
name: toy
kernel: {language: cuda, source: kernel.cu, entry: toy}
problem: {N: 4096}
parameters: {BLOCK: [32, 64, 128, 256], ITEMS: [1, 2, 3, 4], MISHAP: [0, 1]}
constraints: ["MISHAP == 0 or BLOCK * ITEMS == 32"]
launch: {grid: ["ceildiv(N, BLOCK)"], block: [BLOCK]}
arguments: [{name: data, dtype: float32, shape: [N], output: true}]
targets: [h200, rtx4090, l40s]
funnel: {sampled: 50%}
"""


def write_sweep(folder: Path, text: str = SWEEP) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.cu").write_text('extern "C" __global__ void toy(float* data) {}\n')
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


def estimate_us(item: WorkItem, target: str) -> float:
    names = dict(item.names)
    return 10.0 + names["BLOCK"] / 64 + (100.0 if target == "rtx4090" else 0.0)


def result_of(item: WorkItem) -> VariantResult:
    result = VariantResult(item.family, item.variant)
    for target, _ in item.targets:
        result.rows.variants.append({**variant_row(item, target), "registers": 32, "cubin_sha": "ab" * 32})
        for tier in item.tiers:
            result.rows.estimates.append(
                {
                    "family": item.family, "variant": item.variant, "target": target, "tier": tier, "l2": item.l2,
                    "status": "ok", "time_us": estimate_us(item, target) * (2 if tier == "static" else 1),
                    "bound": "issue", "occupancy": 0.5, "limiter": "registers", "warp_instructions": 1000.0,
                    "simulation_seconds": 0.25, "bounds_us": [("issue", 1.0)],
                }
            )  # fmt: skip
            result.rows.instructions.append(
                {
                    "family": item.family, "variant": item.variant, "target": target, "tier": tier,
                    "pc": np.array([0, 16], np.int32), "sass": ["LDG.E R2, [R2.64]", "EXIT"],
                    "executed": np.array([10.0, 10.0]),
                    STALL_COLUMNS[0]: np.array([10.0, 10.0], np.float32),
                    "stall_long_scoreboard": np.array([30.0, 0.0], np.float32),
                }
            )  # fmt: skip
    return result


def evaluate_batch(items: list[WorkItem]) -> Iterator[tuple[str, int, VariantResult | None]]:
    """Well-behaved; mishap 1 fails to compile. Notes every evaluation in the file FARM_TEST_LOG names."""
    for index, item in enumerate(items):
        yield "begin", index, None
        log = os.environ.get("FARM_TEST_LOG")
        if log:
            with open(log, "a") as file:
                file.write(f"{item.variant} {item.build.arch} {'+'.join(item.tiers)}\n")
        if dict(item.names).get("MISHAP") == 1:
            yield "done", index, failed_result(item, "compile", "kernel.cu(1): error: expected a ;")
        else:
            yield "done", index, result_of(item)


def evaluate_with_a_telltale(items: list[WorkItem]) -> Iterator[tuple[str, int, VariantResult | None]]:
    """Mishap 1 fails with a message that holds a secret of the environment, as a library's might."""
    for index, item in enumerate(items):
        yield "begin", index, None
        if dict(item.names).get("MISHAP") == 1:
            text = "PUT refused: key planted+secret/access0key, Authorization: AWS4 Credential=AKIAPLANTEDPLANTED12"
            yield "done", index, failed_result(item, "runtime", text)
        else:
            yield "done", index, result_of(item)


def evaluate_with_mishaps(items: list[WorkItem]) -> Iterator[tuple[str, int, VariantResult | None]]:
    """Mishap 1 kills the worker, mishap 2 never ends."""
    for index, item in enumerate(items):
        yield "begin", index, None
        mishap = dict(item.names).get("MISHAP")
        if mishap == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        elif mishap == 2:
            time.sleep(3600)
        yield "done", index, result_of(item)


def evaluate_slowly(items: list[WorkItem]) -> Iterator[tuple[str, int, VariantResult | None]]:
    """A quarter of a second each, so that a test can stop it midway."""
    for event in evaluate_batch(items):
        if event[0] == "begin":
            time.sleep(0.25)
        yield event


def evaluate_in_company(items: list[WorkItem]) -> Iterator[tuple[str, int, VariantResult | None]]:
    """Waits until two processes have work, a minute at most: neither can do it all before the other is there."""
    arrived = Path(os.environ["FARM_TEST_LOG"] + ".arrived")
    arrived.mkdir(exist_ok=True)
    (arrived / str(os.getpid())).touch()
    until = time.monotonic() + 60.0
    while len(list(arrived.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    yield from evaluate_batch(items)


def evaluate_at_leisure(items: list[WorkItem]) -> Iterator[tuple[str, int, VariantResult | None]]:
    """A tenth of a second each."""
    for event in evaluate_batch(items):
        if event[0] == "begin":
            time.sleep(0.1)
        yield event


def evaluate_with_a_hoard(items: list[WorkItem]) -> Iterator[tuple[str, int, VariantResult | None]]:
    """Mishap 1 takes memory until it is stopped."""
    for index, item in enumerate(items):
        yield "begin", index, None
        hoard = []
        while dict(item.names).get("MISHAP") == 1 and len(hoard) < 64:
            hoard.append(b"x" * (16 << 20))
            time.sleep(0.05)
        yield "done", index, result_of(item)
