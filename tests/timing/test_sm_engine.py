"""The SM engine on hand-made traces: rates and latencies an H200 showed, and rules that must hold exactly."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from interpreter.decode import load_programs
from interpreter.isa.pipes import MemoryKind, Pipe
from interpreter.trace import EVENT
from timing import sm_parameters as sp
from timing.launch_geometry import Geometry
from timing.occupancy import occupancy
from timing.sm_engine import run_sm
from timing.sm_rows import ACTION_BARRIER, ACTION_EXIT, ROW, build_rows
from timing.stalls import N_STALLS, Stall
from timing.target import load_target
from timing.target_parameters import l2_hit_share, parameters

H200 = load_target("h200")
DATA = Path(__file__).parents[1] / "data"
RECORDED = json.loads((Path(__file__).parents[2] / "timing/calibrate/results/h200.json").read_text())["rows"]


@dataclass
class Kernel:
    """Rows of a made-up kernel; `body` runs `repeats` times, then EXIT."""

    rows: list[dict[str, object]] = field(default_factory=list)

    def add(self, pipe: Pipe, **changes: object) -> Kernel:
        self.rows.append({"pipe": int(pipe), **changes})
        return self

    def run(
        self, warps: int, repeats: int = 1, ctas: int = 1, resident: int = 1, lines: list[int] | None = None
    ) -> tuple[float, np.ndarray]:
        """(cycles, stalls); each memory row takes one of `lines` (entries of a trace) a time, cyclically."""
        n = len(self.rows)
        table = np.zeros(n + 1, ROW)
        for name, value in (("write_barrier", 7), ("read_barrier", 7), ("stall", 1), ("interval", 1), ("latency", 4)):
            table[name] = value
        for i, row in enumerate(self.rows):
            for name, value in row.items():
                if name in ROW.names:
                    table[name][i] = value
        table["pipe"][n], table["action"][n], table["stall"][n] = int(Pipe.BRANCH), ACTION_EXIT, 5
        sequence = np.concatenate([np.tile(np.arange(n), repeats), [n]])
        one = np.zeros(len(sequence), EVENT)
        one["row"], one["lanes"] = sequence, 32
        waves = np.array([int(r.get("wavefronts", 1)) for r in self.rows] + [0])
        one["wavefronts"] = np.where(table["memory"][sequence] > 0, waves[sequence], 0)
        entries = np.zeros(0, np.uint64)
        if lines:
            touching = np.isin(table["memory"][sequence], (int(MemoryKind.LOAD_GLOBAL), int(MemoryKind.STORE_GLOBAL)))
            one["lines"] = touching
            entries = np.resize(np.array(lines, np.uint64), int(touching.sum()))
        start = np.arange(warps + 1, dtype=np.int64)
        geometry = Geometry(ctas * H200.sm_count, H200.sm_count, resident)
        occ = occupancy(H200, 32, 32 * warps, 0, 0)
        p = parameters(H200, occ, geometry, 0.0)
        p[sp.CTA_LAUNCH_LATENCY] = p[sp.EXIT_LATENCY] = p[sp.WARP_LAUNCH_INTERVAL] = 0
        p[sp.CTA_LAUNCH_INTERVAL] = 1
        p[sp.L1I_LATENCY] = p[sp.L2I_LATENCY] = 0
        stalls = np.zeros((n + 1, N_STALLS))
        cycles, issued, done, _, _ = run_sm(
            table, np.tile(one, warps), start * len(one), np.tile(entries, warps), start * len(entries), warps,
            np.zeros(ctas, np.int64), resident, p, np.zeros((0, 2), np.int64), np.zeros((0, 4)), 1 << 60, stalls,
            np.zeros(ctas), np.zeros(ctas, np.int64),
        )  # fmt: skip
        assert issued == len(one) * warps * ctas and done == ctas
        return float(cycles), stalls


def rate(kernel: Kernel, warps_per_sub_core: int) -> float:
    """Cycles an instruction and sub-core in the steady state."""
    long, _ = kernel.run(4 * warps_per_sub_core, repeats=60)
    short, _ = kernel.run(4 * warps_per_sub_core, repeats=20)
    return (long - short) / (40 * len(kernel.rows) * warps_per_sub_core)


def recorded(name: str, warps: int) -> float:
    return next(
        r["value"] for r in RECORDED if r["group"] == "slots" and r["name"] == name and r["params"]["warps"] == warps
    )


BANKS = {"EEE": (3, 0), "EEO": (2, 1), "EOO": (1, 2), "OOO": (0, 3), "EOZ": (1, 1), "EEZ": (2, 0)}
UNITS = {
    "FFMA": {"pipe": Pipe.FMA, "interval": 1},
    "IMAD": {"pipe": Pipe.FMA_HEAVY, "interval": 2},
    "IADD3": {"pipe": Pipe.ALU, "interval": 2},
    "LOP3": {"pipe": Pipe.ALU, "interval": 2},
}


def mix(*parts: tuple[str, str]) -> Kernel:
    kernel = Kernel()
    for _ in range(12 // len(parts)):
        for unit, banks in parts:
            even, odd = BANKS[banks]
            kernel.add(reads_even=even, reads_odd=odd, **UNITS[unit])  # type: ignore[arg-type]
    return kernel


@pytest.mark.parametrize("unit", ["FFMA", "IMAD", "IADD3", "LOP3"])
@pytest.mark.parametrize("banks", list(BANKS))
@pytest.mark.parametrize("warps", [1, 2, 4])
def test_register_banks_limit_the_rate_as_on_the_h200(unit: str, banks: str, warps: int) -> None:
    # the benchmark's own loop adds up to 0.1
    assert rate(mix((unit, banks)), warps) == pytest.approx(recorded(f"{unit} {banks}", warps), abs=0.12)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("FFMA + IMAD, all EOZ", ("FFMA", "IMAD")),
        ("2 FFMA + IMAD, all EOZ", ("FFMA", "FFMA", "IMAD")),
        ("FFMA + IADD3, all EOZ", ("FFMA", "IADD3")),
        ("2 FFMA + IADD3, all EOZ", ("FFMA", "FFMA", "IADD3")),
        ("IMAD + IADD3, all EOZ", ("IMAD", "IADD3")),
    ],
)
def test_pipes_run_side_by_side_as_on_the_h200(name: str, parts: tuple[str, ...]) -> None:
    kernel = mix(*((p, "EOZ") for p in parts))
    assert rate(kernel, 4) == pytest.approx(recorded(name, 4), rel=0.07)


@pytest.mark.parametrize("stall", [2, 4, 8, 11, 15])
def test_stall_counts_space_a_lone_warp(stall: int) -> None:
    kernel = Kernel()
    for _ in range(12):
        kernel.add(Pipe.FMA, stall=stall)
    assert rate(kernel, 1) == pytest.approx(recorded(f"FFMA EOZ stall {stall} keep 0", 1), abs=0.12)


def test_a_lone_yielding_warp_loses_a_cycle_two_do_not() -> None:
    kernel = Kernel()
    for _ in range(12):
        kernel.add(Pipe.FMA, yields=1)
    assert rate(kernel, 1) == pytest.approx(recorded("FFMA EOZ stall 1 keep 0", 1), abs=0.12)
    assert rate(kernel, 2) == pytest.approx(recorded("FFMA EOZ stall 1 keep 0", 2), rel=0.06)


@pytest.mark.parametrize("ways", [1, 2, 8, 32])
def test_shared_memory_takes_a_cycle_a_wavefront(ways: int) -> None:
    kernel = Kernel()
    for _ in range(8):
        kernel.add(
            Pipe.LSU, memory=int(MemoryKind.LOAD_SHARED), interval=4, latency=23, variable=1, wavefronts=ways, width=4
        )
    assert rate(kernel, 4) == pytest.approx(4 * ways, rel=0.03)  # four sub-cores share the SM's data stage


def test_a_load_is_waited_for_by_its_scoreboard() -> None:
    kernel = Kernel()
    kernel.add(Pipe.LSU, memory=int(MemoryKind.LOAD_SHARED), latency=23, variable=1, write_barrier=0, stall=2)
    kernel.add(Pipe.FMA, wait_mask=1)
    cycles, stalls = kernel.run(1)
    assert cycles == pytest.approx(23 + 1, abs=2)
    assert stalls[1, Stall.SHORT_SCOREBOARD] == pytest.approx(21, abs=1)


def test_every_warp_cycle_has_one_reason() -> None:
    kernel = mix(("FFMA", "EEO"), ("IADD3", "EOZ"))
    kernel.add(Pipe.LSU, memory=int(MemoryKind.LOAD_SHARED), latency=23, variable=1, write_barrier=0, interval=4)
    kernel.add(Pipe.FMA, wait_mask=1)
    kernel.add(Pipe.BARRIER, action=ACTION_BARRIER, stall=5)
    warps = 8
    cycles, stalls = kernel.run(warps, repeats=5)
    # all warps start at cycle 0 and leave at the end or a little earlier
    assert stalls.sum() <= warps * (cycles + 1)
    assert stalls.sum() >= 0.97 * warps * cycles
    assert stalls[:, Stall.SELECTED].sum() == warps * (5 * len(kernel.rows) + 1)


def test_a_barrier_holds_every_warp_until_the_last() -> None:
    kernel = Kernel()
    kernel.add(Pipe.XU, interval=8, latency=17)
    kernel.add(Pipe.BARRIER, action=ACTION_BARRIER, stall=5)
    alone, _ = kernel.run(1)
    together, stalls = kernel.run(32)
    recorded_32 = next(r["value"] for r in RECORDED if r["name"] == "bar_sync" and r["params"]["warps"] == 32)
    assert together - alone == pytest.approx(recorded_32 - 14, abs=8)
    assert stalls[2, Stall.BARRIER] > 0


@pytest.mark.parametrize("deferred, waits", [(1, 3), (0, 2)])
def test_a_deferred_barrier_lets_vector_instructions_pass(deferred: int, waits: int) -> None:
    """H200, Nsight: behind BAR.DEFER_BLOCKING the first instruction of another kind waits, not the next one."""
    kernel = Kernel()
    kernel.add(Pipe.XU, interval=64)  # staggers the warps
    kernel.add(Pipe.BARRIER, action=ACTION_BARRIER, stall=5, deferred=deferred, held=1)
    kernel.add(Pipe.ALU)
    kernel.add(Pipe.XU, held=1)
    _, stalls = kernel.run(8)
    assert np.flatnonzero(stalls[:, Stall.BARRIER]).tolist() == [waits]


def test_build_rows_holds_what_the_h200_holds_at_a_barrier() -> None:
    program = load_programs([((DATA / "cubins" / "kernels.sm_90a.cubin").read_bytes(), "sgemm")])[0]
    rows = build_rows(program, H200)
    held = {i.opcode: bool(h) for i, h in zip(program.instructions, rows["held"])}
    assert held["LDS"] and held["STS"] and held["BAR"] and held["EXIT"] and held["LDG"]
    assert not (held["FFMA"] or held["LEA"])
    assert all(rows["deferred"] == [i.opcode == "BAR" for i in program.instructions])


def test_a_second_load_of_a_line_hits_l1() -> None:
    kernel = Kernel()
    load = {"memory": int(MemoryKind.LOAD_GLOBAL), "variable": 1, "write_barrier": 0, "width": 4, "stall": 2}
    kernel.add(Pipe.LSU, **load).add(Pipe.FMA, wait_mask=1).add(Pipe.LSU, **load).add(Pipe.FMA, wait_mask=1)
    line = (0x1000 << 4) | 15
    _, stalls = kernel.run(1, lines=[line])
    first, second = stalls[1, Stall.LONG_SCOREBOARD], stalls[3, Stall.LONG_SCOREBOARD]
    l2 = (H200.l2.hit_cycles + H200.l2.hit_far_cycles) / 2
    assert first == pytest.approx(l2, abs=H200.l2.hit_spread_cycles + 6)
    assert second == pytest.approx(H200.class_timing("ldg").latency, abs=6)


def test_runs_are_deterministic() -> None:
    kernel = mix(("FFMA", "EEO"), ("IMAD", "EOO"))
    first, second = kernel.run(16, repeats=30, ctas=4, resident=2), kernel.run(16, repeats=30, ctas=4, resident=2)
    assert first[0] == second[0]
    assert np.array_equal(first[1], second[1])


def test_l2_keeps_small_footprints_and_loses_large_ones() -> None:
    assert l2_hit_share(H200, 30e6) == 1.0
    assert l2_hit_share(H200, 60e6) == 0.0
    shares = [l2_hit_share(H200, f) for f in np.linspace(30e6, 60e6, 20)]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("FFMA 1 EEZ, 1 OOZ", [("EEZ", 1), ("OOZ", 1)]),
        ("FFMA 2 EEZ, 2 OOZ", [("EEZ", 2), ("OOZ", 2)]),
        ("FFMA 4 EEZ, 4 OOZ", [("EEZ", 4), ("OOZ", 4)]),
        ("FFMA 1 EEO, 1 OOE", [("EEO", 1), ("EOO", 1)]),
        ("FFMA 2 EEO, 2 OOE", [("EEO", 2), ("EOO", 2)]),
        ("FFMA EEE, OOO", [("EEE", 1), ("OOO", 1)]),
        ("FFMA EEE, 3 ZZZ", [("EEE", 1), ("ZZZ", 3)]),
        ("FFMA 2 EEZ, 2 ZZZ", [("EEZ", 2), ("ZZZ", 2)]),
        ("FFMA 8 EEZ, 8 ZZZ", [("EEZ", 8), ("ZZZ", 8)]),
    ],
)
def test_reads_of_neighbours_share_the_ports_as_on_the_h200(name: str, pattern: list[tuple[str, int]]) -> None:
    banks = BANKS | {"OOZ": (0, 2), "ZZZ": (0, 0)}
    kernel = Kernel()
    for _ in range(4):
        for kind, count in pattern:
            for _ in range(count):
                kernel.add(Pipe.FMA, reads_even=banks[kind][0], reads_odd=banks[kind][1])
    assert rate(kernel, 4) == pytest.approx(recorded(name, 4), abs=0.08)
