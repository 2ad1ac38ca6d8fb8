"""Counters and traces: coalescing, shared-memory wavefronts, events; both back ends give the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from assembly import BACKENDS, PROLOGUE, Run, kernel

from interpreter.trace import LOCAL_LINE

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def counted(program, backend: str, **options):
    run = Run(program, backend=backend, **options)
    return run.machine.run(mode="trace")


def strided(width: str, scale: int, offset: int = 0) -> str:
    """A load of lane * scale + offset bytes."""
    return f"""
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x210]
        IMAD.WIDE.U32 R2, R0, {scale:#x}, R2
        LDG.E{width} R4, desc[UR4][R2.64+{offset:#x}]
        EXIT
    """


@pytest.mark.parametrize(
    ("width", "scale", "offset", "lines", "sectors", "ideal", "passes"),
    [
        # passes: cycles that a load which hits L1 takes on an H200, where lines (4 tags a cycle) do not take longer
        ("", 4, 0, 1, 4, 4, 1),
        ("", 4, 4, 2, 5, 4, 1),  # shifted by a word: one more sector, one more line
        ("", 0, 0, 1, 1, 1, 1),  # all lanes on one word
        ("", 16, 0, 4, 16, 4, 4),
        ("", 36, 0, 9, 32, 4, 1),  # an odd number of words: no conflict
        ("", 48, 0, 12, 32, 4, 4),
        ("", 128, 0, 32, 32, 4, 32),
        ("", 32, 0, 8, 32, 4, 8),
        (".64", 8, 0, 2, 8, 8, 2),
        (".64", 0, 0, 1, 1, 1, 2),  # reading in pairs saves nothing
        (".128", 16, 0, 4, 16, 16, 4),
        (".128", 32, 0, 8, 32, 16, 8),
        (".128", 48, 0, 12, 32, 16, 4),
        (".U8", 1, 0, 1, 1, 1, 1),
        (".U16", 2, 0, 1, 2, 2, 1),
    ],
)
def test_global_lines_sectors_and_passes(
    backend: str, width: str, scale: int, offset: int, lines: int, sectors: int, ideal: int, passes: int
) -> None:
    result = counted(kernel(strided(width, scale, offset)), backend, words=4096)
    row = result.counts[3]
    assert row["l1_tag_requests_global"] == lines
    assert row["l2_theoretical_sectors_global"] == sectors
    assert row["l2_theoretical_sectors_global_ideal"] == ideal
    event = result.trace.events[3]
    assert (event["row"], event["lanes"], event["wavefronts"], event["lines"]) == (3, 32, passes, lines)


def test_line_entries_are_line_numbers_and_sector_masks(backend: str) -> None:
    run = Run(kernel(strided("", 4, 0x10)), backend=backend)
    trace = run.machine.run(mode="trace").trace
    first = run.address >> 7
    assert trace.lines.tolist() == [first << 4 | 0b1111, first + 1 << 4 | 0b0001]


@pytest.mark.parametrize(
    ("line", "passes", "ideal"),
    [
        ("LDS R8, [R4]", 1, 1),  # R4 = 4 * lane
        ("LDS R8, [R5]", 32, 1),  # R5 = 128 * lane: one bank
        ("LDS R8, [R7]", 2, 1),  # R7 = 8 * lane
        ("LDS R8, [RZ+0x400]", 1, 1),
        ("LDS.64 R8, [R7]", 2, 2),
        ("LDS.64 R8, [R5]", 32, 2),
        ("LDS.64 R8, [RZ+0x400]", 1, 1),  # all lanes alike: the half-warps merge
        ("LDS.64 R8, [R10]", 1, 1),  # R10 = 8 * (lane / 2): pairs read alike
        ("LDS.128 R8, [R6]", 4, 4),  # R6 = 16 * lane
        ("LDS.128 R8, [RZ+0x400]", 2, 2),
        ("LDS.128 R8, [R5]", 32, 4),
        ("STS [R4], R0", 1, 1),
        ("STS.64 [R7], R8", 2, 2),
        ("STS.64 [R10], R8", 2, 2),  # stores never merge
        ("STS.128 [R6], R8", 4, 4),
        ("LDSM.16.M88.4 R8, [R6]", 4, 4),
        ("LDSM.16.M88.4 R8, [R5]", 32, 4),
        ("LDSM.16.M88 R8, [R6]", 1, 1),
        ("ATOMS.POPC.INC.32 RZ, [R4]", 1, 1),
    ],
)
def test_shared_wavefronts(backend: str, line: str, passes: int, ideal: int) -> None:
    program = kernel(
        f"""
        S2R R0, SR_TID.X
        IMAD R4, R0, 0x4, RZ
        IMAD R5, R0, 0x80, RZ
        IMAD R6, R0, 0x10, RZ
        IMAD R7, R0, 0x8, RZ
        SHF.R.U32.HI R10, RZ, 0x1, R0
        IMAD.SHL.U32 R10, R10, 0x8, RZ
        {line}
        EXIT
    """,
        shared=8192,
    )
    result = counted(program, backend)
    assert result.counts["l1_wavefronts_shared"][7] == passes
    assert result.counts["l1_wavefronts_shared_ideal"][7] == ideal
    assert result.trace.events["wavefronts"][7] == passes


def test_partial_warps_and_guards(backend: str) -> None:
    """Lanes beyond the block or with a false guard count nowhere; an access by none has no lines."""
    program = kernel(
        PROLOGUE
        + """
        ISETP.LT.U32.AND P0, PT, R0, 0x4, PT
        @P0 LDG.E R4, desc[UR4][R2.64]
        @!PT LDG.E R4, desc[UR4][R2.64]
        @!PT LDS R4, [RZ]
        EXIT
    """
    )
    result = counted(program, backend, block=20)
    counts, events = result.counts, result.trace.events
    assert counts["thread_instructions_executed"].tolist() == [20] * 8
    assert counts["predicated_on_thread_instructions_executed"][4:7].tolist() == [4, 0, 0]
    assert counts["l2_theoretical_sectors_global"][4] == 1
    assert events["lanes"][4:7].tolist() == [4, 0, 0]
    assert events["lines"].tolist() == [0, 0, 0, 0, 1, 0, 0, 0]


def test_global_atomics_record_the_most_lanes_on_one_address(backend: str) -> None:
    program = kernel(
        """
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x210]
        SHF.R.U32.HI R4, RZ, 0x2, R0
        VIMNMX.U32 R4, R4, 0x3, PT
        IMAD.WIDE.U32 R2, R4, 0x40, R2
        REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R0
        EXIT
    """
    )
    trace = counted(program, backend).trace
    assert trace.events["wavefronts"][5] == 32 - 3 * 4
    assert trace.events["lines"][5] == 2


def test_local_lines_are_interleaved_by_thread(backend: str) -> None:
    """One 32-bit access of all lanes is one line; 64 bits are two; lanes at different words are a line each."""
    program = kernel(
        """
        S2R R0, SR_TID.X
        MOV R4, 0x10
        STL [R4], R0
        STL.64 [R4+0x8], R0
        IMAD.SHL.U32 R5, R0, 0x4, RZ
        LOP3.LUT R5, R5, 0x4, RZ, 0xc0, !PT
        LDL R6, [R5]
        EXIT
    """,
        stack=64,
    )
    trace = counted(program, backend).trace
    expected = [LOCAL_LINE + word << 4 | 0b1111 for word in (4, 6, 7, 0, 1)]
    assert trace.lines.tolist() == expected
    assert trace.events["lines"].tolist() == [0, 0, 1, 2, 0, 0, 2, 0]


def test_copies_record_both_sides(backend: str) -> None:
    program = kernel(
        """
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x210]
        IMAD.WIDE.U32 R2, R0, 0x10, R2
        IMAD R4, R0, 0x20, RZ
        ISETP.LT.U32.AND P0, PT, R0, 0x10, PT
        LDGSTS.E.BYPASS.128 [R4], desc[UR4][R2.64], P0
        EXIT
    """,
        shared=1024,
    )
    result = counted(program, backend)
    row = result.counts[5]
    assert (row["l1_tag_requests_global"], row["l2_theoretical_sectors_global"]) == (2, 8)
    assert (row["l1_wavefronts_shared"], row["l1_wavefronts_shared_ideal"]) == (8, 4)  # zeros are stored, too
    event = result.trace.events[5]
    assert (event["lanes"], event["wavefronts"], event["lines"]) == (32, 8, 2)


def test_trace_layout_over_warps_and_ctas(backend: str) -> None:
    """Events and lines of warp w of CTA c lie where warp_start and line_start say."""
    program = kernel(
        """
        S2R R0, SR_TID.X
        S2R R1, SR_CTAID.X
        LDC.64 R2, c[0x0][0x210]
        IMAD R0, R1, 0x40, R0
        IMAD.WIDE.U32 R2, R0, 0x4, R2
        STG.E desc[UR4][R2.64], R0
        EXIT
    """
    )
    run = Run(program, backend=backend, block=64, grid=4)
    trace = run.machine.run([2, 0], mode="trace").trace
    assert trace.ctas == [2, 0] and trace.warps_per_cta == 2
    assert trace.warp_start.tolist() == [0, 7, 14, 21, 28] and trace.line_start.tolist() == [0, 1, 2, 3, 4]
    assert trace.events["row"].tolist() == list(range(7)) * 4
    first = run.address >> 7
    assert (trace.lines >> np.uint64(4)).tolist() == [first + 4, first + 5, first, first + 1]


def test_long_traces_are_whole(backend: str) -> None:
    """More events than a buffer holds: none is lost or repeated."""
    program = kernel(
        """
        LDC.64 R2, c[0x0][0x210]
        MOV R4, RZ
    loop:
        LDG.E R5, desc[UR4][R2.64]
        IADD3 R4, R4, 0x1, RZ
        ISETP.LT.U32.AND P0, PT, R4, 0xbb8, PT
        @P0 BRA loop
        EXIT
    """
    )
    result = counted(program, backend)
    assert len(result.trace.events) == result.warp_instructions == 3 + 4 * 3000
    assert np.bincount(result.trace.events["row"]).tolist() == [1, 1, 3000, 3000, 3000, 3000, 1]
    assert len(result.trace.lines) == 3000
