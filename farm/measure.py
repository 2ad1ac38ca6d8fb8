"""Measures a sweep's variants on the GPU of this machine, and writes the CSV that `measured:` in a sweep.yaml names.

A time is that of one launch inside a CUDA graph of back-to-back launches (about 3 ms in all), the median of several
replays: inputs stay where the launch before left them, so what fits L2 is found there. Results are checked against the
first variant with outputs of the same size.
"""

from __future__ import annotations

import csv
import ctypes
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from interpreter.compile import compile_cubin
from interpreter.cubin import parse_cubin
from interpreter.errors import CompileError
from interpreter.memory import Memory
from jobs.arguments import argument_values, scalar_bytes
from jobs.plan import Plan, Settings, kernel_build, plan_sweep
from jobs.sweep import load_sweep
from jobs.variants import BufferSpec, ScalarSpec, Variant
from jobs.work import KernelBuild
from timing.calibrate.driver import Buffer, DriverError, Gpu
from timing.target import Target, check_gpu_is, load_target

GRAPH_US = 3000.0  # of work in a graph, so that the launch of the graph itself does not count
MOST_LAUNCHES = 50
REPLAYS, SLOW_REPLAYS, SLOW_US = 7, 3, 5000.0
WRONG = 0.02  # a difference beyond rounding, as a share of the largest result


@dataclass(slots=True)
class MeasureOutcome:
    """What was measured: rows written, and how many of them have no time."""

    path: Path
    rows: int = 0
    failed: int = 0
    wrong: list[int] = field(default_factory=list)  # variants whose results differ by more than rounding


def measure_sweep(
    path: Path,
    gpu_name: str,
    out: Path | None = None,
    limit: int | None = None,
    cache: Path | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> MeasureOutcome:
    """Measure the sweep at `path` on this machine's GPU, which must be the target `gpu_name`.

    Writes `out` (default: TARGET.csv beside the sweep) row by row; a variant that does not compile or run gets a row
    with its failure and no time. Raises FarmError for bad input, DriverError without a GPU.
    """
    sweep = load_sweep(path, measured=False)  # its measured file may be the one to make
    target = load_target(gpu_name)
    gpu = Gpu()
    check_gpu_is(target, gpu.name)
    settings = Settings("warm", None, 0, cache or Path(), limit=limit, targets=(target.name,))
    plan = plan_sweep(sweep, settings)
    outcome = MeasureOutcome(out or sweep.folder / f"{target.name}.csv")
    chosen = set(plan.numbers)
    variants = [v for v in plan.variants[target.name] if v.number in chosen and not v.excluded]
    with outcome.path.open("w", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for row in _rows(gpu, plan, target, variants, cache, log):
            if writer is None:
                writer = csv.DictWriter(file, list(row))
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            outcome.rows += 1
            outcome.failed += row["status"] != "ok"
            if row["rel_err"] != "" and row["rel_err"] > WRONG:
                outcome.wrong.append(row["variant"])
    return outcome


def _rows(
    gpu: Gpu,
    plan: Plan,
    target: Target,
    variants: list[Variant],
    cache: Path | None,
    log: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    references: dict[tuple[int, ...], list[np.ndarray]] = {}
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1)) as pool:
        builds = [kernel_build(plan.sweep, variant, target) for variant in variants]
        cubins = [pool.submit(_cubin, build, cache) for build in builds]
        for place, (variant, build, cubin) in enumerate(zip(variants, builds, cubins, strict=True)):
            yield _row(gpu, variant, build, cubin, references, f"{place + 1}/{len(variants)}", log)


def _cubin(build: KernelBuild, cache: Path | None) -> tuple[bytes, dict[str, Any]]:
    """The cubin, and the columns that tell of it."""
    if build.source is None:
        assert build.cubin is not None
        return build.cubin.read_bytes(), {}
    compiled = compile_cubin(build.source, build.arch, dict(build.macros), list(build.flags), cache)
    resources = next(iter(compiled.resources.values()))
    return compiled.cubin, {
        "regs": resources.registers,
        "stack": resources.stack,
        "static_shared": resources.static_shared,
        "sha": compiled.sha[:16],
    }


def _row(
    gpu: Gpu,
    variant: Variant,
    build: KernelBuild,
    compiled: Future[tuple[bytes, dict[str, Any]]],
    references: dict[tuple[int, ...], list[np.ndarray]],
    place: str,
    log: Callable[[str], None],
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "family": variant.family,
        "variant": variant.number,
        **variant.parameters,
        "grid": "x".join(map(str, variant.grid)),
        "block": "x".join(map(str, variant.block)),
        "shared": variant.shared,
        "status": "ok",
        **dict.fromkeys(("time_us", "min_us", "spread", "rel_err", "regs", "stack", "static_shared", "sha"), ""),
    }
    started = time.monotonic()
    try:
        cubin, columns = compiled.result()
        row |= columns
        entry = parse_cubin(cubin).kernel(build.entry).name
        times, outputs = _measure(gpu, cubin, entry, variant)
        middle = float(np.median(times))
        row |= {
            "time_us": f"{middle:.4g}",
            "min_us": f"{min(times):.4g}",
            "spread": round((max(times) - min(times)) / middle, 3),
        }
        key = tuple(o.size for o in outputs)
        row["rel_err"] = _difference(outputs, references.setdefault(key, outputs))
    except CompileError:
        row["status"] = "compile"
    except DriverError as error:
        row["status"] = "runtime"
        log(f"{variant.family} {variant.number}: {error}")
        gpu.reset()
    log(f"{variant.family} {place}: {row['time_us']} us ({time.monotonic() - started:.2f} s)")
    return row


def _measure(gpu: Gpu, cubin: bytes, entry: str, variant: Variant) -> tuple[list[float], list[np.ndarray]]:
    """Microseconds of one launch, once a replay, and the outputs after one launch on zeroed outputs."""
    buffers: list[Buffer] = []
    try:
        with Memory() as memory:
            values, _ = argument_values(memory, variant.arguments)
            arguments: list[Any] = []
            for spec, value in zip(variant.arguments, values, strict=True):
                if isinstance(spec, ScalarSpec):
                    arguments.append(_scalar(spec))
                    continue
                buffer = gpu.buffer(max(spec.bytes, 4), None)
                assert isinstance(value, int)
                buffer.write(memory.view(value, np.uint8, (spec.bytes,)))
                buffers.append(buffer)
                arguments.append(buffer)
        kernel = gpu.kernel(gpu.load(cubin), entry)
        if variant.shared > 48 << 10:
            kernel.allow_shared(variant.shared)

        def launch() -> None:
            kernel.launch(variant.grid, variant.block, arguments, shared=variant.shared)

        launch()
        gpu.synchronize()
        specs = [spec for spec in variant.arguments if isinstance(spec, BufferSpec)]
        outputs = [
            b.read(np.uint8, s.bytes).view(_plain(s.dtype)) for s, b in zip(specs, buffers, strict=True) if s.output
        ]
        once = min(gpu.time(launch) for _ in range(3))
        count = int(np.clip(GRAPH_US / max(once, 1.0), 1, MOST_LAUNCHES))
        times = gpu.graph_time(launch, count, SLOW_REPLAYS if once > SLOW_US else REPLAYS)
        return times, outputs
    finally:
        for buffer in buffers:
            buffer.free()


def _plain(dtype: str) -> np.dtype:
    return np.dtype("<u2") if dtype == "bfloat16" else np.dtype(dtype)


def _scalar(spec: ScalarSpec) -> Any:
    content = scalar_bytes(spec)
    kinds = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}
    return kinds[len(content)](int.from_bytes(content, "little"))


def _difference(outputs: list[np.ndarray], reference: list[np.ndarray]) -> float:
    """Largest difference of any output over the largest magnitude of the reference's."""
    worst = 0.0
    for found, wanted in zip(outputs, reference, strict=True):
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        scale = float(np.max(np.abs(b), initial=0.0)) or 1.0
        worst = max(worst, float(np.max(np.abs(a - b), initial=0.0)) / scale)
    return float(f"{worst:.3g}")
