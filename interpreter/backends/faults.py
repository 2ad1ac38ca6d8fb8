"""Messages of the errors of a running kernel, the same from both back ends."""

from __future__ import annotations

from collections.abc import Sequence

from interpreter.backends import layout
from interpreter.errors import BudgetExceeded, DeadlockError, ExecutionError, MemoryFault
from interpreter.isa import registry
from interpreter.launch import Launch
from interpreter.memory import Memory
from interpreter.program import Program

SPACES = {
    layout.FAULT_GLOBAL: "global",
    layout.FAULT_SHARED: "shared",
    layout.FAULT_LOCAL: "local",
    layout.FAULT_CONSTANT: "constant",
}


def where(program: Program, row: int, launch: Launch, cta: int, warp: int, lane: int | None = None) -> str:
    """ "kernel sgemm, CTA (3, 0, 0), warp 2, lane 5, at 0x01d0: STS [R2], R3"."""
    x, y, z = launch.cta_index(cta)
    text = program.instructions[row].text if 0 <= row < len(program.instructions) else "outside the kernel"
    who = f"warp {warp}" if lane is None else f"warp {warp}, lane {lane}"
    return f"kernel {program.name}, CTA ({x}, {y}, {z}), {who}, at {16 * row:#06x}: {text}"


def fault(
    program: Program,
    memory: Memory,
    launch: Launch,
    *,
    space: int,
    row: int,
    address: int,
    cta: int,
    warp: int,
    lane: int,
    limit: int,
) -> ExecutionError:
    """The error for a recorded fault. `limit`: size of the space (shared, local, constant), bytes."""
    place = where(program, row, launch, cta, warp, lane)
    if space == layout.FAULT_TRAP:
        return ExecutionError(f"{place}: the kernel stopped itself (trap)")
    if space == layout.FAULT_BARRIER:
        return ExecutionError(f"{place}: lanes of one warp wait at different barriers")
    if space == layout.FAULT_TARGET:
        size = 16 * len(program.instructions)
        return ExecutionError(f"{place}: jump to {address:#x}, outside the kernel ({size} bytes)")
    name = SPACES[space]
    instruction = program.instructions[row]
    width = registry.timing_of(instruction, program.sm).width
    if name == "global":
        why = memory.nearest(address)
        owner = memory.find(address)
        if owner is not None and address + width <= owner.end:
            why = f"not aligned to {width} bytes, " + why
    elif address + width > limit:
        why = f"{name} memory has {limit} bytes"
    else:
        why = f"not aligned to {width} bytes"
    return MemoryFault(
        f"{place}: {name} access of {width} bytes at {address:#x}: {why}",
        space=name,
        pc=16 * row,
        address=address,
        cta=cta,
        warp=warp,
        lane=lane,
    )


def budget_exceeded(program: Program, launch: Launch, budget: int, cta: int, warp: int, row: int) -> BudgetExceeded:
    return BudgetExceeded(
        f"{where(program, row, launch, cta, warp)}: more than {budget} instructions of one warp; an endless loop, "
        "or a wait for a CTA that has not run (CTAs run one after another)"
    )


def deadlock(program: Program, launch: Launch, cta: int, waits: Sequence[tuple[int, int, str]]) -> DeadlockError:
    """`waits`: (warp, row, what it waits for) of every blocked warp."""
    x, y, z = launch.cta_index(cta)
    lines = [
        f"  warp {warp} at {16 * row:#06x} ({program.instructions[row].text}) waits for {what}"
        for warp, row, what in waits
    ]
    return DeadlockError(f"kernel {program.name}, CTA ({x}, {y}, {z}): no warp can go on\n" + "\n".join(lines))
