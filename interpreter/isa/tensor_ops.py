"""Warp matrix instructions: HMMA, QMMA, IMMA, DMMA. D = A * B + C on fragments spread over the lanes.

Fragment layouts: PTX ISA, "Matrix Fragments for mma". With g = lane // 4 and t = lane % 4, a lane holds elements of
rows g and g + 8 of A (columns by t), of column g of B (rows by t), and of columns 2t and 2t + 1 of C and D.

Arithmetic of the floating forms, measured on an H200 (random operands over all exponents, no differences): the products
are exact; products and accumulator are aligned to the largest exponent, where a product's exponent is the sum of its
factors' (denormals count as the least normal exponent, zeros not at all); each is cut toward zero to 25 fraction bits
there; the exact sum is cut toward zero to FP32, or rounded to nearest even for an FP16 result. All k products of one
instruction and the accumulator enter one sum. DMMA is a chain of fused multiply-adds in order of k.
That other generations align and group alike is an assumption.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from interpreter.isa.half_ops import join, round_half, to_odd, widen_half
from interpreter.isa.integer_ops import field_of
from interpreter.isa.minifloat import FORMATS, half_table
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import F32, F64, I32, I64, LANES, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand

ALIGNED_BITS = 25  # fraction bits kept below the largest exponent
NO_EXPONENT = -2000  # of a zero: below every other
_PARTIAL = 8  # aligned terms of up to 2**27 that fit in 32 bits


@dataclass(frozen=True, slots=True)
class Factor:
    """A factor of products: its value as F32 and its exponent (I32).

    A half is its own value. Wider ranges, whose products FP32 cannot hold, are `reduced`: value times 2**exponent.
    """

    value: Value
    exponent: Value
    reduced: bool

    def permuted(self, e: Emitter, source: list[int]) -> Factor:
        return Factor(e.permute(self.value, source), e.permute(self.exponent, source), self.reduced)


def factor(e: Emitter, v: Value, least: int, reduced: bool = True) -> Factor:
    """Take F32 `v`, whose own format's least normal exponent is `least`, as a factor."""
    bits = e.bitcast(v, I32)
    field = (bits >> 23) & 0xFF
    exponent = e.max(field - 127, least)
    zero = e.eq(bits & 0x7FFFFFFF, 0)
    exponent = e.select(zero, NO_EXPONENT, exponent)
    if not reduced:
        return Factor(v, exponent, False)
    normal = e.bitcast((bits & 0x807FFFFF) | 0x3F800000, F32)
    value = e.select(e.lt(field, 127 + least), v * 2.0**-least, normal)
    return Factor(e.select(e.eq(field, 255), v, value), exponent, True)


def _power(e: Emitter, exponent: Value) -> Value:
    """2**exponent as F32, at least 2**-126."""
    return e.bitcast(e.max(exponent + 127, 1) << 23, F32)


def aligned_sums(
    e: Emitter, rows: list[list[Factor]], columns: list[list[Factor]], c: list[Factor]
) -> list[tuple[Value, Value]]:
    """For each accumulator, of row k // 2 and column k % 2: (sum as F64, the infinity or NaN of the sum as F32, finite
    where there is none). `rows` and `columns` list factors in order of the summed index."""
    depth = len(rows[0])
    places = [(k // 2, k % 2) for k in range(len(c))]
    largest = [value.exponent for value in c]
    for n in range(depth):
        for k, (row, column) in enumerate(places):
            largest[k] = e.max(largest[k], rows[row][n].exponent + columns[column][n].exponent)
    bases = [e.max(value, -300) - ALIGNED_BITS for value in largest]  # all zero: any scale will do
    terms = [value.value * _power(e, value.exponent - base) for value, base in zip(c, bases)]
    partial = [e.convert("fptosi_in_range", term, I32) for term in terms]
    special = [value.value for value in c]
    total = [e.const(F64, 0.0)] * len(c)
    # a sum of halves needs no more than this; below, all products are zero
    units = [_power(e, e.min(e.neg(base), 127)) for base in bases]
    for n in range(depth):
        for k, (row, column) in enumerate(places):
            a, b = rows[row][n], columns[column][n]
            product = a.value * b.value
            special[k] = special[k] + product
            unit = _power(e, a.exponent + b.exponent - bases[k]) if a.reduced else units[k]
            partial[k] = partial[k] + e.convert("fptosi_in_range", product * unit, I32)
            if n % _PARTIAL == _PARTIAL - 1 and n + 1 < depth:
                total[k] = total[k] + e.int_to_float(partial[k], F64)
                partial[k] = e.const(I32, 0)
    results = []
    for k, base in enumerate(bases):
        exact = total[k] + e.int_to_float(partial[k], F64)
        results.append((exact * e.bitcast(e.sext(base + 1023) << 52, F64), special[k]))
    return results


def _to_f32(e: Emitter, total: Value, special: Value) -> Value:
    """Cut toward zero to F32, but an overflow is infinite, and what is cut to nothing is +0. Infinities and NaN among
    the terms count as in IEEE sums."""
    finite = e.lt(e.abs(special), float("inf"))
    result = e.f32_of(total, "RZ") + 0.0
    far = e.ge(e.abs(total), 2.0**128)
    result = e.select(far, e.select(e.lt(total, 0.0), float("-inf"), e.const(F32, float("inf"))), result)
    return e.select(finite, result, special)


def _to_f16(e: Emitter, total: Value, special: Value) -> Value:
    finite = e.lt(e.abs(special), float("inf"))
    bits = round_half(e, e.select(finite, to_odd(e, total), special), False)
    return e.select(e.eq(bits, 0x8000), 0, bits)


# ------------------------------------------------------------------ fragments


def _row_sources(quad_lane: int) -> list[int]:
    """For each lane, the lane of its own row (g) that holds A's columns of t = quad_lane."""
    return [4 * (lane // 4) + quad_lane for lane in range(LANES)]


def _column_sources(quad_lane: int, second: int) -> list[int]:
    """For each lane, the lane that holds B's column 2t + second, rows of t = quad_lane."""
    return [4 * (2 * (lane % 4) + second) + quad_lane for lane in range(LANES)]


def _registers(e: Emitter, op: Operand, count: int) -> list[Value]:
    if op.negate or op.absolute or op.invert:
        raise Unsupported("matrix operand with a prefix")
    return e.rows(op, count)


def _spread(e: Emitter, own: list[list[list[Factor]]], sources: Callable[[int, int], list[int]]) -> list[list[Factor]]:
    """own[which][block] lists a lane's own elements of k block `block`; the result's [which] lists all of k in
    order."""
    result = []
    for which, blocks in enumerate(own):
        elements = []
        for block in blocks:
            for quad_lane in range(4):
                source = sources(quad_lane, which)
                elements += [element.permuted(e, source) for element in block]
        result.append(elements)
    return result


# What each shape's registers hold. `a`: for each row half, the registers of its k blocks; a block's register holds the
# elements of one lane, consecutive in k.
@dataclass(frozen=True, slots=True)
class Shape:
    halves: int  # rows g only, or g and g + 8
    blocks: int  # k blocks: one register of A for each half and block, one of B for each block

    @property
    def a(self) -> int:
        return self.halves * self.blocks


_HMMA = {"16816": Shape(2, 2), "1688": Shape(2, 1), "1684": Shape(2, 1)}
_TF32 = {"1688": Shape(2, 2), "1684": Shape(2, 1)}


def _mma_float(
    e: Emitter,
    i: Instruction,
    shape: Shape,
    unpack_a: Callable[[Value], list[Factor]],
    unpack_b: Callable[[Value], list[Factor]],
) -> None:
    """The common body: A, B as `unpack`ed registers; C and D FP32 or FP16."""
    d, a_op, b_op, c_op = i.operands
    half_result = i.has("F16")
    a_words = _registers(e, a_op, shape.a)
    b_words = _registers(e, b_op, shape.blocks)
    c_words = _registers(e, c_op, 2 if half_result else 4)
    own_a = [[unpack_a(a_words[shape.halves * block + half]) for block in range(shape.blocks)] for half in range(2)]
    own_b = [unpack_b(w) for w in b_words]
    a_rows = _spread(e, own_a, lambda quad_lane, _: _row_sources(quad_lane))
    b_columns = _spread(e, [own_b, own_b], _column_sources)
    if half_result:
        c_values = [widen_half(e, w >> shift, False) for w in c_words for shift in (0, 16)]
    else:
        c_values = [e.bitcast(w, F32) for w in c_words]
    least = -14 if half_result else -126
    sums = aligned_sums(e, a_rows, b_columns, [factor(e, c, least) for c in c_values])
    results = [_to_f16(e, *pair) if half_result else _to_f32(e, *pair) for pair in sums]
    if half_result:
        e.write_rows(d, [join(e, results[0], results[1]), join(e, results[2], results[3])])
        return
    words = [e.select(e.is_nan(v), e.const(I32, 0x7FFFFFFF), e.bitcast(v, I32)) for v in results]
    e.write_rows(d, words)


def _mma_pipe_latency(i: Instruction, sm: int) -> str:
    shape = next((m for m in i.modifiers if m.isdigit() or "x" in m), "")
    if i.opcode == "IMMA" and (i.has("S4") or i.has("U4")):
        # as the 8-bit shape with as many operand bits
        shape = {"8832": "8816", "16832": "16816", "16864": "16832"}[shape]
    name = f"{i.opcode.lower()}_{shape}"
    if i.opcode == "HMMA":
        return name + ("_tf32" if i.has("TF32") else "_f32" if i.has("F32") else "_f16")
    return name


@opcode(
    "HMMA",
    modifiers=(*_HMMA, "F32", "F16", "BF16", "TF32"),
    pipe=Pipe.TENSOR,
    latency=_mma_pipe_latency,
    operands=(4, 4),
)
def hmma(e: Emitter, i: Instruction) -> None:
    """FP16, BF16 or TF32 factors, FP32 or FP16 accumulation."""
    name = i.modifiers[0]
    if i.has("F32") == i.has("F16"):
        raise Unsupported(i.mnemonic)
    if i.has("TF32"):
        shape = _TF32.get(name)
        # the low 13 bits of a TF32 operand are ignored
        unpack = lambda w: [factor(e, e.bitcast(w & ~0x1FFF, F32), -126)]  # noqa: E731
    else:
        shape = _HMMA.get(name) if name != "1684" else None
        bf16 = i.has("BF16")
        least = -126 if bf16 else -14
        unpack = lambda w: [factor(e, widen_half(e, w >> shift, bf16), least, bf16) for shift in (0, 16)]  # noqa: E731
    if shape is None:
        raise Unsupported(i.mnemonic)
    _mma_float(e, i, shape, unpack, unpack)


@opcode(
    "QMMA",
    modifiers=("16832", "F32", "F16", *FORMATS),
    pipe=Pipe.TENSOR,
    latency=_mma_pipe_latency,
    operands=(4, 4),
)
def qmma(e: Emitter, i: Instruction) -> None:
    """FP8, FP6 or FP4 factors in byte containers. The alignment of their sums is taken from HMMA (not measured)."""
    types = [m for m in i.modifiers if m in FORMATS]
    if i.modifiers[0] != "16832" or len(types) != 2 or i.has("F32") == i.has("F16"):
        raise Unsupported(i.mnemonic)

    def unpacker(name: str) -> Callable[[Value], list[Factor]]:
        table = half_table(FORMATS[name])
        return lambda w: [
            factor(e, widen_half(e, e.lookup(table, (w >> shift) & 0xFF), False), -14, False)
            for shift in (0, 8, 16, 24)
        ]

    _mma_float(e, i, Shape(2, 2), unpacker(types[0]), unpacker(types[1]))


# ------------------------------------------------------------------ integers

_INTEGER_TYPES = {"S8": (8, True), "U8": (8, False), "S4": (4, True), "U4": (4, False)}
# (shape, element width): registers by row half and k block
_IMMA = {
    ("8816", 8): Shape(1, 1),
    ("16816", 8): Shape(2, 1),
    ("16832", 8): Shape(2, 2),
    ("8832", 4): Shape(1, 1),
    ("16832", 4): Shape(2, 1),
    ("16864", 4): Shape(2, 2),
}


@opcode(
    "IMMA",
    modifiers=(*sorted({name for name, _ in _IMMA}), *_INTEGER_TYPES, "SAT"),
    pipe=Pipe.TENSOR,
    latency=_mma_pipe_latency,
    operands=(4, 4),
)
def imma(e: Emitter, i: Instruction) -> None:
    """Integer factors of 8 or 4 bits, exact sums that wrap, or saturate with .SAT."""
    types = [_INTEGER_TYPES[m] for m in i.modifiers if m in _INTEGER_TYPES]
    if len(types) != 2 or types[0][0] != types[1][0]:
        raise Unsupported(i.mnemonic)
    width = types[0][0]
    shape = _IMMA.get((i.modifiers[0], width))
    if shape is None:
        raise Unsupported(i.mnemonic)
    d, a_op, b_op, c_op = i.operands
    for op in (a_op, b_op):
        if op.modifiers not in ((), ("ROW",), ("COL",)):
            raise Unsupported(f"{i.mnemonic} operand .{op.modifiers[0]}")
    if a_op.modifiers == ("COL",) or b_op.modifiers == ("ROW",):
        raise Unsupported(f"{i.mnemonic} with A by columns or B by rows")
    a_words = _registers(e, a_op, shape.a)
    b_words = _registers(e, b_op, shape.blocks)
    totals = _registers(e, c_op, 2 * shape.halves)
    sums = [e.const(I32, 0)] * len(totals)
    count = 32 // width
    for block in range(shape.blocks):
        for quad_lane in range(4):
            columns = []
            for second in range(2):
                word = e.permute(b_words[block], _column_sources(quad_lane, second))
                columns.append([field_of(e, word, n, width, types[1][1]) for n in range(count)])
            for half in range(shape.halves):
                word = e.permute(a_words[shape.halves * block + half], _row_sources(quad_lane))
                row = [field_of(e, word, n, width, types[0][1]) for n in range(count)]
                for second in range(2):
                    k = 2 * half + second
                    for x, y in zip(row, columns[second]):
                        sums[k] = sums[k] + x * y
    if i.has("SAT"):
        results = []
        for total, added in zip(totals, sums):
            exact = e.sext(total) + e.sext(added)
            results.append(e.lo32(e.max(e.min(exact, 0x7FFFFFFF), e.const(I64, -0x80000000))))
    else:
        results = [total + added for total, added in zip(totals, sums)]
    e.write_rows(d, results)


# ------------------------------------------------------------------ doubles


def _dmma_latency(i: Instruction, sm: int) -> str:
    return "dmma_884" if i.modifiers[0] in ("884", "8x8x4") else "dmma_16816"


@opcode(
    "DMMA",
    modifiers=("884", "8x8x4", "16x8x16", "16x8x8", "16x8x4"),
    pipe=Pipe.TENSOR,
    latency=_dmma_latency,
    variable=True,
    operands=(4, 4),
)
def dmma(e: Emitter, i: Instruction) -> None:
    """Double factors: fused multiply-adds in order of k."""
    d, a_op, b_op, c_op = i.operands
    halves, depth = {"884": (1, 4), "8x8x4": (1, 4)}.get(i.modifiers[0], (2, 0))
    if halves == 2:
        depth = int(i.modifiers[0].split("x")[2])
    blocks = depth // 4
    a = _doubles(e, a_op, halves * blocks)
    b = _doubles(e, b_op, blocks)
    totals = _doubles(e, c_op, 2 * halves)
    for block in range(blocks):
        for quad_lane in range(4):
            columns = [e.permute(b[block], _column_sources(quad_lane, second)) for second in range(2)]
            for half in range(halves):
                row = e.permute(a[halves * block + half], _row_sources(quad_lane))
                for second in range(2):
                    k = 2 * half + second
                    totals[k] = e.fma(row, columns[second], totals[k])
    words: list[Value] = []
    for v in totals:
        bits = e.bitcast(v, I64)
        words += [e.lo32(bits), e.hi32(bits)]
    e.write_rows(d, words)


def _doubles(e: Emitter, op: Operand, count: int) -> list[Value]:
    words = _registers(e, op, 2 * count)
    return [e.bitcast(e.pack64(words[2 * k], words[2 * k + 1]), F64) for k in range(count)]
