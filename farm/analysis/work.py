"""Findings about the work itself: conflicts, scattered accesses, atomics, spills, the instruction mix, idle lanes."""

from __future__ import annotations

from farm.analysis.causes import (
    ATOMIC_RELIEF,
    CONFLICT,
    SCATTER,
    conflict_relief,
    conflict_words,
    ideal_sectors,
    l2_bytes,
    local_bytes,
    scatter_of,
    ways_of,
)
from farm.analysis.finding import MINOR, Finding
from farm.analysis.residency import cap_words
from farm.analysis.sass import GLOBAL, LOCAL, parts
from farm.analysis.variant import Line, Variant
from farm.analysis.words import amount, bound_words, byte_count, percent
from interpreter.decode import parse_instruction
from interpreter.errors import UnsupportedInstruction
from interpreter.isa.registry import timing_of
from interpreter.operands import OperandError


def _worst(lines: list[tuple[float, Line]]) -> tuple[float, Line]:
    return max(lines, key=lambda pair: (pair[0], -pair[1].pc))


def bank_conflicts(variant: Variant) -> list[Finding]:
    """Shared-memory wavefronts that bank conflicts add, named at the line that adds most."""
    total = sum(line.wavefronts for line in variant.lines)
    excess = [(line.wavefronts * (1 - 1 / ways_of(line)), line) for line in variant.lines if ways_of(line) >= CONFLICT]
    added = sum(value for value, _ in excess)
    if not excess or added < MINOR * total:
        return []
    _, worst = _worst(excess)
    lsu = variant.map("bounds_us").get("lsu", 0.0) / variant.row["time_us"]
    text = (
        f"{conflict_words(worst)} at {variant.place(worst)} ({mnemonic(worst)}): "
        f"{amount(added)} of {amount(total)} shared-memory wavefronts are conflicts ({percent(added / total)}); "
        f"the load/store unit is busy for {percent(lsu)} of the time"
    )
    numbers = {"ways": ways_of(worst), "excess_wavefronts": added, "wavefronts": total, "lsu_share": lsu}
    weight = added / total * max(lsu, 0.05)
    return [Finding("bank_conflict", weight, text, conflict_relief(worst), variant.place(worst), numbers)]


def scattered(variant: Variant) -> list[Finding]:
    """Sectors that uncoalesced accesses add."""
    total = sum(line.sectors for line in variant.lines)
    excess = [
        (line.sectors * (1 - 1 / scatter_of(line)), line)
        for line in variant.lines
        if scatter_of(line) >= SCATTER and not _is_atomic(line)
    ]
    added = sum(value for value, _ in excess)
    if not excess or added < MINOR * total:
        return []
    _, worst = _worst(excess)
    access = worst.access
    assert access is not None
    text = (
        f"uncoalesced {access.kind}s at {variant.place(worst)} ({mnemonic(worst)}): "
        f"{worst.sectors / worst.executed:.3g} sectors a request where {ideal_sectors(worst):.3g} would do; "
        f"{amount(added)} of {amount(total)} sectors are such excess ({percent(added / total)})"
    )
    numbers = {
        "sectors_per_request": worst.sectors / worst.executed,
        "ideal_sectors_per_request": ideal_sectors(worst),
        "excess_sectors": added,
        "sectors": total,
    }
    relief = "let neighbouring lanes access neighbouring addresses, through shared memory where the layout forbids it"
    return [Finding("uncoalesced", added / total, text, relief, variant.place(worst), numbers)]


def global_atomics(variant: Variant) -> list[Finding]:
    """Atomics at L2."""
    lines = [line for line in variant.lines if _is_atomic(line) and line.executed > 0]
    lanes, executed = sum(line.thread_executed for line in lines), sum(line.executed for line in lines)
    issued = sum(line.executed for line in variant.lines)
    if not lines or executed < MINOR * issued:
        return []
    worst = max(lines, key=lambda line: (line.executed, -line.pc))
    text = (
        f"global atomics ({mnemonic(worst)} at {variant.place(worst)} and {len(lines) - 1} more): "
        f"{amount(executed)} warp "
        f"instructions with {amount(lanes)} lanes, {percent(executed / issued)} of all instructions, each served by L2"
    ).replace(" and 0 more", "")
    numbers = {"atomic_instructions": executed, "atomic_lanes": lanes}
    return [Finding("global_atomics", max(0.2, executed / issued), text, ATOMIC_RELIEF, variant.place(worst), numbers)]


def _is_atomic(line: Line) -> bool:
    access = line.access
    return access is not None and access.kind == "atomic" and access.space == GLOBAL


def mnemonic(line: Line) -> str:
    """Opcode with modifiers, without guard and operands."""
    opcode, modifiers, _ = parts(line.sass)
    return ".".join((opcode, *modifiers))


def instruction_mix(variant: Variant) -> list[Finding]:
    """The opcodes that fill the issue slots or a math pipe, when those are what bounds the kernel."""
    if variant.row["bound"] not in ("issue", "alu", "fma", "fma_heavy", "fp16", "fp64", "xu", "uniform"):
        return []
    bound = variant.row["bound"]
    issued = sum(line.executed for line in variant.lines)
    counts: dict[str, float] = {}
    for line in variant.lines if bound == "issue" else on_pipe(variant, bound):
        opcode = parts(line.sass)[0]
        counts[opcode] = counts.get(opcode, 0.0) + line.executed
    total = sum(counts.values())
    if not total:
        return []
    top = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
    text = f"{amount(issued)} warp instructions are issued"
    if bound != "issue":
        text += f", {amount(total)} of them ({percent(total / issued)}) to {bound_words(bound)}"
    text += ": " + ", ".join(f"{name} {percent(count / total)}" for name, count in top if count > 0)
    numbers = {f"share_{name}": count / total for name, count in top}
    relief = _PIPE_RELIEF.get(bound, "fewer operations of that pipe, or cheaper ones that another pipe executes")
    return [Finding("instruction_mix", 0.05, text, relief, "", {"warp_instructions": issued, **numbers})]


_PIPE_RELIEF = {
    "issue": "fewer instructions an element: wider accesses, index arithmetic out of the loop, cheaper operations",
    "xu": "fewer special functions and conversions an element: polynomials on the FMA pipe, values computed once",
    "fp64": "fewer FP64 operations, or FP32 where its precision is enough",
}


def on_pipe(variant: Variant, bound: str) -> list[Line]:
    """The lines that the pipe of a bound executes; all of them for a GPU that is not known here."""
    model = variant.model()
    if model is None:
        return variant.lines
    names = {"fma": ("fma", "fma_heavy")}.get(bound, (bound,))
    found = []
    for line in variant.lines:
        try:
            pipe = timing_of(parse_instruction(line.sass, line.pc), model.sm).pipe
        except (OperandError, UnsupportedInstruction):
            continue
        if pipe.name.lower() in names:
            found.append(line)
    return found


def local_memory(variant: Variant) -> list[Finding]:
    """Spills and local arrays."""
    row = variant.row
    lines = [
        line for line in variant.lines if (a := line.access) is not None and a.space == LOCAL and line.executed > 0
    ]
    executed = sum(line.executed for line in lines)
    issued = sum(line.executed for line in variant.lines)
    cycles = sum(line.cycles for line in lines) / (variant.total_cycles or 1.0)
    stores, loads = row["spill_store_bytes"] or 0, row["spill_load_bytes"] or 0
    numbers = {
        "spill_store_bytes": float(stores),
        "spill_load_bytes": float(loads),
        "stack_bytes": float(row["stack_bytes"] or 0),
        "registers": float(row["registers"] or 0),
        "local_share_of_instructions": executed / issued if issued else 0.0,
    }
    if not (stores or loads or executed):
        return []
    place = variant.place(max(lines, key=lambda line: line.cycles)) if lines else ""
    part = percent(executed / max(issued, 1))
    share = f"{amount(executed)} local loads and stores are executed, {part} of all instructions"
    moved, l2 = local_bytes(variant), l2_bytes(variant)
    if moved and l2:
        numbers |= {"local_bytes": moved, "l2_bytes": l2}
        share += f", and move {byte_count(moved)} (L2 moves {byte_count(l2)} for the whole kernel)"
    if not executed:
        share = "none of them is executed in this launch"
    if stores or loads:
        text = (
            f"spills {stores} bytes to local memory and reads back {loads} bytes a thread, since registers are capped "
            f"at {row['registers']}{cap_words(variant)}; {share}"
        )
        relief = "a higher cap (smaller __launch_bounds__ minimum, larger -maxrregcount), or fewer live values a thread"
        return [Finding("spill", max(cycles, executed / max(issued, 1)), text, relief, place, numbers)]
    text = f"a local array takes {row['stack_bytes']} bytes of stack a thread; {share}"
    relief = "indices known at compile time (unrolled loops), so that the array stays in registers"
    return [Finding("local_array", max(cycles, executed / max(issued, 1)), text, relief, place, numbers)]


def divergence(variant: Variant) -> list[Finding]:
    """Lanes that sit out."""
    executed = sum(line.executed for line in variant.lines)
    lanes = sum(line.thread_executed for line in variant.lines)
    if not executed or not lanes:
        return []
    mean = lanes / executed
    if mean >= 0.85 * min(32, variant.threads):
        return []
    idle = 1 - mean / 32
    text = f"{mean:.3g} of 32 lanes are active in the mean instruction ({percent(idle)} of the lanes' work is lost)"
    relief = "branches that are uniform within a warp, CTAs of whole warps"
    return [Finding("divergence", idle, text, relief, "", {"mean_active_lanes": mean})]
