"""Runs a few SASS lines on chosen register contents, on either back end: the bench of the opcode tests.

The lines are put between loads and stores of a synthetic sm_80 kernel, one thread an element, so that nothing of a back
end but its public machine is used.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence

import numpy as np

from interpreter.decode import _parse_text
from interpreter.launch import Launch
from interpreter.machine import Machine
from interpreter.memory import Memory
from interpreter.operands import with_value
from interpreter.program import CONTROL, Instruction, Operand, OperandKind, Parameter, Program

THREADS = 1024
BACKENDS = ["llvm", "numpy"] if importlib.util.find_spec("interpreter.backends.numpy_machine") else ["llvm"]
# Registers the bench keeps for itself; tests use R0..R199, UR8 up and P0..P5.
_ADDRESS, _TID, _SCRATCH = 250, 248, 246


def parse(text: str, row: int = 0, immediate: int | None = None) -> Instruction:
    """An Instruction from disassembly text. `immediate` replaces the bits of its float immediates (packed halves)."""
    opcode, modifiers, operands, guard = _parse_text(text)
    if immediate is not None:
        floats = [op for op in operands if op.kind is OperandKind.IMMEDIATE]
        changed: list[Operand] = []
        for op in operands:
            if op.kind is OperandKind.IMMEDIATE:
                op = with_value(op, immediate, "PACKED" if len(floats) == 2 else None)
            changed.append(op)
        operands = tuple(changed)
    return Instruction(row, opcode, modifiers, operands, guard, text, 0, 0)


def program_of(instructions: Sequence[Instruction]) -> Program:
    """A kernel of one 64-bit parameter at c[0x0][0x160] around some instructions."""
    rows = [
        Instruction(n, i.opcode, i.modifiers, i.operands, i.guard, i.text, i.low, i.high)
        for n, i in enumerate(instructions)
    ]
    return Program(
        name="bench", sm=80, arch="sm_80", instructions=rows, control=np.zeros(len(rows), CONTROL), registers=255,
        static_shared=0, stack=0, parameter_base=0x160, parameter_bytes=8, parameters=[Parameter(0, 0, 8)],
        constants={}, barriers=0, max_threads=None, required_threads=None, cubin_sha="",
    )  # fmt: skip


class Bench:
    """Compiles lines once; `run` executes them on up to 1024 elements.

    `inputs` and `outputs` name registers ("R4"), and predicates ("P0": 0 or 1 an element). Contents are uint32.
    """

    def __init__(
        self, lines: Sequence[str | Instruction], inputs: Sequence[str], outputs: Sequence[str], backend: str
    ) -> None:
        self.inputs, self.outputs, self.backend = list(inputs), list(outputs), backend
        body = [parse(line) if isinstance(line, str) else line for line in lines]
        text = [f"S2R R{_TID}, SR_TID.X", f"IMAD.WIDE R{_ADDRESS}, R{_TID}, 0x4, c[0x0][0x160]"]
        for k, name in enumerate(self.inputs):
            place = f"[R{_ADDRESS}.64+{k * 4 * THREADS:#x}]"
            if name[0] == "P":
                text += [f"LDG.E R{_SCRATCH}, {place}", f"ISETP.NE.AND {name}, PT, R{_SCRATCH}, RZ, PT"]
            else:
                text.append(f"LDG.E {name}, {place}")
        tail: list[str] = []
        for k, name in enumerate(self.outputs):
            place = f"[R{_ADDRESS}.64+{(len(self.inputs) + k) * 4 * THREADS:#x}]"
            if name[0] == "P":
                tail += [f"SEL R{_SCRATCH}, RZ, 0x1, !{name}", f"STG.E {place}, R{_SCRATCH}"]
            else:
                tail.append(f"STG.E {place}, {name}")
        tail.append("EXIT")
        self.program = program_of([*map(parse, text), *body, *map(parse, tail)])

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        count = max((len(v) for v in inputs.values()), default=THREADS)
        assert count <= THREADS
        memory = Memory()
        size = 4 * THREADS * (len(self.inputs) + len(self.outputs))
        address = memory.allocate("bench", size)
        rows = memory.view(address, np.dtype(np.uint32), (len(self.inputs) + len(self.outputs), THREADS))
        rows[len(self.inputs) :] = 0xDEADBEEF
        for k, name in enumerate(self.inputs):
            rows[k, :count] = inputs[name]
        launch = Launch((1, 1, 1), (-(-count // 32) * 32, 1, 1), 0, [address.to_bytes(8, "little")])
        Machine(self.program, memory, launch, self.backend).run()
        return {name: rows[len(self.inputs) + k, :count].copy() for k, name in enumerate(self.outputs)}


def run(
    lines: Sequence[str | Instruction] | str,
    inputs: Mapping[str, np.ndarray],
    outputs: Sequence[str],
    backend: str = "llvm",
) -> dict[str, np.ndarray]:
    """One-off `Bench`."""
    return Bench([lines] if isinstance(lines, str) else lines, list(inputs), outputs, backend).run(inputs)


def compute(line: str | Instruction, *words: np.ndarray, out: str = "R0", backend: str = "llvm") -> np.ndarray:
    """Result in `out` of one line whose sources are R4, R6, R8 (uint32; uint64 fills a register pair)."""
    inputs: dict[str, np.ndarray] = {}
    for k, value in enumerate(words):
        register = 4 + 2 * k
        if value.dtype == np.uint64:
            inputs[f"R{register}"] = (value & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            inputs[f"R{register + 1}"] = (value >> np.uint64(32)).astype(np.uint32)
        else:
            inputs[f"R{register}"] = value.astype(np.uint32)
    return run([line], inputs, [out], backend)[out]


def compute64(line: str | Instruction, *words: np.ndarray, backend: str = "llvm") -> np.ndarray:
    """Like `compute`, for a 64-bit result in R0, R1."""
    inputs: dict[str, np.ndarray] = {}
    for k, value in enumerate(words):
        register = 4 + 2 * k
        if value.dtype == np.uint64:
            inputs[f"R{register}"] = (value & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            inputs[f"R{register + 1}"] = (value >> np.uint64(32)).astype(np.uint32)
        else:
            inputs[f"R{register}"] = value.astype(np.uint32)
    found = run([line], inputs, ["R0", "R1"], backend)
    return found["R0"].astype(np.uint64) | found["R1"].astype(np.uint64) << np.uint64(32)
