"""The calibration's own code: results file, cubin rewriting, builds. No GPU needed."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from interpreter.errors import CubinError, ToolchainError
from timing.calibrate import build, slots
from timing.calibrate.core import CHAIN_OPS, NATURAL, RATE_ONLY, operands, shape_for
from timing.calibrate.record import Results
from timing.calibrate.run import GROUPS, STEPS

RESULTS = Path(build.__file__).parent / "results" / "h200.json"


@pytest.fixture(scope="module")
def h200() -> dict:
    return json.loads(RESULTS.read_text())


def rows(document: dict, group: str, name: str, **params: int) -> list[dict]:
    return [
        row
        for row in document["rows"]
        if row["group"] == group
        and row["name"] == name
        and all(row["params"].get(key) == value for key, value in params.items())
    ]


def value(document: dict, group: str, name: str, **params: int) -> float:
    found = rows(document, group, name, **params)
    assert len(found) == 1, (group, name, params, len(found))
    return found[0]["value"]


def test_results_say_where_they_come_from(h200: dict) -> None:
    assert h200["failures"] == []
    assert h200["gpu"] == "NVIDIA H200"
    assert h200["attributes"]["sms"] == 132
    assert h200["command"].startswith("python -m timing.calibrate.run")
    for key in ("date", "smi", "arch", "driver_api"):
        assert h200[key]
    for row in h200["rows"]:
        assert row["value"] == row["value"] and row["n"] >= 1 and row["unit"], row


def test_clock_of_the_results(h200: dict) -> None:
    assert value(h200, "clock", "light") == pytest.approx(1980, abs=2)


@pytest.mark.parametrize(
    ("op", "cycles"),
    [
        ("fadd", 1),
        ("iadd3", 2),
        ("imad", 2),
        ("mufu_ex2", 8),
        ("popc", 8),
        ("lds32", 4),
        ("lds128", 16),
        ("hmma_16816_f32", 6),
    ],
)
def test_rates_agree_with_pipe_widths(h200: dict, op: str, cycles: float) -> None:
    """Widths of compute capability 9.0 (CUDA C++ Programming Guide, arithmetic throughput) over four sub-cores."""
    assert value(h200, "rate", op, warps=8) == pytest.approx(cycles, rel=0.1)


def test_bank_conflicts_multiply(h200: dict) -> None:
    for ways in (2, 4, 8, 16, 32):
        assert value(h200, "conflict", "lds32", stride=ways, warps=4) == pytest.approx(4 * ways, rel=0.01)
    assert value(h200, "conflict", "lds32", stride=33, warps=4) == pytest.approx(4, rel=0.01)


def test_latency_rises_with_footprint(h200: dict) -> None:
    chase = {row["params"]["footprint"]: row["value"] for row in rows(h200, "latency", "chase_l2")}
    l1 = {row["params"]["footprint"]: row["value"] for row in rows(h200, "latency", "chase_l1")}
    assert l1[1 << 16] < 40 < 250 < chase[1 << 20] < chase[1 << 25] < 400 < 600 < chase[1 << 31] < 800


def test_median_and_spread() -> None:
    results = Results()
    assert results.add("g", "n", [3.0, 1.0, 2.0], "cycles", warps=4) == 2.0
    row = results.rows[0].row()
    assert row["value"] == 2.0 and row["spread"] == 1.0 and row["n"] == 3 and row["params"] == {"warps": 4}


def test_every_operation_has_its_kernels() -> None:
    """The operations that the runner asks for are instantiated in the part of issue.cu that it takes them from."""
    text = (build.SOURCES / "issue.cu").read_text()
    parts = re.split(r"#(?:el)?if PART == \d", text)[1:]
    assert len(parts) == build.ISSUE_PARTS
    for part, body in enumerate(parts):
        chains = set(re.findall(r"KERNELS\((\w+)\)", body))
        rates = set(re.findall(r"RATE\((\w+)\)", body))
        assert chains == set(CHAIN_OPS[part].split())
        assert rates == set(RATE_ONLY[part].split())
    assert set(NATURAL) <= {op for names in (*CHAIN_OPS, *RATE_ONLY) for op in names.split()}


def test_steps_are_methods() -> None:
    from timing.calibrate.caches import Caches
    from timing.calibrate.core import Core
    from timing.calibrate.grid import Grid
    from timing.calibrate.lives import Lives
    from timing.calibrate.memory import Memory
    from timing.calibrate.slices import Slices

    classes = {"core": Core, "memory": Memory, "caches": Caches, "slices": Slices, "lives": Lives, "grid": Grid}
    assert set(classes) == set(GROUPS)
    for step in STEPS:
        section, _, method = step.partition(".")
        assert callable(getattr(classes[section], method))


def test_operands_differ_by_lane() -> None:
    words = operands()
    assert words.shape == (5, 32)
    assert all(len(set(row.tolist())) == 32 for row in words[:4])
    assert not words[4].any()


class _Gpu:
    sms = 132


@pytest.mark.parametrize(("warps", "grid", "block"), [(1, 132, 128), (8, 132, 1024), (16, 264, 1024)])
def test_shape(warps: int, grid: int, block: int) -> None:
    assert shape_for(_Gpu(), warps) == (grid, block)  # type: ignore[arg-type]


def test_encoded_fields() -> None:
    low, high = struct.unpack("<QQ", slots.encode(slots.Slot("FFMA", 4, 7, 9, reuse=2, stall=5, keep=0), 12))
    assert low & 0xFFF == 0x223 and low >> 12 & 7 == 7
    assert [low >> shift & 0xFF for shift in (16, 24, 32)] == [12, 4, 7] and high & 0xFF == 9
    control = high >> 41
    assert control & 15 == 5 and control >> 4 & 1 == 0 and control >> 17 & 7 == 2
    assert control >> 5 & 63 == 63 and control >> 11 & 63 == 0  # no scoreboards set, none awaited


def test_rewrite_refuses_what_is_no_cubin() -> None:
    with pytest.raises(CubinError, match="ELF"):
        slots.text_section(b"not a cubin at all", "slots")


def test_unknown_measurement_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "timing.calibrate.run", "--out", str(tmp_path / "x.json"), "--groups", "cores"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 2 and "'cores'" in done.stderr and "Traceback" not in done.stderr


def nvcc() -> str | None:
    try:
        from interpreter.toolchain import find_tools

        tool = find_tools().nvcc
        return str(tool.path) if tool else None
    except ToolchainError:
        return None


@pytest.mark.skipif(nvcc() is None, reason="no nvcc")
def test_rewritten_code_is_what_was_asked_for(tmp_path: Path) -> None:
    """Patterns written into the loop come back from the disassembler as written."""
    from interpreter.decode import load_program

    path = nvcc()
    assert path is not None
    cubin = build.compile_unit(path, "slots", "sm_90a", tmp_path)
    wanted = {
        "FFMA EEO": "FFMA R12, R0, R2, R5",
        "IADD3 EOZ": "IADD3 R12, R0, R5, RZ",
        "FADD EO": "FADD R12, R0, R5",
        "FFMA EEE same registers, reuse ABC": "FFMA R12, R0.reuse, R2.reuse, R4.reuse",
        "IMAD one register": "IMAD R12, R0, R0, R0",
    }
    patterns = slots.cases()
    for name, text in wanted.items():
        program = load_program(slots.rewrite(cubin, patterns[name]), "slots")
        found = [i for i in program.instructions if i.text.rstrip(" ;").endswith(text)]
        assert len(found) >= slots.SLOTS // 24, name
    stalled = load_program(slots.rewrite(cubin, patterns["FFMA EOZ stall 7 keep 0"]), "slots")
    control = stalled.control[[i.row for i in stalled.instructions if i.opcode == "FFMA"]]
    assert len(control) == slots.SLOTS and (control["stall"] == 7).all() and (control["yield_"] == 1).all()


@pytest.mark.skipif(nvcc() is None, reason="no nvcc")
def test_chain_kernels_hold_what_they_time(tmp_path: Path) -> None:
    """Between the two clock reads of a chain of n steps stand n instructions of the kind in its name."""
    from interpreter.decode import load_program

    path = nvcc()
    assert path is not None
    cubin = build.compile_unit(path, "issue0", "sm_90a", tmp_path)
    for op, opcode in (("ffma", "FFMA"), ("iadd3", "IADD3"), ("imad_hi", "IMAD"), ("popc", "POPC")):
        for steps in (32, 96):
            program = load_program(cubin, f"chain_{op}_{steps}")
            clocks = [i.row for i in program.instructions if "SR_CLOCKLO" in i.text]
            inside = [i for i in program.instructions[clocks[0] + 1 : clocks[-1]] if i.opcode != "NOP"]
            assert [i.opcode for i in inside] == [opcode] * steps
