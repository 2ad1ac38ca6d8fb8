"""What every tuner knows of GPUs, on small kernels: the sign of each effect, and its rough size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from interpreter.compile import compile_cubin
from interpreter.decode import load_program
from interpreter.errors import ToolchainError
from interpreter.launch import Launch, pack_arguments
from interpreter.machine import Machine
from interpreter.memory import Memory
from interpreter.toolchain import find_tools
from timing.estimate import Estimate
from timing.sampled import TraceSource, sampled_estimate
from timing.target import load_target

SOURCE = Path(__file__).parents[1] / "data" / "sources" / "sensitivity.cu"
SMS = load_target("h200").sm_count


def _nvcc() -> bool:
    try:
        return find_tools().nvcc is not None
    except ToolchainError:
        return False


pytestmark = pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")


@dataclass
class Run:
    estimate: Estimate
    opcodes: list[str]
    registers: int

    @property
    def cycles(self) -> float:
        return self.estimate.cycles

    def total(self, column: str, opcode: str) -> float:
        values = getattr(self.estimate, column)
        return float(sum(v for v, name in zip(values, self.opcodes) if name.startswith(opcode)))


@cache
def run(kernel: int, grid: int, block: int, target: str = "h200", flags: tuple[str, ...] = (), **macros: object) -> Run:
    model = load_target(target)
    values = {"KERNEL": kernel, **macros}
    compiled = compile_cubin(SOURCE, model.arch, values, ["-O3", *flags])  # type: ignore[arg-type]
    program = load_program(compiled.cubin)
    memory = Memory()
    width = 8 if macros.get("TYPE") == "double" else 4
    buffers = [memory.allocate("out", max(grid * block * width, 4096))]
    if len(program.parameters) == 2:
        size = max(grid * block * 4, block * 48 * 4)
        buffers.insert(0, memory.allocate("in", size))
        memory.view(buffers[0], np.float32, (size // 4,))[:] = 0.5
    launch = Launch((grid, 1, 1), (block, 1, 1), 0, pack_arguments(program, buffers))
    traces = TraceSource(Machine(program, memory, launch), -(-block // 32), len(program.instructions))
    allocations = [(a.address, a.size) for a in memory.allocations]
    estimate = sampled_estimate(program, launch, model, traces, allocations)
    return Run(estimate, [i.opcode for i in program.instructions], program.registers)


def test_a_32_way_bank_conflict_costs_32_wavefronts_and_padding_removes_it() -> None:
    conflict, padded = (run(1, SMS, 256, N=256, STRIDE=s) for s in (32, 33))
    assert conflict.total("wavefronts", "LDS") == 32 * conflict.total("executed", "LDS")
    assert padded.total("wavefronts", "LDS") == padded.total("executed", "LDS")
    assert 8 < conflict.cycles / padded.cycles <= 33


def test_uncoalesced_access_costs_its_sectors() -> None:
    apart, together = (run(2, 64 * SMS, 256, STRIDE=s) for s in (32, 1))
    assert together.total("sectors", "LDG") == 4 * together.total("executed", "LDG")
    assert apart.total("sectors", "LDG") == 32 * apart.total("executed", "LDG")
    assert apart.cycles > 1.5 * together.cycles


def test_spilling_costs() -> None:
    free, limited = run(3, SMS, 256, N=64), run(3, SMS, 256, flags=("-maxrregcount=32",), N=64)
    assert free.total("executed", "LDL") == 0 and limited.total("executed", "LDL") > 0
    assert limited.registers <= 32 < free.registers
    assert limited.cycles > 1.2 * free.cycles


def test_registers_limit_occupancy() -> None:
    free, limited = run(3, 8 * SMS, 1024, N=4), run(3, 8 * SMS, 1024, flags=("-maxrregcount=32",), N=4)
    assert free.estimate.occupancy.limiter == "registers"
    assert free.estimate.occupancy.fraction < limited.estimate.occupancy.fraction == 1.0


def test_vector_loads_help_when_instructions_bound() -> None:
    scalar, vector = (run(4, 8 * SMS, 256, N=256, WIDTH=w) for w in (1, 4))
    assert scalar.total("executed", "LDS") > 3.5 * vector.total("executed", "LDS")
    assert 1.05 < scalar.cycles / vector.cycles < 4


def test_unrolling_past_the_instruction_cache_hurts() -> None:
    small, medium, huge = (run(5, SMS, 128, N=4, UNROLL=u) for u in (64, 512, 16384))
    assert abs(medium.cycles / small.cycles - 1) < 0.25
    assert huge.cycles > 1.3 * small.cycles


def test_one_cta_over_a_full_wave_pays_a_tail() -> None:
    per_sm = run(5, SMS, 1024, N=2, UNROLL=64).estimate.occupancy.ctas_per_sm
    full, over = run(5, per_sm * SMS, 1024, N=2, UNROLL=64), run(5, per_sm * SMS + 1, 1024, N=2, UNROLL=64)
    assert 1.3 < over.cycles / full.cycles <= 2.05


def test_tiny_ctas_pay_the_launch_rate() -> None:
    tiny, usual = run(6, 512 * SMS, 32), run(6, 64 * SMS, 256)
    assert tiny.cycles > 2 * usual.cycles
    assert tiny.estimate.bound == "cta_launch"


@pytest.mark.parametrize("target, least, most", [("h200", 1.5, 2.5), ("rtx4090", 30, 70), ("l40s", 30, 70)])
def test_fp64_is_slow_on_geforce_class_targets(target: str, least: float, most: float) -> None:
    """FP32 over FP64: 2 on datacentre GPUs, 64 on the others (CUDA C++ Programming Guide, arithmetic throughput)."""
    sms = load_target(target).sm_count
    single, double = (run(7, sms, 1024, target, N=256, TYPE=t) for t in ("float", "double"))
    assert least < double.cycles / single.cycles < most


def test_bank_conflicts_of_global_loads() -> None:
    """L1 hands out data through shared memory's banks: a stride of 32 words takes 32 passes, of 33 none more."""
    along, conflict, padded = (run(8, SMS, 1024, N=64, STRIDE=s) for s in (1, 32, 33))
    assert conflict.cycles > 10 * along.cycles
    # 33 lines instead of one: four are looked up a cycle
    assert 1.5 < padded.cycles / along.cycles < 12
    assert conflict.cycles > 2.5 * padded.cycles


def test_constants_beyond_the_first_level_cost() -> None:
    """Measured on an H200: LDC in 35 cycles over 2 KB, in 104 over 3 to 64 KB."""
    small, large = run(9, SMS, 32, N=256, WORDS=256), run(9, SMS, 32, N=256, WORDS=4096)
    assert 50 * 256 < large.cycles - small.cycles < 90 * 256

