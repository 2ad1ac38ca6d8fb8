"""Launches of the kernels in tests/data/sources/kernels.cu, with their inputs and NumPy answers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from interpreter.decode import load_programs
from interpreter.launch import Launch, pack_arguments
from interpreter.machine import Machine
from interpreter.memory import Memory
from interpreter.program import Program

DATA = Path(__file__).parent.parent / "data"
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
NAMES = ("sgemm", "transpose", "reduce", "histogram", "branches", "locked", "generic", "floats")


@lru_cache
def programs(arch: str) -> dict[str, Program]:
    image = (DATA / "cubins" / f"kernels.{arch}.cubin").read_bytes()
    return dict(zip(NAMES, load_programs([(image, name) for name in NAMES])))


class Case:
    """A kernel with its memory. Buffers are NumPy arrays in argument order; `buffers[name]` is live."""

    def __init__(self, arch: str, name: str, grid, block, arrays: dict[str, np.ndarray], scalars=(), backend="llvm"):
        self.program = programs(arch)[name]
        self.memory = Memory()
        self.buffers: dict[str, np.ndarray] = {}
        values = []
        for label, array in arrays.items():
            address = self.memory.allocate(label, array.nbytes)
            self.buffers[label] = self.memory.view(address, array.dtype, array.shape)
            self.buffers[label][...] = array
            values.append(address)
        self.launch = Launch(grid, block, 0, pack_arguments(self.program, [*values, *scalars]))
        self.machine = Machine(self.program, self.memory, self.launch, backend)

    def state(self) -> list[bytes]:
        return [array.tobytes() for array in self.buffers.values()]


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def case(arch: str, name: str, backend: str = "llvm") -> Case:
    """The usual launch of a kernel."""
    if name == "sgemm":
        a, b = random(1).standard_normal((2, 48, 48), dtype=np.float32)
        arrays = {"a": a, "b": b, "c": np.zeros((48, 48), np.float32)}
        return Case(arch, name, (3, 3, 1), (16, 16, 1), arrays, [48], backend)
    if name == "transpose":
        arrays = {"in": random(2).standard_normal((70, 45), dtype=np.float32), "out": np.zeros((45, 70), np.float32)}
        return Case(arch, name, (2, 3, 1), (32, 8, 1), arrays, [45, 70], backend)
    if name == "reduce":
        arrays = {
            "in": random(3).integers(-1000, 1000, 3001, dtype=np.int32), "partial": np.zeros(5, np.int32),
            "ticket": np.zeros(1, np.uint32), "total": np.zeros(1, np.int32),
        }  # fmt: skip
        return Case(arch, name, (5, 1, 1), (128, 1, 1), arrays, [3001], backend)
    if name == "histogram":
        arrays = {"keys": random(4).integers(0, 2**32, 1500, dtype=np.uint32), "counts": np.zeros(64, np.uint32)}
        return Case(arch, name, (3, 1, 1), (96, 1, 1), arrays, [1500], backend)
    if name == "branches":
        arrays = {"in": np.arange(200, dtype=np.int32), "out": np.zeros(200, np.int32)}
        return Case(arch, name, (4, 1, 1), (64, 1, 1), arrays, [190], backend)
    if name == "locked":
        return Case(arch, name, (2, 1, 1), (40, 1, 1), {"lock": np.zeros(1, np.int32), "value": np.zeros(1, np.int32)},
                    [], backend)  # fmt: skip
    if name == "generic":
        return Case(arch, name, (1, 1, 1), (64, 1, 1), {"global": np.arange(128, dtype=np.int32)}, [2], backend)
    values = np.concatenate([random(5).uniform(0.1, 8, 120), [0.0, 1e-40, 1e38, 7e-39, 2.0, 3.0, 1.0, 0.5]])
    arrays = {"in": values.astype(np.float32), "out": np.zeros(384, np.float32)}
    return Case(arch, name, (1, 1, 1), (64, 1, 1), arrays, [], backend)


def branches_answer(x: int) -> int:
    def collatz(n: int) -> int:
        steps = 0
        while n != 1:
            n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
        return steps

    def wrap(n: int) -> int:
        return (n + 2**31) % 2**32 - 2**31

    table = [0] * 8
    for k in range(8):
        table[k * x & 7] = k + x
    r = table[x & 7]
    kind = x % 6
    if kind == 0:
        return r + collatz(x + 1)
    if kind == 1:
        return -1 if x > 50 else 3 * r
    if kind == 2:
        for k in range(x):
            r = wrap(r ^ wrap(wrap(k * r) + 1))
        return r
    if kind == 3:
        return (r & 0xFFFFFFFF).bit_count() + 32 - x.bit_length()
    if kind == 4:
        return x // (r % 7 + 8)
    return collatz(x) - collatz(x + 2)
