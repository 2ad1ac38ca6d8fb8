"""SASS read as text, its alignment, and the verdicts' thresholds."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farm.analysis.align import align
from farm.analysis.producers import Producers
from farm.analysis.sass import access_of, normalised, read, written
from farm.analysis.variant import Line
from farm.analysis.verdict import Verdict, judge
from timing.stalls import N_STALLS

LINES = st.lists(
    st.sampled_from(["FFMA R1, R2, R3, R4", "LDS R1, [R2]", "STS [R1], R2", "BAR.SYNC 0x0", "EXIT"]), max_size=12
)


def longest(a: list[str], b: list[str]) -> int:
    """Length of the longest common subsequence, by the plain table."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = row[:]
        for j, y in enumerate(b, 1):
            row[j] = before[j - 1] + 1 if x == y else max(before[j], row[j - 1])
    return row[-1]


@given(LINES, LINES)
@settings(max_examples=300, deadline=None)
def test_alignment_is_a_longest_common_subsequence(a: list[str], b: list[str]) -> None:
    pairs = align(a, b)
    assert [i for i, _ in pairs if i is not None] == list(range(len(a)))
    assert [j for _, j in pairs if j is not None] == list(range(len(b)))
    matched = [(i, j) for i, j in pairs if i is not None and j is not None]
    assert all(normalised(a[i]) == normalised(b[j]) for i, j in matched)
    # common ends are matched first, which never makes the whole shorter
    assert len(matched) == longest([normalised(t) for t in a], [normalised(t) for t in b])


def test_long_kernels_take_no_time() -> None:
    a = [f"FFMA R{i % 200}, R{i % 7}, R3, R4" if i % 5 else f"LDS R1, [R2+{i % 97}]" for i in range(5000)]
    b = [line for i, line in enumerate(a) if i % 11] + ["EXIT"] * 200
    started = time.perf_counter()
    pairs = align(a, b)
    assert time.perf_counter() - started < 3.0
    assert sum(i is not None and j is not None for i, j in pairs) == len(a) - len(range(0, 5000, 11))


def test_renamed_registers_and_moved_targets_are_no_change() -> None:
    a = ["@P0 BRA 0x370", "LDG.E.64 R4, desc[UR6][R4.64+0x10]", "IMAD R7, R3.reuse, 0x8, R8", "BSSY B0, 0x380"]
    b = ["@P2 BRA 0x3a0", "LDG.E.64 R14, desc[UR8][R2.64+0x10]", "IMAD R1, R2, 0x8, R3.reuse", "BSSY B1, 0x3b0"]
    assert align(a, b) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    # other widths, offsets, constants and predicates' senses are changes
    for one, other in (
        ("LDG.E R4, [R2]", "LDG.E.64 R4, [R2]"),
        ("LDS R4, [R2+0x10]", "LDS R4, [R2+0x20]"),
        ("@P0 BRA 0x10", "@!P0 BRA 0x10"),
        ("MOV R1, R2", "MOV R1, RZ"),
        ("LDC R1, c[0x0][0x28]", "LDC R1, c[0x0][0x30]"),
    ):
        assert normalised(one) != normalised(other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LDG.E.128.CONSTANT R4, desc[UR6][R4.64]", ("global", "load", 16)),
        ("@!P0 STG.E.U8 desc[UR6][R2.64], R5", ("global", "store", 1)),
        ("LDSM.16.MT88.4 R8, [R3]", ("shared", "load", 16)),
        ("LDSM.16.M88 R8, [R3]", ("shared", "load", 4)),
        ("ATOMS.POPC.INC.32 RZ, [R1]", ("shared", "atomic", 4)),
        ("REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R4.64], R3", ("global", "atomic", 4)),
        ("LDGSTS.E.BYPASS.128 [R7], desc[UR8][R2.64]", ("global", "copy", 16)),
        ("STL.64 [R1+0x8], R4", ("local", "store", 8)),
        ("FFMA R1, R2, R3, R4", None),
    ],
)
def test_accesses(text: str, expected: tuple[str, str, int] | None) -> None:
    found = access_of(text)
    assert (None if found is None else (found.space, found.kind, found.width)) == expected


def test_registers_read_and_written() -> None:
    assert written("LDG.E.128 R4, desc[UR6][R2.64]") == {"R4", "R5", "R6", "R7"}
    assert written("IMAD.WIDE R2, R7, 0x4, R2") == {"R2", "R3"}
    assert written("STS [R5], R0") == set() and {"R5", "R0"} <= read("STS [R5], R0")
    assert written("SHFL.DOWN PT, R5, R0, 0x10, 0x1f") == {"R5"}
    assert {"R2", "R3", "UR6"} <= read("LDG.E R4, desc[UR6][R2.64]")
    assert written("ISETP.GE.AND P0, PT, R20, UR4, PT") == set()


def test_verdicts() -> None:
    def verdict(a: float, b: float, distance: float = 0.02, same_bound: bool = True, **more) -> Verdict:
        given = {"identical": False, "target": "h200", "confidence": "high", **more}
        return judge(a, b, distance, same_bound, **given).verdict

    assert verdict(10, 10.05) == Verdict.SAME
    assert verdict(10, 10.5) == verdict(10.5, 10) == Verdict.UNSURE
    assert verdict(10, 10.9) == Verdict.SLOWER and verdict(10.9, 10) == Verdict.FASTER
    # other instructions, another bound, or a GPU of guesses: a larger difference is needed, and equality says nothing
    for more in ({"distance": 0.4}, {"same_bound": False}, {"confidence": "low"}):
        assert verdict(10, 10.05, **more) == Verdict.UNSURE
        assert verdict(10, 11, **more) == Verdict.UNSURE and verdict(10, 12.5, **more) == Verdict.SLOWER
    assert verdict(10, 10, distance=0.4, identical=True) == Verdict.SAME
    assert "not compared with hardware" in judge(10, 11, 0.0, True, False, "l40s", "medium").basis


def line(pc: int, sass: str, control: int | None) -> Line:
    return Line(pc, sass, 0, 100.0, 3200.0, 0.0, 0.0, np.zeros(N_STALLS), control=control)


def control(write: int = 7, read: int = 7, waits: int = 0) -> int:
    return 1 | 1 << 4 | write << 5 | read << 8 | waits << 11


CODE = [
    ("LDG.E R2, desc[UR4][R8.64]", control(write=0)),
    ("LDS R3, [R9]", control(write=1)),
    ("MUFU.RCP R4, R5", control(write=1)),
    ("FADD R6, R3, R4", control(waits=0b10)),
    ("FADD R7, R2, R6", control(waits=0b01)),
    ("STG.E desc[UR4][R8.64], R7", control(read=2)),
    ("MOV R7, R10", control(waits=0b100)),
    ("EXIT", control()),
]


def test_what_a_line_waits_for() -> None:
    """By scoreboard where the control fields are known, by registers where not."""
    exact = Producers([line(16 * i, sass, word) for i, (sass, word) in enumerate(CODE)])
    found = exact.find(3, "short_scoreboard")
    assert found is not None and found.sass.startswith("MUFU")  # the nearest of two that share scoreboard 1
    found = exact.find(4, "long_scoreboard")
    assert found is not None and found.sass.startswith("LDG")
    found = exact.find(6, "long_scoreboard")  # no result: the store has yet to read R7
    assert found is not None and found.sass.startswith("STG")
    plain = Producers([line(16 * i, sass, None) for i, (sass, _) in enumerate(CODE)])
    found = plain.find(4, "long_scoreboard")
    assert found is not None and found.sass.startswith("LDG")
    found = plain.find(3, "short_scoreboard")
    assert found is not None and found.sass.split()[0] in ("LDS", "MUFU.RCP")
    assert plain.find(6, "long_scoreboard") is None
