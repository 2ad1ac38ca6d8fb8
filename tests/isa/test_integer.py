"""Integer opcodes against their definitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from check import check
from oracle import M32, M64, long_word, s32, s64, signed, word

STRATEGIES = {"w": word, "W": long_word}


def sum_carries(total: int) -> tuple[int, int, int]:
    return total & M32, int(total >> 32 >= 1), int(total >> 32 >= 2)


def flipped(x: int) -> int:
    return x ^ M32


def shift_left(x: int, n: int, bits: int = 32) -> int:
    return (x << n) & ((1 << bits) - 1) if n < bits else 0


ADDS: list[tuple[str, str, Callable[..., object], tuple[str, ...], tuple[str, ...]]] = [
    ("IADD3 R0, R4, R6, R8", "www", lambda a, b, c: (a + b + c) & M32, ("R0",), ()),
    ("IADD3 R0, -R4, R6, -R8", "www", lambda a, b, c: (b - a - c) & M32, ("R0",), ()),
    ("IADD3 R0, R4, -0x8, RZ", "w", lambda a: (a - 8) & M32, ("R0",), ()),
    ("IADD3 R0, P0, R4, R6, RZ", "ww", lambda a, b: sum_carries(a + b)[:2], ("R0", "P0"), ()),
    ("IADD3 R0, P0, R4, -R6, RZ", "ww", lambda a, b: ((a - b) & M32, int(a >= b)), ("R0", "P0"), ()),
    ("IADD3 R0, P0, -R4, R6, RZ", "ww", lambda a, b: ((b - a) & M32, int(b >= a)), ("R0", "P0"), ()),
    ("IADD3 R0, P0, P1, R4, R6, R8", "www", lambda a, b, c: sum_carries(a + b + c), ("R0", "P0", "P1"), ()),
    (
        "IADD3 R0, P0, P1, R4, -R6, R8",
        "www",
        lambda a, b, c: sum_carries(a + flipped(b) + 1 + c),
        ("R0", "P0", "P1"),
        (),
    ),
    ("IADD3.X R0, R4, R6, RZ, P2, !PT", "ww", lambda a, b, p: (a + b + p) & M32, ("R0",), ("P2",)),
    (
        "IADD3.X R0, P0, P1, R4, ~R6, R8, P2, P3",
        "www",
        lambda a, b, c, p, q: sum_carries(a + flipped(b) + c + p + q),
        ("R0", "P0", "P1"),
        ("P2", "P3"),
    ),
    ("IADD R0, -R4, R6", "ww", lambda a, b: (b - a) & M32, ("R0",), ()),
    ("IADD.X R0, P0, R4, ~R6, P2", "ww", lambda a, b, p: sum_carries(a + flipped(b) + p)[:2], ("R0", "P0"), ("P2",)),
    ("IADD.64 R0, R4, -R6", "WW", lambda a, b: (a - b) & M64, ("R0:64",), ()),
    ("IADD.64 R0, R4, -0x8", "W", lambda a: (a - 8) & M64, ("R0:64",), ()),
    ("VIADD R0, R4, -R6", "ww", lambda a, b: (a - b) & M32, ("R0",), ()),
    (
        "VIADD.S32.ISAT R0, R4, R6",
        "ww",
        lambda a, b: min(max(s32(a) + s32(b), -(1 << 31)), (1 << 31) - 1) & M32,
        ("R0",),
        (),
    ),
    ("IABS R0, R4", "w", lambda a: abs(s32(a)) & M32, ("R0",), ()),
]


@pytest.mark.parametrize(
    ("line", "operands", "expected", "outputs", "predicates"), ADDS, ids=lambda x: x if isinstance(x, str) else None
)
def test_add(
    line: str, operands: str, expected: Callable[..., int], outputs: tuple[str, ...], predicates: tuple[str, ...]
) -> None:
    check(line, operands, expected, STRATEGIES, outputs, predicates)


def wide(a: int, b: int, is_signed: bool) -> int:
    return s32(a) * s32(b) if is_signed else a * b


MULTIPLIES: list[tuple[str, str, Callable[..., object], tuple[str, ...], tuple[str, ...]]] = [
    ("IMAD R0, R4, R6, -R8", "www", lambda a, b, c: (a * b - c) & M32, ("R0",), ()),
    ("IMAD R0, R4, 0x21, R8", "www", lambda a, b, c: (a * 0x21 + c) & M32, ("R0",), ()),
    ("IMAD.MOV R0, RZ, RZ, -R4", "w", lambda a: -a & M32, ("R0",), ()),
    ("IMAD.IADD R0, R4, 0x1, -R6", "ww", lambda a, b: (a - b) & M32, ("R0",), ()),
    ("IMAD.SHL.U32 R0, R4, 0x2000, RZ", "w", lambda a: (a << 13) & M32, ("R0",), ()),
    ("IMAD.X R0, R4, R6, ~R8, P2", "www", lambda a, b, c, p: (a * b + flipped(c) + p) & M32, ("R0",), ("P2",)),
    ("IMAD.WIDE R0, R4, R6, R8", "wwW", lambda a, b, c: (wide(a, b, True) + c) & M64, ("R0:64",), ()),
    ("IMAD.WIDE.U32 R0, R4, R6, R8", "wwW", lambda a, b, c: (a * b + c) & M64, ("R0:64",), ()),
    ("IMAD.WIDE R0, R4, -0x5, RZ", "w", lambda a: (s32(a) * -5) & M64, ("R0:64",), ()),
    (
        "IMAD.WIDE.U32 R0, P0, R4, R6, R8",
        "wwW",
        lambda a, b, c: ((a * b + c) & M64, int(a * b + c > M64)),
        ("R0:64", "P0"),
        (),
    ),
    (
        "IMAD.WIDE.U32.X R0, P0, R4, R6, R8, P2",
        "wwW",
        lambda a, b, c, p: ((a * b + c + p) & M64, int(a * b + c + p > M64)),
        ("R0:64", "P0"),
        ("P2",),
    ),
    ("IMAD.HI R0, R4, R6, RZ", "ww", lambda a, b: (wide(a, b, True) >> 32) & M32, ("R0",), ()),
    ("IMAD.HI R0, R4, R6, R8", "wwW", lambda a, b, c: ((wide(a, b, True) + c) >> 32) & M32, ("R0",), ()),
    ("IMAD.HI.U32 R0, R4, 0x78787879, RZ", "w", lambda a: a * 0x78787879 >> 32, ("R0",), ()),
]


@pytest.mark.parametrize(
    ("line", "operands", "expected", "outputs", "predicates"),
    MULTIPLIES,
    ids=lambda x: x if isinstance(x, str) else None,
)
def test_multiply(
    line: str, operands: str, expected: Callable[..., int], outputs: tuple[str, ...], predicates: tuple[str, ...]
) -> None:
    check(line, operands, expected, STRATEGIES, outputs, predicates)


LEAS: list[tuple[str, str, Callable[..., object], tuple[str, ...], tuple[str, ...]]] = [
    ("LEA R0, R4, R6, 0x4", "ww", lambda a, b: ((a << 4) + b) & M32, ("R0",), ()),
    ("LEA R0, -R4, R6, 0x3", "ww", lambda a, b: (b - (a << 3)) & M32, ("R0",), ()),
    ("LEA R0, P0, R4, R6, 0x2", "ww", lambda a, b: sum_carries(shift_left(a, 2) + b)[:2], ("R0", "P0"), ()),
    (
        "LEA R0, P0, -R4, R6, 0x2",
        "ww",
        lambda a, b: sum_carries(flipped(shift_left(a, 2)) + 1 + b)[:2],
        ("R0", "P0"),
        (),
    ),
    ("LEA.HI R0, R4, R6, R8, 0x19", "www", lambda a, b, c: ((((c << 32 | a) << 25) >> 32) + b) & M32, ("R0",), ()),
    ("LEA.HI R0, R4, R6, R8, 0x0", "www", lambda a, b, c: (c + b) & M32, ("R0",), ()),
    (
        "LEA.HI.X R0, R4, R6, R8, 0x2, P2",
        "www",
        lambda a, b, c, p: ((((c << 32 | a) << 2) >> 32) + b + p) & M32,
        ("R0",),
        ("P2",),
    ),
    ("LEA.HI.SX32 R0, R4, R6, 0x14", "ww", lambda a, b: (((s32(a) << 20) >> 32) + b) & M32, ("R0",), ()),
    (
        "LEA.HI.X.SX32 R0, R4, R6, 0x1, P2",
        "ww",
        lambda a, b, p: (((s32(a) << 1) >> 32) + b + p) & M32,
        ("R0",),
        ("P2",),
    ),
]


@pytest.mark.parametrize(
    ("line", "operands", "expected", "outputs", "predicates"), LEAS, ids=lambda x: x if isinstance(x, str) else None
)
def test_lea(
    line: str, operands: str, expected: Callable[..., int], outputs: tuple[str, ...], predicates: tuple[str, ...]
) -> None:
    check(line, operands, expected, STRATEGIES, outputs, predicates)


def dot(a: int, b: int, c: int, widths: tuple[int, int], signs: tuple[bool, bool], count: int, first: int = 0) -> int:
    total = c
    for k in range(count):
        x, y = a >> (k * widths[0]) & ((1 << widths[0]) - 1), b >> ((first + k) * widths[1]) & ((1 << widths[1]) - 1)
        total += (signed(x, widths[0]) if signs[0] else x) * (signed(y, widths[1]) if signs[1] else y)
    return total & M32


@pytest.mark.parametrize("a", ["S8", "U8"])
@pytest.mark.parametrize("b", ["S8", "U8"])
def test_dp4a(a: str, b: str) -> None:
    check(
        f"IDP.4A.{a}.{b} R0, R4, R6, R8",
        "www",
        lambda x, y, z: dot(x, y, z, (8, 8), (a == "S8", b == "S8"), 4),
        STRATEGIES,
    )


@pytest.mark.parametrize("half", ["LO", "HI"])
def test_dp2a(half: str) -> None:
    check(
        f"IDP.2A.{half}.S16.U8 R0, R4, R6, R8",
        "www",
        lambda x, y, z: dot(x, y, z, (16, 8), (True, False), 2, 2 if half == "HI" else 0),
        STRATEGIES,
    )


MINMAX: list[tuple[str, str, Callable[..., object], tuple[str, ...], tuple[str, ...]]] = [
    ("IMNMX R0, R4, R6, PT", "ww", lambda a, b: min(s32(a), s32(b)) & M32, ("R0",), ()),
    ("IMNMX.U32 R0, R4, 0xfff, !PT", "w", lambda a: max(a, 0xFFF), ("R0",), ()),
    ("IMNMX R0, R4, R6, P2", "ww", lambda a, b, p: (min if p else max)(s32(a), s32(b)) & M32, ("R0",), ("P2",)),
    ("IMNMX.S64 PT, PT, R0, R4, R6, PT, !PT", "WW", lambda a, b: min(s64(a), s64(b)) & M64, ("R0:64",), ()),
    ("IMNMX.U64 PT, PT, R0, R4, R6, !PT, !PT", "WW", max, ("R0:64",), ()),
    ("VIMNMX R0, R4, R6, !PT", "ww", lambda a, b: max(s32(a), s32(b)) & M32, ("R0",), ()),
    ("VIMNMX.U32 R0, PT, PT, R4, R6, PT", "ww", min, ("R0",), ()),
    ("VIMNMX3 R0, R4, R6, R8, !PT", "www", lambda a, b, c: max(s32(a), s32(b), s32(c)) & M32, ("R0",), ()),
    ("VIADDMNMX R0, R4, R6, R8, PT", "www", lambda a, b, c: min(s32(a + b), s32(c)) & M32, ("R0",), ()),
    ("VIADDMNMX.RELU R0, R4, R6, R8, PT", "www", lambda a, b, c: max(min(s32(a + b), s32(c)), 0), ("R0",), ()),
    ("VIADDMNMX.U32 R0, R4, -R6, R8, !PT", "www", lambda a, b, c: max((a - b) & M32, c), ("R0",), ()),
]


@pytest.mark.parametrize(
    ("line", "operands", "expected", "outputs", "predicates"), MINMAX, ids=lambda x: x if isinstance(x, str) else None
)
def test_minmax(
    line: str, operands: str, expected: Callable[..., int], outputs: tuple[str, ...], predicates: tuple[str, ...]
) -> None:
    check(line, operands, expected, STRATEGIES, outputs, predicates)


def packed(f: Callable[..., int], bits: int, is_signed: bool) -> Callable[..., int]:
    def apply(*words: int) -> int:
        total = 0
        for k in range(32 // bits):
            values = [w >> (k * bits) & ((1 << bits) - 1) for w in words]
            total |= (f(*(signed(v, bits) if is_signed else v for v in values)) & ((1 << bits) - 1)) << (k * bits)
        return total

    return apply


def test_packed_minmax() -> None:
    check("VIMNMX.S16x2 R0, R4, R6, PT", "ww", packed(min, 16, True), STRATEGIES)
    check("VIMNMX.U16x2 R0, R4, R6, !PT", "ww", packed(max, 16, False), STRATEGIES)
    check("VIMNMX.U8x4 R0, R4, R6, PT", "ww", packed(min, 8, False), STRATEGIES)
    check("VIMNMX.S16x2.RELU R0, R4, R6, !PT", "ww", packed(lambda a, b: max(a, b, 0), 16, True), STRATEGIES)
    check("VIADD.16x2 R0, R4, -R6", "ww", packed(lambda a, b: a - b, 16, True), STRATEGIES)
    check("VIADD.U8x4 R0, R4, -R6", "ww", packed(lambda a, b: a - b, 8, False), STRATEGIES)
    check(
        "VIADDMNMX.S16x2 R0, R4, R6, R8, PT",
        "www",
        packed(lambda a, b, c: min(signed(a + b, 16), c), 16, True),
        STRATEGIES,
    )


def test_packed_minmax_says_which() -> None:
    def expected(a: int, b: int) -> tuple[int, int, int]:
        low, high = (signed(x, 16) <= signed(y, 16) for x, y in ((a, b), (a >> 16, b >> 16)))
        return packed(min, 16, True)(a, b), int(low), int(high)

    check("VIMNMX.S16x2 R0, P0, P1, R4, R6, PT", "ww", expected, STRATEGIES, ("R0", "P0", "P1"))


def test_absolute_difference() -> None:
    check("VABSDIFF R0, R4, R6, R8", "www", lambda a, b, c: (abs(s32(a) - s32(b)) + c) & M32, STRATEGIES)
    check("VABSDIFF.U32 R0, R4, R6, R8", "www", lambda a, b, c: (abs(a - b) + c) & M32, STRATEGIES)
    byte = packed(lambda a, b: abs(a - b), 8, False)
    check("VABSDIFF4.U8 R0, R4, R6, RZ", "ww", byte, STRATEGIES)
    check(
        "VABSDIFF4.U8.ACC R0, R4, R6, R8",
        "www",
        lambda a, b, c: (sum(byte(a, b).to_bytes(4, "little")) + c) & M32,
        STRATEGIES,
    )
