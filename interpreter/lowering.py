"""From a decoded Program to rows the interpreter runs: forms, register-file layout, operand fields.

Instructions that differ only in register numbers, immediates and offsets share one *form*, and so one compiled handler;
their numbers are *fields* of the decoded row. A field is described by a *recipe*, recorded while the form's emitter
runs and applied to each instruction of that form:

    ("row", position, count, extend)  byte offset in the warp of the operand's `count` consecutive rows
    ("pred", position)                byte offset of a predicate
    ("base" | "uniform", position, count)   rows of the base registers of a memory or constant operand
    ("offset", position)              its constant byte offset, signed
    ("target", position)              row of a branch target
    ("barrier", position)             rows of convergence-barrier register B
    ("special", name)                 row of a special register
    ("sync",)                         row of WARPSYNC's member masks
    ("bytes", position, width, signed)  rows holding a constant-bank value of `width` bytes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from interpreter.backends.layout import FIELDS, ROW, ROW_BYTES, WARP_HEADER, W
from interpreter.errors import UnsupportedInstruction
from interpreter.isa import registry
from interpreter.isa.value import Unsupported
from interpreter.launch import SPECIAL_NAMES
from interpreter.program import PT, RZ, URZ, Instruction, Operand, OperandKind, Program

Recipe = tuple[Any, ...]
FormKey = tuple[Any, ...]
ZERO_ROWS = 8
BARRIERS = 16


def operand_shape(op: Operand) -> tuple[Any, ...]:
    """What of an operand is part of the form: everything but its numbers."""
    kind = op.kind
    zero = kind in (OperandKind.REGISTER, OperandKind.UNIFORM) and op.index == RZ
    true = kind in (OperandKind.PREDICATE, OperandKind.UNIFORM_PREDICATE) and op.index == PT
    parts: tuple[Any, ...] = ()
    if kind in (OperandKind.MEMORY, OperandKind.CONSTANT):
        parts = (op.index != RZ, op.uniform != URZ, op.bank)
    return (
        int(kind), op.negate, op.absolute, op.invert, op.modifiers, zero, true, op.scale, op.wide,
        op.name if kind in (OperandKind.SPECIAL, OperandKind.OTHER) else "", parts,
    )  # fmt: skip


def shape_of(instruction: Instruction) -> FormKey:
    guarded = instruction.guard is not None and not (instruction.guard.index == PT and not instruction.guard.invert)
    return (
        instruction.opcode,
        instruction.modifiers,
        guarded,
        tuple(operand_shape(op) for op in instruction.operands),
    )


class FormOperands:
    """The operands of a form as its emitter sees them, and the record of the fields and literals it asked for."""

    def __init__(self, instruction: Instruction) -> None:
        self.original = instruction
        self._masked: Instruction | None = None
        self._position: dict[int, int] = {}
        self.recipes: list[Recipe] = []
        self.literals: dict[int, int] = {}

    @property
    def masked(self) -> Instruction:
        """The instruction with its numbers hidden; made when an emitter first needs it."""
        if self._masked is None:
            self._masked = self._hide(self.original)
            self._position = {id(op): k for k, op in enumerate(self._masked.operands)}
        return self._masked

    @staticmethod
    def _hide(instruction: Instruction) -> Instruction:
        hidden: dict[str, Any] = {"index": None, "value": None, "uniform": None, "descriptor": None, "text": ""}
        return replace(
            instruction,
            row=-1,
            text=instruction.mnemonic,
            low=0,
            high=0,
            operands=tuple(replace(op, **hidden) for op in instruction.operands),
            guard=None,
        )

    def position(self, op: Operand) -> int:
        return self._position[id(op)]

    def actual(self, op: Operand) -> Operand:
        return self.original.operands[self._position[id(op)]]

    def field(self, recipe: Recipe) -> int:
        if recipe not in self.recipes:
            self.recipes.append(recipe)
        return self.recipes.index(recipe)

    def is_zero(self, op: Operand) -> bool:
        return op.kind in (OperandKind.REGISTER, OperandKind.UNIFORM) and self.actual(op).index == RZ

    def is_constant_predicate(self, op: Operand) -> bool:
        kinds = (OperandKind.PREDICATE, OperandKind.UNIFORM_PREDICATE)
        return op.kind in kinds and self.actual(op).index == PT

    def is_true(self, op: Operand) -> bool:
        return self.is_constant_predicate(op) and not op.invert

    def has_base(self, op: Operand) -> bool:
        return self.actual(op).index != RZ

    def has_uniform(self, op: Operand) -> bool:
        return self.actual(op).uniform != URZ

    def literal(self, op: Operand) -> int:
        actual = self.actual(op)
        number = actual.index if op.kind is OperandKind.BARRIER else actual.value
        self.literals[self.position(op)] = number
        return number


def literal_of(op: Operand) -> int:
    return op.index if op.kind is OperandKind.BARRIER else op.value


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of the file filled at launch. `count` rows from `row` on.

    `kind` and its arguments: "immediate" (value, extend), "constant" (bank, offset), "bytes" (bank, offset, width,
    signed) or "special" (name).
    """

    row: int
    count: int
    kind: str
    arguments: tuple[Any, ...]


class FileLayout:
    """Which row of the register file holds what: R registers, uniform registers, zeros, barriers, then launch rows."""

    def __init__(self, program: Program) -> None:
        registers, uniforms = [0], [0]
        for instruction in program.instructions:
            for op in instruction.operands:
                if op.kind is OperandKind.REGISTER and op.index != RZ:
                    registers.append(op.index)
                elif op.kind is OperandKind.UNIFORM and op.index != URZ:
                    uniforms.append(op.index)
                elif op.kind in (OperandKind.MEMORY, OperandKind.CONSTANT):
                    registers.append(op.index if op.index != RZ else 0)
                    uniforms.append(op.uniform if op.uniform != URZ else 0)
                    uniforms.append(op.descriptor if op.descriptor != URZ else 0)
        self.registers = max(program.registers, max(registers) + 1)
        self.r0 = 0
        # eight spare rows after each file: an operand of several rows starts at the highest register at most
        self.u0 = self.registers + 8
        self.uniforms = max(uniforms) + 1
        self.zero = self.u0 + self.uniforms + 8
        self.b0 = self.zero + ZERO_ROWS
        self.sync = self.b0 + BARRIERS  # member mask of WARPSYNC
        self.count = self.sync + 1
        self.sources: list[Source] = []
        self._known: dict[tuple[Any, ...], int] = {}

    def launch_row(self, count: int, kind: str, arguments: tuple[Any, ...]) -> int:
        """First of `count` rows filled at launch, shared between equal requests."""
        key = (count, kind, arguments)
        if key not in self._known:
            self._known[key] = self.count
            self.sources.append(Source(self.count, count, kind, arguments))
            self.count += count
        return self._known[key]

    def register_row(self, index: int) -> int:
        return self.zero if index == RZ else self.r0 + index

    def uniform_row(self, index: int) -> int:
        return self.zero if index == URZ else self.u0 + index

    @staticmethod
    def offset(row: int) -> int:
        return WARP_HEADER + ROW_BYTES * row

    def apply(self, recipe: Recipe, instruction: Instruction) -> int:
        """The number a recipe gives for one instruction."""
        kind = recipe[0]
        if kind == "special":
            if recipe[1] not in SPECIAL_NAMES:
                raise Unsupported(f"special register {recipe[1]}")
            return self.offset(self.launch_row(1, "special", (recipe[1],)))
        if kind == "sync":
            return self.offset(self.sync)
        op = instruction.operands[recipe[1]]
        if kind == "row":
            return self.offset(self._operand_row(op, recipe[2], recipe[3]))
        if kind == "pred":
            return W["upreds" if op.kind is OperandKind.UNIFORM_PREDICATE else "preds"] + 4 * op.index
        if kind == "base":
            return self.offset(self.register_row(op.index))
        if kind == "uniform":
            return self.offset(self.uniform_row(op.uniform))
        if kind in ("offset", "target"):
            return op.value
        if kind == "barrier":
            return self.offset(self.b0 + op.index)
        if kind == "bytes":
            width, signed = recipe[2], recipe[3]
            arguments = (op.bank, op.value, width, signed)
            return self.offset(self.launch_row(max(1, width // 4), "bytes", arguments))
        raise ValueError(f"unknown recipe {recipe}")

    def _operand_row(self, op: Operand, count: int, extend: str) -> int:
        if op.kind is OperandKind.REGISTER:
            return self.register_row(op.index)
        if op.kind is OperandKind.UNIFORM:
            return self.uniform_row(op.index)
        if op.kind is OperandKind.IMMEDIATE:
            return self.launch_row(count, "immediate", (op.value & 0xFFFFFFFFFFFFFFFF, extend))
        if op.kind is OperandKind.CONSTANT:
            if op.index != RZ or op.uniform != URZ:
                raise Unsupported("indexed constant as a register operand")
            return self.launch_row(count, "constant", (op.bank, op.value))
        raise Unsupported(f"operand {op.text or op.kind.name} where a register is expected")


def immediate_words(value: int, count: int, extend: str) -> list[int]:
    """Words of an immediate used as a `count`-row operand: see `Emitter.pair`."""
    low, above = value & 0xFFFFFFFF, value >> 32
    if count == 1:
        return [low]
    if above:  # written in full, as MOV.64 of sm_120 can
        return [low, above] + [0] * (count - 2)
    if extend == "double":
        return [0, value] + [0] * (count - 2)
    high = 0xFFFFFFFF if extend == "sign" and value >> 31 else 0
    return [value] + [high] * (count - 1)


@dataclass(slots=True)
class Form:
    """One compiled handler: its key, symbol name and the recipes of its fields."""

    key: FormKey
    symbol: str
    recipes: list[Recipe]


@dataclass(slots=True)
class Lowered:
    """Rows ready to run. `rows` has dtype ROW; handler addresses are filled by the back end from `forms`."""

    program: Program
    rows: np.ndarray
    forms: list[Form]  # of each instruction
    file: FileLayout


def lower(program: Program, form_of: Callable[[FormOperands, FormKey, bool], Form]) -> Lowered:
    """Lower a program. `form_of(operands, shape, guarded)` gives the form of an instruction, perhaps from a cache.

    Raises UnsupportedInstruction naming every instruction the registry or an emitter refuses.
    """
    registry.check(program)
    file = FileLayout(program)
    rows = np.zeros(len(program.instructions), ROW)
    rows["low"] = 0xFFFFFFFFFFFFFFFF
    fields = np.zeros((len(rows), FIELDS), np.int32)
    guards = np.full(len(rows), W["preds"] + 4 * PT, np.int32)
    inverts = np.zeros(len(rows), np.uint32)
    forms: list[Form] = []
    missing: list[tuple[int, str]] = []
    for number, instruction in enumerate(program.instructions):
        shape = shape_of(instruction)
        try:
            form = form_of(FormOperands(instruction), shape, shape[2])
            values = [file.apply(recipe, instruction) for recipe in form.recipes]
        except Unsupported as error:
            missing.append((instruction.address, f"{instruction.text} ({error})"))
            continue
        forms.append(form)
        fields[number, : len(values)] = values
        guard = instruction.guard
        if guard is not None:
            bank = "upreds" if guard.kind is OperandKind.UNIFORM_PREDICATE else "preds"
            guards[number] = W[bank] + 4 * guard.index
            inverts[number] = 0xFFFFFFFF if guard.invert else 0
    if missing:
        raise UnsupportedInstruction(program.name, missing)
    rows["fields"], rows["guard"], rows["guard_invert"] = fields, guards, inverts
    return Lowered(program, rows, forms, file)
