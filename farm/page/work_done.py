"""What a kernel's lines add up to: arithmetic by kind for the roofline, traffic by memory space for the chart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from interpreter.errors import UnsupportedInstruction
from interpreter.isa.pipes import MemoryKind, Pipe, Timing
from interpreter.isa.registry import timing_of
from interpreter.program import RZ, Instruction, OperandKind
from timing.target import Target, TargetError

# operations a lane, by opcode: a fused multiply-add counts as two, packed halves twice
_LANE = {
    "FADD": ("FP32", 1), "FMUL": ("FP32", 1), "FFMA": ("FP32", 2),
    "FADD2": ("FP32", 2), "FMUL2": ("FP32", 2), "FFMA2": ("FP32", 4),
    "HADD2": ("FP16", 2), "HMUL2": ("FP16", 2), "HFMA2": ("FP16", 4),
    "DADD": ("FP64", 1), "DMUL": ("FP64", 1), "DFMA": ("FP64", 2),
}  # fmt: skip
_MATRIX = ("HMMA", "QMMA", "IMMA", "DMMA", "BMMA")
_GROUP = ("HGMMA", "QGMMA", "IGMMA", "BGMMA")
# m, n, k of the warp-wide shapes as SASS spells them
_SHAPES = {
    "884": (8, 8, 4), "8816": (8, 8, 16), "8832": (8, 8, 32), "1684": (16, 8, 4), "1688": (16, 8, 8),
    "16816": (16, 8, 16), "16832": (16, 8, 32), "16864": (16, 8, 64), "168128": (16, 8, 128), "168256": (16, 8, 256),
}  # fmt: skip
_SPACES = {
    MemoryKind.LOAD_GLOBAL: ("global", "load"),
    MemoryKind.COPY_ASYNC: ("global", "copy to shared"),
    MemoryKind.STORE_GLOBAL: ("global", "store"),
    MemoryKind.ATOMIC_GLOBAL: ("global", "atomic"),
    MemoryKind.REDUCE_GLOBAL: ("global", "atomic"),
    MemoryKind.LOAD_SHARED: ("shared", "load"),
    MemoryKind.STORE_SHARED: ("shared", "store"),
    MemoryKind.ATOMIC_SHARED: ("shared", "atomic"),
    MemoryKind.LOAD_LOCAL: ("local", "load"),
    MemoryKind.STORE_LOCAL: ("local", "store"),
}
SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class Operations:
    """Arithmetic of one issue of an instruction: `kind`, operations a lane, operations a warp beside that."""

    kind: str
    lane: float = 0.0
    warp: float = 0.0


def operations(instruction: Instruction) -> Operations | None:
    """Floating-point (or matrix) operations of an instruction; None for all others, register moves among them."""
    opcode = instruction.opcode
    if opcode in _LANE:
        kind, each = _LANE[opcode]
        if opcode == "HFMA2" and _is_move(instruction):
            return None
        return Operations(kind, lane=each)
    if opcode in _MATRIX:
        shape = next((_SHAPES[m] for m in instruction.modifiers if m in _SHAPES), None)
        return None if shape is None else Operations("tensor", warp=2.0 * shape[0] * shape[1] * shape[2])
    if opcode in _GROUP:
        for modifier in instruction.modifiers:
            if match := re.fullmatch(r"(\d+)x(\d+)x(\d+)", modifier):
                m, n, k = map(int, match.groups())
                return Operations("tensor", warp=2.0 * m * n * k / 4)  # four warps issue it together
    return None


def _is_move(instruction: Instruction) -> bool:
    """HFMA2 R4, -RZ, RZ, 0, 0 is how a constant gets into a register."""
    registers = [o for o in instruction.operands[1:] if o.kind is OperandKind.REGISTER]
    return len(registers) >= 2 and all(o.index == RZ for o in registers[:2])


def roofline(
    instructions: Sequence[Instruction | None],
    executed: np.ndarray,
    threads: np.ndarray,
    target: Target,
    time_us: float,
    memory: dict[str, float],
) -> dict[str, Any] | None:
    """Simulated arithmetic rates against the target's roofs; None when the kernel has no such arithmetic.

    `executed` and `threads` count warps and lanes of each instruction over the whole grid. Rates are in 10^9
    operations a second, bandwidths in 10^9 bytes a second. A roof is the rate at which nothing but the kernel's own
    instructions of that kind would issue.
    """
    done: dict[str, float] = {}
    slots: dict[str, float] = {}  # cycles of one sub-core that all instructions of the kind take
    for row, instruction in enumerate(instructions):
        if instruction is None or not executed[row]:
            continue
        found = operations(instruction)
        if found is None:
            continue
        timing = _timing(instruction, target)
        if timing is None:
            continue
        interval, per_sm = _interval(timing, target)
        done[found.kind] = done.get(found.kind, 0.0) + found.lane * threads[row] + found.warp * executed[row]
        # what it could be with all lanes active
        full = found.lane * target.limits.warp_size + found.warp
        shared = target.limits.sub_cores if per_sm else 1
        slots[found.kind] = slots.get(found.kind, 0.0) + executed[row] * interval * shared
        slots[f"{found.kind} full"] = slots.get(f"{found.kind} full", 0.0) + executed[row] * full
    if not done or time_us <= 0:
        return None
    per_second = target.sm_count * target.limits.sub_cores * target.clock_mhz / 1e3  # 10^9 sub-core cycles a second
    l2 = target.l2.bytes_per_clk * target.clock_mhz / 1e3
    dram_bytes = (
        memory.get("dram_read_bytes", 0.0) + memory.get("dram_write_bytes", 0.0) + memory.get("dram_bytes", 0.0)
    )
    l2_bytes = memory.get("l2_read_bytes", 0.0) + memory.get("l2_write_bytes", 0.0) + memory.get("l2_bytes", 0.0)
    kinds = []
    for kind, count in sorted(done.items(), key=lambda item: -item[1]):
        roof = slots[f"{kind} full"] / slots[kind] * per_second
        kinds.append({"kind": kind, "operations": count, "rate": count / time_us / 1e3, "roof": roof})
    return {
        "kinds": kinds,
        "dram_bandwidth": target.dram.gb_per_s,
        "l2_bandwidth": l2,
        "dram_bytes": dram_bytes,
        "l2_bytes": l2_bytes,
    }


def _timing(instruction: Instruction, target: Target) -> Timing | None:
    try:
        return timing_of(instruction, target.sm)
    except UnsupportedInstruction:
        return None


def _interval(timing: Timing, target: Target) -> tuple[float, bool]:
    """Cycles of its pipe that an instruction takes, and whether the pipe is the whole SM's."""
    pipe = target.pipes[timing.pipe]
    interval, shared = pipe.interval, pipe.shared_per_sm
    try:
        entry = target.class_timing(timing.latency)
    except TargetError:
        return interval, shared
    if entry.interval is not None:
        interval, shared = entry.interval, entry.shared_per_sm
    if timing.pipe == Pipe.FMA and target.issue.fma_halves == 2:
        interval = min(interval, pipe.interval)
    return interval, shared


def traffic(
    instructions: Sequence[Instruction | None],
    executed: np.ndarray,
    sectors: np.ndarray,
    wavefronts: np.ndarray,
    sm: int,
) -> list[dict[str, Any]]:
    """Requests of the whole grid by memory space and kind, with their sectors (global) and wavefronts (shared)."""
    totals: dict[tuple[str, str], list[float]] = {}
    for row, instruction in enumerate(instructions):
        if instruction is None or not executed[row]:
            continue
        try:
            timing = timing_of(instruction, sm)
        except UnsupportedInstruction:
            continue
        place = _SPACES.get(timing.memory)
        if place is None:
            continue
        entry = totals.setdefault(place, [0.0, 0.0, 0.0])
        entry[0] += executed[row]
        entry[1] += sectors[row]
        entry[2] += wavefronts[row]
    return [
        {"space": space, "what": what, "requests": n, "sectors": s, "bytes": s * SECTOR_BYTES, "wavefronts": w}
        for (space, what), (n, s, w) in sorted(totals.items())
    ]
