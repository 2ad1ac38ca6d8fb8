"""Matrix instructions against results recorded on an H200 (tests/data/hardware/mma.npz)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from sass import BACKENDS, Bench

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
import hardware_inputs as inputs  # noqa: E402

RECORDED = np.load(ROOT / "data" / "hardware" / "mma.npz")
INSTRUCTIONS = {
    "mma_16816_f32_f16": "HMMA.16816.F32",
    "mma_16816_f32_bf16": "HMMA.16816.F32.BF16",
    "mma_16816_f16_f16": "HMMA.16816.F16",
    "mma_1688_f32_f16": "HMMA.1688.F32",
    "mma_1688_f16_f16": "HMMA.1688.F16",
    "mma_1688_f32_bf16": "HMMA.1688.F32.BF16",
    "mma_1688_f32_tf32": "HMMA.1688.F32.TF32",
    "mma_1684_f32_tf32": "HMMA.1684.F32.TF32",
    "mma_16832_s8": "IMMA.16832.S8.S8",
    "mma_16832_u8_s8_sat": "IMMA.16832.U8.S8.SAT",
    "mma_16816_s8": "IMMA.16816.S8.S8",
}


def mma_bench(instruction: str, a: int, b: int, c: int, backend: str) -> Bench:
    """D in R40.., A in R4.., B in R12.., C in R20.., by numbers of registers."""
    names = [f"R{base + k}" for base, n in ((4, a), (12, b), (20, c)) for k in range(n)]
    return Bench([f"{instruction} R40, R4, R12, R20"], names, [f"R{40 + k}" for k in range(c)], backend)


def run_mma(bench: Bench, registers: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """Registers (count, 32 lanes, n) of A, B, C to those of D; one warp each."""
    count = registers[0].shape[0]
    d = np.empty((count, 32, len(bench.outputs)), np.uint32)
    words = np.concatenate(registers, axis=2).reshape(count * 32, -1)
    for start in range(0, count * 32, 1024):
        part = words[start : start + 1024]
        found = bench.run({name: part[:, k] for k, name in enumerate(bench.inputs)})
        d.reshape(count * 32, -1)[start : start + 1024] = np.stack([found[name] for name in bench.outputs], axis=1)
    return d


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kernel", INSTRUCTIONS)
def test_mma(kernel: str, backend: str) -> None:
    bench = None
    for group in inputs.MMA_GROUPS:
        expected = RECORDED[f"{kernel}.{group}"]
        registers = inputs.fragments(kernel, *inputs.mma_matrices(kernel, group, len(expected)))
        if bench is None:
            bench = mma_bench(INSTRUCTIONS[kernel], *(r.shape[2] for r in registers), backend)
        found = inputs.accumulator(kernel, run_mma(bench, registers))
        wrong = np.argwhere(found != expected)
        assert not len(wrong), (
            f"{group}: {len(wrong)} of {expected.size} differ, first at {wrong[0]}: "
            f"{found[tuple(wrong[0])]:#x}, the GPU gave {expected[tuple(wrong[0])]:#x}"
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_dmma(backend: str) -> None:
    expected = RECORDED["mma_884_f64"]
    a, b, c = inputs.f64_mma(len(expected))
    split = [
        np.stack([(x & np.uint64(0xFFFFFFFF)).astype(np.uint32), (x >> np.uint64(32)).astype(np.uint32)], axis=-1)
        for x in (a, b, c)
    ]
    registers = (split[0], split[1], split[2].reshape(len(a), 32, 4))
    found = run_mma(mma_bench("DMMA.8x8x4", 2, 2, 4, backend), registers).reshape(len(a), 32, 2, 2).astype(np.uint64)
    np.testing.assert_array_equal(found[..., 0] | found[..., 1] << np.uint64(32), expected)
