"""Half-precision opcodes against exact fractions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from check import check
from oracle import BF16, F16, F32, M32, Format, half_pair
from sass import parse

STRATEGIES = {"h": half_pair}
FORMATS = {"": F16, ".BF16_V2": BF16}


def each(f: Callable[..., int]) -> Callable[..., int]:
    """Element by element."""
    return lambda *w: f(*(x & 0xFFFF for x in w)) | f(*(x >> 16 for x in w)) << 16


@pytest.mark.parametrize("suffix", FORMATS)
def test_arithmetic(suffix: str) -> None:
    f = FORMATS[suffix]
    check(f"HADD2{suffix} R0, R4, R6", "hh", each(f.add), STRATEGIES)
    check(f"HADD2{suffix} R0, R4, -R6", "hh", each(lambda a, b: f.add(a, b ^ 0x8000)), STRATEGIES)
    check(f"HMUL2{suffix} R0, R4, R6", "hh", each(f.mul), STRATEGIES)
    check(f"HFMA2{suffix} R0, R4, R6, R8", "hhh", each(f.fma), STRATEGIES)
    check(f"HFMA2.MMA{suffix} R0, R4, R6, -R8", "hhh", each(lambda a, b, c: f.fma(a, b, c ^ 0x8000)), STRATEGIES)


@pytest.mark.parametrize("suffix", FORMATS)
def test_options(suffix: str) -> None:
    f = FORMATS[suffix]
    one = f.bias << f.mantissa

    def relu(x: int) -> int:
        return x if f.is_nan(x) or not x & 0x8000 else 0

    def saturate(x: int) -> int:
        return 0 if f.is_nan(x) or f.key(x) <= 0 else min(x, one)

    check(f"HFMA2{suffix}.RELU R0, R4, R6, R8", "hhh", each(lambda a, b, c: relu(f.fma(a, b, c))), STRATEGIES)
    check(f"HFMA2{suffix}.SAT R0, R4, R6, R8", "hhh", each(lambda a, b, c: saturate(f.fma(a, b, c))), STRATEGIES)

    def flushing(a: int, b: int) -> int:
        return f.flush(f.add(f.flush(a), f.flush(b)))

    check(f"HADD2{suffix}.FTZ R0, R4, R6", "hh", each(flushing), STRATEGIES)


def test_swizzles() -> None:
    check(
        "HMUL2 R0, R4.H0_H0, R6.H1_H1",
        "hh",
        lambda a, b: F16.mul(a & 0xFFFF, b >> 16) * 0x10001,
        STRATEGIES,
    )
    check(
        "HADD2 R0, |R4|, -|R6|.H0_H0",
        "hh",
        lambda a, b: each(lambda x, y: F16.add(x & 0x7FFF, y | 0x8000))(a, (b & 0xFFFF) * 0x10001),
        STRATEGIES,
    )


def test_widening() -> None:
    def widened(x: int) -> int:
        return F16.convert(x, F32)

    check("HADD2.F32 R0, -RZ, R4.H0_H0", "h", lambda a: widened(a & 0xFFFF), STRATEGIES)
    check("HADD2.F32 R0, -RZ, R4.H1_H1", "h", lambda a: widened(a >> 16), STRATEGIES)


@pytest.mark.parametrize("bits", [0x3F800000, 0x00000001, 0x80008000, 0xFFFF7C01, 0x12345678])
def test_constants(bits: int) -> None:
    """HFMA2 R, -RZ, RZ, hi, lo as a way to write 32 bits: NaN halves become canonical, the rest are kept."""
    line = parse("HFMA2.MMA R0, -RZ, RZ, 1, 1", immediate=bits)
    expected = each(lambda x: 0x7FFF if F16.is_nan(x) else x)(bits)
    check(line, "h", lambda _: expected, STRATEGIES)


def test_immediate_pairs() -> None:
    line = parse("HFMA2 R0, R4, 2, 3, R6", immediate=0x4000_4200)
    check(line, "hh", lambda a, b: each(F16.fma)(a, 0x4000_4200, b), STRATEGIES)
    line = parse("HADD2.BF16_V2 R0, R4, 2, 3", immediate=0x4000_4040)
    check(line, "h", lambda a: each(BF16.add)(a, 0x4000_4040), STRATEGIES)


@pytest.mark.parametrize("suffix", FORMATS)
def test_minmax(suffix: str) -> None:
    f = FORMATS[suffix]
    check(f"HMNMX2{suffix} R0, R4, R6, PT", "hh", each(lambda a, b: f.minmax(a, b, True)), STRATEGIES)
    check(f"HMNMX2{suffix}.NAN R0, R4, R6, !PT", "hh", each(lambda a, b: f.minmax(a, b, False, True)), STRATEGIES)

    def xorsign(a: int, b: int) -> int:
        m = f.minmax(a & 0x7FFF, b & 0x7FFF, False)
        return f.nan if f.is_nan(m) else m | (a ^ b) & 0x8000

    check(f"HMNMX2{suffix}.XORSIGN R0, |R4|, |R6|, !PT", "hh", each(xorsign), STRATEGIES)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("name", ["EQ", "GT", "LTU", "NAN", "NE", "GEU"])
def test_compares(suffix: str, name: str) -> None:
    f: Format = FORMATS[suffix]

    def results(a: int, b: int) -> tuple[int, int]:
        return int(f.compare(name, a & 0xFFFF, b & 0xFFFF)), int(f.compare(name, a >> 16, b >> 16))

    check(f"HSETP2{suffix}.{name}.AND P0, P1, R4, R6, PT", "hh", results, STRATEGIES, ("P0", "P1"))
    check(
        f"HSETP2{suffix}.{name}.AND P0, P1, R4.H0_H0, R6.H0_H0, PT",
        "hh",
        lambda a, b: (results(a, b)[0],) * 2,
        STRATEGIES,
        ("P0", "P1"),
    )
    check(
        f"HSET2{suffix}.{name}.AND R0, R4, R6, PT",
        "hh",
        lambda a, b: results(a, b)[0] * 0xFFFF | results(a, b)[1] * 0xFFFF0000,
        STRATEGIES,
    )
    one = f.bias << f.mantissa
    check(
        f"HSET2{suffix}.BF.{name}.AND R0, R4, R6, PT",
        "hh",
        lambda a, b: results(a, b)[0] * one | results(a, b)[1] * one << 16,
        STRATEGIES,
    )


def test_mixed_precision() -> None:
    check(
        "FHADD R0, R4.H1, -R6",
        "hh",
        lambda a, b: F32.add(F16.convert(a >> 16, F32), b ^ 0x80000000) & M32,
        STRATEGIES,
    )
    check(
        "FHFMA.BF16 R0, R4, R6.H1, R8",
        "hhh",
        lambda a, b, c: F32.fma(BF16.convert(a & 0xFFFF, F32), BF16.convert(b >> 16, F32), c),
        STRATEGIES,
    )
