"""Launches recorded on an H200: compiling their sources, filling their buffers, making their machines.

A case is one object of tests/data/hardware/outputs.json or counts/index.json: family, source (from the repository's
root), macros and flags for nvcc, entry, grid, block, dynamic shared bytes, arguments in order (a scalar has `value`; a
buffer has `shape` and `fill`, or `output`, and then starts at zero) and the SHA-256 of the cubin that ran.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from interpreter.compile import Compiled, CompileError, CompileRequest, compile_many
from interpreter.decode import load_programs
from interpreter.launch import Launch, pack_arguments
from interpreter.machine import Machine
from interpreter.memory import Fill, Memory
from interpreter.program import Program
from interpreter.toolchain import find_tools

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
DATA = TESTS / "data" / "hardware"
sys.path.insert(0, str(TESTS))
import hardware_inputs  # noqa: E402

COMPILER = "13.0.88"  # the nvcc that made the recorded cubins; others may order operations differently
FAMILIES = (
    "bankconflict", "conv2d", "elementwise", "hgemm_mma", "histogram", "launch_bounds", "nbody", "reduce", "sgemm",
    "softmax", "stencil2d", "transpose",
)  # fmt: skip


def needs_compiler() -> pytest.MarkDecorator:
    """Skips where the recorded cubins cannot be made: no nvcc, or another version."""
    nvcc = find_tools().nvcc
    version = nvcc.version if nvcc else "none"
    return pytest.mark.skipif(version != COMPILER, reason=f"recorded with nvcc {COMPILER}, found {version}")


def read_cases(path: Path) -> list[dict]:
    return json.loads(path.read_text())["cases"]


def label(case: dict) -> str:
    """A name for a test: the family and the first digits of the measured cubin's SHA-256."""
    return f"{case['family']}-{case['cubin_sha'][:6]}"


def compile_cases(cases: list[dict], arch: str) -> tuple[list[Compiled], list[Program]]:
    """All cases for one architecture: two compilations at a time, one run of nvdisasm, both through the usual cache."""
    requests = [CompileRequest(ROOT / c["source"], arch, c["macros"], c["flags"]) for c in cases]
    compiled = []
    for result in compile_many(requests, jobs=2):
        if isinstance(result, CompileError):
            raise result
        compiled.append(result)
    programs = load_programs([(made.cubin, case["entry"]) for made, case in zip(compiled, cases)])
    return compiled, programs


@dataclass(slots=True)
class Ready:
    """A machine with live views of its buffers, inputs and outputs apart, and the scalars by name."""

    machine: Machine
    memory: Memory
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    scalars: dict[str, np.generic]


def prepare(case: dict, program: Program, recorded_inputs: bool = True) -> Ready:
    """The launch of a case. `recorded_inputs`: the very inputs of the recorded run (tests/hardware_inputs.py), written
    in full; otherwise the interpreter's own fills, which cost nothing however large the buffer is."""
    memory = Memory()
    ready_inputs: dict[str, np.ndarray] = {}
    outputs: dict[str, np.ndarray] = {}
    scalars: dict[str, np.generic] = {}
    values: list[int | np.generic] = []
    for argument in case["arguments"]:
        name, dtype = argument["name"], np.dtype(argument["dtype"])
        if "value" in argument:
            scalars[name] = dtype.type(argument["value"])
            values.append(scalars[name])
            continue
        shape, output = tuple(argument["shape"]), bool(argument.get("output"))
        lazily = None if output or recorded_inputs else _lazy(argument["fill"], str(dtype))
        address = memory.allocate(name, int(np.prod(shape)) * dtype.itemsize, lazily)
        view = memory.view(address, dtype, shape)
        if not output and recorded_inputs:
            view[...] = hardware_inputs.fill(name, str(dtype), shape, argument["fill"])
        (outputs if output else ready_inputs)[name] = view
        values.append(address)
    launch = Launch(_dim3(case["grid"]), _dim3(case["block"]), case["shared"], pack_arguments(program, values))
    return Ready(Machine(program, memory, launch), memory, ready_inputs, outputs, scalars)


def _lazy(fill: object, dtype: str) -> Fill:
    if isinstance(fill, dict):
        low, high = fill["integers"]
        return Fill("integers", dtype, low=low, high=high)
    return Fill(str(fill), dtype)


def _dim3(sizes: list[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
