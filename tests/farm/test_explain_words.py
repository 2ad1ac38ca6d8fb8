"""What an explanation says of kernels made up for it: that a remedy it names is one for what bounds the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farm.analysis.explain import Explanation, explain
from farm.analysis.variant import REASONS, Line, Variant
from timing.stalls import N_STALLS


def line(pc: int, sass: str, executed: float = 1000.0, **stalls: float) -> Line:
    cycles = np.zeros(N_STALLS)
    for reason, value in stalls.items():
        cycles[REASONS.index(reason)] = value
    return Line(pc, sass, 0, executed, 32 * executed, 0.0, 0.0, cycles)


def variant(lines: list[Line], bounds: dict[str, float], **row: Any) -> Variant:
    """A variant on an H200 that takes 100 us; `bounds` are shares of them."""
    found: dict[str, Any] = {
        "status": "ok", "time_us": 100.0, "measured_us": None, "tier": "sampled", "confidence": "high", "l2": "warm",
        "bound": max(bounds, key=lambda name: bounds[name]) if max(bounds.values()) >= 0.5 else "latency",
        "bounds_us": [(name, 100.0 * share) for name, share in bounds.items()], "memory": [("l2_read_bytes", 1e6)],
        "block_dim": "256x1x1", "grid_dim": "10560x1x1", "ctas_per_sm": 8, "warps_per_sm": 64, "occupancy": 1.0,
        "limiter": "warps", "waves": 10.0, "registers": 32, "warp_instructions": 1e8, "static_shared_bytes": 0,
        "dynamic_shared_bytes": 0, "spill_store_bytes": 0, "spill_load_bytes": 0, "stack_bytes": 0, **row,
    }  # fmt: skip
    return Variant("r", "f", 0, "h200", found, lines, {}, "")


def waiting_load(width: str = "") -> list[Line]:
    return [
        line(0, f"LDG.E{width} R4, desc[UR4][R2.64]", selected=10),
        line(16, "FADD R6, R4, R5", long_scoreboard=1000, selected=10),
    ]


def kinds(found: Explanation) -> set[str]:
    return {finding.kind for finding in found.findings}


def test_waiting_for_data_names_the_width_while_bandwidth_is_left() -> None:
    first = explain(variant(waiting_load(), {"dram": 0.3})).lines[0]
    assert "it loads 4 bytes a lane" in first.text and first.relief.startswith("wider loads (up to 16 bytes a lane)")
    wide = explain(variant(waiting_load(".128"), {"dram": 0.3})).lines[0]
    assert "bytes a lane" not in wide.text and wide.relief.startswith("loads issued earlier")


@pytest.mark.parametrize(
    ("bound", "text", "relief"),
    [
        ("dram", "DRAM bandwidth is used up (95 % of the time)", "fewer bytes from and to DRAM"),
        ("l2", "L2 bandwidth is used up (95 % of the time)", "fewer bytes through L2"),
        ("cta_launch", "at which they are launched (95 % of the time)", "fewer CTAs with more work each"),
    ],
)
def test_loads_issued_earlier_are_no_remedy_for_what_is_used_up(bound: str, text: str, relief: str) -> None:
    first = explain(variant(waiting_load(), {bound: 0.95})).lines[0]
    assert text in first.text and first.relief.startswith(relief)
    full = [line(0, "LDG.E R4, desc[UR4][R2.64]", lg_throttle=100)]
    assert explain(variant(full, {bound: 0.95})).lines[0].relief.startswith(relief)


def test_l2_used_up_by_spills_names_the_spills() -> None:
    spills = [line(32, "STL [R1+0x8], R4", 1e5), line(48, "LDL R4, [R1+0x8]", 1e5)]
    found = explain(
        variant(
            [*waiting_load(), *spills], {"l2": 0.99}, memory=[("l2_read_bytes", 2e7), ("l2_write_bytes", 1e7)],
            spill_store_bytes=8, spill_load_bytes=8,
        )
    )  # fmt: skip
    assert "by local memory for the most (25.6 MB of spills" in found.lines[0].text
    assert "higher register cap" in found.lines[0].relief
    (spill,) = found.findings
    assert "move 25.6 MB (L2 moves 30.0 MB for the whole kernel)" in spill.text


def test_a_busy_load_store_unit_makes_results_late() -> None:
    lines = [line(0, "LDS.128 R4, [R2]", selected=10), line(16, "FFMA R6, R4, R5, R6", short_scoreboard=1000)]
    first = explain(variant(lines, {"lsu": 0.98})).lines[0]
    assert "(no bank conflict), behind a load/store unit that is busy for 98 %" in first.text
    assert first.relief.startswith("fewer and wider shared-memory accesses")
    assert explain(variant(lines, {"lsu": 0.4})).lines[0].relief == "loads issued earlier, several a thread in flight"


def test_a_line_that_waits_for_two_things_is_told_of_both() -> None:
    lines = waiting_load()
    lines[1] = line(16, "FADD R6, R4, R5", not_selected=600, long_scoreboard=400)
    first = explain(variant(lines, {"issue": 0.7})).lines[0]
    assert "not_selected 60 %" in first.text and "the issue slots are busy for 70 % of the time" in first.text
    assert "long_scoreboard 40 %: waits for LDG at 0x0000" in first.text
    assert "only fewer instructions" in first.relief and "loads issued earlier" in first.relief


def test_ready_warps_are_no_matter_where_something_else_bounds() -> None:
    lines = [line(0, "FADD R6, R4, R5", not_selected=600)]
    first = explain(variant(lines, {"dram": 0.97, "issue": 0.2})).lines[0]
    assert first.relief == "nothing here: DRAM bandwidth, busy for 97 %, holds the others up"


def test_what_keeps_warps_from_a_barrier() -> None:
    lines = [
        line(0, "SHFL.DOWN PT, R6, R3, 0x10, 0x1f", selected=10),
        line(16, "FADD R7, R6, R3", short_scoreboard=5000),
        line(32, "BAR.SYNC.DEFER_BLOCKING 0x0", selected=10),
        line(48, "ATOMG.E.ADD.STRONG.GPU PT, R6, desc[UR8][R6.64], R5", selected=10),
        line(64, "ISETP.NE.AND P0, PT, R6, UR5, PT", long_scoreboard=500),
        line(80, "BAR.SYNC.DEFER_BLOCKING 0x0", selected=10),
        line(96, "MOV R1, R2", barrier=6000),
    ]
    first = explain(variant(lines, {"dram": 0.2})).lines[0]
    assert first.text.startswith("barrier 100 %: waits at the barrier at 0x0050")
    assert "on the way there ISETP at 0x0040 waits for ATOMG (long_scoreboard, 4.3 % of all warp-cycles)" in first.text


def test_a_grid_that_leaves_places_empty() -> None:
    found = explain(variant(waiting_load(), {"dram": 0.2}, grid_dim="256x1x1", waves=0.242))
    assert "The grid has 256 CTAs for 1056 places: an SM gets at most 2, 16 warps (25 % of what it can hold)." in (
        found.summary
    )
    small = next(finding for finding in found.findings if finding.kind == "small_grid")
    assert "at most 16 of 64 warps" in small.text and small.numbers["warps_given"] == 16
    assert found.lines[0].relief.endswith("or more CTAs")
    assert not any("places" in sentence for sentence in explain(variant(waiting_load(), {"dram": 0.2})).summary)


def test_what_another_resource_hides_is_not_said_to_cost_time() -> None:
    """Empty places of the last wave, and launching, while something else is busy all the time."""
    shape = {"grid_dim": "1400x1x1", "waves": 1400 / 1056}
    assert "tail" in kinds(explain(variant(waiting_load(), {"lsu": 0.55}, **shape)))
    assert "tail" not in kinds(explain(variant(waiting_load(), {"lsu": 0.99}, **shape)))
    assert "cta_launch" in kinds(explain(variant(waiting_load(), {"dram": 0.55, "cta_launch": 0.3})))
    assert "cta_launch" not in kinds(explain(variant(waiting_load(), {"dram": 0.97, "cta_launch": 0.3})))


def test_the_mix_names_what_the_pipe_executes() -> None:
    lines = [line(0, "MUFU.EX2 R4, R4", 100.0), line(16, "FMUL R5, R4, R4", 800.0), line(32, "I2F.S32 R5, R4", 100.0)]
    (mix,) = [f for f in explain(variant(lines, {"xu": 0.9, "issue": 0.6})).findings if f.kind == "instruction_mix"]
    assert "1000 warp instructions are issued, 200 of them (20 %) to the XU pipe" in mix.text
    assert "I2F 50 %, MUFU 50 %" in mix.text and "FMUL" not in mix.text
    (mix,) = [f for f in explain(variant(lines, {"issue": 0.9})).findings if f.kind == "instruction_mix"]
    assert "FMUL 80 %" in mix.text


def test_no_resource_is_busy_for_longer_than_the_kernel_takes() -> None:
    found = explain(variant(waiting_load(), {"l2": 1.002}))
    assert found.bound_share == 1.0 and "busy for 100.0 of 100.0 us (100 %)" in found.summary[0]
