"""Operations across lanes, with lanes missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest
from oracle import F32, M32, s32
from sass import BACKENDS, Bench

RNG = np.random.Generator(np.random.PCG64(5))
WORDS = RNG.integers(0, 1 << 32, 1024, np.uint64).astype(np.uint32)
FEW = RNG.integers(0, 4, 1024, np.uint64).astype(np.uint32)  # many equal values
# every warp another set of lanes: all, none, one, random ones
SETS = [M32, 0, 1, 1 << 31, 0xFFFF, 0x80000001] + RNG.integers(0, 1 << 32, 26, np.uint64).tolist()
GUARD = np.array([s >> lane & 1 for s in SETS for lane in range(32)], np.uint32)


def warps(*columns: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    return list(zip(*(c.reshape(32, 32).tolist() for c in columns)))  # type: ignore[arg-type]


def run(
    line: str, inputs: dict[str, np.ndarray], outputs: list[str], extra: tuple[str, ...] = ()
) -> list[dict[str, np.ndarray]]:
    return [Bench([line, *extra], list(inputs), outputs, backend).run(inputs) for backend in BACKENDS]


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """(source lane, in range), as PTX's shfl defines it."""
    segment, clamp, b = c >> 8 & 31, c & 31, b & 31
    most = (lane & segment) | (clamp & ~segment & 31)
    if mode == "UP":
        j = lane - b
        return (j, True) if j >= most else (lane, False)
    j = {"DOWN": lane + b, "BFLY": lane ^ b, "IDX": (b & ~segment & 31) | (lane & segment)}[mode]
    return (j, True) if j <= most else (lane, False)


@pytest.mark.parametrize("mode", ["IDX", "UP", "DOWN", "BFLY"])
def test_shuffle(mode: str) -> None:
    b = RNG.integers(0, 64, 1024).astype(np.uint32)
    c = np.repeat([0x1F, 0, 0x181F, 0x1C1F, 0x1C03, 0x1800, 0x100F, 0x1E1F] * 4, 32).astype(np.uint32)
    for found in run(f"SHFL.{mode} P0, R0, R4, R6, R8", {"R4": WORDS, "R6": b, "R8": c}, ["R0", "P0"]):
        for value, count, control, got, flag in warps(WORDS, b, c, found["R0"], found["P0"]):
            for lane in range(32):
                source, inside = shuffled(mode, lane, count[lane], control[lane])
                assert (got[lane], flag[lane]) == (value[source], inside)


def test_shuffle_with_constants() -> None:
    for found in run("SHFL.BFLY PT, R0, R4, 0x10, 0x1f", {"R4": WORDS}, ["R0"]):
        np.testing.assert_array_equal(found["R0"].reshape(-1, 32), WORDS.reshape(-1, 32)[:, np.arange(32) ^ 16])


@pytest.mark.parametrize("mode", ["ALL", "ANY", "EQ"])
def test_vote(mode: str) -> None:
    p = RNG.integers(0, 2, 1024).astype(np.uint32)
    p[:96] = 1
    p[96:128] = 0
    inputs = {"P1": GUARD, "P2": p, "R0": np.full(1024, 7, np.uint32), "P0": np.zeros(1024, np.uint32)}
    for found in run(f"@P1 VOTE.{mode} R0, P0, P2", inputs, ["R0", "P0"]):
        for guard, value, got, flag in warps(GUARD, p, found["R0"], found["P0"]):
            lanes = [k for k in range(32) if guard[k]]
            ballot = sum(value[k] << k for k in lanes)
            holds = {"ALL": all(value[k] for k in lanes), "ANY": any(value[k] for k in lanes)}
            holds["EQ"] = holds["ALL"] or not holds["ANY"]
            for k in range(32):
                assert (got[k], flag[k]) == ((ballot, holds[mode]) if guard[k] else (7, 0))


def test_uniform_vote() -> None:
    p = RNG.integers(0, 2, 1024).astype(np.uint32)
    for found in run("VOTEU.ANY UR8, UP0, !P2", {"P2": p}, ["R0"], ("MOV R0, UR8",)):
        for value, got in warps(p, found["R0"]):
            assert set(got) == {sum((1 - v) << k for k, v in enumerate(value))}


@pytest.mark.parametrize("wide", [False, True])
def test_match_any(wide: bool) -> None:
    inputs = {"P1": GUARD, "R4": FEW, "R5": FEW[::-1].copy()}
    for found in run(f"@P1 MATCH.ANY{'.U64' if wide else ''} R0, R4", inputs, ["R0"]):
        for guard, low, high, got in warps(GUARD, FEW, inputs["R5"], found["R0"]):
            key = list(zip(low, high)) if wide else low
            for k in range(32):
                if guard[k]:
                    assert got[k] == sum(1 << j for j in range(32) if guard[j] and key[j] == key[k])


def test_match_all() -> None:
    values = FEW.copy().reshape(32, 32)
    values[::2] = 9
    values = values.reshape(-1)
    for found in run("@P1 MATCH.ALL P0, R0, R4", {"P1": GUARD, "R4": values}, ["R0", "P0"]):
        for guard, value, got, flag in warps(GUARD, values, found["R0"], found["P0"]):
            lanes = [k for k in range(32) if guard[k]]
            agree = len({value[k] for k in lanes}) == 1
            for k in lanes:
                assert (got[k], flag[k]) == (sum(1 << j for j in lanes) if agree else 0, agree)


REDUCTIONS: dict[str, tuple[Callable[[int, int], int], bool]] = {
    "REDUX": (lambda a, b: a & b, False),
    "REDUX.OR": (lambda a, b: a | b, False),
    "REDUX.XOR": (lambda a, b: a ^ b, False),
    "REDUX.SUM": (lambda a, b: (a + b) & M32, False),
    "REDUX.SUM.S32": (lambda a, b: (a + b) & M32, False),
    "REDUX.MIN": (min, False),
    "REDUX.MAX": (max, False),
    "CREDUX.MIN.S32": (min, True),
    "REDUX.MAX.S32": (max, True),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_redux(name: str) -> None:
    combine, is_signed = REDUCTIONS[name]
    for found in run(f"@P1 {name} UR8, R4", {"P1": GUARD, "R4": WORDS}, ["R0"], ("MOV R0, UR8",)):
        for guard, value, got in warps(GUARD, WORDS, found["R0"]):
            values = [s32(v) if is_signed else v for g, v in zip(guard, value) if g]
            if values:
                assert set(got) == {reduce(combine, values) & M32}


@pytest.mark.parametrize("name", ["MIN", "MAX"])
def test_float_redux(name: str) -> None:
    values = WORDS.copy()
    values[:32] = 0x7FC00000
    values[32:64] = [0, 0x80000000] * 16
    for found in run(f"CREDUX.{name}.F32 UR8, R4", {"R4": values}, ["R0"], ("MOV R0, UR8",)):
        for value, got in warps(values, found["R0"]):
            assert set(got) == {reduce(lambda a, b: F32.minmax(a, b, name == "MIN"), value)}


def test_transpose() -> None:
    for found in run("MOVM.16.MT88 R0, R4", {"R4": WORDS}, ["R0"]):
        for value, got in warps(WORDS, found["R0"]):
            matrix = [[value[4 * r + c // 2] >> (16 * (c % 2)) & 0xFFFF for c in range(8)] for r in range(8)]
            for lane in range(32):
                r, c = lane // 4, 2 * (lane % 4)
                assert got[lane] == matrix[c][r] | matrix[c + 1][r] << 16
