"""Kernels from disassembly text with labels, for tests: no compiler, no disassembler.

    kernel('''
        S2R R0, SR_TID.X
    loop:
        @P0 BRA loop
        EXIT
    ''', parameters=(8, 4))
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from interpreter.decode import _parse_text
from interpreter.launch import Launch, pack_arguments
from interpreter.machine import Machine
from interpreter.memory import Memory
from interpreter.program import CONTROL, Instruction, Parameter, Program

BACKENDS = ("llvm", "numpy")
PARAMETER_BASE = {80: 0x160, 86: 0x160, 90: 0x210, 100: 0x380, 120: 0x380}


def kernel(
    text: str, parameters: Sequence[int] = (8,), *, sm: int = 90, shared: int = 0, stack: int = 0, name: str = "test"
) -> Program:
    """A Program of the lines of `text`. `parameters` are sizes; c[0x0][0x210] is the first on sm_90."""
    lines: list[str] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        line = line.split("//")[0].strip().rstrip(";").strip()
        if line.endswith(":"):
            labels[line[:-1]] = len(lines)
        elif line:
            lines.append(line)
    instructions = []
    for row, line in enumerate(lines):
        for label, at in labels.items():
            line = re.sub(rf"\b{label}\b", f"{16 * at:#x}", line)
        opcode, modifiers, operands, guard = _parse_text(line)
        instructions.append(Instruction(row, opcode, modifiers, operands, guard, line, 0, 0))
    laid: list[Parameter] = []
    offset = 0
    for ordinal, size in enumerate(parameters):
        offset = -(-offset // size) * size
        laid.append(Parameter(ordinal, offset, size))
        offset += size
    return Program(
        name=name, sm=sm, arch=f"sm_{sm}", instructions=instructions, control=np.zeros(len(instructions), CONTROL),
        registers=64, static_shared=shared, stack=stack, parameter_base=PARAMETER_BASE[sm], parameter_bytes=offset,
        parameters=laid, constants={}, barriers=1, max_threads=None, required_threads=None, cubin_sha="",
    )  # fmt: skip


class Run:
    """One kernel over one uint32 buffer `out` of `words` words (and what `values` gives behind its address)."""

    def __init__(
        self,
        program: Program,
        *,
        backend: str = "llvm",
        block: int = 32,
        grid: int = 1,
        words: int = 1024,
        values: Sequence[int] = (),
        initial: np.ndarray | None = None,
        dynamic_shared: int = 0,
    ) -> None:
        self.memory = Memory()
        address = self.memory.allocate("out", 4 * words)
        self.out = self.memory.view(address, np.uint32, words)
        if initial is not None:
            self.out[: len(initial)] = initial
        self.address = address
        arguments = pack_arguments(program, [address, *values])
        launch = Launch((grid, 1, 1), (block, 1, 1), dynamic_shared, arguments)
        self.machine = Machine(program, self.memory, launch, backend)


# R2:R3 = address of out[tid]; R0 = tid
PROLOGUE = """
    S2R R0, SR_TID.X
    LDC.64 R2, c[0x0][0x210]
    IMAD.WIDE.U32 R2, R0, 0x4, R2
"""
