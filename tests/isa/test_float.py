"""FP32 and FP64 opcodes against exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from check import check
from hypothesis import strategies as st
from oracle import F32, F64, M32, double_word, float_word

STRATEGIES = {"f": float_word, "D": double_word}
MODES = ["RN", "RM", "RP", "RZ"]


def dot(mode: str) -> str:
    return "" if mode == "RN" else f".{mode}"


def flushing(f: Callable[..., int]) -> Callable[..., int]:
    return lambda *words: F32.flush(f(*(F32.flush(w) for w in words)))


def saturated(x: int) -> int:
    if F32.is_nan(x) or F32.key(x) <= 0:
        return 0
    return min(x, 0x3F800000)


@pytest.mark.parametrize("mode", MODES)
def test_add_multiply(mode: str) -> None:
    check(f"FADD{dot(mode)} R0, R4, R6", "ff", lambda a, b: F32.add(a, b, mode), STRATEGIES)
    check(f"FADD.FTZ{dot(mode)} R0, R4, R6", "ff", flushing(lambda a, b: F32.add(a, b, mode)), STRATEGIES)
    check(f"FMUL{dot(mode)} R0, R4, R6", "ff", lambda a, b: F32.mul(a, b, mode), STRATEGIES)
    check(f"FMUL.FTZ{dot(mode)} R0, R4, R6", "ff", flushing(lambda a, b: F32.mul(a, b, mode)), STRATEGIES)


@pytest.mark.parametrize("mode", MODES)
def test_fused(mode: str) -> None:
    check(f"FFMA{dot(mode)} R0, R4, R6, R8", "fff", lambda a, b, c: F32.fma(a, b, c, mode), STRATEGIES)
    check(f"FFMA.FTZ{dot(mode)} R0, R4, R6, R8", "fff", flushing(lambda a, b, c: F32.fma(a, b, c, mode)), STRATEGIES)


def test_prefixes_and_immediates() -> None:
    sign = 0x80000000
    check("FADD R0, -R4, |R6|", "ff", lambda a, b: F32.add(a ^ sign, b & ~sign), STRATEGIES)
    check("FADD R0, |R4|, -R4", "f", lambda a: F32.add(a & ~sign, a ^ sign), STRATEGIES)
    check("FFMA R0, R4, R6, -1.5", "ff", lambda a, b: F32.fma(a, b, 0xBFC00000), STRATEGIES)
    check("FMUL R0, R4, +INF ", "f", lambda a: F32.mul(a, 0x7F800000), STRATEGIES)
    check("FFMA R0, -R4, R6, R8", "fff", lambda a, b, c: F32.fma(a ^ sign, b, c), STRATEGIES)


def test_saturation_and_scales() -> None:
    check("FADD.SAT R0, R4, R6", "ff", lambda a, b: saturated(F32.add(a, b)), STRATEGIES)
    check("FFMA.SAT R0, R4, R6, R8", "fff", lambda a, b, c: saturated(F32.fma(a, b, c)), STRATEGIES)
    check("FMUL.SAT R0, R4, R6", "ff", lambda a, b: saturated(F32.mul(a, b)), STRATEGIES)

    def scaled(a: int, b: int) -> int:
        special = any(F32.is_nan(x) or F32.is_inf(x) for x in (a, b))
        if special:
            return F32.mul(a, b)
        return F32.round(F32.value(a) * F32.value(b) / 2, "RN", bool((a ^ b) >> 31))

    check("FMUL.D2 R0, R4, R6", "ff", scaled, STRATEGIES)


def test_packed() -> None:
    def pair(f: Callable[..., int]) -> Callable[..., int]:
        return lambda *w: f(*(x & M32 for x in w)) | f(*(x >> 32 for x in w)) << 32

    twice = {"T": st.builds(lambda a, b: a | b << 32, float_word, float_word), "f": float_word}
    lanes = ".F32x2.HI_LO"
    check(
        f"FFMA2 R0, R4{lanes}, R6{lanes}, -R8{lanes}",
        "TTT",
        pair(lambda a, b, c: F32.fma(a, b, c ^ 0x80000000)),
        twice,
        ("R0:64",),
    )
    check(f"FADD2 R0, R4{lanes}, R6{lanes}", "TT", pair(F32.add), twice, ("R0:64",))
    check(
        f"FMUL2 R0, R4{lanes}, R6.F32",
        "Tf",
        lambda a, b: F32.mul(a & M32, b) | F32.mul(a >> 32, b) << 32,
        twice,
        ("R0:64",),
    )


def test_minmax() -> None:
    check("FMNMX R0, R4, R6, PT", "ff", lambda a, b: F32.minmax(a, b, True), STRATEGIES)
    check("FMNMX R0, R4, |R6|, !PT", "ff", lambda a, b: F32.minmax(a, b & 0x7FFFFFFF, False), STRATEGIES)
    check("FMNMX R0, R4, R6, P2", "ff", lambda a, b, p: F32.minmax(a, b, bool(p)), STRATEGIES, ("R0",), ("P2",))
    check("FMNMX.FTZ R0, R4, R6, PT", "ff", flushing(lambda a, b: F32.minmax(a, b, True)), STRATEGIES)
    check("FMNMX.NAN R0, R4, R6, !PT", "ff", lambda a, b: F32.minmax(a, b, False, True), STRATEGIES)
    check(
        "FMNMX3 R0, R4, R6, R8, !PT",
        "fff",
        lambda a, b, c: F32.minmax(F32.minmax(a, b, False), c, False),
        STRATEGIES,
    )

    def xorsign(a: int, b: int) -> int:
        m = F32.minmax(a & 0x7FFFFFFF, b & 0x7FFFFFFF, True)
        return 0x7FFFFFFF if F32.is_nan(m) else m | (a ^ b) & 0x80000000

    check("FMNMX.XORSIGN R0, |R4|, |R6|, PT", "ff", xorsign, STRATEGIES)


def test_select() -> None:
    check("FSEL R0, -R4, R6, P2", "ff", lambda a, b, p: a ^ 0x80000000 if p else b, STRATEGIES, ("R0",), ("P2",))
    check("FSEL R0, R4, 1, !P2", "f", lambda a, p: 0x3F800000 if p else a, STRATEGIES, ("R0",), ("P2",))


NAMES = ["F", "LT", "EQ", "LE", "GT", "NE", "GE", "NUM", "NAN", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "T"]
# equal operands often
same = st.sampled_from([0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0x7FC00000, 1, 0x7FFFFF])
NEAR = {"f": st.one_of(same, float_word), "D": st.one_of(same.map(lambda x: x << 32), double_word, st.just(F64.nan))}


@pytest.mark.parametrize("name", NAMES)
def test_compare(name: str) -> None:
    def both(a: int, b: int, p: int) -> tuple[int, int]:
        return int(F32.compare(name, a, b) and p), int(not F32.compare(name, a, b) and p)

    check(f"FSETP.{name}.AND P0, P1, R4, R6, P2", "ff", both, NEAR, ("P0", "P1"), ("P2",))
    check(
        f"FSETP.{name}.FTZ.XOR P0, PT, R4, R6, P2",
        "ff",
        lambda a, b, p: int(F32.compare(name, F32.flush(a), F32.flush(b)) != p),
        NEAR,
        ("P0",),
        ("P2",),
    )
    check(
        f"DSETP.{name}.OR P0, PT, R4, R6, P2",
        "DD",
        lambda a, b, p: int(F64.compare(name, a, b) or p),
        NEAR,
        ("P0",),
        ("P2",),
    )


def test_set() -> None:
    check("FSET.BF.GT.AND R0, R4, R6, PT", "ff", lambda a, b: 0x3F800000 * F32.compare("GT", a, b), NEAR)
    check("FSET.NEU.AND R0, R4, R6, PT", "ff", lambda a, b: M32 * F32.compare("NEU", a, b), NEAR)


def test_division_check() -> None:
    """The compiled division with FCHK's rule: where it is false, the short sequence gives the rounded quotient."""
    import numpy as np
    from sass import BACKENDS, Bench

    lines = [
        "MUFU.RCP R10, R6",
        "FCHK P0, R4, R6",
        "FFMA R11, -R6, R10, 1",
        "FFMA R11, R10, R11, R10",
        "FFMA R10, R4, R11, RZ",
        "FFMA R12, -R6, R10, R4",
        "FFMA R0, R11, R12, R10",
    ]
    rng = np.random.Generator(np.random.PCG64(7))
    a = rng.integers(0, 1 << 32, 1024, np.uint64).astype(np.uint32)
    b = rng.integers(0, 1 << 32, 1024, np.uint64).astype(np.uint32)
    for backend in BACKENDS:
        found = Bench(lines, ["R4", "R6"], ["R0", "P0"], backend).run({"R4": a, "R6": b})
        fast = 0
        for x, y, quotient, slow in zip(a.tolist(), b.tolist(), found["R0"].tolist(), found["P0"].tolist()):
            ex, ey = x >> 23 & 255, y >> 23 & 255
            assert slow == (ey in (0, 1) or ey >= 252 or ex < 25 or ex == 255 or ex - ey >= 127 or ex - ey < -124)
            if not slow:
                fast += 1
                assert quotient == F32.round(F32.value(x) / F32.value(y)), f"{x:#x} / {y:#x}"
        assert fast > 300


# ------------------------------------------------------------------ doubles


@pytest.mark.parametrize("mode", MODES)
def test_double(mode: str) -> None:
    check(f"DADD{dot(mode)} R0, R4, -R6", "DD", lambda a, b: F64.add(a, b ^ 1 << 63, mode), STRATEGIES, ("R0:64",))
    check(f"DMUL{dot(mode)} R0, R4, R6", "DD", lambda a, b: F64.mul(a, b, mode), STRATEGIES, ("R0:64",))
    check(f"DFMA{dot(mode)} R0, R4, R6, R8", "DDD", lambda a, b, c: F64.fma(a, b, c, mode), STRATEGIES, ("R0:64",))


def tiny_double() -> st.SearchStrategy[int]:
    """Exponents whose products and errors fall below or around the smallest normal number."""
    return st.builds(
        lambda s, e, m: s << 63 | e << 52 | m,
        st.integers(0, 1),
        st.one_of(st.integers(0, 3), st.integers(400, 620), st.integers(1, 1100)),
        st.one_of(st.sampled_from([0, 1, (1 << 52) - 1]), st.integers(0, (1 << 52) - 1)),
    )


@pytest.mark.parametrize("mode", ["RM", "RP", "RZ"])
def test_double_underflow(mode: str) -> None:
    tiny = {"D": tiny_double()}
    check(f"DMUL.{mode} R0, R4, R6", "DD", lambda a, b: F64.mul(a, b, mode), tiny, ("R0:64",))
    check(f"DFMA.{mode} R0, R4, R6, R8", "DDD", lambda a, b, c: F64.fma(a, b, c, mode), tiny, ("R0:64",))


def test_double_nan_payloads() -> None:
    """The second source's NaN wins over the third's, that over the first's; quieted."""
    nans = {"D": st.sampled_from([0x3FF0000000000000, 0x7FF0000000000001, 0xFFF8000000000ABC, 0x7FFFFFFFFFFFFFFF])}

    def passed(*order: int) -> int | None:
        return next((x | 1 << 51 for x in order if F64.is_nan(x)), None)

    check("DADD R0, R4, R6", "DD", lambda a, b: passed(b, a) or F64.add(a, b), nans, ("R0:64",))
    check("DMUL R0, R4, R6", "DD", lambda a, b: passed(b, a) or F64.mul(a, b), nans, ("R0:64",))
    check("DFMA R0, R4, R6, R8", "DDD", lambda a, b, c: passed(b, c, a) or F64.fma(a, b, c), nans, ("R0:64",))


def test_double_minmax_flags() -> None:
    def expected(a: int, b: int) -> tuple[int, int]:
        both = F64.is_nan(a) and F64.is_nan(b)
        if both:
            return 0, 1
        return int(F64.minmax(a, b, True) == a and a != b or F64.is_nan(b)), 0

    check("DSETP.MIN.AND P0, P1, R4, R6, PT", "DD", expected, NEAR, ("P0", "P1"))


def test_square_roots() -> None:
    """A rounded square root by way of RSQ and two steps, as compilers emit it, for normal numbers."""
    import numpy as np
    from sass import BACKENDS, Bench

    lines = [
        "MUFU.RSQ R8, R4",
        "FMUL.FTZ R10, R4, R8",
        "FMUL.FTZ R8, R8, 0.5",
        "FFMA R4, -R10, R10, R4",
        "FFMA R0, R4, R8, R10",
    ]
    rng = np.random.Generator(np.random.PCG64(8))
    a = (rng.integers(64, 190, 1024) << 23 | rng.integers(0, 1 << 23, 1024)).astype(np.uint32)
    for backend in BACKENDS:
        found = Bench(lines, ["R4"], ["R0"], backend).run({"R4": a})["R0"]
        for x, root in zip(a.tolist(), found.tolist()):
            v = F32.value(x)
            # an exact root of v * 4**100, then rounded
            approximate = Fraction(math.isqrt(v.numerator * 4**150 // v.denominator), 2**150)
            assert root == F32.round(approximate), hex(x)
