"""Operands and memory of the NumPy back end."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from interpreter.backends import layout
from interpreter.backends.numpy_values import NumpyValues, bits_of, lane_numbers, lanes_of
from interpreter.isa.value import F32, F64, I32, I64, MASK, Unsupported, Value
from interpreter.launch import LOCAL_WINDOW, SHARED_WINDOW, WARP
from interpreter.lowering import FormOperands, immediate_words
from interpreter.program import RZ, URZ, Instruction, Operand, OperandKind

if TYPE_CHECKING:
    from interpreter.backends.numpy_machine import Cta, NumpyMachine, Warp

WINDOW_BYTES = 1 << 24
WORDS = {"u32": 1, "s32": 1, "u64": 2, "s64": 2, "f32": 1, "f32.ftz": 1, "f64": 2, "f16x2": 1, "bf16x2": 1, "b128": 4}


class NumpyMemory(NumpyValues):
    """One instruction of one warp, being executed: its operands and memory accesses."""

    def __init__(
        self, machine: NumpyMachine, cta: Cta, warp: Warp, instruction: Instruction, form: FormOperands
    ) -> None:
        self.machine = machine
        self.cta = cta
        self.warp = warp
        self.form = form
        self.accesses: list[tuple[str, int, list[int]]] = []  # space, lanes, addresses: for the recorder
        self._next: Callable[[], None] | None = None
        self._row = instruction.row
        guard = instruction.guard
        lanes = lanes_of(warp.active)
        if guard is not None:
            uniform = guard.kind is OperandKind.UNIFORM_PREDICATE
            value = (warp.uniform_predicates if uniform else warp.predicates)[guard.index]
            lanes = lanes & (value ^ guard.invert)
        self._active = self.value(MASK, lanes)

    def finish(self) -> None:
        """Move the warp on: to what a control instruction asked for, else to the next row."""
        if self._next is None:
            self.warp.pc += 1
        else:
            self._next()

    # ------------------------------------------------------------------ operands

    @property
    def active(self) -> Value:
        return self._active

    @property
    def converged(self) -> Value:
        return self.value(MASK, lanes_of(self.warp.active))

    def is_zero(self, op: Operand) -> bool:
        return self.form.is_zero(op)

    def is_true(self, op: Operand) -> bool:
        return self.form.is_true(op)

    def is_false(self, op: Operand) -> bool:
        return self.form.is_constant_predicate(op) and op.invert

    def literal(self, op: Operand) -> int:
        return self.form.literal(op)

    def _file(self, kind: OperandKind) -> np.ndarray:
        return self.warp.uniforms if kind is OperandKind.UNIFORM else self.warp.registers

    def _words(self, op: Operand, count: int, extend: str) -> list[Value]:
        actual = self.form.actual(op)
        if actual.kind in (OperandKind.REGISTER, OperandKind.UNIFORM):
            if actual.index == RZ:
                return [self.const(I32, 0)] * count
            file = self._file(actual.kind)
            return [self.value(I32, file[actual.index + k].copy()) for k in range(count)]
        if actual.kind is OperandKind.IMMEDIATE:
            return [self.const(I32, n) for n in immediate_words(actual.value & 0xFFFFFFFFFFFFFFFF, count, extend)]
        if actual.kind is OperandKind.CONSTANT:
            if actual.index != RZ or actual.uniform != URZ:
                raise Unsupported("indexed constant as a register operand")
            raw = self._bank(actual.bank, actual.value, 4 * count)
            return [self.const(I32, int.from_bytes(raw[4 * k : 4 * k + 4], "little")) for k in range(count)]
        raise Unsupported(f"operand {actual.text} where a register is expected")

    def _bank(self, bank: int, offset: int, width: int) -> bytes:
        return self.machine.banks.get(bank, b"")[offset : offset + width].ljust(width, b"\0")

    def rows(self, op: Operand, count: int) -> list[Value]:
        return self._words(op, count, "zero")

    def pair(self, op: Operand, extend: str = "zero") -> Value:
        low, high = self._words(op, 2, extend)
        return self.pack64(low, high)

    def pred(self, op: Operand) -> Value:
        actual = self.form.actual(op)
        uniform = actual.kind is OperandKind.UNIFORM_PREDICATE
        value = (self.warp.uniform_predicates if uniform else self.warp.predicates)[actual.index]
        return self.value(MASK, value ^ actual.invert)

    def pred_number(self, index: int, uniform: bool = False) -> Value:
        return self.value(MASK, (self.warp.uniform_predicates if uniform else self.warp.predicates)[index].copy())

    def write_rows(self, op: Operand, values: Sequence[Value], mask: Value | None = None) -> None:
        actual = self.form.actual(op)
        if actual.index == RZ:
            return
        lanes = (self._active if mask is None else mask).raw
        if actual.kind is OperandKind.UNIFORM and lanes.any():
            lanes = np.ones(WARP, bool)
        file = self._file(actual.kind)
        for k, value in enumerate(values):
            if value.kind is not I32:
                raise TypeError(f"write_rows takes I32 values, not {value.kind.value}")
            file[actual.index + k][lanes] = value.raw[lanes]

    def write_pred(self, op: Operand, value: Value, mask: Value | None = None) -> None:
        if not self.form.is_constant_predicate(op):
            actual = self.form.actual(op)
            self._set_pred(actual.index, value, actual.kind is OperandKind.UNIFORM_PREDICATE, mask)

    def write_pred_number(self, index: int, value: Value, uniform: bool = False) -> None:
        self._set_pred(index, value, uniform, None)

    def _set_pred(self, index: int, value: Value, uniform: bool, mask: Value | None) -> None:
        lanes = (self._active if mask is None else mask).raw
        if uniform:
            if lanes.any():
                self.warp.uniform_predicates[index] = bool((value.raw & lanes).any())
        else:
            self.warp.predicates[index][lanes] = value.raw[lanes]

    def base(self, op: Operand, count: int) -> list[Value]:
        index = self.form.actual(op).index
        return [self.const(I32, 0) if index == RZ else self.value(I32, self.warp.registers[index + k].copy())
                for k in range(count)]  # fmt: skip

    def uniform(self, op: Operand, count: int) -> list[Value]:
        index = self.form.actual(op).uniform
        return [self.const(I32, 0) if index == URZ else self.value(I32, self.warp.uniforms[index + k].copy())
                for k in range(count)]  # fmt: skip

    def has_base(self, op: Operand) -> bool:
        return self.form.has_base(op)

    def has_uniform(self, op: Operand) -> bool:
        return self.form.has_uniform(op)

    def offset(self, op: Operand) -> Value:
        return self.const(I32, self.form.actual(op).value)

    # ------------------------------------------------------------------ memory

    def _resolve(self, space: str, address: int, width: int, lane: int) -> tuple[str, int, int]:
        """(space, address, host address or 0) of a checked access; generic addresses become those of their space."""
        if space == "generic":
            space = "global"
            for name, window in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW)):
                if window <= address < window + WINDOW_BYTES:
                    space, address = name, address - window
        m = self.machine
        if space == "global":
            owner = m.memory.find(address)
            if owner is None or address + width > owner.end or address % width:
                m.fault(self.cta, self.warp, layout.FAULT_GLOBAL, lane, address)
            return space, address, address + m.memory.delta
        size = len(self.cta.shared) if space == "shared" else self.warp.local.shape[1]
        if address + width > size or address % width:
            code = layout.FAULT_SHARED if space == "shared" else layout.FAULT_LOCAL
            m.fault(self.cta, self.warp, code, lane, address, size)
        return space, address, 0

    def _read(self, place: tuple[str, int, int], width: int, lane: int) -> bytes:
        space, address, host = place
        if space == "global":
            return ctypes.string_at(host, width)
        area = self.cta.shared if space == "shared" else self.warp.local[lane]
        return area[address : address + width].tobytes()

    def _write(self, place: tuple[str, int, int], content: bytes, lane: int) -> None:
        space, address, host = place
        if space == "global":
            ctypes.memmove(host, content, len(content))
            return
        area = self.cta.shared if space == "shared" else self.warp.local[lane]
        area[address : address + len(content)] = np.frombuffer(content, np.uint8)

    def _places(self, space: str, address: Value, width: int, bits: int) -> list[tuple[int, tuple[str, int, int]]]:
        """Checked places of the lanes in `bits`, all checked before any is used; remembers them for the recorder."""
        numbers = address.raw.tolist()
        self.accesses.append((space, bits, numbers))
        return [(lane, self._resolve(space, numbers[lane], width, lane)) for lane in lane_numbers(bits)]

    def load(
        self, space: str, address: Value, width: int, signed: bool = False, mask: Value | None = None
    ) -> list[Value]:
        bits = bits_of((self._active if mask is None else mask).raw)
        rows = np.zeros((max(1, width // 4), WARP), np.uint32)
        for lane, place in self._places(space, address, width, bits):
            rows[:, lane] = _words_of(self._read(place, width, lane), signed)
        return [self.value(I32, row) for row in rows]

    def store(self, space: str, address: Value, rows: Sequence[Value], width: int, mask: Value | None = None) -> None:
        bits = bits_of((self._active if mask is None else mask).raw)
        content = np.stack([row.raw for row in rows])
        for lane, place in self._places(space, address, width, bits):
            self._write(place, content[:, lane].tobytes()[:width], lane)

    def note_copy(self, source: Value, read: Value, written: Value) -> None:
        self.accesses = [("global", bits_of(read.raw), source.raw.tolist()), self.accesses[-1]]

    def load_constant(self, op: Operand, width: int, signed: bool = False) -> list[Value]:
        actual = self.form.actual(op)
        address = self.address32(op).raw.tolist()
        indexed = self.has_base(op) or self.has_uniform(op)
        size = len(self.machine.banks.get(actual.bank, b""))
        rows = np.zeros((max(1, width // 4), WARP), np.uint32)
        for lane in lane_numbers(bits_of(self._active.raw)) if indexed else range(WARP):
            at = address[lane]
            if indexed and (at + width > size or at % width):
                self.machine.fault(self.cta, self.warp, layout.FAULT_CONSTANT, lane, at, size)
            rows[:, lane] = _words_of(self._bank(actual.bank, at, width), signed)
        return [self.value(I32, row) for row in rows]

    def atomic(
        self,
        space: str,
        address: Value,
        operation: str,
        kind: str,
        data: Sequence[Value],
        compare: Sequence[Value] = (),
    ) -> list[Value]:
        words = WORDS[kind]
        bits = bits_of(self._active.raw)
        rows = np.zeros((words, WARP), np.uint32)
        for lane, place in self._places(space, address, 4 * words, bits):
            old = int.from_bytes(self._read(place, 4 * words, lane), "little")
            operand = _joined(data, lane)
            if operation == "cas":
                new = operand if old == _joined(compare, lane) else old
            else:
                new = self._updated(operation, kind, old, operand)
            self._write(place, new.to_bytes(4 * words, "little"), lane)
            rows[:, lane] = _words_of(old.to_bytes(4 * words, "little"), False)
        return [self.value(I32, row) for row in rows]

    def _updated(self, operation: str, kind: str, old: int, operand: int) -> int:
        bits = 32 * WORDS[kind]
        if operation == "exch":
            return operand
        if kind[0] in "fb" and operation == "add":
            return self._float_sum(kind, old, operand)
        half = 1 << (bits - 1)

        def number(n: int) -> int:
            return (n ^ half) - half if kind[0] == "s" else n

        results: dict[str, Callable[[], int]] = {
            "add": lambda: old + operand,
            "and": lambda: old & operand,
            "or": lambda: old | operand,
            "xor": lambda: old ^ operand,
            "min": lambda: old if number(old) < number(operand) else operand,
            "max": lambda: old if number(old) > number(operand) else operand,
            "inc": lambda: 0 if old >= operand else old + 1,
            "dec": lambda: operand if old == 0 or old > operand else old - 1,
        }
        return results[operation]() & ((1 << bits) - 1)

    def _float_sum(self, kind: str, old: int, operand: int) -> int:
        """One lane's float addition, through the value interface."""
        if kind == "f64":
            a, b = (self.bitcast(self.const(I64, n), F64) for n in (old, operand))
            return int(self.bitcast(a + b, I64).raw[0])
        if kind in ("f32", "f32.ftz"):
            a, b = (self.bitcast(self.const(I32, n), F32) for n in (old, operand))
            if kind == "f32.ftz":
                a, b = self.ftz(a), self.ftz(b)
            total = self.ftz(a + b) if kind == "f32.ftz" else a + b
            bits = int(self.bitcast(total, I32).raw[0])
            return 0x7FFFFFFF if np.isnan(total.raw[0]) else bits
        result = 0
        for shift in (0, 16):
            parts = [self.const(I32, n >> shift & 0xFFFF) for n in (old, operand)]
            if kind == "f16x2":
                a, b = (self.half_to_f32(part) for part in parts)
                bits = int(self.f32_to_half(a + b).raw[0])
            else:
                a, b = (self.bitcast(part << 16, F32) for part in parts)
                raw = int(self.bitcast(a + b, I32).raw[0])
                bits = (raw + 0x7FFF + (raw >> 16 & 1)) >> 16 & 0xFFFF
            if np.isnan((a + b).raw[0]):
                bits = 0x7FFF
            result |= bits << shift
        return result

    # ------------------------------------------------------------------ long operands

    def repeat(self, count: int, body: Callable[[Value], None]) -> None:
        for n in range(count):
            body(self.const(I32, n))

    def rows_at(self, op: Operand, count: int, index: Value) -> list[Value]:
        first = self.form.actual(op).index
        if first == RZ:
            return [self.const(I32, 0)] * count
        first += count * int(index.raw[0])
        return [self.value(I32, self.warp.registers[first + k].copy()) for k in range(count)]

    def write_rows_at(self, op: Operand, values: Sequence[Value], index: Value) -> None:
        first = self.form.actual(op).index
        if first == RZ:
            return
        lanes = self._active.raw
        for k, value in enumerate(values):
            self.warp.registers[first + len(values) * int(index.raw[0]) + k][lanes] = value.raw[lanes]

    @property
    def warp_number(self) -> Value:
        return self.const(I32, self.warp.number)


def _words_of(raw: bytes, signed: bool) -> list[int]:
    if len(raw) < 4:
        return [int.from_bytes(raw, "little", signed=signed) & 0xFFFFFFFF]
    return [int.from_bytes(raw[k : k + 4], "little") for k in range(0, len(raw), 4)]


def _joined(rows: Sequence[Value], lane: int) -> int:
    return sum(int(row.raw[lane]) << 32 * k for k, row in enumerate(rows))
