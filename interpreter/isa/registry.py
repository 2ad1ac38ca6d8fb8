"""The table of opcodes: one entry each, made by the `opcode` decorator around the opcode's meaning.

    @opcode("IMAD", modifiers=("U32", "MOV", "SHL", "IADD"), pipe=Pipe.FMA_HEAVY, latency="fma")
    def imad(e: Emitter, i: Instruction) -> None: ...

Modules of `interpreter.isa` named `*_ops` are imported on first use; importing one adds its opcodes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import interpreter.isa
from interpreter.errors import UnsupportedInstruction
from interpreter.isa.pipes import MemoryKind, Pipe, Timing
from interpreter.isa.value import Meaning
from interpreter.program import Instruction, Program

PipeOf = Pipe | Callable[[Instruction, int], Pipe]
LatencyOf = str | Callable[[Instruction, int], str]
VariableOf = bool | Callable[[Instruction, int], bool]
WidthOf = int | Callable[[Instruction], int]
MemoryOf = MemoryKind | Callable[[Instruction], MemoryKind]


@dataclass(frozen=True, slots=True)
class Opcode:
    """Everything known of one base mnemonic. Callables take (instruction, sm) or, for memory facts, the instruction."""

    name: str
    meaning: Meaning
    modifiers: frozenset[str]
    pipe: PipeOf
    latency: LatencyOf
    variable: VariableOf = False
    memory: MemoryOf = MemoryKind.NONE
    width: WidthOf = 0
    operands: tuple[int, int] = (0, 16)
    accepts: Callable[[Instruction], str | None] | None = None
    sms: frozenset[int] = field(default_factory=frozenset)

    def refusal(self, instruction: Instruction) -> str | None:
        """Why this entry does not cover the instruction, or None."""
        unknown = [m for m in instruction.modifiers if m not in self.modifiers]
        if unknown:
            return f"modifier .{'.'.join(unknown)} of {self.name} is not modelled"
        least, most = self.operands
        if not least <= len(instruction.operands) <= most:
            return f"{self.name} with {len(instruction.operands)} operands is not modelled"
        return self.accepts(instruction) if self.accepts else None


_TABLE: dict[str, Opcode] = {}
_loaded = False


def opcode(
    *names: str,
    pipe: PipeOf,
    latency: LatencyOf,
    modifiers: Iterable[str] = (),
    variable: VariableOf = False,
    memory: MemoryOf = MemoryKind.NONE,
    width: WidthOf = 0,
    operands: tuple[int, int] = (0, 16),
    accepts: Callable[[Instruction], str | None] | None = None,
) -> Callable[[Meaning], Meaning]:
    """Register a meaning under one or more base mnemonics (the meaning can look at `i.opcode`).

    `modifiers`: every dot suffix the meaning understands; an instruction with any other is refused.
    `latency`: a class of the targets' latency tables. `variable`: its result is guarded by a scoreboard.
    `memory`, `width`: for memory instructions; width in bytes a lane. `operands`: least and most operand count.
    `accepts`: further check; returns why not, or None. Registering a name twice is a programming error.
    """
    allowed = frozenset(modifiers)

    def register(meaning: Meaning) -> Meaning:
        for name in names:
            if name in _TABLE:
                raise ValueError(f"opcode {name} is defined twice")
            _TABLE[name] = Opcode(name, meaning, allowed, pipe, latency, variable, memory, width, operands, accepts)
        return meaning

    return register


def load() -> dict[str, Opcode]:
    """All opcodes, importing every `interpreter.isa.*_ops` module the first time."""
    global _loaded
    if not _loaded:
        for module in sorted(m.name for m in pkgutil.iter_modules(interpreter.isa.__path__)):
            if module.endswith("_ops"):
                importlib.import_module(f"interpreter.isa.{module}")
        _loaded = True
    return _TABLE


def find(instruction: Instruction) -> Opcode | None:
    """The entry that covers an instruction, modifiers included; None when there is none."""
    entry = load().get(instruction.opcode)
    return entry if entry is not None and entry.refusal(instruction) is None else None


def check(program: Program) -> None:
    """Raise UnsupportedInstruction naming every instruction of the program that no entry covers."""
    table = load()
    missing: list[tuple[int, str]] = []
    for instruction in program.instructions:
        entry = table.get(instruction.opcode)
        if entry is None:
            missing.append((instruction.address, instruction.text))
            continue
        why = entry.refusal(instruction)
        if why is not None:
            missing.append((instruction.address, f"{instruction.text} ({why})"))
    if missing:
        raise UnsupportedInstruction(program.name, missing)


def timing_of(instruction: Instruction, sm: int) -> Timing:
    """Pipe, latency class and memory facts of an instruction on compute capability `sm` (80, 86, ..., 120).

    Raises UnsupportedInstruction when no entry covers it.
    """
    entry = find(instruction)
    if entry is None:
        raise UnsupportedInstruction("(one instruction)", [(instruction.address, instruction.text)])
    return Timing(
        pipe=entry.pipe if isinstance(entry.pipe, Pipe) else entry.pipe(instruction, sm),
        latency=entry.latency if isinstance(entry.latency, str) else entry.latency(instruction, sm),
        variable=entry.variable if isinstance(entry.variable, bool) else entry.variable(instruction, sm),
        memory=entry.memory if isinstance(entry.memory, MemoryKind) else entry.memory(instruction),
        width=entry.width if isinstance(entry.width, int) else entry.width(instruction),
    )
