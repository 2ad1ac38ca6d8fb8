"""Arithmetic and data movement shared by the matrix instructions: factors, aligned sums, fragments.

The sums of the tensor cores, measured on an H200 (random operands over all exponents, no differences): the products are
exact; products and accumulator are aligned to the largest exponent, where a product's exponent is the sum of its
factors' (denormals count as the least normal exponent, zeros not at all); each is cut toward zero to 25 fraction bits
there; the exact sum is cut toward zero to FP32, or rounded to nearest even for an FP16 result. All products of one
instruction and the accumulator enter one sum. FP8 factors keep 13 fraction bits, and so does the FP32 result.
That other generations align and group alike is an assumption.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from interpreter.isa.half_ops import join, round_half, to_odd, widen_half
from interpreter.isa.minifloat import FORMATS, half_table
from interpreter.isa.value import F32, F64, I32, I64, LANES, Emitter, Value

ALIGNED_BITS = 25  # fraction bits kept below the largest exponent
ALIGNED_BITS_FP8 = 13
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
    e: Emitter, rows: list[list[Factor]], columns: list[list[Factor]], c: list[Factor], bits: int
) -> list[tuple[Value, Value]]:
    """For each accumulator, of row k // 2 and column k % 2: (sum as F64, the infinity or NaN of the sum as F32, finite
    where there is none). `rows` and `columns` list factors in order of the summed index."""
    depth = len(rows[0])
    places = [(k // 2, k % 2) for k in range(len(c))]
    largest = [value.exponent for value in c]
    for n in range(depth):
        for k, (row, column) in enumerate(places):
            largest[k] = e.max(largest[k], rows[row][n].exponent + columns[column][n].exponent)
    bases = [e.max(value, -300) - bits for value in largest]  # all zero: any scale will do
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


def _to_f32(e: Emitter, total: Value, special: Value, bits: int) -> Value:
    """Cut toward zero to F32, but an overflow is infinite, and what is cut to nothing is +0. Infinities and NaN among
    the terms count as in IEEE sums."""
    finite = e.lt(e.abs(special), float("inf"))
    if bits < 23:
        total = e.bitcast(e.bitcast(total, I64) & (-1 << (52 - bits)), F64)
    result = e.f32_of(total, "RZ") + 0.0
    far = e.ge(e.abs(total), 2.0**128)
    result = e.select(far, e.select(e.lt(total, 0.0), float("-inf"), e.const(F32, float("inf"))), result)
    return e.select(finite, result, special)


def _to_f16(e: Emitter, total: Value, special: Value) -> Value:
    finite = e.lt(e.abs(special), float("inf"))
    bits = round_half(e, e.select(finite, to_odd(e, total), special), False)
    return e.select(e.eq(bits, 0x8000), 0, bits)


def accumulate(
    e: Emitter, rows: list[list[Factor]], columns: list[list[Factor]], c_words: list[Value], half: bool, bits: int
) -> list[Value]:
    """The words of D for a 16 x 8 tile: four accumulators a lane, FP32 words or (`half`) packed FP16 pairs."""
    if half:
        values = [widen_half(e, w >> shift, False) for w in c_words for shift in (0, 16)]
        sums = aligned_sums(e, rows, columns, [factor(e, c, -14) for c in values], bits)
        halves = [_to_f16(e, *pair) for pair in sums]
        return [join(e, halves[0], halves[1]), join(e, halves[2], halves[3])]
    sums = aligned_sums(e, rows, columns, [factor(e, e.bitcast(c, F32), -126) for c in c_words], bits)
    results = [_to_f32(e, *pair, bits) for pair in sums]
    return [e.select(e.is_nan(v), e.const(I32, 0x7FFFFFFF), e.bitcast(v, I32)) for v in results]


# ------------------------------------------------------------------ what a word of a fragment holds

Unpack = Callable[[Value], list[Factor]]


def half_factors(e: Emitter, bf16: bool) -> Unpack:
    """Two halves a word."""
    least = -126 if bf16 else -14
    return lambda w: [factor(e, widen_half(e, w >> shift, bf16), least, bf16) for shift in (0, 16)]


def tf32_factors(e: Emitter) -> Unpack:
    """One TF32 number a word; its low 13 bits are ignored."""
    return lambda w: [factor(e, e.bitcast(w & ~0x1FFF, F32), -126)]


def mini_factors(e: Emitter, name: str) -> Unpack:
    """Four FP8 (or FP6, FP4) codes a word."""
    table, least = half_table(FORMATS[name]), 1 - FORMATS[name].bias

    def code(w: Value, shift: int) -> Factor:
        return factor(e, widen_half(e, e.lookup(table, (w >> shift) & 0xFF), False), least, False)

    return lambda w: [code(w, shift) for shift in (0, 8, 16, 24)]


# ------------------------------------------------------------------ fragments


def row_sources(quad_lane: int) -> list[int]:
    """For each lane, the lane of its own row (g) that holds A's columns of t = quad_lane."""
    return [4 * (lane // 4) + quad_lane for lane in range(LANES)]


def column_sources(quad_lane: int, second: int) -> list[int]:
    """For each lane, the lane that holds B's column 2t + second, rows of t = quad_lane."""
    return [4 * (2 * (lane % 4) + second) + quad_lane for lane in range(LANES)]


def spread(e: Emitter, own: list[list[list[Factor]]], sources: Callable[[int, int], list[int]]) -> list[list[Factor]]:
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
