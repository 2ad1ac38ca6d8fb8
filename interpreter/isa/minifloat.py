"""Narrow float formats: FP8 (E4M3, E5M2), FP6 (E2M3, E3M2), FP4 (E2M1) and the scale format E8M0.

Layouts: OCP "8-bit Floating Point Specification" and "Microscaling Formats (MX)" specification; conversions: PTX ISA,
cvt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from interpreter.isa.value import F32, I32, Emitter, Value


@dataclass(frozen=True, slots=True)
class Mini:
    """A format of `1 + exponent + mantissa` bits. `largest` is the code of the largest finite magnitude; `nan` the code
    of NaN (None: the format has none); `infinity` whether the format has infinities."""

    name: str
    exponent: int
    mantissa: int
    largest: int
    nan: int | None
    infinity: bool = False

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa


FORMATS = {
    "E4M3": Mini("E4M3", 4, 3, 0x7E, 0x7F),
    "E5M2": Mini("E5M2", 5, 2, 0x7B, 0x7F, infinity=True),
    "E2M3": Mini("E2M3", 2, 3, 0x1F, None),
    "E3M2": Mini("E3M2", 3, 2, 0x1F, None),
    "E2M1": Mini("E2M1", 2, 1, 0x7, None),
}


def decode(code: int, f: Mini) -> float:
    """Value of a code; NaN and infinities included."""
    magnitude = code & ((1 << (f.bits - 1)) - 1)
    sign = -1.0 if code >> (f.bits - 1) & 1 else 1.0
    exponent, mantissa = magnitude >> f.mantissa, magnitude & ((1 << f.mantissa) - 1)
    if f.infinity and exponent == (1 << f.exponent) - 1:
        return float("nan") if mantissa else sign * float("inf")
    if f.nan is not None and not f.infinity and magnitude == f.nan:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - f.bias - f.mantissa)
    return float(sign * (1 + mantissa / (1 << f.mantissa)) * 2.0 ** (exponent - f.bias))


def half_table(f: Mini) -> np.ndarray:
    """uint32[256]: the FP16 bits of each code (codes above the format's width repeat), NaN as 0x7fff."""
    values = np.array([decode(code & ((1 << f.bits) - 1), f) for code in range(256)], dtype=np.float64)
    table = values.astype(np.float16).view(np.uint16).astype(np.uint32)
    table[np.isnan(values)] = 0x7FFF
    return table


def encode(e: Emitter, v: Value, f: Mini) -> Value:
    """F32 to the format's code in the low bits of an I32, nearest even, saturating to the largest finite value.

    NaN gives the format's NaN, or the largest finite value where it has none.
    """
    bits = e.bitcast(v, I32)
    sign = e.lshr(bits, 31) << (f.bits - 1)
    magnitude = bits & 0x7FFFFFFF
    shift = 23 - f.mantissa
    rounded = magnitude + ((1 << (shift - 1)) - 1) + (e.lshr(magnitude, shift) & 1)
    normal = e.lshr(rounded, shift) - ((127 - f.bias) << f.mantissa)
    # below the normal range the spacing is fixed: round |v| to a multiple of it
    step = e.round_integral(e.bitcast(magnitude, F32) * 2.0 ** (f.bias - 1 + f.mantissa))
    denormal = e.float_to_int(step)
    code = e.select(e.lt(magnitude, (127 + 1 - f.bias) << 23), denormal, normal)
    code = e.select(e.gt(code, f.largest), f.largest, code)
    if f.nan is None:
        return e.select(e.is_nan(v), f.largest, code | sign)
    return e.select(e.is_nan(v), f.nan, code | sign)


def encode_scale(e: Emitter, v: Value, rounding: str) -> Value:
    """F32 to E8M0 (a power of two, biased by 127): RP rounds up, RZ down; negative and NaN inputs give NaN (0xff)."""
    bits = e.bitcast(v, I32)
    exponent = e.lshr(bits, 23) & 0xFF
    mantissa = bits & 0x7FFFFF
    if rounding == "RP":
        # a denormal above 2**-127 rounds up to exponent 1; at or below it to 0
        up = e.select(e.eq(exponent, 0), e.zext(e.gt(mantissa, 0x400000), I32), e.zext(e.ne(mantissa, 0), I32))
        exponent = exponent + up
    exponent = e.min(exponent, 254)
    return e.select(e.is_nan(v) | e.lt(v, 0.0), 0xFF, exponent)


__all__ = ["FORMATS", "Mini", "decode", "encode", "encode_scale", "half_table"]
