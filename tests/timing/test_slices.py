"""L2's slices in the cycle tier: few lines that all SMs read, beside what an H200 gave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from interpreter.compile import compile_cubin
from interpreter.decode import load_program
from interpreter.launch import Launch, pack_arguments
from interpreter.machine import Machine
from interpreter.memory import Memory
from timing.cycle_tier import cycle_estimate
from timing.l2_view import no_chip, slice_of
from timing.target import TARGETS, load_target

H200 = load_target("h200")
CALIBRATE = Path(__file__).parents[2] / "timing/calibrate"
ROWS = [r for r in json.loads((CALIBRATE / "results/h200.json").read_text())["rows"] if r["group"] == "slices"]


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    cache = tmp_path_factory.mktemp("slices")
    return compile_cubin(CALIBRATE / "sources/slices.cu", "sm_90a", {}, [], cache).cubin


@pytest.mark.parametrize("places", [1, 16])
def test_few_lines_that_all_sms_read(cubin: bytes, places: int) -> None:
    """One line gives a seventh of what sixteen do, and those all that the loads under way allow."""
    program, steps = load_program(cubin, "hot_reads"), 32
    with Memory() as memory:
        sizes = {"out": 1 << 12, "data": 16 << 20, "where": 1 << 12}
        at = {name: memory.allocate(name, size) for name, size in sizes.items()}
        lines = np.random.default_rng(1).integers(0, 1 << 17, places)
        memory.view(at["where"], np.uint32, (1024,))[:places] = lines * 128
        arguments = pack_arguments(program, [*at.values(), places, 128, steps])
        launch = Launch((H200.sm_count, 1, 1), (256, 1, 1), 0, arguments)
        buffers = [(at[name], size) for name, size in sizes.items()]
        found = cycle_estimate(program, launch, H200, Machine(program, memory, launch), buffers)
    wanted = {"bytes": 128, "places": places, "order": "at random"}
    [hardware] = [r["value"] for r in ROWS if r["name"] == "hot_reads" and r["params"] == wanted]
    assert H200.sm_count * 8 * 8 * steps * 128 / found.cycles == pytest.approx(hardware, rel=0.2)


def test_lines_spread_over_the_slices() -> None:
    """No slice has more than a quarter above its share, whatever the power of two between the lines."""
    view = no_chip()._replace(slice_free=np.zeros(48))
    for step in (1, 2, 32, 1024, 1 << 15):
        with np.errstate(over="ignore"):  # the hash is meant to
            counts = np.bincount([slice_of.py_func(k * step, view) for k in range(48 * 64)], minlength=48)
        assert counts.max() < 1.5 * 64 and counts.min() > 0.5 * 64


@pytest.mark.parametrize("name", TARGETS)
def test_slices_give_more_than_l2_as_a_whole(name: str) -> None:
    """Only hot lines queue at a slice: together the slices serve more whole lines than L2's data paths."""
    l2 = load_target(name).l2
    assert l2.slices * l2.slice_reads_per_clk * 128 > l2.bytes_per_clk
