"""The functions of the special function unit, one a MUFU operation, FP32 in and out.

Computed in double precision and rounded once to nearest even, which is within the errors NVIDIA documents for each
(CUDA C++ Programming Guide, "Intrinsic Functions") but not always the last bit of the hardware's table interpolation.
Denormal inputs and results are flushed to zero of the same sign: compilers wrap MUFU in scaling code for that reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from interpreter.isa.value import F32, F64, I32, I64, Emitter, Value


def _polynomial(e: Emitter, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule, highest power first in evaluation; `coefficients` from the constant up."""
    result = e.const(F64, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = e.fma(result, x, e.const(F64, c))
    return result


def _power_of_two(e: Emitter, n: Value) -> Value:
    """2**n as F64 for integral F64 n, clamped to the normal range."""
    k = e.float_to_int(e.max(e.min(n, 1023.0), -1022.0), I32)
    return e.bitcast(e.shl(e.sext(k + 1023), 52), F64)


def _exp2(e: Emitter, x: Value) -> Value:
    """2**x for F64 x."""
    x = e.max(e.min(x, 1000.0), -1000.0)
    n = e.round_integral(x)
    return _polynomial(e, x - n, [math.log(2.0) ** k / math.factorial(k) for k in range(13)]) * _power_of_two(e, n)


def ex2(e: Emitter, x: Value) -> Value:
    return e.select(e.is_nan(x), x, e.f32_of(_exp2(e, e.widen(x))))


def lg2(e: Emitter, x: Value) -> Value:
    """log2; -inf at zero, NaN below."""
    bits = e.bitcast(x, I32)
    # m in [sqrt(1/2), sqrt(2)): subtract the exponent that leaves it there
    shifted = bits - 0x3F3504F3
    n = e.ashr(shifted, 23)
    m = e.widen(e.bitcast(bits - e.shl(n, 23), F32))
    s = e.div(m - 1.0, m + 1.0)
    series = _polynomial(e, s * s, [2.0 / math.log(2.0) / (2 * k + 1) for k in range(10)]) * s
    result = e.f32_of(series + e.int_to_float(n, F64))
    infinite = e.eq(x, float("inf"))
    result = e.select(infinite, x, result)
    result = e.select(e.eq(x, 0.0), float("-inf"), result)
    return e.select(e.lt(x, 0.0) | e.is_nan(x), float("nan"), result)


def rcp(e: Emitter, x: Value) -> Value:
    return e.f32_of(e.div(1.0, e.widen(x)))


def rsq(e: Emitter, x: Value) -> Value:
    """1 / sqrt(x); +-0 gives an infinity of its sign, negative numbers NaN."""
    wide = e.widen(x)
    result = e.f32_of(e.div(1.0, e.sqrt(wide)))
    return e.select(e.lt(x, 0.0), float("nan"), result)


def sqrt(e: Emitter, x: Value) -> Value:
    return e.f32_of(e.sqrt(e.widen(x)))


def _turn(e: Emitter, x: Value, quarter: int) -> Value:
    """sin(2 pi x + quarter * pi / 2) for F32 x in turns."""
    four = e.widen(x) * 4.0
    q = e.round_integral(four)
    r = (four - q) * (math.pi / 2)
    square = r * r
    sine = _polynomial(e, square, [(-1) ** k / math.factorial(2 * k + 1) for k in range(10)]) * r
    cosine = _polynomial(e, square, [(-1) ** k / math.factorial(2 * k) for k in range(10)])
    # numbers of 2**24 and more are whole turns, so only the low bits of q count
    whole = e.gt(e.abs(four), 2.0**60)
    n = e.lo32(e.float_to_int(e.select(whole, 0.0, q), I64)) + quarter
    v = e.select(e.ne(n & 1, 0), cosine, sine)
    v = e.select(e.ne(n & 2, 0), -v, v)
    v = e.select(whole, float(quarter == 1), v)
    result = e.f32_of(v)
    return e.select(e.lt(e.abs(x), float("inf")), result, float("nan"))


def sin(e: Emitter, x: Value) -> Value:
    """sin of x turns (the code multiplies radians by 1 / (2 pi) first)."""
    return _turn(e, x, 0)


def cos(e: Emitter, x: Value) -> Value:
    return _turn(e, x, 1)


def tanh(e: Emitter, x: Value) -> Value:
    a = e.abs(e.widen(x))
    t = _exp2(e, a * (-2.0 / math.log(2.0)))
    v = e.f32_of(e.div(1.0 - t, 1.0 + t))
    signed = e.bitcast(e.bitcast(v, I32) | (e.bitcast(x, I32) & 0x80000000), F32)
    small = e.lt(e.abs(x), 2.0**-12)
    return e.select(small | e.is_nan(x), x, signed)


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


def _high(e: Emitter, high: Value) -> Value:
    """Double whose high word is given and low word zero, denormals flushed."""
    tiny = e.eq(high & 0x7FF00000, 0)
    high = e.select(tiny, high & 0x80000000, high)
    return e.bitcast(e.pack64(e.const(I32, 0), high), F64)


def _high_of(e: Emitter, v: Value) -> Value:
    """High word of a double: 20 explicit mantissa bits, truncated."""
    bits = e.hi32(e.bitcast(v, I64))
    bits = e.select(e.eq(bits & 0x7FF00000, 0), bits & 0x80000000, bits)
    return e.select(e.is_nan(v), 0x7FFFFFFF, bits)


def rcp64h(e: Emitter, high: Value) -> Value:
    """High word of the reciprocal of a double given by its high word."""
    return _high_of(e, e.div(1.0, _high(e, high)))


def rsq64h(e: Emitter, high: Value) -> Value:
    """High word of the reciprocal square root of a double given by its high word."""
    x = _high(e, high)
    return _high_of(e, e.select(e.lt(x, 0.0), float("nan"), e.div(1.0, e.sqrt(x))))
