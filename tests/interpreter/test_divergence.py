"""Divergence: branches, convergence barriers, exit of some lanes, calls, barriers of the CTA, deadlock and spinning."""

from __future__ import annotations

import numpy as np
import pytest
from assembly import BACKENDS, PROLOGUE, Run, kernel

from interpreter.errors import BudgetExceeded, DeadlockError, ExecutionError

pytestmark = pytest.mark.parametrize("backend", BACKENDS)
LANES = np.arange(32, dtype=np.uint32)


def row_of(program, text: str) -> int:
    return next(i.row for i in program.instructions if text in i.text)


def test_if_else_reconverges(backend: str) -> None:
    """Both sides run with their lanes, and the instruction behind BSYNC runs once with all."""
    program = kernel(
        PROLOGUE
        + """
        ISETP.GE.U32.AND P0, PT, R0, 0xa, PT
        BSSY B0, join
        @P0 BRA high
        MOV R4, 0x1
        BRA meet
    high:
        MOV R4, 0x2
    meet:
        BSYNC B0
    join:
        STG.E desc[UR4][R2.64], R4
        EXIT
    """
    )
    run = Run(program, backend=backend)
    counts = run.machine.run(mode="count").counts
    assert run.out[:32].tolist() == [1] * 10 + [2] * 22
    branch, store = row_of(program, "@P0 BRA"), row_of(program, "STG")
    assert counts["divergent_branches"][branch] == 1
    assert counts["instructions_executed"][store] == 1
    assert counts["thread_instructions_executed"][store] == 32
    assert counts["thread_instructions_executed"][row_of(program, "MOV R4, 0x1")] == 10


def test_loop_with_different_trip_counts(backend: str) -> None:
    """Lane l loops l + 1 times; all leave together."""
    program = kernel(
        PROLOGUE
        + """
        MOV R4, RZ
        BSSY B0, join
    loop:
        IADD3 R4, R4, 0x1, RZ
        ISETP.LE.U32.AND P0, PT, R4, R0, PT
        @P0 BRA loop
        BSYNC B0
    join:
        STG.E desc[UR4][R2.64], R4
        EXIT
    """
    )
    run = Run(program, backend=backend)
    result = run.machine.run(mode="count")
    assert run.out[:32].tolist() == (LANES + 1).tolist()
    assert result.counts["instructions_executed"][row_of(program, "IADD3")] == 32
    assert result.counts["thread_instructions_executed"][row_of(program, "IADD3")] == 32 * 33 // 2
    assert result.counts["instructions_executed"][row_of(program, "STG")] == 1


def test_break_leaves_the_barrier(backend: str) -> None:
    """Lanes that BREAK do not hold up the others' BSYNC, and meet them at the outer one."""
    program = kernel(
        PROLOGUE
        + """
        ISETP.LT.U32.AND P0, PT, R0, 0x8, PT
        MOV R4, 0x5
        BSSY B1, outer
        BSSY B0, inner
        @P0 BREAK B0
        @P0 BRA away
        IADD3 R4, R4, 0x1, RZ
        BSYNC B0
    inner:
        IADD3 R4, R4, 0x1, RZ
    away:
        BSYNC B1
    outer:
        STG.E desc[UR4][R2.64], R4
        EXIT
    """
    )
    run = Run(program, backend=backend)
    counts = run.machine.run(mode="count").counts
    assert run.out[:32].tolist() == [5] * 8 + [7] * 24
    assert counts["instructions_executed"][row_of(program, "STG")] == 1


def test_exited_lanes_do_not_block_convergence(backend: str) -> None:
    program = kernel(
        PROLOGUE
        + """
        ISETP.LT.U32.AND P0, PT, R0, 0x4, PT
        ISETP.LT.U32.AND P1, PT, R0, 0x10, PT
        BSSY B0, join
        @P1 BRA side
        BSYNC B0
        BRA join
    side:
        @P0 EXIT
        BSYNC B0
    join:
        MOV R4, 0x9
        STG.E desc[UR4][R2.64], R4
        EXIT
    """
    )
    run = Run(program, backend=backend)
    run.machine.run()
    assert run.out[:32].tolist() == [0] * 4 + [9] * 28


def test_convergence_from_two_places(backend: str) -> None:
    """Lanes at two BSYNCs of one barrier meet; each goes on behind its own."""
    program = kernel(
        PROLOGUE
        + """
        ISETP.LT.U32.AND P0, PT, R0, 0x10, PT
        MOV R4, 0x1
        BSSY B0, join
        @P0 BRA side
        BSYNC B0
        BRA join
    side:
        MOV R4, 0x2
        BSYNC B0
    join:
        STG.E desc[UR4][R2.64], R4
        EXIT
    """
    )
    run = Run(program, backend=backend)
    run.machine.run()
    assert run.out[:32].tolist() == [2] * 16 + [1] * 16


def test_lanes_that_wait_for_each_other_are_a_deadlock(backend: str) -> None:
    """Half waits at BSYNC for all, half at WARPSYNC for all: the message has both places and the lanes missed."""
    program = kernel(
        PROLOGUE
        + """
        ISETP.LT.U32.AND P0, PT, R0, 0x10, PT
        BSSY B0, join
        @P0 BRA side
        BSYNC B0
    side:
        WARPSYNC.ALL
    join:
        EXIT
    """
    )
    with pytest.raises(DeadlockError) as error:
        Run(program, backend=backend).machine.run()
    text = str(error.value)
    assert "warp 0 at 0x0060 (BSYNC B0) waits for lanes [0, 1, 2" in text
    assert "warp 0 at 0x0070 (WARPSYNC.ALL) waits for lanes [16, 17" in text


def test_call_and_return(backend: str) -> None:
    """Half of the lanes call a function; the return address is in a register."""
    program = kernel(
        PROLOGUE
        + """
        LOP3.LUT R5, R0, 0x1, RZ, 0xc0, !PT
        ISETP.NE.AND P0, PT, R5, RZ, PT
        MOV R4, 0x3
        BSSY B0, join
        @!P0 BRA meet
        MOV R6, back
        MOV R7, RZ
        CALL.REL.NOINC function
    back:
        IADD3 R4, R4, 0x1, RZ
    meet:
        BSYNC B0
    join:
        STG.E desc[UR4][R2.64], R4
        EXIT
    function:
        IADD3 R4, R4, 0x64, RZ
        RET.REL.NODEC R6 0x0
    """
    )
    run = Run(program, backend=backend)
    run.machine.run()
    assert run.out[:32].tolist() == [3, 104] * 16


def test_indirect_branch_per_lane(backend: str) -> None:
    """BRX sends each lane to the case it computed."""
    program = kernel(
        PROLOGUE
        + """
        LOP3.LUT R5, R0, 0x3, RZ, 0xc0, !PT
        IMAD.SHL.U32 R5, R5, 0x20, RZ
        BSSY B0, join
        BRX R5 0x0
        MOV R4, 0xa
        BRA meet
        MOV R4, 0xb
        BRA meet
        MOV R4, 0xc
        BRA meet
        MOV R4, 0xd
        BRA meet
    meet:
        BSYNC B0
    join:
        STG.E desc[UR4][R2.64], R4
        EXIT
    """
    )
    run = Run(program, backend=backend)
    run.machine.run()
    assert run.out[:32].tolist() == [10, 11, 12, 13] * 8


def test_jump_out_of_the_kernel_is_an_error(backend: str) -> None:
    program = kernel("MOV R6, 0x4000\nMOV R7, RZ\nRET.REL.NODEC R6 0x0\nEXIT", parameters=(8,))
    with pytest.raises(ExecutionError, match=r"jump to 0x4000, outside the kernel"):
        Run(program, backend=backend).machine.run()


def test_branch_if_diverged(backend: str) -> None:
    """BRA.DIV is not taken by the whole warp, and is by a part of it."""
    program = kernel(
        PROLOGUE
        + """
        MOV R4, 0x1
        BRA.DIV ~URZ, bad
        ISETP.LT.U32.AND P0, PT, R0, 0x3, PT
        BSSY B0, join
        @P0 BRA side
        BRA meet
    side:
        MOV R4, 0x2
        BRA.DIV ~URZ, diverged
        BRA meet
    diverged:
        MOV R4, 0x3
        BRA meet
    bad:
        MOV R4, 0x63
    meet:
        BSYNC B0
    join:
        STG.E desc[UR4][R2.64], R4
        EXIT
    """
    )
    run = Run(program, backend=backend)
    run.machine.run()
    assert run.out[:32].tolist() == [3] * 3 + [1] * 29


def test_warpsync_brings_lanes_together(backend: str) -> None:
    """WARPSYNC on a mask waits for the lanes of that mask, wherever they come from."""
    program = kernel(
        PROLOGUE
        + """
        ISETP.LT.U32.AND P0, PT, R0, 0x10, PT
        MOV R4, RZ
        @P0 BRA meet
        IADD3 R4, R4, 0x1, RZ
    meet:
        WARPSYNC.ALL
        SHFL.IDX PT, R5, R4, 0x1f, 0x1f
        STG.E desc[UR4][R2.64], R5
        EXIT
    """
    )
    run = Run(program, backend=backend)
    counts = run.machine.run(mode="count").counts
    assert run.out[:32].tolist() == [1] * 32
    assert counts["instructions_executed"][row_of(program, "SHFL")] == 1


def test_spin_lock_inside_a_warp(backend: str) -> None:
    """Each lane takes a lock that others of its warp wait for; BSYNC is behind the loop: YIELD keeps both going."""
    program = kernel(
        """
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x210]
        BSSY B0, got
    spin:
        MOV R4, RZ
        MOV R5, 0x1
        YIELD
        ATOMG.E.CAS.STRONG.GPU PT, R6, [R2], R4, R5
        ISETP.NE.AND P0, PT, R6, RZ, PT
        @P0 BRA spin
        BSYNC B0
    got:
        LDG.E.STRONG.GPU R7, desc[UR4][R2.64+0x4]
        IADD3 R7, R7, 0x1, RZ
        STG.E.STRONG.GPU desc[UR4][R2.64+0x4], R7
        ATOMG.E.EXCH.STRONG.GPU PT, RZ, desc[UR4][R2.64], RZ
        EXIT
    """
    )
    run = Run(program, backend=backend, block=4)
    run.machine.run(budget=200_000)
    assert run.out[:2].tolist() == [0, 4]


def test_warps_spin_on_each_other(backend: str) -> None:
    """Warp 0 waits for a flag that warp 1 sets: a spinning warp gives up its turn."""
    program = kernel(
        """
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x210]
        ISETP.GE.U32.AND P0, PT, R0, 0x20, PT
        MOV R5, 0x1
        @P0 BRA set
    wait:
        LDG.E.STRONG.GPU R4, desc[UR4][R2.64]
        ISETP.EQ.AND P1, PT, R4, RZ, PT
        @P1 BRA wait
        STG.E desc[UR4][R2.64+0x4], R4
        EXIT
    set:
        STG.E desc[UR4][R2.64], R5
        EXIT
    """
    )
    run = Run(program, backend=backend, block=64)
    run.machine.run(budget=100_000)
    assert run.out[:2].tolist() == [1, 1]


def test_endless_loop_meets_its_budget(backend: str) -> None:
    program = kernel("loop:\nBRA loop\nEXIT")
    with pytest.raises(BudgetExceeded, match="more than 500 instructions"):
        Run(program, backend=backend).machine.run(budget=500)


def test_cta_barrier_orders_warps(backend: str) -> None:
    """Every warp writes shared memory, and reads the next warp's word behind the barrier."""
    program = kernel(
        PROLOGUE
        + """
        IMAD.SHL.U32 R4, R0, 0x4, RZ
        STS [R4+0x400], R0
        BAR.SYNC.DEFER_BLOCKING 0x0
        LOP3.LUT R5, R4, 0x80, RZ, 0x3c, !PT
        LDS R6, [R5+0x400]
        STG.E desc[UR4][R2.64], R6
        EXIT
    """,
        shared=1024,
    )
    run = Run(program, backend=backend, block=128)
    run.machine.run()
    assert run.out[:128].tolist() == (np.arange(128) ^ 32).tolist()


def test_exited_warps_count_as_arrived(backend: str) -> None:
    program = kernel(
        PROLOGUE
        + """
        ISETP.GE.U32.AND P0, PT, R0, 0x20, PT
        @P0 EXIT
        BAR.SYNC.DEFER_BLOCKING 0x0
        STG.E desc[UR4][R2.64], R0
        EXIT
    """
    )
    run = Run(program, backend=backend, block=96)
    run.machine.run()
    assert run.out[:96].tolist() == list(range(32)) + [0] * 64


def test_named_barrier_with_count_and_arrive(backend: str) -> None:
    """Warp 0 arrives without waiting, warp 1 waits for 64 threads, warp 2 takes no part."""
    program = kernel(
        PROLOGUE
        + """
        ISETP.GE.U32.AND P0, PT, R0, 0x20, PT
        ISETP.GE.U32.AND P1, PT, R0, 0x40, PT
        MOV R4, 0x7
        @P1 EXIT
        @P0 BRA consumer
        STS [0x400], R4
        BAR.ARV 0x1, 0x40
        EXIT
    consumer:
        BAR.SYNC.DEFER_BLOCKING 0x1, 0x40
        LDS R5, [0x400]
        STG.E desc[UR4][R2.64], R5
        EXIT
    """,
        shared=64,
    )
    run = Run(program, backend=backend, block=96)
    run.machine.run()
    assert run.out[32:64].tolist() == [7] * 32


@pytest.mark.parametrize(
    ("word", "operands"),
    [(0x2, "R6, 0x40"), (0x40, "0x2, R6"), (0x400002, "R6, R6")],
    ids=["id in a register", "threads in a register", "both in one register"],
)
def test_barrier_operands_in_registers(backend: str, word: int, operands: str) -> None:
    """64 of 96 threads meet at barrier 2; the third warp never comes."""
    program = kernel(
        PROLOGUE
        + f"""
        ISETP.GE.U32.AND P1, PT, R0, 0x40, PT
        MOV R6, {word:#x}
        @P1 EXIT
        BAR.SYNC.DEFER_BLOCKING {operands}
        STG.E desc[UR4][R2.64], R6
        EXIT
    """
    )
    run = Run(program, backend=backend, block=96)
    run.machine.run()
    assert run.out[:96].tolist() == [word] * 64 + [0] * 32


@pytest.mark.parametrize(("operation", "expected"), [("POPC", 40), ("AND", 0), ("OR", 1)])
def test_barrier_reduction(backend: str, operation: str, expected: int) -> None:
    program = kernel(
        PROLOGUE
        + f"""
        ISETP.LT.U32.AND P0, PT, R0, 0x28, PT
        BAR.RED.{operation}.DEFER_BLOCKING 0x0, P0
        B2R.RESULT R4, P1
        SEL R5, R4, 0x63, P1
        STG.E desc[UR4][R2.64], R4
        STG.E desc[UR4][R2.64+0x400], R5
        EXIT
    """
    )
    run = Run(program, backend=backend, block=64)
    run.machine.run()
    assert run.out[:64].tolist() == [expected] * 64
    assert run.out[256:320].tolist() == [expected or 0x63] * 64


def test_barrier_missing_a_warp_is_a_deadlock(backend: str) -> None:
    """Warp 0 waits at barrier 0, warp 1 at barrier 1: both are named with what they wait for."""
    program = kernel(
        """
        S2R R0, SR_TID.X
        ISETP.GE.U32.AND P0, PT, R0, 0x20, PT
        @P0 BRA other
        BAR.SYNC.DEFER_BLOCKING 0x0
        EXIT
    other:
        BAR.SYNC.DEFER_BLOCKING 0x1
        EXIT
    """
    )
    with pytest.raises(DeadlockError) as error:
        Run(program, backend=backend, block=64).machine.run()
    assert "warp 0 at 0x0030" in str(error.value) and "barrier 0 (32 of 64 threads arrived)" in str(error.value)
    assert "warp 1 at 0x0050" in str(error.value) and "barrier 1 (32 of 64 threads arrived)" in str(error.value)


def test_barrier_register_moves(backend: str) -> None:
    """BMOV saves and restores a convergence barrier around code that uses the same register."""
    program = kernel(
        PROLOGUE
        + """
        ISETP.LT.U32.AND P0, PT, R0, 0x10, PT
        BSSY B0, join
        BMOV.32.CLEAR R8, B0
        BSSY B0, inner
        BSYNC B0
    inner:
        BMOV.32 B0, R8
        MOV R4, 0x1
        @P0 BRA meet
        MOV R4, 0x2
    meet:
        BSYNC B0
    join:
        STG.E desc[UR4][R2.64], R4
        STG.E desc[UR4][R2.64+0x400], R8
        EXIT
    """
    )
    run = Run(program, backend=backend)
    counts = run.machine.run(mode="count").counts
    assert run.out[:32].tolist() == [1] * 16 + [2] * 16
    assert run.out[256:288].tolist() == [0xFFFFFFFF] * 32
    assert counts["instructions_executed"][row_of(program, "STG")] == 1


def test_trap_stops_with_an_error(backend: str) -> None:
    program = kernel(PROLOGUE + "ISETP.EQ.AND P0, PT, R0, 0x5, PT\n@P0 BPT.TRAP 0x1\nEXIT")
    with pytest.raises(ExecutionError, match=r"warp 0, lane 5, at 0x0040.*stopped itself"):
        Run(program, backend=backend).machine.run()
