"""The microbenchmarks of the group `lives` through the sampled tier, beside what an H200 showed for the same code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from interpreter.compile import compile_cubin
from interpreter.decode import load_program
from interpreter.launch import Launch, pack_arguments
from interpreter.machine import Machine
from interpreter.memory import Memory
from timing.sampled import TraceSource, sampled_estimate
from timing.target import load_target

H200 = load_target("h200")
CALIBRATE = Path(__file__).parents[2] / "timing/calibrate"
ROWS = [r for r in json.loads((CALIBRATE / "results/h200.json").read_text())["rows"] if r["group"] == "lives"]
MIB = 1 << 20


def recorded(name: str, **params: int | str) -> float:
    found = [r["value"] for r in ROWS if r["name"] == name and all(r["params"][k] == v for k, v in params.items())]
    assert len(found) == 1, (name, params)
    return float(found[0])


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bytes]:
    cache = tmp_path_factory.mktemp("lives")
    yield compile_cubin(CALIBRATE / "sources/lives.cu", "sm_90a", {}, [], cache).cubin


def cycles(cubin: bytes, kernel: str, ctas: int, threads: int, sizes: list[int], scalars: list[int], l2: str) -> float:
    """Cycles of one launch; the kernel takes a small buffer, then those of `sizes` bytes, then `scalars`."""
    program = load_program(cubin, kernel)
    with Memory() as memory:
        bytes_of = [1 << 16, *sizes]
        places = [memory.allocate(f"buffer{i}", size) for i, size in enumerate(bytes_of)]
        launch = Launch((ctas, 1, 1), (threads, 1, 1), 0, pack_arguments(program, [*places, *scalars]))
        traces = TraceSource(Machine(program, memory, launch), threads // 32, len(program.instructions))
        buffers = list(zip(places, bytes_of, strict=True))
        return sampled_estimate(program, launch, H200, traces, buffers, l2=l2).cycles


@pytest.mark.parametrize("threads", [512, 1024])
@pytest.mark.parametrize("words", [1, 8])
@pytest.mark.parametrize(("where", "ctas"), [("l2", 1), ("dram", 1), ("dram", H200.sm_count)])
def test_loads_under_way_are_limited(cubin: bytes, where: str, ctas: int, words: int, threads: int) -> None:
    """1024 loads of an SM at once: as quick from L2 as L1 takes them, but not from DRAM, whose latency is longer."""
    size = 16 * MIB if where == "l2" else 256 * MIB
    found = cycles(
        cubin, f"shifted_{words}", ctas, threads, [size + 8192], [size // 128, 16], "warm" if where == "l2" else "cold"
    )
    hardware = recorded(f"shifted_{where}", ctas=ctas, threads=threads, words=words)
    assert found / 16 == pytest.approx(hardware, rel=0.12)


@pytest.mark.parametrize("loads", [8, 32, 64])
@pytest.mark.parametrize("threads", [32, 512])
def test_a_warp_has_many_loads_under_way(cubin: bytes, loads: int, threads: int) -> None:
    found = cycles(cubin, f"batches_{loads}", 1, threads, [8 * MIB], [8 * MIB // 128, 32], "warm")
    assert found / 32 == pytest.approx(recorded("batches_l2", ctas=1, threads=threads, loads=loads), rel=0.1)


@pytest.mark.parametrize(("threads", "stores"), [(32, 0), (32, 1), (32, 4), (128, 4), (512, 1), (512, 4)])
def test_reads_wait_behind_stores(cubin: bytes, threads: int, stores: int) -> None:
    found = cycles(
        cubin, "load_then_store", 1, threads, [8 * MIB, 8 * MIB], [8 * MIB, 128, stores, min(stores, 1)], "warm"
    )
    hardware = recorded("load_then_store", ctas=1, threads=threads, stores=stores, waits=min(stores, 1))
    assert found / 128 == pytest.approx(hardware, rel=0.12)


@pytest.mark.parametrize(("threads", "mib"), [(128, 4), (256, 4), (256, 1024), (512, 1024), (1024, 1024)])
def test_short_ctas_that_load_and_store(cubin: bytes, threads: int, mib: int) -> None:
    """One element a thread: limited by the launch of CTAs, or by the slowest of a CTA's loads from DRAM."""
    program = load_program(cubin, "touch")
    size = min(mib, 256) * MIB  # beyond L2 it makes no difference
    ctas = 65536 * 256 // max(threads, 128)
    with Memory() as memory:
        places = [memory.allocate("in", size), memory.allocate("out", size)]
        launch = Launch((ctas, 1, 1), (threads, 1, 1), 0, pack_arguments(program, [*places, size // 4]))
        traces = TraceSource(Machine(program, memory, launch), threads // 32, len(program.instructions))
        found = sampled_estimate(program, launch, H200, traces, [(place, size) for place in places])
    assert found.cycles * H200.sm_count / ctas == pytest.approx(recorded("touch", threads=threads, mib=mib), rel=0.1)


@pytest.mark.parametrize("of_16", [0, 1, 4, 8, 16])
def test_shared_and_global_loads_take_turns(cubin: bytes, of_16: int) -> None:
    found = cycles(cubin, f"mixed_{of_16}", 1, 1024, [1 << 16], [128, 32 * max(of_16, 1), 4096], "warm")
    hardware = recorded("mixed_loads", where="l1", ctas=1, threads=1024, global_of_16=of_16)
    assert found / (128 * 16 * 32) == pytest.approx(hardware, rel=0.06)


@pytest.mark.parametrize(("resident", "rows"), [(2, 2048), (4, 2048), (8, 2048), (4, 8192), (8, 8192)])
def test_tiles_that_are_loaded_before_they_are_stored(cubin: bytes, resident: int, rows: int) -> None:
    """CTAs of a load phase and a store phase, in few waves and in many: SMs stay in step."""
    program = load_program(cubin, "rounds")
    ctas, size = 8192 * rows // 4096, 4 * 8192 * rows
    with Memory() as memory:
        sizes = [16 * ctas, size, size]
        places = [memory.allocate(f"buffer{i}", n) for i, n in enumerate(sizes)]
        shared = (220 << 10) // resident - (17 << 10)
        launch = Launch((ctas, 1, 1), (256, 1, 1), shared, pack_arguments(program, [*places, 8192, 1]))
        traces = TraceSource(Machine(program, memory, launch), 8, len(program.instructions))
        found = sampled_estimate(program, launch, H200, traces, list(zip(places, sizes, strict=True)))
    assert 2 * size / found.time_us / 1e3 == pytest.approx(recorded("rounds", resident=resident, rows=rows), rel=0.12)
