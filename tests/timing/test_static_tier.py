"""Static tier: each bound on programs where the answer can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from interpreter.isa.pipes import MemoryKind, Pipe
from interpreter.program import CONTROL, Instruction, Operand, OperandKind, Program
from interpreter.trace import COUNTS, EVENT, Trace
from timing.occupancy import CannotLaunch
from timing.reuse import LoadReuse
from timing.static_tier import (
    AtomicUse,
    Scout,
    atomic_use,
    scout_of,
    static_bounds,
    static_estimate,
)
from timing.target import ROW_TIMING, load_target

H200 = load_target("h200")


def kernel(*rows: dict[str, object], registers: int = 32, static_shared: int = 0) -> tuple[Program, np.ndarray]:
    """A program from rows given by pipe, stall and so on, and its ROW_TIMING array."""
    facts = np.zeros(len(rows), ROW_TIMING)
    control = np.zeros(len(rows), CONTROL)
    control["write_barrier"] = control["read_barrier"] = 7
    control["stall"] = 1
    instructions = []
    for i, row in enumerate(rows):
        facts["interval"][i], facts["latency"][i] = 1, 4
        operands: tuple[Operand, ...] = ()
        if "to" in row:
            operands = (Operand(OperandKind.TARGET, value=int(str(row["to"]))),)
        if "groups" in row:
            operands = (Operand(OperandKind.SCOREBOARD, index=0),
                        Operand(OperandKind.IMMEDIATE, value=int(str(row["groups"]))))  # fmt: skip
        for key, value in row.items():
            if key in ROW_TIMING.names:
                facts[key][i] = value
            elif key in CONTROL.names:
                control[key][i] = value
        opcode = str(row.get("opcode", "NOP"))
        instructions.append(Instruction(i, opcode, (), operands, None, opcode, 0, 0))
    program = Program(
        name="k", sm=90, arch="sm_90a", instructions=instructions, control=control, registers=registers,
        static_shared=static_shared, stack=0, parameter_base=0x210, parameter_bytes=0, parameters=[], constants={},
        barriers=0, max_threads=None, required_threads=None, cubin_sha="",
    )  # fmt: skip
    return program, facts


def counted(executed: list[int], ctas: int = 1, **columns: list[int]) -> Scout:
    counts = np.zeros(len(executed), COUNTS)
    counts["instructions_executed"] = executed
    for name, values in columns.items():
        counts[name] = values
    return Scout(counts, ctas)


def load(**more: object) -> dict[str, object]:
    return {"pipe": Pipe.LSU, "memory": MemoryKind.LOAD_GLOBAL, "width": 4, "variable": 1, "latency": 33, **more}


def test_issue_bound() -> None:
    program, rows = kernel(*[{"pipe": Pipe.NONE}] * 1000)
    found = static_bounds(program, H200, 132 * 16 * 3, 128, rows=rows)  # 4 warps, one a sub-core; 48 CTAs an SM
    assert found.occupancy.ctas_per_sm == 16
    assert found.bounds["issue"] == 48 * 1000
    assert found.bound == "issue"
    assert found.cycles >= found.bounds["issue"]
    assert found.warp_instructions == 132 * 48 * 4 * 1000


@pytest.mark.parametrize(
    ("pipe", "interval", "name", "cycles"),
    [(Pipe.ALU, 2, "alu", 2000), (Pipe.XU, 8, "xu", 8000), (Pipe.TENSOR, 6, "tensor", 6000),
     (Pipe.FP64, 2, "fp64", 2000), (Pipe.FMA, 1, "fma", 1000), (Pipe.FMA_HEAVY, 2, "fma", 2000)],
)  # fmt: skip
def test_pipe_bounds(pipe: Pipe, interval: int, name: str, cycles: int) -> None:
    program, rows = kernel(*[{"pipe": pipe, "interval": interval}] * 1000)
    found = static_bounds(program, H200, 132 * 16, 128, rows=rows)
    assert found.bounds[name] == 16 * cycles


def test_the_heavy_half_is_shared_with_plain_fma() -> None:
    program, rows = kernel(*[{"pipe": Pipe.FMA}] * 600, *[{"pipe": Pipe.FMA_HEAVY, "interval": 2}] * 200)
    found = static_bounds(program, H200, 132, 128, rows=rows)
    assert found.bounds["fma"] == 800  # two halves, 16 lanes each: (600 * 2 + 200 * 2) / 2 cycles


def test_a_unit_shared_by_the_sm_is_not_divided_by_its_sub_cores() -> None:
    program, rows = kernel(*[{"pipe": Pipe.FP64, "interval": 16, "shared_per_sm": 1}] * 100)
    found = static_bounds(program, H200, 132, 128, rows=rows)
    assert found.bounds["fp64"] == 4 * 100 * 16


def test_one_warp_uses_one_sub_core() -> None:
    program, rows = kernel(*[{"pipe": Pipe.NONE}] * 100)
    assert static_bounds(program, H200, 1, 32, rows=rows).bounds["issue"] == 100


def test_counts_of_a_scout_replace_the_single_pass() -> None:
    program, rows = kernel({"pipe": Pipe.NONE}, {"pipe": Pipe.ALU, "interval": 2}, {"pipe": Pipe.NONE})
    found = static_bounds(program, H200, 132, 128, scout=counted([8, 800, 0], ctas=2), rows=rows)
    assert found.bounds["alu"] == 400 * 2 / 4
    assert found.scouted
    assert found.warp_instructions == 132 * 404
    with pytest.raises(ValueError, match="counted 2 instructions, k has 3"):
        static_bounds(program, H200, 132, 128, scout=counted([1, 1]), rows=rows)


def test_stall_counts_and_scoreboards_make_the_latency_bound() -> None:
    program, rows = kernel({"stall": 4}, {"stall": 13}, load(stall=2, write_barrier=0), {"wait_mask": 1})
    found = static_bounds(program, H200, 132, 32, rows=rows)
    l2 = (H200.l2.hit_cycles + H200.l2.hit_far_cycles) / 2
    assert found.warp_cycles == pytest.approx(4 + 13 + l2)
    start = H200.launch.cta_start_cycles + H200.launch.cta_end_cycles
    assert found.bounds["latency"] == pytest.approx(found.warp_cycles + start)
    later = static_bounds(program, H200, 132 * 32 * 2 + 1, 32, rows=rows)
    assert later.bounds["latency"] == pytest.approx(3 * (found.warp_cycles + start))


def test_what_a_loop_carries_is_waited_for() -> None:
    """A load at the end of the body, used at its start: the first pass does not wait, every further trip does."""
    body = [{"wait_mask": 1}, load(write_barrier=0), {"opcode": "BRA", "to": 0, "stall": 5}]
    program, rows = kernel(*body)
    found = static_bounds(program, H200, 1, 32, scout=counted([100, 100, 100]), rows=rows)
    l2 = (H200.l2.hit_cycles + H200.l2.hit_far_cycles) / 2
    assert found.warp_cycles == pytest.approx(100 * (l2 + 1), rel=0.01)


def test_independent_loads_overlap() -> None:
    many, rows = kernel(*[load(write_barrier=0, interval=4)] * 8, {"wait_mask": 1})
    l2 = (H200.l2.hit_cycles + H200.l2.hit_far_cycles) / 2
    assert static_bounds(many, H200, 1, 32, rows=rows).warp_cycles == pytest.approx(7 * 4 + l2)


def test_copy_groups_are_waited_for_down_to_the_allowed_number() -> None:
    copy = load(memory=MemoryKind.COPY_ASYNC, width=16, interval=4)
    l2 = (H200.l2.hit_cycles + H200.l2.hit_far_cycles) / 2
    rows_of = [copy, {"opcode": "LDGDEPBAR"}, {"stall": 15}, copy, {"opcode": "LDGDEPBAR"}]
    first, rows = kernel(*rows_of, {"opcode": "DEPBAR", "groups": 1})
    assert static_bounds(first, H200, 1, 32, rows=rows).warp_cycles == pytest.approx(l2)
    both, rows = kernel(*rows_of, {"opcode": "DEPBAR", "groups": 0})
    assert static_bounds(both, H200, 1, 32, rows=rows).warp_cycles == pytest.approx(l2 + 17)


def test_memory_bounds_without_a_scout_take_accesses_as_coalesced() -> None:
    store = {"pipe": Pipe.LSU, "memory": MemoryKind.STORE_GLOBAL, "width": 16}
    program, rows = kernel(load(width=16, interval=4), store)
    grid, moved = 10_000, 10_000 * 8 * 512
    found = static_bounds(program, H200, grid, 256, footprint_bytes=2.0 * moved, l2="cold", rows=rows)
    assert found.l2_bytes == 2 * moved
    assert found.bounds["l2"] == pytest.approx((1 + H200.l2.write_weight) * moved / H200.l2.bytes_per_clk)
    assert found.bounds["dram"] == pytest.approx(2 * moved / (H200.dram_bytes_per_clk * H200.dram.mixed_efficiency))
    assert found.bounds["launch"] == pytest.approx(grid / H200.launch.ctas_per_clk)


def test_warm_l2_keeps_dram_out() -> None:
    program, rows = kernel(load())
    small, large = 1e6, 1e10
    assert static_bounds(program, H200, 1000, 256, footprint_bytes=small, rows=rows).bounds["dram"] == 0
    assert static_bounds(program, H200, 1000, 256, footprint_bytes=small, l2="cold", rows=rows).dram_bytes == small
    assert static_bounds(program, H200, 1000, 256, footprint_bytes=large, rows=rows).dram_bytes == large
    with pytest.raises(ValueError, match="warm"):
        static_bounds(program, H200, 1, 32, l2="hot", rows=rows)


def test_bank_conflicts_and_scattered_lines_fill_the_load_store_unit() -> None:
    shared = {"pipe": Pipe.LSU, "memory": MemoryKind.LOAD_SHARED, "width": 4}
    program, rows = kernel(shared, load())
    scout = counted([4, 4], l1_wavefronts_shared=[4 * 32, 0], l1_tag_requests_global=[0, 4 * 8])
    found = static_bounds(program, H200, 132, 128, scout=scout, rows=rows)
    assert found.bounds["lsu"] == 4 * 32 * H200.shared.pass_cycles + 4 * 8 / H200.l1.tag_lines_per_clk
    scout = counted([4, 4], l2_theoretical_sectors_global=[0, 4 * 32], l1_tag_requests_global=[0, 4 * 8])
    found = static_bounds(program, H200, 132, 128, scout=scout, rows=rows)
    assert found.bounds["lsu"] == 4 * 32 * 32 / H200.l1.bytes_per_clk  # the data take longer than the tags


def test_what_l1_keeps_is_not_asked_of_l2() -> None:
    program, rows = kernel(load())
    scout = counted([100], l2_theoretical_sectors_global=[400])
    assert static_bounds(program, H200, 132, 128, scout=scout, rows=rows).l2_bytes == 132 * 400 * 32
    near = Scout(scout.counts, 1, LoadReuse(first=40, distances=np.full(360, 10.0), ctas=1))
    assert static_bounds(program, H200, 132, 128, scout=near, rows=rows).l2_bytes == 132 * 40 * 32
    far = Scout(scout.counts, 1, LoadReuse(first=40, distances=np.full(360, 1e6), ctas=1))
    assert static_bounds(program, H200, 132, 128, scout=far, rows=rows).l2_bytes == 132 * 400 * 32


def test_l1_is_shared_by_the_resident_ctas() -> None:
    program, rows = kernel(load())
    lines = 1000  # 125 KiB of the 224 that L1 has: enough for one CTA, not for two
    scout = Scout(counted([100], l2_theoretical_sectors_global=[400]).counts, 1, LoadReuse(40, np.full(360, lines), 1))
    assert static_bounds(program, H200, 132, 128, scout=scout, rows=rows).l2_bytes == 132 * 40 * 32
    assert static_bounds(program, H200, 264, 128, scout=scout, rows=rows).l2_bytes == 264 * 400 * 32


def test_what_l2_cannot_keep_is_read_from_dram_again() -> None:
    program, rows = kernel(load())
    reuse = LoadReuse(first=1000, distances=np.full(1000, 10_000.0), ctas=1)
    scout = Scout(counted([100], l2_theoretical_sectors_global=[2000]).counts, 1, reuse)
    small, large = 1e7, 1e9
    assert static_bounds(program, H200, 132, 128, scout=scout, footprint_bytes=small, rows=rows).dram_bytes == 0
    found = static_bounds(program, H200, 132, 128, scout=scout, footprint_bytes=large, rows=rows)
    assert found.dram_bytes == large + 132 * 1000 * 32  # 132 * 10,000 lines are more than L2 holds


def test_launches_bound_by_cta_starts_are_not_slowed_by_other_work() -> None:
    program, rows = kernel(*[{"pipe": Pipe.NONE}] * 100)
    found = static_bounds(program, H200, 100_000, 32, rows=rows)
    assert found.bound == "launch"
    overhead = H200.launch.kernel_overhead_us * H200.clock_mhz
    assert found.cycles == pytest.approx(100_000 / H200.launch.ctas_per_clk + overhead)


def test_time_is_overhead_plus_more_than_the_largest_bound() -> None:
    program, rows = kernel(*[{"pipe": Pipe.ALU, "interval": 2, "stall": 4}] * 200)
    found = static_bounds(program, H200, 132 * 16, 128, rows=rows)
    largest = max(found.bounds.values())
    overhead = H200.launch.kernel_overhead_us * H200.clock_mhz
    assert largest < found.cycles - overhead <= 2 * largest
    assert found.time_us == pytest.approx(found.cycles / H200.clock_mhz)
    assert found.microseconds()[found.bound] == pytest.approx(largest / H200.clock_mhz)


class Shape:
    grid = (12, 11, 1)
    block = (64, 2, 1)
    dynamic_shared = 0


def test_estimate() -> None:
    program, rows = kernel(*[{"pipe": Pipe.ALU, "interval": 2}] * 100)
    alone = static_estimate(program, Shape(), H200, rows=rows)
    assert (alone.tier, alone.target, alone.bound, alone.l2) == ("static", "h200", "latency", "warm")
    assert alone.waves == pytest.approx(132 / (132 * 16))
    assert alone.executed is None and alone.executed_share == 0 and alone.confidence == "low"
    scouted = static_estimate(program, Shape(), H200, scout=counted([4] * 100), rows=rows)
    assert scouted.executed is not None and scouted.executed.sum() == 132 * 400
    assert scouted.executed_share == pytest.approx(1 / 132)
    assert scouted.time_us == pytest.approx(alone.time_us)
    assert sum(scouted.coverage.values()) == pytest.approx(1)


def test_what_cannot_launch_is_refused() -> None:
    program, rows = kernel({"pipe": Pipe.NONE})
    with pytest.raises(CannotLaunch, match=r"needs 147,456 B shared memory a block, the limit is 101,376 B"):
        static_bounds(program, load_target("l40s"), 1, 128, 147456, rows=rows)


def test_spilled_stores_go_to_l2_and_loads_stay_where_they_fit() -> None:
    spill = {"pipe": Pipe.LSU, "memory": MemoryKind.STORE_LOCAL, "width": 16}
    fill = {"pipe": Pipe.LSU, "memory": MemoryKind.LOAD_LOCAL, "width": 16}
    program, rows = kernel(spill, fill, registers=128)
    grid = 132 * 4
    stores = grid * 4 * 512
    program.stack = 64
    small = static_bounds(program, H200, grid, 128, rows=rows)
    assert small.occupancy.ctas_per_sm == 4
    assert small.l2_bytes == stores
    program.stack = 1024  # 4 CTAs of 128 threads: 512 KiB, of which L1 keeps its size
    found = static_bounds(program, H200, grid, 128, rows=rows)
    missed = 1 - found.occupancy.l1_bytes / 2**19
    assert found.l2_bytes == pytest.approx(stores * (1 + missed))
    touched = Scout(counted([4, 4]).counts, 1, local_bytes_per_warp=64 * 32.0)  # a sixteenth of the stack is used
    assert static_bounds(program, H200, grid, 128, rows=rows, scout=touched).l2_bytes == stores


def test_stacks_beyond_l2_go_to_dram() -> None:
    spill = {"pipe": Pipe.LSU, "memory": MemoryKind.STORE_LOCAL, "width": 16}
    program, rows = kernel(spill, registers=32)
    program.stack = 128  # 2048 threads an SM: 35 MB on the chip
    assert static_bounds(program, H200, 132 * 16, 128, rows=rows).dram_bytes == 0
    program.stack = 512  # 138 MB
    found = static_bounds(program, H200, 132 * 16, 128, rows=rows)
    assert found.dram_bytes == found.l2_bytes == 132 * 16 * 4 * 512


def reduction(ctas: int, lines: list[int], same_word: int) -> tuple[np.ndarray, Trace]:
    """A trace of one RED a CTA, each to one sector of its line."""
    _, rows = kernel({"pipe": Pipe.LSU, "memory": MemoryKind.REDUCE_GLOBAL, "width": 4})
    events = np.zeros(ctas, EVENT)
    events["lines"], events["wavefronts"] = 1, same_word
    places = np.array([line << 4 | 1 for line in lines], np.uint64)
    return rows, Trace(list(range(ctas)), 1, events, np.arange(ctas + 1), places, np.arange(ctas + 1))


def test_where_atomics_go() -> None:
    rows, together = reduction(4, [7, 7, 7, 7], 32)
    assert atomic_use(together, rows) == AtomicUse(1, same_word_lanes=32, same_word_float_lanes=0, lines=1, shared=True)
    rows, apart = reduction(4, [7, 8, 9, 10], 1)
    assert atomic_use(apart, rows) == AtomicUse(1, same_word_lanes=1, same_word_float_lanes=0, lines=1, shared=False)
    rows["floating"] = 1
    assert atomic_use(apart, rows) == AtomicUse(1, same_word_lanes=0, same_word_float_lanes=1, lines=1, shared=False)
    counts = np.zeros(1, COUNTS)
    assert scout_of(counts, apart, rows).atomics == atomic_use(apart, rows)
    _, none = kernel(load())
    assert atomic_use(together, none) is None


def test_a_line_that_all_ctas_update_is_a_bottleneck() -> None:
    program, rows = kernel({"pipe": Pipe.LSU, "memory": MemoryKind.REDUCE_GLOBAL, "width": 4})
    counts = counted([1], l2_theoretical_sectors_global=[1], predicated_on_thread_instructions_executed=[32]).counts
    grid = 1000
    hot = static_bounds(program, H200, grid, 32, rows=rows, scout=Scout(counts, 1, None, AtomicUse(1, 32, 0, 1, True)))
    assert hot.bounds["atomics"] == pytest.approx(grid * 32 / H200.l2.same_address_atomics_per_clk)
    adding = Scout(counts, 1, None, AtomicUse(1, 0, 32, 1, True))
    floats = static_bounds(program, H200, grid, 32, rows=rows, scout=adding)
    assert floats.bounds["atomics"] == pytest.approx(grid * 32 / H200.l2.same_address_float_atomics_per_clk)
    cold = static_bounds(program, H200, grid, 32, rows=rows, scout=Scout(counts, 1, None, AtomicUse(1, 1, 0, 1, False)))
    assert cold.bounds["atomics"] == pytest.approx(grid / H200.l2.atomics_per_clk)
