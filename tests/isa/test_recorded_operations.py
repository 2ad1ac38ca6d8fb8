"""Compiled one-operation kernels against results recorded on an H200 (tests/data/hardware/arithmetic.npz).

These go through decode, launch and memory as well: whole sequences such as division and 64-bit remainders included.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from interpreter.compile import compile_cubin
from interpreter.cubin import parse_cubin
from interpreter.decode import load_programs
from interpreter.errors import ToolchainError
from interpreter.launch import Launch, pack_arguments
from interpreter.machine import Machine
from interpreter.memory import Memory
from interpreter.toolchain import find_tools

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
import hardware_inputs as inputs  # noqa: E402

RECORDED = np.load(ROOT / "data" / "hardware" / "arithmetic.npz")
PARTS = range(5)


@pytest.mark.parametrize("part", PARTS)
def test_operations(part: int, tmp_path: Path) -> None:
    try:
        find_tools().require("nvcc")
    except ToolchainError as error:
        pytest.skip(f"needs nvcc: {error}")
    image = compile_cubin(ROOT / "data" / "hardware" / "arithmetic.cu", "sm_90a", {"PART": part}, cache=tmp_path).cubin
    names = [kernel for kernel in parse_cubin(image).kernels if kernel in RECORDED.files]
    assert len(names) > 10
    wrong: list[str] = []
    for name, program in zip(names, load_programs([(image, name) for name in names], cache=tmp_path)):
        words, expected = inputs.operands(name), RECORDED[name].astype(np.uint64)
        memory = Memory()
        addresses = [memory.allocate(key, 8 * inputs.COUNT) for key in ("out", "a", "b", "c")]
        for address, data in zip(addresses[1:], words):
            memory.view(address, np.dtype(np.uint64), (inputs.COUNT,))[:] = data
        arguments = pack_arguments(program, [*addresses, inputs.COUNT])
        launch = Launch((inputs.COUNT // 128, 1, 1), (128, 1, 1), 0, arguments)
        Machine(program, memory, launch).run()
        found = memory.view(addresses[0], np.dtype(np.uint64), (inputs.COUNT,))
        bad = np.flatnonzero(found != expected)
        if len(bad):
            sources = ", ".join(hex(int(w[bad[0]])) for w in words)
            wrong.append(f"{name}: {len(bad)} differ, first ({sources}): {found[bad[0]]:#x}, not {expected[bad[0]]:#x}")
    assert not wrong, "\n".join(wrong)
