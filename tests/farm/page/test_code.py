"""Reading SASS: what an instruction reads and writes, live registers against nvdisasm, dependences."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import page_runs
import pytest

from farm.page.code import Control, Waits, analyse
from farm.page.register_use import register_name, use_of_text
from interpreter.decode import load_program
from interpreter.toolchain import find_tools
from jobs.evaluate import control_words

CUBINS = Path(__file__).parents[2] / "data" / "cubins"


def names(numbers: tuple[int, ...]) -> str:
    return " ".join(register_name(n) for n in numbers)


@pytest.mark.parametrize(
    ("sass", "reads", "writes"),
    [
        ("FFMA R4, R5.reuse, R6, R4", "R4 R5 R6", "R4"),
        ("IMAD.WIDE R6, R4, 0x4, R6", "R4 R6 R7", "R6 R7"),
        ("LDG.E.128.CONSTANT R12, desc[UR6][R16.64+0x10]", "R16 R17 UR6 UR7", "R12 R13 R14 R15"),
        ("STS.64 [R36+UR4+0x100], R12", "R12 R13 R36 UR4", ""),
        ("HMMA.16816.F32 R24, R4, R8, R24", "R4 R5 R6 R7 R8 R9 R24 R25 R26 R27", "R24 R25 R26 R27"),
        ("@!P3 FADD R1, R2, c[0x0][0x160]", "R2 P3", "R1"),
        ("ISETP.GE.AND P0, PT, R2, UR4, PT", "R2 UR4", "P0"),
        ("DFMA R14, -R6, R12, 1", "R6 R7 R12 R13", "R14 R15"),
        ("MOV R5, RZ", "", "R5"),
        ("EXIT", "", ""),
    ],
)
def test_registers_of_an_instruction(sass: str, reads: str, writes: str) -> None:
    use = use_of_text(sass)
    assert use.known and names(use.reads) == reads and names(use.writes) == writes


def test_equal_operands_are_told_apart() -> None:
    """Forms are cached: R1, R1 must not teach that source and destination are the same for others."""
    use_of_text("IADD3 R9, R9, R9, RZ")
    use = use_of_text("IADD3 R2, R3, R4, RZ")
    assert names(use.reads) == "R3 R4" and names(use.writes) == "R2"


def test_an_instruction_nobody_models() -> None:
    use = use_of_text("TEX.SCR.LL RZ, R7, R4, R5, 0x0, 0x5a, 2D, 0x3")
    assert not use.known


def nvdisasm_live(cubin: Path) -> dict[str, dict[int, int]]:
    """Live general registers by kernel and row, as `nvdisasm -plr` counts them."""
    tool = find_tools().require("nvdisasm")
    done = subprocess.run([tool.path, "-plr", "-c", str(cubin)], capture_output=True, text=True, check=True)
    found: dict[str, dict[int, int]] = {}
    kernel = ""
    for line in done.stdout.splitlines():
        if match := re.match(r"^\.text\.(\S+):", line):
            kernel = match[1]
        elif match := re.match(r"\s+/\*([0-9a-f]{4,})\*/.*?//\s*\|\s*(\d*)", line):
            found.setdefault(kernel, {})[int(match[1], 16) // 16] = int(match[2] or 0)
    return found


@pytest.mark.parametrize(
    ("file", "kernel"),
    [
        ("hgemm_mma.sm_90a.cubin", "hgemm_mma"),
        ("kernels.sm_90a.cubin", "sgemm"),
        ("kernels.sm_80.cubin", "sgemm"),
        ("kernels.sm_80.cubin", "histogram"),
        ("kernels.sm_120a.cubin", "sgemm"),
        ("kernels.sm_100a.cubin", "sgemm"),
    ],
)
def test_live_registers_are_those_of_nvdisasm(file: str, kernel: str) -> None:
    theirs = nvdisasm_live(CUBINS / file)[kernel]
    program = load_program((CUBINS / file).read_bytes(), kernel)
    ours = analyse([i.text for i in program.instructions]).live_registers()
    end = max(row for row, i in enumerate(program.instructions) if i.opcode == "EXIT")
    rows = [row for row in theirs if row <= end]  # behind it: an endless branch and padding
    assert len(rows) > 30
    assert [ours[row] for row in rows] == [theirs[row] for row in rows]


@pytest.mark.parametrize("kernel", ["floats", "branches", "reduce", "locked"])
@pytest.mark.parametrize("file", ["kernels.sm_80.cubin", "kernels.sm_90a.cubin", "kernels.sm_120a.cubin"])
def test_the_most_live_registers_are_those_of_nvdisasm(file: str, kernel: str) -> None:
    """With called functions, guards and jump tables counts may differ, the pressure does not."""
    program = load_program((CUBINS / file).read_bytes(), kernel)
    ours = analyse([i.text for i in program.instructions]).live_registers()
    assert max(ours) == max(nvdisasm_live(CUBINS / file)[kernel].values())


CALLS = [
    "MOV R4, 0x1",  # 0
    "MOV R9, 0x2",  # 1: of the first caller alone
    "CALL.REL.NOINC 0x80",  # 2
    "FADD R9, R9, R5",  # 3
    "MOV R4, R9",  # 4
    "CALL.REL.NOINC 0x80",  # 5
    "STG.E [R2.64], R5",  # 6
    "EXIT",  # 7
    "FMUL R6, R4, R4",  # 8: the function
    "FADD R5, R6, R4",  # 9
    "RET.REL.NODEC R20 0x0",  # 10
]


def test_calls() -> None:
    listing = analyse(CALLS)
    held = [{n for n in bits(mask) if n not in (2, 3, 20, 21)} for mask in listing.live]
    assert held == [{4}, {4, 9}, {4, 5, 9}, {5, 9}, {4, 9}, {4, 5}, {5}, set(), {4, 6, 9}, {4, 5, 6, 9}, {5, 9}]
    assert (2, 5) in listing.producers[3] and (5, 5) in listing.producers[6]  # a result comes from the call
    assert (5, 5) not in listing.producers[3]
    assert {row for row, register in listing.producers[8] if register == 4} == {0, 4}  # arguments from before the calls
    assert (0, 4) in listing.producers[2] and (4, 4) in listing.producers[5]  # what the call itself needs


def test_a_jump_table_leads_to_what_nothing_else_leads_to() -> None:
    listing = analyse(["MOV R5, 0x1", "BRX R2 -0x20", "FADD R6, R5, R5", "EXIT", "FADD R7, R5, R5", "EXIT"])
    assert listing.successors[1] == (2, 4)
    assert 5 in bits(listing.live[1]) and listing.producers[4] == [(0, 5)]


def test_guarded_writes() -> None:
    """A value written and used under one guard is not live before; both sides of a guard make a whole write."""
    live = analyse(
        ["S2R R0, SR_TID.X", "@P0 MOV R5, R0", "@!P0 MOV R5, 0x1", "@P1 MOV R6, 0x2", "@P1 FADD R7, R6, R5", "EXIT"]
    ).live
    assert [5 in bits(mask) for mask in live] == [False, True, True, True, True, False]
    assert [6 in bits(mask) for mask in live] == [False, False, False, True, True, False]
    # without the other side the old value shows through
    live = analyse(["MOV R5, 0x3", "S2R R0, SR_TID.X", "@P0 MOV R5, R0", "FADD R7, R5, R5", "EXIT"]).live
    assert all(5 in bits(mask) for mask in live[:4])


def bits(mask: int) -> set[int]:
    return {n for n in range(256) if mask >> n & 1}


LOOP = [
    "MOV R2, RZ",  # 0
    "LDG.E R4, [R8.64]",  # 1, loop head
    "@P0 MOV R2, 0x7",  # 2
    "FADD R5, R4, R2",  # 3
    "IADD3 R8, R8, 0x4, RZ",  # 4
    "@P1 BRA 0x10",  # 5
    "STG.E [R8.64], R5",  # 6
    "EXIT",  # 7
]


def test_who_wrote_a_register_last() -> None:
    listing = analyse(LOOP)
    assert listing.branches == [(5, 1)]
    assert sorted(listing.producers[3]) == [(0, 2), (1, 4), (2, 2)]  # guarded: the older value may still be there
    assert sorted(listing.producers[1]) == [(4, 8)]  # round the loop
    assert sorted(listing.producers[6]) == [(3, 5), (4, 8)]


def word(stall: int = 1, write: int = 7, read: int = 7, waits: int = 0) -> int:
    return stall | 1 << 4 | write << 5 | read << 8 | waits << 11


def test_who_is_waited_for() -> None:
    control = [word(), word(write=2), word(), word(waits=0b100), word(read=1), word(), word(waits=0b10), word()]
    listing = analyse(LOOP, np.array(control))
    assert listing.controls is not None and listing.controls[1] == Control(1, False, 2, None, ())
    assert listing.waits[3] == [Waits(1, 2, True)]
    assert listing.waits[6] == [Waits(4, 1, False)]
    assert not listing.waits[1] and not listing.waits[7]
    # DEPBAR issues; the line behind it is seen waiting
    waits = analyse(
        ["LDGDEPBAR", "DEPBAR.LE SB0, 0x1", "BAR.SYNC 0x0", "EXIT"], [word(write=0), word(), word(), word()]
    ).waits
    assert waits[1] == waits[2] == [Waits(0, 0, True)] and waits[3] == []


def test_control_words_are_those_of_the_decoder() -> None:
    program = load_program((CUBINS / "kernels.sm_90a.cubin").read_bytes(), "sgemm")
    for value, fields in zip(control_words(program).tolist(), program.control, strict=True):
        control = Control.of(value)
        assert control.stall == fields["stall"] and control.yields == bool(fields["yield_"])
        assert control.write_barrier == (None if fields["write_barrier"] == 7 else fields["write_barrier"])
        assert control.read_barrier == (None if fields["read_barrier"] == 7 else fields["read_barrier"])
        assert sum(1 << n for n in control.waits) == fields["wait_mask"]


def test_every_scoreboard_wait_of_a_kernel_has_a_setter() -> None:
    texts, control = page_runs.real_code("hgemm_mma.sm_90a.cubin", None)
    listing = analyse(texts, control)
    assert listing.controls is not None
    for row, found in enumerate(listing.waits):
        assert {w.number for w in found} >= set(listing.controls[row].waits), texts[row]


def test_text_of_no_known_form() -> None:
    listing = analyse(["FADD R1, R2, R3", "NEWOP <?>", "EXIT"])
    assert listing.instructions[1] is None and len(listing.live) == 3
