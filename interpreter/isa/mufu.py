"""The functions of the special function unit (MUFU), FP32 in and out, to the last bit.

The unit looks up a segment by the top bits of a fixed-point argument and evaluates C0 + C1 * x + C2 * x**2 on the bits
below (Oberman and Siu, "A High-Performance Area-Efficient Multifunction Interpolator", ARITH 2005). Here x**2 comes
from a squarer that leaves out the low columns of its partial products, the sum has 40 fraction bits, and the result
is truncated to 24 significant bits. Tables, column counts and special cases were fitted to full mantissa sweeps on an
H200 and reproduce them without exception. That other generations hold the same tables is an assumption.

Denormal inputs are zeros and denormal results flush to zero (TANH keeps both).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from interpreter.isa import mufu_tables as tables
from interpreter.isa.value import F32, I32, I64, Emitter, Value

FRACTION = 40  # fraction bits of the interpolator's sum
NAN = 0x7FFFFFFF
INFINITY = 0x7F800000
SIGN = 0x80000000
HIDDEN = 0x800000
# columns of the squarer that are left out, by the width of its input
_DROPPED = {16: 17, 17: 19}


def square(e: Emitter, x: Value, width: int) -> Value:
    """x**2 >> d without the partial products below column d, for x of `width` bits (folded array, as in hardware)."""
    d = _DROPPED[width]
    full = (d + 1) // 2  # rows from here on lie above the cut
    high = x >> full
    total = (high * high) << (2 * full - d)
    for row in range(full):
        # bit `row` times the bits above it, at column 2 * row + 2
        shift = d - 1 - row
        above = x >> shift if 2 * row + 2 <= d else (x >> (row + 1)) << (2 * row + 2 - d)
        total = total + e.select(e.ne(x & (1 << row), 0), above, 0)
    return total


@cache
def _columns(name: str) -> tuple[np.ndarray, np.ndarray]:
    """(constant terms, slope and curvature in one word) of a function's segments, lengths a power of two."""
    rows: Sequence[tuple[int, int, int]] = getattr(tables, name)
    if name == "TANH":
        rows = _tanh_rows(rows)
    count = 1 << (len(rows) - 1).bit_length()
    constant, terms = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    for k, (c0, c1, c2) in enumerate(rows):
        constant[k] = (c0 << (FRACTION - 26)) + tables.BIAS[name]
        terms[k] = (c1 & 0xFFFFFFFF) | (c2 & 0xFFFFFFFF) << 32
    return constant, terms


def interpolate(e: Emitter, name: str, segment: Value, x: Value, width: int = 17) -> Value:
    """The interpolator's sum as I64 with 40 fraction bits."""
    constant, terms = _columns(name)
    pair = e.lookup(terms, segment)
    slope = e.mul_wide(e.lo32(pair), x)
    curve = e.mul_wide(e.hi32(pair), square(e, x, width))
    return e.lookup(constant, segment) + slope + curve


def _parts(e: Emitter, x: Value) -> tuple[Value, Value, Value]:
    """(bits, biased exponent, 23 mantissa bits)."""
    bits = e.bitcast(x, I32)
    return bits, (bits >> 23) & 0xFF, bits & 0x7FFFFF


def _top(e: Emitter, total: Value, fraction: int) -> Value:
    """The sum truncated to `fraction` fraction bits, as I32."""
    return e.lo32(total >> (FRACTION - fraction))


def _flushed(e: Emitter, bits: Value) -> Value:
    """Result bits, 0 when they fell below the normal numbers (as signed integers)."""
    return e.select(e.lt(bits, HIDDEN), 0, bits)


def _float(e: Emitter, bits: Value) -> Value:
    return e.bitcast(bits, F32)


def _normalised(e: Emitter, total: Value, exponent: Value | int = 0) -> Value:
    """F32 bits of total * 2**(exponent - 40), truncated to 24 bits; 0 for 0. total is not negative."""
    leading = e.clz(total)
    mantissa = e.lo32((total << leading) >> 40)
    power = e.const(I32, 63 - FRACTION + 127 - 1) - e.lo32(leading) + exponent
    return e.select(e.eq(total, 0), 0, (power << 23) + mantissa)


def rcp(e: Emitter, x: Value) -> Value:
    """1 / x."""
    bits, exponent, mantissa = _parts(e, x)
    total = interpolate(e, "RCP", mantissa >> 16, mantissa & 0xFFFF, 16)
    result = _flushed(e, ((e.const(I32, 253) - exponent) << 23) + _top(e, total, 24) - HIDDEN)
    result = e.select(e.eq(exponent, 255), 0, result)
    result = e.select(e.eq(exponent, 0), INFINITY, result)
    return e.select(e.is_nan(x), _float(e, e.const(I32, NAN)), _float(e, result | (bits & SIGN)))


def _root(e: Emitter, x: Value, name: str) -> tuple[Value, Value, Value]:
    """(half the exponent, the interpolator's sum, whether x is an even power of two) for RSQ and SQRT."""
    _, exponent, mantissa = _parts(e, x)
    odd = (exponent + 1) & 1  # the exponent without its bias is odd
    total = interpolate(e, name, (odd << 6) | (mantissa >> 17), mantissa & 0x1FFFF)
    return e.ashr(exponent - 127, 1), total, e.eq(mantissa | odd, 0)


def _root_special(e: Emitter, x: Value, result: Value, at_infinity: int, at_zero: int) -> Value:
    """NaN below zero and for NaN; zeros give a signed value."""
    bits, exponent, _ = _parts(e, x)
    result = e.select(e.eq(bits, INFINITY), at_infinity, result)
    nan = e.is_nan(x) | (e.lt(bits, 0) & e.ne(exponent, 0))
    result = e.select(nan, NAN, result)
    return _float(e, e.select(e.eq(exponent, 0), (bits & SIGN) | at_zero, result))


def rsq(e: Emitter, x: Value) -> Value:
    """1 / sqrt(x); an infinity of x's sign at zero, NaN below."""
    half, total, exact = _root(e, x, "RSQ")
    top = e.select(exact, 2 * HIDDEN, _top(e, total, 24))
    return _root_special(e, x, ((e.const(I32, 126) - half) << 23) + top - HIDDEN, 0, INFINITY)


def sqrt(e: Emitter, x: Value) -> Value:
    """sqrt(x)."""
    half, total, exact = _root(e, x, "SQRT")
    top = e.select(exact, HIDDEN, _top(e, total, 23))
    return _root_special(e, x, ((half + 127) << 23) + top - HIDDEN, INFINITY, 0)


def ex2(e: Emitter, x: Value) -> Value:
    """2**x, from x truncated to 23 fraction bits (complemented, not negated, below zero unless integral)."""
    bits, exponent, mantissa = _parts(e, x)
    whole = mantissa | HIDDEN
    up = exponent - 127
    fixed = e.select(e.lt(up, 0), whole >> (e.const(I32, 127) - exponent), whole << up)
    fixed = e.select(e.eq(exponent, 0), 0, fixed)
    below = e.select(e.eq(fixed & 0x7FFFFF, 0), e.neg(fixed), ~fixed)
    fixed = e.select(e.lt(bits, 0), below, fixed)
    total = interpolate(e, "EX2", (fixed >> 17) & 63, fixed & 0x1FFFF)
    result = _flushed(e, ((e.ashr(fixed, 23) + 127) << 23) + _top(e, total, 23) - HIDDEN)
    far = e.ge(exponent, 134)  # |x| >= 128
    result = e.select(far, e.select(e.lt(bits, 0), 0, e.const(I32, INFINITY)), result)
    return _float(e, e.select(e.is_nan(x), NAN, result))


def lg2(e: Emitter, x: Value) -> Value:
    """log2(x): exponent plus interpolated fraction, cut to 36 fraction bits; below zero its complement is the
    magnitude."""
    bits, exponent, mantissa = _parts(e, x)
    fraction = interpolate(e, "LG2", mantissa >> 17, mantissa & 0x1FFFF) & ~15
    total = (e.sext(exponent - 127) << FRACTION) + fraction
    total = e.select(e.eq(bits, 0x3F800000), 0, total)
    negative = e.lt(total, 0)
    magnitude = e.select(negative, ~total & ~15, total)
    result = _normalised(e, magnitude) | e.select(negative, e.const(I32, SIGN), 0)
    result = e.select(e.eq(bits, INFINITY), INFINITY, result)
    result = e.select(e.is_nan(x) | e.lt(bits, 0), NAN, result)
    return _float(e, e.select(e.eq(exponent, 0), INFINITY | SIGN, result))


def _turn(e: Emitter, x: Value, cosine: bool) -> Value:
    """sin or cos of x turns: 25 fraction bits, of which two pick the quadrant; odd quadrants run backwards
    (complement)."""
    bits, exponent, mantissa = _parts(e, x)
    whole = e.select(e.eq(exponent, 0), 0, mantissa | HIDDEN)
    up = exponent - 125
    fixed = e.select(e.lt(up, 0), whole >> (e.const(I32, 125) - exponent), whole << up)
    quadrant = (fixed >> 23) + int(cosine)
    fraction = fixed & 0x7FFFFF
    odd = e.ne(quadrant & 1, 0)
    position = e.select(odd, fraction ^ 0x7FFFFF, fraction)
    total = interpolate(e, "SIN", position >> 17, position & 0x1FFFF)
    edge = e.eq(fraction, 0)
    total = e.select(edge, e.select(odd, e.const(I64, 1 << FRACTION), 0), total)
    sign = ((quadrant & 2) << 30) ^ (e.const(I32, 0) if cosine else bits & SIGN)
    result = e.select(e.eq(exponent, 255), NAN, _normalised(e, total) | sign)
    return _float(e, result)


def sin(e: Emitter, x: Value) -> Value:
    """sin(2 pi x): compiled code scales radians first."""
    return _turn(e, x, False)


def cos(e: Emitter, x: Value) -> Value:
    """cos(2 pi x)."""
    return _turn(e, x, True)


# Segments of each binade of TANH, from 2**-8 up: 2**bits of them.
_TANH_BITS = (0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3)
_TANH_FIRST = 127 - 8


def _tanh_rows(rows: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Segments spread to sixteen a binade."""
    spread: list[tuple[int, int, int]] = []
    start = 0
    for bits in _TANH_BITS:
        spread += [rows[start + (k >> (4 - bits))] for k in range(16)]
        start += 1 << bits
    return spread


def tanh(e: Emitter, x: Value) -> Value:
    """tanh(x): x itself below 2**-8, 1 from 8 on, between them segments within each binade, 17 bits below them."""
    bits, exponent, mantissa = _parts(e, x)
    binade = exponent - _TANH_FIRST
    depth = e.lookup(np.array([*_TANH_BITS, 0, 0, 0, 0, 0], np.uint32), binade)
    position = (mantissa & ((e.const(I32, HIDDEN) >> depth) - 1)) >> (e.const(I32, 6) - depth)
    total = interpolate(e, "TANH", (binade << 4) + (mantissa >> 19), position)
    result = _normalised(e, total, exponent - 127)
    result = e.select(e.ge(exponent, 130), 0x3F800000, result) | (bits & SIGN)
    result = e.select(e.lt(exponent, _TANH_FIRST), bits, result)
    return _float(e, e.select(e.is_nan(x), NAN, result))


FUNCTIONS: dict[str, Callable[[Emitter, Value], Value]] = {
    "EX2": ex2,
    "LG2": lg2,
    "RCP": rcp,
    "RSQ": rsq,
    "SQRT": sqrt,
    "SIN": sin,
    "COS": cos,
    "TANH": tanh,
}

# ------------------------------------------------------------------ high words of doubles

_HIGH_HIDDEN = 1 << 20
_HIGH_INFINITY = 0x7FF00000


def _high_parts(e: Emitter, high: Value) -> tuple[Value, Value, Value]:
    """(biased exponent, mantissa as 23 bits, NaN mask) of a double's high word."""
    exponent = (high >> 20) & 0x7FF
    mantissa = (high & 0xFFFFF) << 3
    return exponent, mantissa, e.gt(high & 0x7FFFFFFF, _HIGH_INFINITY)


def _high_flushed(e: Emitter, bits: Value) -> Value:
    return e.select(e.lt(bits, _HIGH_HIDDEN), 0, bits)


def rcp64h(e: Emitter, high: Value) -> Value:
    """High word of the reciprocal of the double with this high word, 20 mantissa bits, truncated."""
    exponent, mantissa, nan = _high_parts(e, high)
    total = interpolate(e, "RCP", mantissa >> 16, mantissa & 0xFFFF, 16)
    result = _high_flushed(e, ((e.const(I32, 2045) - exponent) << 20) + _top(e, total, 21) - _HIGH_HIDDEN)
    result = e.select(e.eq(exponent, 0x7FF), 0, result)
    result = e.select(e.eq(exponent, 0), _HIGH_INFINITY, result)
    return e.select(nan, NAN, result | (high & SIGN))


def rsq64h(e: Emitter, high: Value) -> Value:
    """High word of the reciprocal square root of the double with this high word."""
    exponent, mantissa, nan = _high_parts(e, high)
    odd = (exponent + 1) & 1
    total = interpolate(e, "RSQ", (odd << 6) | (mantissa >> 17), mantissa & 0x1FFFF)
    top = e.select(e.eq(mantissa | odd, 0), 2 * _HIGH_HIDDEN, _top(e, total, 21))
    result = ((e.const(I32, 1022) - e.ashr(exponent - 1023, 1)) << 20) + top - _HIGH_HIDDEN
    result = e.select(e.eq(high, _HIGH_INFINITY), 0, result)
    result = e.select(nan | (e.lt(high, 0) & e.ne(exponent, 0)), NAN, result)
    return e.select(e.eq(exponent, 0), (high & SIGN) | _HIGH_INFINITY, result)


__all__ = ["FUNCTIONS", "rcp64h", "rsq64h"]
