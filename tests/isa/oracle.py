"""Reference arithmetic for the opcode tests, written from the definitions with exact fractions and Python integers."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def s32(x: int) -> int:
    return (x & M32) - ((x & 0x80000000) << 1)


def s64(x: int) -> int:
    return (x & M64) - ((x >> 63 & 1) << 64)


def signed(x: int, bits: int) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


class Format:
    """An IEEE binary format: `bits` in all, `mantissa` explicit ones. `nan` is the code of a NaN result."""

    def __init__(self, bits: int, mantissa: int, nan: int) -> None:
        self.bits, self.mantissa, self.nan = bits, mantissa, nan
        self.exponent = bits - 1 - mantissa
        self.bias = (1 << (self.exponent - 1)) - 1
        self.infinity = ((1 << self.exponent) - 1) << mantissa
        self.sign = 1 << (bits - 1)
        self.least = 1 - self.bias - mantissa  # exponent of the smallest denormal

    def is_nan(self, x: int) -> bool:
        return x & ~self.sign > self.infinity

    def is_inf(self, x: int) -> bool:
        return x & ~self.sign == self.infinity

    def value(self, x: int) -> Fraction:
        """Of a finite code."""
        e, m = (x & ~self.sign) >> self.mantissa, x & ((1 << self.mantissa) - 1)
        whole = m if e == 0 else m | 1 << self.mantissa
        v = Fraction(whole) * Fraction(2) ** (self.least + max(e, 1) - 1)
        return -v if x & self.sign else v

    def round(self, v: Fraction, mode: str = "RN", negative_zero: bool = False) -> int:
        """Nearest even (RN), down (RM), up (RP) or toward zero (RZ); `negative_zero` is the sign of an exact zero."""
        if v == 0:
            return self.sign if negative_zero else 0
        sign, v = (self.sign, -v) if v < 0 else (0, v)
        e = v.numerator.bit_length() - v.denominator.bit_length()
        if Fraction(2) ** e > v:
            e -= 1
        unit = max(e - self.mantissa, self.least)
        scaled = v / Fraction(2) ** unit
        whole, rest = divmod(scaled, 1)
        up = {
            "RN": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and int(whole) & 1),
            "RZ": False,
            "RM": bool(sign) and rest > 0,
            "RP": not sign and rest > 0,
        }[mode]
        code = (int(whole) + int(up)) + ((unit - self.least) << self.mantissa if unit > self.least else 0)
        if code >= self.infinity:
            away = mode == "RN" or (mode == "RM" and sign) or (mode == "RP" and not sign)
            code = self.infinity if away else self.infinity - 1
        return sign | code

    def flush(self, x: int) -> int:
        return x & self.sign if x & self.infinity == 0 else x

    def add(self, a: int, b: int, mode: str = "RN") -> int:
        return self.fma(a, self.round(Fraction(1)), b, mode)

    def mul(self, a: int, b: int, mode: str = "RN") -> int:
        if self.is_nan(a) or self.is_nan(b):
            return self.nan
        sign = (a ^ b) & self.sign
        if self.is_inf(a) or self.is_inf(b):
            return self.nan if not a & ~self.sign or not b & ~self.sign else sign | self.infinity
        return self.round(self.value(a) * self.value(b), mode, bool(sign))

    def fma(self, a: int, b: int, c: int, mode: str = "RN") -> int:
        if self.is_nan(a) or self.is_nan(b) or self.is_nan(c):
            return self.nan
        sign = (a ^ b) & self.sign
        if self.is_inf(a) or self.is_inf(b):
            if not a & ~self.sign or not b & ~self.sign or (self.is_inf(c) and (c & self.sign) != sign):
                return self.nan
            return sign | self.infinity
        if self.is_inf(c):
            return c
        exact = self.value(a) * self.value(b) + self.value(c)
        if exact == 0:
            both_zero = not (a & ~self.sign and b & ~self.sign) and not c & ~self.sign
            negative = (sign and c & self.sign) if both_zero or mode != "RM" else True
            if both_zero and mode == "RM":
                negative = sign or c & self.sign
            return self.sign if negative else 0
        return self.round(exact, mode)

    def less(self, a: int, b: int) -> bool:
        """a < b for numbers, infinities included, -0 == +0."""
        return self.key(a) < self.key(b)

    def key(self, x: int) -> int:
        magnitude = x & ~self.sign
        return -magnitude if x & self.sign else magnitude

    def minmax(self, a: int, b: int, smaller: bool, propagate: bool = False) -> int:
        if self.is_nan(a) or self.is_nan(b):
            if propagate or (self.is_nan(a) and self.is_nan(b)):
                return self.nan
            return b if self.is_nan(a) else a
        first = self.key(a) < self.key(b) or (self.key(a) == self.key(b) and bool(a & self.sign))
        return a if first == smaller else b

    def compare(self, name: str, a: int, b: int) -> bool:
        if name in ("T", "F"):
            return name == "T"
        unordered = self.is_nan(a) or self.is_nan(b)
        if name in ("NUM", "NAN"):
            return unordered == (name == "NAN")
        if unordered:
            return name.endswith("U")
        x, y = self.key(a), self.key(b)
        return {"LT": x < y, "EQ": x == y, "LE": x <= y, "GT": x > y, "NE": x != y, "GE": x >= y}[name[:2]]

    def convert(self, x: int, to: Format, mode: str = "RN") -> int:
        """To another format; NaN becomes its NaN."""
        if self.is_nan(x):
            return to.nan
        if self.is_inf(x):
            return to.infinity | (to.sign if x & self.sign else 0)
        return to.round(self.value(x), mode, bool(x & self.sign))

    def to_int(self, x: int, bits: int, is_signed: bool, mode: str) -> int:
        """Rounded and saturated, as a pattern of `bits`; NaN gives 0."""
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
        if self.is_nan(x):
            return 0
        if self.is_inf(x):
            return (low if x & self.sign else high) & ((1 << bits) - 1)
        return min(max(integral(self.value(x), mode), low), high) & ((1 << bits) - 1)


def integral(v: Fraction, mode: str) -> int:
    """Nearest even, floor (RM), ceil (RP) or truncation (RZ)."""
    floor = v.numerator // v.denominator
    rest = v - floor
    if mode == "RM":
        return floor
    if mode == "RP":
        return floor + (rest > 0)
    if mode == "RZ":
        return floor + (rest > 0 and v < 0)
    return floor + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor & 1))


F32 = Format(32, 23, 0x7FFFFFFF)
F64 = Format(64, 52, 0xFFF8000000000000)
F16 = Format(16, 10, 0x7FFF)
BF16 = Format(16, 7, 0x7FFF)

# ------------------------------------------------------------------ strategies

INTS = [
    0,
    1,
    2,
    3,
    31,
    32,
    33,
    63,
    64,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFE,
    M32,
]
FLOATS = [
    0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x807FFFFF, 0x800000, 0x80800000, 0x3F800000, 0xBF800000,
    0x3F800001, 0x3F7FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001,
    0x4B000000, 0x4F000000, 0xCF000000, 0x3F000000, 0xBF000000, 0x3FC00000, 0x40200000, 0x34000000, 0x477FE000,
    0x477FF000, 0x33800000, 0x38800000,
]  # fmt: skip
HALVES = [
    0,
    0x8000,
    1,
    0x8001,
    0x3FF,
    0x400,
    0x8400,
    0x3C00,
    0xBC00,
    0x3C01,
    0x7BFF,
    0xFBFF,
    0x7C00,
    0xFC00,
    0x7E00,
    0x7C01,
    0x7F80,
    0x7F7F,
]
DOUBLES = [
    0, 1 << 63, 1, (1 << 63) | 1, 0xFFFFFFFFFFFFF, 1 << 52, 0x3FF0000000000000, 0xBFF0000000000000,
    0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0x41DFFFFFFFC00000,
    0xC1E0000000000000, 0x43E0000000000000, 0x3FE0000000000000, 0x36A0000000000000, 0x47EFFFFFE0000000,
    0x47EFFFFFF0000000, 0x4330000000000001,
]  # fmt: skip

word = st.one_of(st.sampled_from(INTS), st.integers(0, M32), st.integers(0, M32).map(lambda x: x >> (x & 31)))
long_word = st.one_of(
    st.sampled_from([0, 1, M32, 1 << 32, 1 << 63, (1 << 63) - 1, M64]),
    st.integers(0, M64),
    st.integers(0, M64).map(lambda x: x >> (x & 63)),
)
float_word = st.one_of(
    st.sampled_from(FLOATS),
    st.integers(0, M32),
    st.floats(-(2.0**12), 2.0**12, width=32).map(lambda x: struct.unpack("<I", struct.pack("<f", x))[0]),
    st.builds(
        lambda s, e, m: s << 31 | e << 23 | m, st.integers(0, 1), st.integers(110, 145), st.integers(0, 0x7FFFFF)
    ),
)
half = st.one_of(st.sampled_from(HALVES), st.integers(0, 0xFFFF), st.integers(0x2C00, 0x5000))
half_pair = st.builds(lambda a, b: a | b << 16, half, half)
double_word = st.one_of(
    st.sampled_from(DOUBLES),
    st.integers(0, M64).filter(lambda x: not F64.is_nan(x)),
    st.builds(
        lambda s, e, m: s << 63 | e << 52 | m, st.integers(0, 1), st.integers(990, 1060), st.integers(0, (1 << 52) - 1)
    ),
)

LANES = 32


def columns(strategy: st.SearchStrategy[int], count: int) -> st.SearchStrategy[list[list[int]]]:
    """`count` operands of 32 elements each."""
    return st.lists(st.lists(strategy, min_size=LANES, max_size=LANES), min_size=count, max_size=count)


def as_words(column: list[int]) -> np.ndarray:
    return np.array(column, np.uint64).astype(np.uint32)
