"""Conversions against exact fractions, and narrow formats against a search over their values."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from check import check
from hypothesis import strategies as st
from oracle import BF16, F16, F32, F64, M32, Format, double_word, float_word, half, half_pair, long_word, signed, word

FORMATS = {"F32": F32, "F64": F64, "F16": F16, "BF16": BF16}
# numbers near integers and near the ends of the integer types
edge = st.builds(
    lambda s, e, m: s << 31 | e << 23 | m,
    st.integers(0, 1),
    st.integers(126, 160),
    st.sampled_from([0, 1, 0x400000, 0x7FFFFF]),
)
double_edge = st.builds(
    lambda s, e, m: s << 63 | e << 52 | m,
    st.integers(0, 1),
    st.integers(1022, 1088),
    st.sampled_from([0, 1, 1 << 51, (1 << 52) - 1]),
)
STRATEGIES = {
    "f": st.one_of(float_word, edge),
    "h": half,
    "p": half_pair,
    "D": st.one_of(double_word, double_edge, st.just(0x7FF8000000001234)),
    "w": word,
    "W": long_word,
}
LETTER = {"F32": "f", "F64": "D", "F16": "h", "BF16": "h"}
WAYS = {"": "RN", ".FLOOR": "RM", ".CEIL": "RP", ".TRUNC": "RZ"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("to", ["", "U32", "S64", "U64", "S16", "U8"])
def test_float_to_int(way: str, source: str, to: str) -> None:
    bits, is_signed = int(to[1:]) if to else 32, not to.startswith("U")
    f = FORMATS[source]
    name = "F2I" + (f".{to}" if to else "") + ("" if source == "F32" else f".{source}") + way

    def expected(x: int) -> int:
        whole = f.to_int(x, bits, is_signed, WAYS[way])
        return signed(whole, bits) & M32 if is_signed and bits < 32 else whole

    outputs = ("R0:64",) if bits == 64 else ("R0",)
    check(f"{name}.NTZ R0, R4", LETTER[source], expected, STRATEGIES, outputs)
    least = 1 << (max(bits, 32) - 1)
    check(f"{name} R0, R4", LETTER[source], lambda x: least if f.is_nan(x) else expected(x), STRATEGIES, outputs)


def test_float_to_int_flushes() -> None:
    check("F2I.FTZ.CEIL.NTZ R0, R4", "f", lambda x: F32.to_int(F32.flush(x), 32, True, "RP"), STRATEGIES)


ROUNDINGS = ["", ".RM", ".RP", ".RZ"]


@pytest.mark.parametrize("mode", ROUNDINGS)
@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("source", ["", "U32", "S64", "U64"])
def test_int_to_float(mode: str, to: str, source: str) -> None:
    bits, is_signed = int(source[1:]) if source else 32, not source.startswith("U")
    name = "I2F" + ("" if to == "F32" else f".{to}") + (f".{source}" if source else "") + mode
    check(
        f"{name} R0, R4",
        "W" if bits == 64 else "w",
        lambda x: FORMATS[to].round(Fraction(signed(x, bits) if is_signed else x), mode[1:] or "RN"),
        STRATEGIES,
        ("R0:64",) if to == "F64" else ("R0",),
    )


def test_narrow_int_to_float() -> None:
    check("I2F.U8 R0, R4.B2", "w", lambda x: F32.round(Fraction(x >> 16 & 0xFF)), STRATEGIES)
    check("I2F.S8 R0, R4", "w", lambda x: F32.round(Fraction(signed(x, 8))), STRATEGIES)
    check("I2F.S16 R0, R4.H1", "w", lambda x: F32.round(Fraction(signed(x >> 16, 16))), STRATEGIES)
    check("I2F.BF16.S16 R0, R4.H1", "w", lambda x: BF16.round(Fraction(signed(x >> 16, 16))), STRATEGIES)
    check("I2FP.F32.S32 R0, R4", "w", lambda x: F32.round(Fraction(signed(x, 32))), STRATEGIES)
    check("I2FP.F32.U32.RZ R0, R4", "w", lambda x: F32.round(Fraction(x), "RZ"), STRATEGIES)


@pytest.mark.parametrize("mode", ROUNDINGS)
def test_float_to_float(mode: str) -> None:
    m = mode[1:] or "RN"

    def from_double(to: Format, x: int) -> int:
        if not F64.is_nan(x):
            return F64.convert(x, to, m)
        # a NaN keeps its sign and the top of its payload
        top = (x | 1 << 51) & ((1 << 52) - 1)
        return to.sign * (x >> 63) | to.infinity | top >> (52 - to.mantissa)

    check(f"F2F.F32.F64{mode} R0, R4", "D", lambda x: from_double(F32, x), STRATEGIES)
    check(f"F2F.F16.F32{mode} R0, R4", "f", lambda x: F32.convert(x, F16, m), STRATEGIES)
    check(f"F2F.BF16.F32{mode} R0, R4", "f", lambda x: F32.convert(x, BF16, m), STRATEGIES)
    check(f"F2F.F16.F64{mode} R0, R4", "D", lambda x: from_double(F16, x), STRATEGIES)


def test_widening() -> None:
    check(
        "F2F.F64.F32 R0, |R4|",
        "f",
        lambda x: F32.convert(x & 0x7FFFFFFF, F64),
        {"f": STRATEGIES["f"].filter(lambda x: not F32.is_nan(x))},
        ("R0:64",),
    )
    check("F2F.F32.F16 R0, R4.H1", "p", lambda x: F16.convert(x >> 16, F32), STRATEGIES)
    check("F2F.BF16.F16 R0, R4", "h", lambda x: F16.convert(x, BF16), STRATEGIES)


@pytest.mark.parametrize("way", WAYS)
def test_round_to_integral(way: str) -> None:
    from oracle import integral

    def rounded(f: Format, x: int) -> int:
        if f.is_nan(x) or f.is_inf(x):
            return f.nan if f.is_nan(x) else x
        return f.round(Fraction(integral(f.value(x), WAYS[way])), "RN", bool(x & f.sign))

    check(f"FRND{way} R0, R4", "f", lambda x: rounded(F32, x), STRATEGIES)
    check(f"FRND.FTZ{way} R0, R4", "f", lambda x: rounded(F32, F32.flush(x)), STRATEGIES)
    check(f"FRND.F16{way} R0, R4", "h", lambda x: rounded(F16, x), STRATEGIES)
    check(f"FRND.BF16{way} R0, R4", "h", lambda x: rounded(BF16, x), STRATEGIES)
    doubles = {"D": st.one_of(double_word, double_edge)}
    check(f"FRND.F64{way} R0, R4", "D", lambda x: rounded(F64, x), doubles, ("R0:64",))


def pair(f: Callable[[int], int]) -> Callable[[int, int], int]:
    """The second source is the low half."""
    return lambda a, b: f(a) << 16 | f(b)


def test_packing() -> None:
    def relu(x: int) -> int:
        return x if F32.is_nan(x) or not x >> 31 else 0

    for to, f in (("F16", F16), ("BF16", BF16)):
        for mode in ("RN", "RZ"):
            suffix = "" if mode == "RN" else ".RZ"
            check(
                f"F2FP.{to}.F32.PACK_AB{suffix} R0, R4, R6",
                "ff",
                pair(lambda x, f=f, m=mode: F32.convert(x, f, m)),
                STRATEGIES,
            )
    check("F2FP.PACK_AB R0, R4, R6", "ff", pair(lambda x: F32.convert(x, F16)), STRATEGIES)
    check("F2FP.BF16.PACK_AB R0, R4, R6", "ff", pair(lambda x: F32.convert(x, BF16)), STRATEGIES)
    check("F2FP.RELU.PACK_AB R0, R4, R6", "ff", pair(lambda x: F32.convert(relu(x), F16)), STRATEGIES)


def test_tf32() -> None:
    tf32 = Format(19, 10, 0x3FFFF)
    check("F2FP.TF32.F32.PACK_B R0, R4", "f", lambda x: F32.convert(x, tf32) << 13, STRATEGIES)


# ------------------------------------------------------------------ narrow formats


def mini_value(code: int, exponent: int, mantissa: int) -> Fraction:
    bias = (1 << (exponent - 1)) - 1
    e, m = code >> mantissa & ((1 << exponent) - 1), code & ((1 << mantissa) - 1)
    v = (m if e == 0 else m + (1 << mantissa)) * Fraction(2) ** (max(e, 1) - bias - mantissa)
    return -v if code >> (exponent + mantissa) else v


MINIS = {
    "E4M3": (4, 3, 0x7E, 0x7F),
    "E5M2": (5, 2, 0x7B, 0x7F),
    "E2M3": (2, 3, 0x1F, 0x1F),
    "E3M2": (3, 2, 0x1F, 0x1F),
    "E2M1": (2, 1, 7, 7),
}


def narrowed(x: int, f: Format, name: str) -> int:
    """The nearest code, even mantissa on a tie, saturating; found by looking at all codes."""
    exponent, mantissa, largest, nan = MINIS[name]
    if f.is_nan(x):
        return nan
    sign = (x & f.sign and 1) << (exponent + mantissa)
    if f.is_inf(x):
        return sign | largest
    v = abs(f.value(x))
    return sign | min(range(largest + 1), key=lambda c: (abs(mini_value(c, exponent, mantissa) - v), c & 1))


small = st.one_of(
    float_word,
    st.builds(
        lambda s, e, m: s << 31 | e << 23 | m << 18, st.integers(0, 1), st.integers(108, 138), st.integers(0, 31)
    ),
)


@pytest.mark.parametrize("name", MINIS)
def test_pack_narrow(name: str) -> None:
    width, shift = (4, 8) if name == "E2M1" else (8, 16)
    check(
        f"F2FP.SATFINITE.{name}.F32.PACK_AB_MERGE_C R0, R4, R6, R8",
        "ffw",
        lambda a, b, c: (narrowed(b, F32, name) | narrowed(a, F32, name) << width | c << shift) & M32,
        {"f": small, "w": word},
    )


@pytest.mark.parametrize("name", ["E4M3", "E5M2"])
def test_pack_narrow_halves(name: str) -> None:
    for source, f in (("F16", F16), ("BF16", BF16)):
        check(
            f"F2FP.SATFINITE.{name}.{source}.UNPACK_B_MERGE_C R0, R4, R6",
            "pw",
            lambda a, c, f=f: (narrowed(a & 0xFFFF, f, name) | narrowed(a >> 16, f, name) << 8 | c << 16) & M32,
            STRATEGIES,
        )


@pytest.mark.parametrize("name", MINIS)
def test_unpack_narrow(name: str) -> None:
    exponent, mantissa, _, nan = MINIS[name]
    bits = 1 + exponent + mantissa

    def half_of(code: int) -> int:
        code &= (1 << bits) - 1
        magnitude = code & ((1 << (bits - 1)) - 1)
        if bits == 8 and (magnitude == nan if name == "E4M3" else magnitude > 0x7C):
            return 0x7FFF
        if name == "E5M2" and magnitude == 0x7C:
            return 0x7C00 | (code >> 7) << 15
        return F16.round(mini_value(code, exponent, mantissa), "RN", bool(code >> (bits - 1)))

    width = 4 if name == "E2M1" else 8
    check(f"F2FP.F16.{name}.UNPACK_B R0, R4", "w", lambda x: half_of(x) | half_of(x >> width) << 16, STRATEGIES)
    if name == "E4M3":
        check("F2FP.F16.E4M3.UNPACK_B R0, R4.H1", "w", lambda x: half_of(x >> 16) | half_of(x >> 24) << 16, STRATEGIES)


def test_scales() -> None:
    def scale(x: int) -> int:
        if F32.is_nan(x) or F32.key(x) < 0:
            return 0xFF
        if F32.is_inf(x):
            return 254
        v = F32.value(x)
        return next((c for c in range(255) if Fraction(2) ** (c - 127) >= v), 254)

    check(
        "F2FP.SATFINITE.E8.F32.PACK_AB_MERGE_C.RP R0, R4, R6, RZ",
        "ff",
        lambda a, b: scale(b) | scale(a) << 8,
        STRATEGIES,
    )

    def bf16(code: int) -> int:
        return 0x7FFF if code == 255 else BF16.round(Fraction(2) ** (code - 127))

    check("F2FP.BF16.E8.UNPACK_B R0, R4", "w", lambda x: bf16(x & 0xFF) | bf16(x >> 8 & 0xFF) << 16, STRATEGIES)


# ------------------------------------------------------------------ integers


def clamp(x: int, bits: int, is_signed: bool) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(x, low), high) & ((1 << bits) - 1)


@pytest.mark.parametrize("to", ["S8", "U8", "S16", "U16"])
@pytest.mark.parametrize("source", ["S32", "U32"])
def test_saturating_integers(to: str, source: str) -> None:
    bits, is_signed = int(to[1:]), to[0] == "S"

    def one(x: int) -> int:
        return clamp(signed(x, 32) if source == "S32" else x, bits, is_signed)

    check(f"I2I.{to}.{source}.SAT R0, R4", "w", one, STRATEGIES)
    if source == "S32":
        check(
            f"I2IP.{to}.S32.SAT R0, R4, R6, R8",
            "www",
            lambda a, b, c: (one(b) | one(a) << bits | (c << 16 if bits == 8 else 0)) & M32,
            STRATEGIES,
        )


def test_floats_to_packed_bytes() -> None:
    check(
        "F2IP.U8.F32.TRUNC.NTZ R0, R4, R6, R8",
        "ffw",
        lambda a, b, c: (F32.to_int(b, 8, False, "RZ") | F32.to_int(a, 8, False, "RZ") << 8 | c << 16) & M32,
        STRATEGIES,
    )
