"""Whole kernels compiled for four architectures give NumPy's answers on the LLVM back end."""

from __future__ import annotations

import numpy as np
import pytest
from assembly import Run, kernel
from kernels import ARCHITECTURES, branches_answer, case

from interpreter.errors import FarmError, LaunchError, UnsupportedInstruction
from interpreter.launch import Launch, pack_arguments
from interpreter.machine import Machine
from interpreter.memory import Memory

architectures = pytest.mark.parametrize("arch", ARCHITECTURES)


@architectures
def test_sgemm(arch: str) -> None:
    c = case(arch, "sgemm")
    result = c.machine.run()
    assert result.warp_instructions > 0 and result.counts is None and result.trace is None
    exact = c.buffers["a"].astype(np.float64) @ c.buffers["b"]
    assert np.abs(c.buffers["c"] - exact).max() < 1e-5


@architectures
def test_transpose_with_ragged_edges(arch: str) -> None:
    c = case(arch, "transpose")
    c.machine.run()
    assert (c.buffers["out"] == c.buffers["in"].T).all()


@architectures
def test_reduce_with_last_block(arch: str) -> None:
    """The last CTA to finish sees the others' sums; any order of CTAs gives the same total."""
    for order in (range(5), [3, 0, 4, 1, 2]):
        c = case(arch, "reduce")
        c.machine.run(list(order))
        assert c.buffers["total"][0] == c.buffers["in"].sum()
        assert c.buffers["ticket"][0] == 5


@architectures
def test_histogram(arch: str) -> None:
    c = case(arch, "histogram")
    c.machine.run()
    assert (c.buffers["counts"] == np.bincount(c.buffers["keys"] % 64, minlength=64)).all()


@architectures
def test_branches_calls_and_local_arrays(arch: str) -> None:
    c = case(arch, "branches")
    c.machine.run()
    assert c.buffers["out"].tolist() == [branches_answer(x) for x in range(190)] + [0] * 10


@architectures
def test_lock_between_lanes_warps_and_ctas(arch: str) -> None:
    c = case(arch, "locked")
    c.machine.run(budget=2_000_000)
    assert (c.buffers["lock"][0], c.buffers["value"][0]) == (0, 80)


@architectures
def test_generic_pointers(arch: str) -> None:
    c = case(arch, "generic")
    c.machine.run()
    expected = [[1005 + t, 9, t + 5][t % 3] for t in range(64)]
    assert c.buffers["global"][64:].tolist() == expected


@architectures
def test_float_functions(arch: str) -> None:
    """Division, square root and directed roundings are exact; expf, logf, sinf are within their documented error."""
    c = case(arch, "floats")
    c.machine.run()
    x, y = c.buffers["in"][:64], c.buffers["in"][64:]
    out = c.buffers["out"].reshape(6, 64)
    with np.errstate(all="ignore"):
        assert (out[0] == x / y).all()
        assert (out[1] == np.sqrt(x)).all()
        exact = x.astype(np.float64) * y + 1.0 / y.astype(np.float64)
        assert (out[3] == exact.astype(np.float32)).all()
        small = np.isfinite(exact) & (np.abs(y) > 1e-30) & (np.abs(y) < 1e30)
        wide = np.exp(x.astype(np.float64)) + np.log(y.astype(np.float64)) + np.sin(x.astype(np.float64))
        assert np.abs(out[4] / wide - 1)[small].max() < 1e-6
        assert (out[5] == np.fmod(x, y))[small].all()


def test_counts_add_up() -> None:
    """Counting changes nothing and counts every instruction; a run of chosen CTAs counts those alone."""
    plain, counted = case("sm_90a", "histogram"), case("sm_90a", "histogram")
    issued = plain.machine.run().warp_instructions
    result = counted.machine.run(mode="count")
    assert plain.state() == counted.state()
    assert result.counts is not None and result.trace is None
    assert int(result.counts["instructions_executed"].sum()) == issued == result.warp_instructions
    halves = [case("sm_90a", "histogram").machine.run(ctas, mode="count").counts for ctas in ([0], [1, 2])]
    assert (sum(h["instructions_executed"] for h in halves) == result.counts["instructions_executed"]).all()


def test_runs_repeat_exactly() -> None:
    states = []
    for _ in range(2):
        c = case("sm_90a", "reduce")
        trace = c.machine.run(mode="trace").trace
        states.append((c.state(), trace.events.tobytes(), trace.lines.tobytes()))
    assert states[0] == states[1]


def test_special_registers_and_launch_constants() -> None:
    program = kernel(
        """
        S2R R0, SR_TID.X
        S2R R1, SR_TID.Y
        S2R R4, SR_CTAID.X
        S2UR UR4, SR_CTAID.Y
        S2R R6, SR_LANEID
        S2R R7, SR_LTMASK
        CS2R R8, SRZ
        LDC R10, c[0x0][0x0]
        LDC R11, c[0x0][0x10]
        LDC.64 R2, c[0x0][0x210]
        IMAD R5, R1, R10, R0
        ISETP.NE.AND P0, PT, R5, 0x25, PT
        @P0 EXIT
        ISETP.NE.AND P0, PT, R4, 0x1, PT
        @P0 EXIT
        MOV R12, UR4
        STG.E desc[UR6][R2.64], R0
        STG.E desc[UR6][R2.64+0x4], R1
        STG.E desc[UR6][R2.64+0x8], R12
        STG.E desc[UR6][R2.64+0xc], R6
        STG.E desc[UR6][R2.64+0x10], R7
        STG.E.64 desc[UR6][R2.64+0x18], R8
        STG.E desc[UR6][R2.64+0x20], R10
        STG.E desc[UR6][R2.64+0x24], R11
        EXIT
    """
    )
    with Memory() as memory:
        address = memory.allocate("out", 64)
        launch = Launch((2, 3, 1), (16, 4, 1), 0, pack_arguments(program, [address]))
        Machine(program, memory, launch).run([1, 3, 5])
        out = memory.view(address, np.uint32, 16)
        # thread 37 is (5, 2), lane 5; the last CTA run with x = 1 is (1, 2)
        assert out[:5].tolist() == [5, 2, 2, 5, 31] and out[6:10].tolist() == [0, 0, 16, 3]


def test_unknown_instructions_are_all_named() -> None:
    program = kernel("FROB R1, R2\nMOV R1, R2\nLDG.E.WEIRD R1, [R2.64]\nS2R R1, SR_PM0\nEXIT")
    with pytest.raises(UnsupportedInstruction) as error:
        Run(program)
    assert [address for address, _ in error.value.missing] == [0x00, 0x20]
    assert "modifier .WEIRD of LDG is not modelled" in str(error.value)
    with pytest.raises(UnsupportedInstruction, match="special register SR_PM0"):
        Run(kernel("S2R R1, SR_PM0\nEXIT"))


def test_bad_requests_are_refused() -> None:
    program = kernel("EXIT")
    with pytest.raises(LaunchError, match="CTA 7: the grid has 2"):
        Run(program, grid=2).machine.run([7])
    with pytest.raises(FarmError, match="mode 'fast' is unknown"):
        Run(program).machine.run(mode="fast")
    with pytest.raises(FarmError, match="back end 'cuda' is unknown; known: llvm, numpy"):
        Run(program, backend="cuda")
