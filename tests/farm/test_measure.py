"""`farm measure` on a stand-in for the GPU: the interpreter runs the kernels, the times are made up."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import farm.measure as measure
from farm.measured import read_measured
from interpreter.decode import load_program
from interpreter.errors import FarmError
from interpreter.launch import Launch, pack_arguments
from interpreter.machine import Machine
from interpreter.memory import Memory
from jobs.sweep import load_sweep
from jobs.variants import expand
from timing.calibrate.driver import DriverError

SOURCE = """
extern "C" __global__ void scale(const float* x, float* y, float a, int n) {
  const int i = blockIdx.x * BLOCK + threadIdx.x;
#if FAULT
  if (i < n) y[i] = x[i + 100000000];
#else
  if (i < n) y[i] = (WRONG ? 2.0f : 1.0f) * a * x[i];
#endif
}
"""
SWEEP = """
name: scale
kernel: {language: cuda, source: kernel.cu, entry: scale, flags: []}
problem: {N: 3000}
parameters: {BLOCK: [64, 128], WRONG: [0, 1], FAULT: [0, 1]}
constraints: [WRONG + FAULT < 2]
launch: {grid: ["ceildiv(N, BLOCK)"], block: [BLOCK]}
arguments:
  - {name: x, dtype: float32, shape: [N]}
  - {name: y, dtype: float32, shape: [N], output: true}
  - {name: a, dtype: float32, value: 0.5}
  - {name: n, dtype: int32, value: N}
targets: [h200]
measured: {h200: h200.csv}
"""


class StandInBuffer:
    def __init__(self, nbytes: int) -> None:
        self.content = np.zeros(nbytes, np.uint8)

    def write(self, array: np.ndarray) -> None:
        self.content[: array.nbytes] = np.ascontiguousarray(array).view(np.uint8).ravel()

    def read(self, dtype: Any, count: int) -> np.ndarray:
        return self.content[: np.dtype(dtype).itemsize * count].view(dtype).copy()

    def free(self) -> None:
        pass


class StandInKernel:
    def __init__(self, cubin: bytes, entry: str) -> None:
        self.program = load_program(cubin, entry)

    def launch(self, grid: Any, block: Any, arguments: list[Any], shared: int = 0) -> None:
        with Memory() as memory:
            buffers = [a for a in arguments if isinstance(a, StandInBuffer)]
            places = {id(b): memory.allocate(f"b{i}", len(b.content)) for i, b in enumerate(buffers)}
            for b in buffers:
                memory.view(places[id(b)], np.uint8, b.content.shape)[:] = b.content
            values = [places[id(a)] if isinstance(a, StandInBuffer) else bytes(a) for a in arguments]
            launch = Launch(grid, block, shared, pack_arguments(self.program, values))
            try:
                Machine(self.program, memory, launch).run()
            except FarmError as error:
                raise DriverError(f"cuCtxSynchronize failed: {error}") from None
            for b in buffers:
                b.content[:] = memory.view(places[id(b)], np.uint8, b.content.shape)


class StandInGpu:
    name = "NVIDIA H200"
    resets = 0

    def buffer(self, nbytes: int, fill: int | None = 0) -> StandInBuffer:
        return StandInBuffer(nbytes)

    def load(self, cubin: bytes) -> bytes:
        return cubin

    def kernel(self, module: bytes, name: str) -> StandInKernel:
        return StandInKernel(module, name)

    def synchronize(self) -> None:
        pass

    def time(self, work: Callable[[], None]) -> float:
        return 10.0

    def graph_time(self, launch: Callable[[], None], count: int, replays: int = 7) -> list[float]:
        assert count == measure.MOST_LAUNCHES and replays == measure.REPLAYS
        return [10.0, 10.2, 9.9, 10.1, 10.0, 10.3, 10.0]

    def reset(self) -> None:
        StandInGpu.resets += 1


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kernel.cu").write_text(SOURCE)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    monkeypatch.setattr(measure, "Gpu", StandInGpu)
    return tmp_path


def test_times_results_and_faults(sweep: Path) -> None:
    outcome = measure.measure_sweep(sweep, "h200")  # the file that `measured` names need not be there
    with outcome.path.open() as file:
        rows = list(csv.DictReader(file))
    assert outcome.path == sweep / "h200.csv"
    assert [(r["WRONG"], r["FAULT"], r["status"], r["time_us"]) for r in rows[:3]] == [
        ("0", "0", "ok", "10"), ("0", "1", "runtime", ""), ("1", "0", "ok", "10"),
    ]  # fmt: skip
    assert (outcome.rows, outcome.failed, outcome.wrong) == (6, 2, [int(rows[2]["variant"]), int(rows[5]["variant"])])
    assert StandInGpu.resets == 2  # a fault ends the context; the variants after it run in a new one
    assert rows[0]["spread"] == "0.04" and rows[0]["rel_err"] == "0.0" and len(rows[0]["sha"]) == 16
    # what was written is what a sweep's `measured` reads
    found = read_measured(outcome.path, "h200", expand(load_sweep(sweep)))
    assert (len(found.rows), found.failed, found.unmatched) == (4, 2, 0)


def test_another_gpu_is_refused(sweep: Path) -> None:
    with pytest.raises(FarmError, match="this machine's GPU is 'NVIDIA H200'"):
        measure.measure_sweep(sweep, "rtx4090")
    assert not (sweep / "rtx4090.csv").exists()


def test_some_of_the_variants(sweep: Path) -> None:
    outcome = measure.measure_sweep(sweep, "h200", sweep / "few.csv", limit=2)
    assert outcome.rows == 2
