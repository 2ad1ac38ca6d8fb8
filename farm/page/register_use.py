"""Which registers a SASS instruction reads and writes, from the one place that says what each opcode does.

An opcode's meaning is run once for each form with an emitter that computes nothing useful and notes every register it
is asked for. So the widths (pairs of IMAD.WIDE, quads of LDG.E.128, fragments of HMMA) are those of the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interpreter.backends.numpy_values import NumpyValues
from interpreter.decode import parse_instruction
from interpreter.isa import registry
from interpreter.isa.value import I32, MASK, Unsupported, Value
from interpreter.lowering import FormKey, shape_of
from interpreter.program import PT, RZ, URZ, Instruction, Operand, OperandKind

# Numbers of registers in one space: R0..R254, UR0.., P0..P6, UP0..UP6.
UNIFORM_BASE = 256
PREDICATE_BASE = 512
UNIFORM_PREDICATE_BASE = 520
REGISTERS = 528


def register_name(number: int) -> str:
    """ "R4", "UR6", "P0", "UP1"."""
    if number >= UNIFORM_PREDICATE_BASE:
        return f"UP{number - UNIFORM_PREDICATE_BASE}"
    if number >= PREDICATE_BASE:
        return f"P{number - PREDICATE_BASE}"
    return f"UR{number - UNIFORM_BASE}" if number >= UNIFORM_BASE else f"R{number}"


@dataclass(frozen=True, slots=True)
class Use:
    """Register numbers (see `register_name`) that an instruction reads and writes, guard included. `known` is false
    for an instruction that the interpreter does not model: its operands then count as one register each."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    known: bool = True


# (what, operand position or number, first, count); what is "register", "base", "uniform", "descriptor" or "number"
_Access = tuple[str, int, int, int]

_forms: dict[FormKey, tuple[list[_Access], list[_Access], bool]] = {}


def register_use(instruction: Instruction) -> Use:
    """What `instruction` reads and writes."""
    key = shape_of(instruction)
    if key not in _forms:
        _forms[key] = _accesses(instruction)
    reads, writes, known = _forms[key]
    read = {n for access in reads for n in _numbers(instruction, access)}
    read.update(n for operand in instruction.operands for n in _descriptor(operand))
    written = {n for access in writes for n in _numbers(instruction, access)}
    if instruction.guard is not None and instruction.guard.index != PT:
        read.add(_base_of(instruction.guard.kind) + instruction.guard.index)
    return Use(tuple(sorted(read)), tuple(sorted(written)), known)


def use_of_text(sass: str) -> Use:
    """The same for one line of disassembly; ValueError when it is none."""
    return register_use(parse_instruction(sass))


def _base_of(kind: OperandKind) -> int:
    return {
        OperandKind.UNIFORM: UNIFORM_BASE,
        OperandKind.PREDICATE: PREDICATE_BASE,
        OperandKind.UNIFORM_PREDICATE: UNIFORM_PREDICATE_BASE,
    }.get(kind, 0)


def _numbers(instruction: Instruction, access: _Access) -> Iterator[int]:
    what, position, first, count = access
    if what == "number":
        yield position
        return
    operand = instruction.operands[position]
    if what == "uniform":
        index, absent, base = operand.uniform, URZ, UNIFORM_BASE
    elif what == "base":
        index, absent, base = operand.index, RZ, 0
    else:
        base = _base_of(operand.kind)
        index, absent = operand.index, PT if base >= PREDICATE_BASE else RZ
    if index != absent:
        yield from range(base + index + first, base + index + first + count)


def _descriptor(operand: Operand) -> Iterator[int]:
    if operand.descriptor != URZ:
        yield from (UNIFORM_BASE + operand.descriptor, UNIFORM_BASE + operand.descriptor + 1)


def _accesses(instruction: Instruction) -> tuple[list[_Access], list[_Access], bool]:
    # parsed operands are shared between equal texts: give each position its own, so that it can be told by identity
    instruction = replace(instruction, operands=tuple(replace(op) for op in instruction.operands))
    entry = registry.find(instruction)
    if entry is not None:
        emitter = _Recorder(instruction)
        try:
            with np.errstate(all="ignore"):
                entry.meaning(emitter, instruction)
            return emitter.reads, emitter.written, True
        except Unsupported:
            pass
    reads: list[_Access] = []
    writes: list[_Access] = []
    registers = (OperandKind.REGISTER, OperandKind.UNIFORM, OperandKind.PREDICATE, OperandKind.UNIFORM_PREDICATE)
    for position, operand in enumerate(instruction.operands):
        if operand.kind in (OperandKind.MEMORY, OperandKind.CONSTANT):
            reads += [("base", position, 0, 2 if operand.wide else 1), ("uniform", position, 0, 1)]
        elif operand.kind in registers:
            (reads if writes else writes).append(("register", position, 0, 1))
    return reads, writes, False


class _Recorder(NumpyValues):
    """An emitter in which every register holds zeros; it notes what is read and written."""

    def __init__(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.reads: list[_Access] = []
        self.written: list[_Access] = []
        self._position = {id(op): k for k, op in enumerate(instruction.operands)}

    def _read(self, what: str, op: Operand, first: int, count: int) -> list[Value]:
        self.reads.append((what, self._position[id(op)], first, count))
        return [self.const(I32, 0) for _ in range(count)]

    @property
    def active(self) -> Value:
        return self.const(MASK, 1)

    @property
    def converged(self) -> Value:
        return self.const(MASK, 1)

    @property
    def warp_number(self) -> Value:
        return self.const(I32, 0)

    # ---- operands

    def is_zero(self, op: Operand) -> bool:
        return op.kind in (OperandKind.REGISTER, OperandKind.UNIFORM) and op.index == RZ

    def is_true(self, op: Operand) -> bool:
        return self._constant_predicate(op) and not op.invert

    def is_false(self, op: Operand) -> bool:
        return self._constant_predicate(op) and op.invert

    @staticmethod
    def _constant_predicate(op: Operand) -> bool:
        return op.kind in (OperandKind.PREDICATE, OperandKind.UNIFORM_PREDICATE) and op.index == PT

    def literal(self, op: Operand) -> int:
        return op.index if op.kind is OperandKind.BARRIER else op.value

    def rows(self, op: Operand, count: int) -> list[Value]:
        if op.kind in (OperandKind.REGISTER, OperandKind.UNIFORM):
            return self._read("register", op, 0, count)
        if op.kind is OperandKind.CONSTANT:
            self._read("base", op, 0, 1)
            self._read("uniform", op, 0, 1)
        return [self.const(I32, 0) for _ in range(count)]

    def pair(self, op: Operand, extend: str = "zero") -> Value:
        low, high = self.rows(op, 2)
        return self.pack64(low, high)

    def pred(self, op: Operand) -> Value:
        self._read("register", op, 0, 1)
        return self.const(MASK, 0)

    def pred_number(self, index: int, uniform: bool = False) -> Value:
        self.reads.append(("number", (UNIFORM_PREDICATE_BASE if uniform else PREDICATE_BASE) + index, 0, 1))
        return self.const(MASK, 0)

    def write_rows(self, op: Operand, values: Sequence[Value], mask: Value | None = None) -> None:
        self.written.append(("register", self._position[id(op)], 0, len(values)))

    def write_pred(self, op: Operand, value: Value, mask: Value | None = None) -> None:
        self.written.append(("register", self._position[id(op)], 0, 1))

    def write_pred_number(self, index: int, value: Value, uniform: bool = False) -> None:
        self.written.append(("number", (UNIFORM_PREDICATE_BASE if uniform else PREDICATE_BASE) + index, 0, 1))

    def base(self, op: Operand, count: int) -> list[Value]:
        return self._read("base", op, 0, count)

    def uniform(self, op: Operand, count: int) -> list[Value]:
        return self._read("uniform", op, 0, count)

    def has_base(self, op: Operand) -> bool:
        return op.index != RZ

    def has_uniform(self, op: Operand) -> bool:
        return op.uniform != URZ

    def offset(self, op: Operand) -> Value:
        return self.const(I32, 0)

    # ---- long operands

    def repeat(self, count: int, body: Callable[[Value], None]) -> None:
        for number in range(count):
            body(self.const(I32, number))

    def rows_at(self, op: Operand, count: int, index: Value) -> list[Value]:
        return self._read("register", op, count * int(index.raw[0]), count)

    def write_rows_at(self, op: Operand, values: Sequence[Value], index: Value) -> None:
        first = len(values) * int(index.raw[0])
        self.written.append(("register", self._position[id(op)], first, len(values)))

    # ---- memory and control: nothing happens

    def load(
        self, space: str, address: Value, width: int, signed: bool = False, mask: Value | None = None
    ) -> list[Value]:
        return [self.const(I32, 0) for _ in range(max(1, width // 4))]

    def store(self, space: str, address: Value, rows: Sequence[Value], width: int, mask: Value | None = None) -> None:
        pass

    def atomic(
        self,
        space: str,
        address: Value,
        operation: str,
        kind: str,
        data: Sequence[Value],
        compare: Sequence[Value] = (),
    ) -> list[Value]:
        return [self.const(I32, 0) for _ in data]

    def note_copy(self, source: Value, read: Value, written: Value) -> None:
        pass

    def load_constant(self, op: Operand, width: int, signed: bool = False) -> list[Value]:
        self._read("base", op, 0, 1)
        self._read("uniform", op, 0, 1)
        return [self.const(I32, 0) for _ in range(max(1, width // 4))]

    def special(self, op: Operand) -> Value:
        return self.const(I32, 0)

    special_high = special

    def barrier_result(self) -> Value:
        return self.const(I32, 0)

    def instruction_address(self) -> Value:
        return self.const(I32, 0)

    def target_address(self, target: Operand) -> Value:
        return self.const(I32, 0)

    def read_barrier(self, barrier: Operand) -> Value:
        return self.const(I32, 0)

    def branch(self, target: Operand, mask: Value) -> None:
        pass

    def branch_to(self, address: Value, mask: Value) -> None:
        pass

    def exit(self, mask: Value) -> None:
        pass

    def converge_set(self, barrier: Operand) -> None:
        pass

    def converge_wait(self, barrier: Operand) -> None:
        pass

    def converge_leave(self, barrier: Operand, mask: Value) -> None:
        pass

    def converge_lanes(self, members: Value) -> None:
        pass

    def write_barrier(self, barrier: Operand, value: Value) -> None:
        pass

    def cta_barrier(self, operation: str, number: Value, count: Value | None, predicate: Value | None) -> None:
        pass

    def yield_turn(self) -> None:
        pass

    def sleep(self) -> None:
        pass

    def trap(self, mask: Value) -> None:
        pass
