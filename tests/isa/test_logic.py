"""Logic, shifts, permutes, selects, bit counts, compares and predicates against their definitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from check import check
from hypothesis import strategies as st
from oracle import M32, M64, long_word, s32, s64, word

# shift counts near and beyond the widths as well as any word
count = st.one_of(st.integers(0, 70), word)
STRATEGIES = {"w": word, "W": long_word, "n": count}


def lut(table: int, a: int, b: int, c: int) -> int:
    return sum((table >> (4 * (a >> k & 1) + 2 * (b >> k & 1) + (c >> k & 1)) & 1) << k for k in range(32))


@pytest.mark.parametrize(
    "table",
    [0x00, 0xFF, 0xC0, 0xFC, 0x3C, 0x33, 0x6A, 0xE2, 0x96, 0xE8, 0x1D, 0x78, 0xF0, 0x0F, 0xB8, 0x2A, 0xEF, 0x41],
)
def test_lop3(table: int) -> None:
    check(f"LOP3.LUT R0, R4, R6, R8, {table:#x}, !PT", "www", lambda a, b, c: lut(table, a, b, c), STRATEGIES)


def test_lop3_every_table() -> None:
    # through one predicate each, all 256 tables on all eight inputs
    import numpy as np
    from sass import BACKENDS, Bench

    lines = [f"LOP3.LUT R{10 + k % 16}, R4, R6, R8, {k:#x}, !PT" for k in range(256)]
    a, b, c = (np.array([v], np.uint32) for v in (0xF0, 0xCC, 0xAA))
    for start in range(0, 256, 16):
        for backend in BACKENDS:
            bench = Bench(lines[start : start + 16], ["R4", "R6", "R8"], [f"R{10 + k}" for k in range(16)], backend)
            found = bench.run({"R4": a, "R6": b, "R8": c})
            for k in range(16):
                assert found[f"R{10 + k}"][0] & 0xFF == start + k


def test_lop3_predicate() -> None:
    check(
        "LOP3.LUT P0, R0, R4, R6, RZ, 0xc0, !PT", "ww", lambda a, b: (a & b, int(a & b != 0)), STRATEGIES, ("R0", "P0")
    )
    check(
        "LOP3.LUT P0, RZ, R4, R6, RZ, 0xc0, P2",
        "ww",
        lambda a, b, p: int(a & b != 0 or p),
        STRATEGIES,
        ("P0",),
        ("P2",),
    )
    check(
        "LOP3.LUT.PAND P0, RZ, R4, R6, RZ, 0xc0, P2",
        "ww",
        lambda a, b, p: int(a & b != 0 and p),
        STRATEGIES,
        ("P0",),
        ("P2",),
    )


def funnel(a: int, n: int, c: int, *, left: bool, width: int, is_signed: bool, wrap: bool, high: bool) -> int:
    n = n % width if wrap else min(n, width)
    whole = c << 32 | a
    if left:
        whole = whole << n & M64
    else:
        # a 32-bit type shifts the pair too; only a signed 64-bit value, or the high word alone, carries its sign down
        whole = (s64(whole) >> n if is_signed else whole >> n) & M64
    return whole >> 32 if high else whole & M32


@pytest.mark.parametrize("kind", ["U32", "S32", "U64", "S64"])
@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_shf(kind: str, high: bool, wrap: bool, left: bool) -> None:
    line = f"SHF.{'L' if left else 'R'}{'.W' if wrap else ''}.{kind}{'.HI' if high else ''} R0, R4, R6, R8"
    width, is_signed = int(kind[1:]), kind[0] == "S"
    check(
        line,
        "wnw",
        lambda a, n, c: funnel(a, n, c, left=left, width=width, is_signed=is_signed, wrap=wrap, high=high),
        STRATEGIES,
    )


def test_plain_shifts() -> None:
    check("SHF.R.S32.HI R0, RZ, 0x1f, R4", "w", lambda a: (s32(a) >> 31) & M32, STRATEGIES)
    check("SHF.R.U32.HI R0, RZ, R6, R4", "wn", lambda a, n: a >> n if n < 32 else 0, STRATEGIES)
    check("SHF.L.U32 R0, R4, 0xb, RZ", "w", lambda a: a << 11 & M32, STRATEGIES)
    check("SHF.L.U64.HI R0, R4, 0x2, R6", "ww", lambda a, c: (c << 32 | a) << 2 >> 32 & M32, STRATEGIES)


def test_masks() -> None:
    def mask(position: int, bits: int) -> int:
        return 0 if position >= 32 else ((1 << min(bits, 32)) - 1) << position & M32

    check("BMSK R0, R4, R6", "nn", mask, STRATEGIES)
    check("BMSK.W R0, R4, R6", "nn", lambda a, b: mask(a % 32, b % 32), STRATEGIES)


def extended(a: int, n: int, is_signed: bool) -> int:
    n = min(n, 32)
    if n == 0:
        return 0
    low = a & ((1 << n) - 1)
    return (low - (1 << n)) & M32 if is_signed and low >> (n - 1) else low


def test_sgxt() -> None:
    check("SGXT R0, R4, R6", "wn", lambda a, n: extended(a, n, True), STRATEGIES)
    check("SGXT.U32 R0, R4, R6", "wn", lambda a, n: extended(a, n, False), STRATEGIES)
    check("SGXT.W.U32 R0, R4, R6", "wn", lambda a, n: extended(a, n % 32, False), STRATEGIES)


def permuted(a: int, selector: int, c: int) -> int:
    content = (c << 32 | a).to_bytes(8, "little")
    total = 0
    for k in range(4):
        nibble = selector >> (4 * k) & 15
        byte = content[nibble & 7]
        total |= ((0xFF if byte & 0x80 else 0) if nibble & 8 else byte) << (8 * k)
    return total


@pytest.mark.parametrize("selector", [0x3210, 0x7654, 0x5410, 0x7632, 0x9910, 0x8880, 0x0123, 0xBB32, 0x4560, 0xFEDC])
def test_prmt_immediate(selector: int) -> None:
    check(f"PRMT R0, R4, {selector:#x}, R6", "ww", lambda a, c: permuted(a, selector, c), STRATEGIES)


def test_prmt_register() -> None:
    check("PRMT R0, R4, R6, R8", "www", permuted, STRATEGIES)


PRMT_MODES: dict[str, Callable[[int, int], int]] = {  # byte k of the result, for selector n (PTX ISA, prmt)
    "F4E": lambda n, k: n + k,
    "B4E": lambda n, k: (n - k) % 8,
    "RC8": lambda n, k: n,
    "ECL": lambda n, k: max(k, n),
    "ECR": lambda n, k: min(k, n),
    "RC16": lambda n, k: 2 * (n & 1) + (k & 1),
}


@pytest.mark.parametrize("mode", PRMT_MODES)
def test_prmt_modes(mode: str) -> None:
    def expected(a: int, n: int, c: int) -> int:
        content = (c << 32 | a).to_bytes(8, "little")
        return sum(content[PRMT_MODES[mode](n & 3, k)] << (8 * k) for k in range(4))

    check(f"PRMT.{mode} R0, R4, R6, R8", "www", expected, STRATEGIES)


def test_moves_and_selects() -> None:
    check("MOV R0, R4", "w", lambda a: a, STRATEGIES)
    check("MOV.64 R0, R4", "W", lambda a: a, STRATEGIES, ("R0:64",))
    check("MOV.64 R0, 0xffffffff80000000", "w", lambda _: 0xFFFFFFFF80000000, STRATEGIES, ("R0:64",))
    check("MOV.64 R0, 0x80000000", "w", lambda _: 0x80000000, STRATEGIES, ("R0:64",))
    check(
        "SEL.64 R0, R4, -0x70000000, P2",
        "W",
        lambda a, p: a if p else -0x70000000 & M64,
        STRATEGIES,
        ("R0:64",),
        ("P2",),
    )
    check("SEL R0, R4, -0x1, P2", "w", lambda a, p: a if p else M32, STRATEGIES, ("R0",), ("P2",))
    check("SEL R0, R4, R6, !P2", "ww", lambda a, b, p: b if p else a, STRATEGIES, ("R0",), ("P2",))
    check("SEL.64 R0, R4, R6, P2", "WW", lambda a, b, p: a if p else b, STRATEGIES, ("R0:64",), ("P2",))


def test_counts() -> None:
    check("POPC R0, R4", "w", int.bit_count, STRATEGIES)
    check("POPC R0, ~R4", "w", lambda a: (a ^ M32).bit_count(), STRATEGIES)
    check("BREV R0, R4", "w", lambda a: int(f"{a:032b}"[::-1], 2), STRATEGIES)
    check("FLO.U32 R0, R4", "w", lambda a: (a.bit_length() - 1) & M32, STRATEGIES)
    check("FLO.U32.SH R0, R4", "w", lambda a: 32 - a.bit_length() if a else M32, STRATEGIES)

    def differing(a: int) -> int:
        return a ^ M32 if a >> 31 else a

    check("FLO R0, R4", "w", lambda a: (differing(a).bit_length() - 1) & M32, STRATEGIES)
    check("FLO.SH R0, R4", "w", lambda a: 32 - differing(a).bit_length() if differing(a) else M32, STRATEGIES)


COMPARES: dict[str, Callable[[int, int], bool]] = {
    "F": lambda a, b: False,
    "LT": lambda a, b: a < b,
    "EQ": lambda a, b: a == b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "NE": lambda a, b: a != b,
    "GE": lambda a, b: a >= b,
    "T": lambda a, b: True,
}
near = st.one_of(st.integers(0, 3), st.sampled_from([0x7FFFFFFF, 0x80000000, M32]), word)
NEAR = {"w": near, "W": st.one_of(long_word, st.builds(lambda a, b: a << 32 | b, near, near))}


@pytest.mark.parametrize("name", COMPARES)
def test_isetp(name: str) -> None:
    f = COMPARES[name]
    check(
        f"ISETP.{name}.AND P0, P1, R4, R6, P2",
        "ww",
        lambda a, b, p: (int(f(s32(a), s32(b)) and p), int(not f(s32(a), s32(b)) and p)),
        NEAR,
        ("P0", "P1"),
        ("P2",),
    )
    check(f"ISETP.{name}.U32.OR P0, PT, R4, R6, P2", "ww", lambda a, b, p: int(f(a, b) or p), NEAR, ("P0",), ("P2",))
    check(
        f"ISETP.{name}.S64.XOR P0, PT, R4, R6, !P2",
        "WW",
        lambda a, b, p: int(f(s64(a), s64(b)) != (not p)),
        NEAR,
        ("P0",),
        ("P2",),
    )
    check(f"ISETP.{name}.U64.AND P0, PT, R4, R6, PT", "WW", lambda a, b: int(f(a, b)), NEAR, ("P0",))


@pytest.mark.parametrize("name", ["LT", "EQ", "LE", "GT", "NE", "GE"])
@pytest.mark.parametrize("is_signed", [False, True])
def test_isetp_of_pairs(name: str, is_signed: bool) -> None:
    """The compare of two 64-bit numbers as compilers split it: low words unsigned, then high words with .EX."""
    import numpy as np
    from sass import BACKENDS, Bench

    high = f"ISETP.{name}{'' if is_signed else '.U32'}.AND.EX P0, PT, R5, R7, PT, P0"
    values = [
        0,
        1,
        M32,
        1 << 32,
        (1 << 32) + 1,
        (1 << 63) - 1,
        1 << 63,
        M64,
        (5 << 32) + 7,
        (5 << 32) + 8,
        (6 << 32) + 7,
    ]
    pairs = np.array([(a, b) for a in values for b in values], np.uint64)
    words = {
        f"R{4 + 2 * k + h}": (pairs[:, k] >> np.uint64(32 * h) & np.uint64(M32)).astype(np.uint32)
        for k in (0, 1)
        for h in (0, 1)
    }
    for backend in BACKENDS:
        found = Bench([f"ISETP.{name}.U32.AND P0, PT, R4, R6, PT", high], list(words), ["P0"], backend).run(words)["P0"]
        for (a, b), got in zip(pairs.tolist(), found.tolist()):
            x, y = (s64(a), s64(b)) if is_signed else (a, b)
            assert got == COMPARES[name](x, y), f"{backend}: {a:#x} {name} {b:#x}"


@pytest.mark.parametrize(("first", "second"), [(0x80, 0x08), (0x2A, 0xF8), (0xE0, 0x07), (0x96, 0x69)])
def test_plop3(first: int, second: int) -> None:
    def expected(a: int, b: int, c: int) -> tuple[int, int]:
        index = 4 * a + 2 * (1 - b) + c
        return first >> index & 1, second >> index & 1

    check(
        f"PLOP3.LUT P0, P1, P2, !P3, P4, {first:#x}, {second:#x}",
        "",
        expected,
        STRATEGIES,
        ("P0", "P1"),
        ("P2", "P3", "P4"),
    )


def test_plop3_of_signs() -> None:
    check(
        "PLOP3.LUT P0, PT, R4.SIGN, R6.SIGN, R8.SIGN, 0x96, 0x0",
        "www",
        lambda a, b, c: (a ^ b ^ c) >> 31,
        STRATEGIES,
        ("P0",),
    )


def test_predicates_to_register() -> None:
    check(
        "P2R R0, PR, R4, 0x16",
        "w",
        lambda a, p, q, r: a & ~0x16 | p << 1 | q << 2 | r << 4,
        STRATEGIES,
        ("R0",),
        ("P1", "P2", "P4"),
    )


def test_register_to_predicates() -> None:
    check("R2P PR, R4, 0xb", "w", lambda a: (a & 1, a >> 1 & 1, a >> 3 & 1), STRATEGIES, ("P0", "P1", "P3"))
    check("R2P PR, R4.B2, 0x3", "w", lambda a: (a >> 16 & 1, a >> 17 & 1), STRATEGIES, ("P0", "P1"))


def test_predicate_moves_leave_the_others() -> None:
    check("R2P PR, R4, 0x1", "w", lambda a, p: (a & 1, p), STRATEGIES, ("P0", "P1"), ("P1",))
