"""The value interface in LLVM: a Value's `raw` is a 32-lane vector, a MASK is <32 x i1>."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.ir as ir
import numpy as np

from interpreter.backends.layout import FIELDS, LANES, R, W
from interpreter.backends.llvm_code import (
    DOUBLE,
    FLOAT,
    HALF,
    HANDLER,
    I1,
    I16,
    INT32,
    INT64,
    V1,
    V32,
    V64,
    VF32,
    VF64,
    Code,
    splat_const,
    untyped,
    vec,
)
from interpreter.isa.effects import MachineEmitter
from interpreter.isa.value import F32, I32, I64, MASK, Kind, Number, Unsupported, Value
from interpreter.lowering import FormOperands, Recipe
from interpreter.program import Operand, OperandKind

TYPES: dict[Kind, ir.Type] = {Kind.I32: V32, Kind.I64: V64, Kind.F32: VF32, Kind.F64: VF64, Kind.MASK: V1}
ELEMENT: dict[Kind, ir.Type] = {Kind.I32: INT32, Kind.I64: INT64, Kind.F32: FLOAT, Kind.F64: DOUBLE, Kind.MASK: I1}
SUFFIX = {Kind.I32: "v32i32", Kind.I64: "v32i64", Kind.F32: "v32f32", Kind.F64: "v32f64", Kind.MASK: "v32i1"}

INT_BINARY = {"add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr"}


class LlvmValues(MachineEmitter):
    """Builds one handler. Operand fields are allocated through `form`, which records their recipes."""

    def __init__(self, module: ir.Module, symbol: str, form: FormOperands, guarded: bool) -> None:
        self.code = Code(module, symbol, HANDLER)
        self.b = self.code.b
        self.w, self.row, self.pc = self.code.args
        self.form = form
        self.guarded = guarded
        self._active: Value | None = None
        self._active_bits: ir.Value | None = None
        self._fields: dict[int, ir.Value] = {}
        self.next: ir.Value | None = None

    def finish(self) -> None:
        self.b.ret(self.next if self.next is not None else self.b.add(self.pc, self.code.i32(1)))
        self.code.finish()

    def value(self, kind: Kind, raw: ir.Value) -> Value:
        return Value(self, kind, raw)

    # ------------------------------------------------------------------ operands

    def field(self, recipe: Recipe) -> ir.Value:
        """i32 held in the decoded row for this recipe."""
        number = self.form.field(recipe)
        if number >= FIELDS:
            raise Unsupported(f"more than {FIELDS} operand fields")
        return self.code.load(INT32, self.row, R["fields"] + 4 * number)

    def _run(self, recipe: Recipe, count: int) -> list[Value]:
        start = self.code.at(self.w, self.field(recipe))
        return [self.value(I32, self.code.load(V32, start, 128 * k)) for k in range(count)]

    def rows(self, op: Operand, count: int) -> list[Value]:
        if self.is_zero(op):
            return [self.const(I32, 0)] * count
        extend = "zero" if op.kind is OperandKind.IMMEDIATE else ""
        return self._run(("row", self.form.position(op), count, extend), count)

    def pair(self, op: Operand, extend: str = "zero") -> Value:
        if self.is_zero(op):
            return self.const(I64, 0)
        extend = extend if op.kind is OperandKind.IMMEDIATE else ""
        low, high = self._run(("row", self.form.position(op), 2, extend), 2)
        return self.pack64(low, high)

    def pack64(self, low: Value, high: Value) -> Value:
        # interleaving the words is one shuffle a register, cheaper than extend, shift and or
        both = self.code.shuffle(low.raw, high.raw, [n for lane in range(LANES) for n in (lane, LANES + lane)])
        return self.value(I64, self.b.bitcast(both, V64))

    def is_zero(self, op: Operand) -> bool:
        return self.form.is_zero(op)

    def is_true(self, op: Operand) -> bool:
        return self.form.is_true(op)

    def is_false(self, op: Operand) -> bool:
        return self.form.is_constant_predicate(op) and op.invert

    def literal(self, op: Operand) -> int:
        return self.form.literal(op)

    def pred(self, op: Operand) -> Value:
        if self.form.is_constant_predicate(op):
            return self.const(MASK, 0 if op.invert else 1)
        bits = self.code.load(INT32, self.code.at(self.w, self.field(("pred", self.form.position(op)))))
        mask = self.value(MASK, self.code.mask(bits))
        return ~mask if op.invert else mask

    def pred_number(self, index: int, uniform: bool = False) -> Value:
        bits = self.code.load(INT32, self.w, W["upreds" if uniform else "preds"] + 4 * index)
        return self.value(MASK, self.code.mask(bits))

    def _mask_or_active(self, mask: Value | None) -> tuple[ir.Value | None, ir.Value]:
        mask = self.active if mask is None else mask
        return mask.raw, self.code.bits(mask.raw)

    def write_rows(self, op: Operand, values: Sequence[Value], mask: Value | None = None) -> None:
        if self.is_zero(op):
            return
        start = self.code.at(self.w, self.field(("row", self.form.position(op), len(values), "")))
        lanes, bits = self._mask_or_active(mask)
        if op.kind is OperandKind.UNIFORM:
            if mask is None and not self.guarded:
                for k, value in enumerate(values):
                    self.code.store(value.raw, start, 128 * k)
                return
            lanes = self.code.splat(self.b.icmp_unsigned("!=", bits, self.code.i32(0)))
        for k, value in enumerate(values):
            if value.kind is not I32:
                raise TypeError(f"write_rows takes I32 values, not {value.kind.value}")
            old = self.code.load(V32, start, 128 * k)
            self.code.store(self.b.select(lanes, value.raw, old), start, 128 * k)

    def write_pred(self, op: Operand, value: Value, mask: Value | None = None) -> None:
        if self.form.is_constant_predicate(op):
            return
        uniform = op.kind is OperandKind.UNIFORM_PREDICATE
        self._write_pred_at(self.code.at(self.w, self.field(("pred", self.form.position(op)))), value, mask, uniform)

    def write_pred_number(self, index: int, value: Value, uniform: bool = False) -> None:
        at = self.code.at(self.w, W["upreds" if uniform else "preds"] + 4 * index)
        self._write_pred_at(at, value, None, uniform)

    def _write_pred_at(self, at: ir.Value, value: Value, mask: Value | None, uniform: bool) -> None:
        _, lanes = self._mask_or_active(mask)
        bits = self.code.bits(value.raw)
        old = self.code.load(INT32, at)
        if uniform:
            some = self.b.icmp_unsigned("!=", self.b.and_(bits, lanes), self.code.i32(0))
            ran = self.b.icmp_unsigned("!=", lanes, self.code.i32(0))
            new = self.b.select(ran, self.b.sext(some, INT32), old)
        else:
            new = self.b.or_(self.b.and_(bits, lanes), self.b.and_(old, self.b.not_(lanes)))
        self.code.store(new, at)

    @property
    def active_bits(self) -> ir.Value:
        """i32: lanes of the running group whose guard is true."""
        if self._active_bits is None:
            bits = self.code.load(INT32, self.w, W["active"])
            if self.guarded:
                at = self.code.load(INT32, self.row, R["guard"])
                guard = self.code.load(INT32, self.code.at(self.w, at))
                invert = self.code.load(INT32, self.row, R["guard_invert"])
                bits = self.b.and_(bits, self.b.xor(guard, invert))
            self._active_bits = bits
        return self._active_bits

    @property
    def active(self) -> Value:
        if self._active is None:
            self._active = self.value(MASK, self.code.mask(self.active_bits))
        return self._active

    @property
    def converged(self) -> Value:
        return self.value(MASK, self.code.mask(self.code.load(INT32, self.w, W["active"])))

    # ------------------------------------------------------------------ arithmetic

    def const(self, kind: Kind, number: Number) -> Value:
        if kind.is_float:
            exact = float(np.float32(number)) if kind is F32 else float(number)
            return self.value(kind, splat_const(ELEMENT[kind], exact))
        return self.value(kind, splat_const(ELEMENT[kind], int(number) & ((1 << kind.bits) - 1)))

    def lanes(self, numbers: Sequence[int], kind: Kind = I32) -> Value:
        modulo = (1 << kind.bits) - 1
        element = ELEMENT[kind]
        return self.value(kind, ir.Constant(TYPES[kind], [ir.Constant(element, n & modulo) for n in numbers]))

    def binary(self, op: str, a: Value, b: Value) -> Value:
        if a.kind is not b.kind:
            raise TypeError(f"{op} of {a.kind.value} and {b.kind.value}")
        build: Any = self.b
        x, y, kind = a.raw, b.raw, a.kind
        if kind.is_float:
            if op in ("add", "sub", "mul", "div"):
                return self.value(kind, getattr(build, "f" + op)(x, y))
            return self._float_extreme(op, a, b)
        if op in INT_BINARY:
            return self.value(kind, getattr(build, {"and": "and_", "or": "or_"}.get(op, op))(x, y))
        if op in ("umin", "umax", "smin", "smax"):
            return self.value(kind, self.code.intrinsic(f"llvm.{op}.{SUFFIX[kind]}", TYPES[kind], [x, y]))
        if op in ("udiv", "urem", "sdiv", "srem"):
            zero = build.icmp_unsigned("==", y, self.const(kind, 0).raw)
            bad = zero
            if op[0] == "s":  # the one overflow, most negative / -1, is taken as a / 1: the same bits
                overflow = build.and_(
                    build.icmp_unsigned("==", y, self.const(kind, -1).raw),
                    build.icmp_unsigned("==", x, self.const(kind, 1 << (kind.bits - 1)).raw),
                )
                bad = build.or_(zero, overflow)
            result = getattr(build, op)(x, build.select(bad, self.const(kind, 1).raw, y))
            return self.value(kind, build.select(zero, self.const(kind, 0).raw, result))
        raise ValueError(f"no integer operation {op}")

    def _float_extreme(self, op: str, a: Value, b: Value) -> Value:
        """Minimum or maximum where the number wins over NaN and -0 < +0 (LLVM's own intrinsic came with LLVM 20)."""
        bits = I32 if a.kind is F32 else I64
        x, y = self.bitcast(a, bits), self.bitcast(b, bits)
        first = self.compare("olt" if op == "fmin" else "ogt", a, b) | self.is_nan(b)
        equal = (x | y) if op == "fmin" else (x & y)  # the same bits, but for zeros of two signs
        return self.select(self.compare("oeq", a, b), self.bitcast(equal, a.kind), self.select(first, a, b))

    def unary(self, op: str, a: Value) -> Value:
        kind, type_ = a.kind, TYPES[a.kind]
        if op == "neg":
            return self.value(kind, self.b.fneg(a.raw))
        if op in ("clz", "ctz"):
            name = {"clz": "ctlz", "ctz": "cttz"}[op]
            args = [a.raw, ir.Constant(I1, 0)]
            return self.value(kind, self.code.intrinsic(f"llvm.{name}.{SUFFIX[kind]}", type_, args))
        name = {"abs": "fabs", "popc": "ctpop", "brev": "bitreverse"}.get(op, op)
        return self.value(kind, self.code.intrinsic(f"llvm.{name}.{SUFFIX[kind]}", type_, [a.raw]))

    def compare(self, op: str, a: Value, b: Value) -> Value:
        x, y = a.raw, b.raw
        sign = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
        if a.kind.is_float:
            if op in ("ord", "uno"):
                raw = (self.b.fcmp_ordered if op == "ord" else self.b.fcmp_unordered)(op, x, y)
            else:
                raw = (self.b.fcmp_ordered if op[0] == "o" else self.b.fcmp_unordered)(sign[op[1:]], x, y)
        elif op in ("eq", "ne"):
            raw = self.b.icmp_unsigned(sign[op], x, y)
        else:
            raw = (self.b.icmp_unsigned if op[0] == "u" else self.b.icmp_signed)(sign[op[1:]], x, y)
        return self.value(MASK, raw)

    def convert(self, op: str, a: Value, kind: Kind) -> Value:
        type_, x, build = TYPES[kind], a.raw, self.b
        if op in ("bitcast", "zext", "sext", "trunc", "fpext", "fptrunc", "sitofp", "uitofp"):
            return self.value(kind, getattr(build, op)(x, type_))
        if op == "fptosi_in_range":
            return self.value(kind, build.fptosi(x, type_))
        if op in ("fptosi", "fptoui"):
            name = f"llvm.{op}.sat.{SUFFIX[kind]}.{SUFFIX[a.kind]}"
            return self.value(kind, self.code.intrinsic(name, type_, [x]))
        if op == "half_to_f32":
            half = build.bitcast(build.trunc(x, vec(I16)), vec(HALF))
            return self.value(kind, build.fpext(half, VF32))
        if op == "f32_to_half":
            half = build.fptrunc(x, vec(HALF))
            return self.value(kind, build.zext(build.bitcast(half, vec(I16)), V32))
        raise ValueError(f"no conversion {op}")

    def fused(self, a: Value, b: Value, c: Value) -> Value:
        name = f"llvm.fma.{SUFFIX[a.kind]}"
        return self.value(a.kind, self.code.intrinsic(name, TYPES[a.kind], [a.raw, b.raw, c.raw]))

    def select(self, mask: Value, a: Value | Number, b: Value | Number) -> Value:
        a, b = self._two(a, b)
        return self.value(a.kind, self.b.select(mask.raw, a.raw, b.raw))

    # ------------------------------------------------------------------ lanes

    def permute(self, a: Value, source: Sequence[int]) -> Value:
        return self.value(a.kind, self.code.shuffle(a.raw, a.raw, list(source)))

    def shuffle(self, a: Value, source: Value) -> Value:
        if a.kind is MASK:
            return self.ne(self.shuffle(self.zext(a, I32), source), 0)
        if a.kind.bits == 64:
            bits = self.bitcast(a, I64)
            low, high = self.shuffle(self.lo32(bits), source), self.shuffle(self.hi32(bits), source)
            return self.bitcast(self.pack64(low, high), a.kind)
        words = self.bitcast(a, I32)
        buffer = self.code.buffer(128)
        self.code.store(words.raw, buffer, 0, align=64)
        lane = self.b.and_(source.raw, splat_const(INT32, LANES - 1))
        result: ir.Value = ir.Constant(V32, ir.Undefined)
        for k in range(LANES):
            index = self.b.extract_element(lane, self.code.i32(k))
            at = self.code.at(buffer, self.b.shl(self.b.zext(index, INT64), self.code.i64(2)))
            result = self.b.insert_element(result, self.code.load(INT32, at), self.code.i32(k))
        return self.bitcast(self.value(I32, result), a.kind)

    def first(self, a: Value, mask: Value | None = None) -> Value:
        bits = self.code.bits((self.active if mask is None else mask).raw)
        lane = self.b.and_(self.code.ctz(bits), self.code.i32(LANES - 1))
        return self.value(a.kind, self.code.splat(self.b.extract_element(a.raw, lane)))

    def ballot(self, mask: Value) -> Value:
        return self.value(I32, self.code.splat(self.code.bits(mask.raw)))

    def mask_from_bits(self, value: Value) -> Value:
        return self.value(MASK, self.code.mask(self.b.extract_element(value.raw, self.code.i32(0))))

    def lookup(self, table: np.ndarray, index: Value) -> Value:
        kind = {4: I32, 8: I64}[table.dtype.itemsize]
        count = len(table)
        if count & (count - 1):
            raise ValueError("a lookup table's length must be a power of two")
        element = ELEMENT[kind]
        array = ir.Constant(ir.ArrayType(element, count), [ir.Constant(element, int(n)) for n in table])
        holder = ir.GlobalVariable(self.code.module, array.type, f"{self.code.function.name}.table{len(self._fields)}")
        self._fields[len(self._fields)] = holder
        holder.initializer = array
        holder.global_constant = True
        holder.linkage = "internal"
        holder.align = 64
        start = untyped(self.b, holder)
        safe = self.b.and_(index.raw, splat_const(INT32, count - 1))
        result: ir.Value = ir.Constant(TYPES[kind], ir.Undefined)
        for k in range(LANES):
            lane = self.b.zext(self.b.extract_element(safe, self.code.i32(k)), INT64)
            at = self.b.mul(lane, self.code.i64(table.dtype.itemsize))
            result = self.b.insert_element(result, self.code.load(element, start, at), self.code.i32(k))
        return self.value(kind, result)
