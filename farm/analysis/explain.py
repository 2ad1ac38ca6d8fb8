"""A variant explained in plain words: what bounds it, where its warps spend their cycles, what would relieve that.

Every claim comes from the tables and carries its number. Nothing is estimated here: what a change would gain is for
another run to say.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from farm.analysis.causes import (
    ATOMIC_RELIEF,
    CONFLICT,
    SCATTER,
    LineCause,
    conflict_relief,
    conflict_words,
    costliest,
    ideal_sectors,
    scatter_of,
    ways_of,
)
from farm.analysis.sass import GLOBAL, LOCAL, parts
from farm.analysis.variant import Line, Variant, VariantError
from farm.analysis.words import LIMITERS, amount, bound_words, byte_count, percent, reason_words
from timing.occupancy import CannotLaunch, occupancy

BUSY = 0.8  # share of the time from which a resource bounds the kernel, whatever else is said
MINOR = 0.02  # findings about less than this share of accesses or time are left out


@dataclass(slots=True)
class Finding:
    """One thing that costs time, and what would relieve it. `weight` orders findings: roughly the share it touches."""

    kind: str
    weight: float
    text: str
    relief: str
    place: str = ""
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Explanation:
    """What `farm explain` says. All times are simulated, except `measured_us`."""

    run: str
    family: str
    variant: int
    target: str
    tier: str
    parameters: dict[str, int]
    time_us: float
    measured_us: float | None
    confidence: str
    bound: str
    bound_share: float
    bounds_us: dict[str, float]
    summary: list[str]
    stalls: dict[str, float]
    lines: list[LineCause]
    findings: list[Finding]

    def as_dict(self) -> dict[str, Any]:
        return {"simulated": True, **dataclasses.asdict(self)}


def explain(variant: Variant) -> Explanation:
    """Raises VariantError, with the reason, for a variant without an estimate."""
    row = variant.row
    if row["status"] != "ok":
        message = (row["message"] or "").splitlines()
        raise VariantError(
            f"variant {variant.label} on {variant.target} has no estimate: {row['failure']}: "
            f"{message[0] if message else 'no message'}"
        )
    bounds = dict(sorted(variant.map("bounds_us").items(), key=lambda item: (-item[1], item[0])))
    time_us = row["time_us"]
    name = row["bound"]
    share = bounds.get(name, 0.0) / time_us if time_us else 0.0
    return Explanation(
        run=variant.run,
        family=variant.family,
        variant=variant.number,
        target=variant.target,
        tier=row["tier"],
        parameters=variant.parameters,
        time_us=time_us,
        measured_us=row["measured_us"],
        confidence=row["confidence"] or "",
        bound=name,
        bound_share=share,
        bounds_us=bounds,
        summary=_summary(variant, bounds, share),
        stalls=variant.mix(),
        lines=costliest(variant),
        findings=sorted(_findings(variant, share), key=lambda finding: -finding.weight),
    )


def _summary(variant: Variant, bounds: dict[str, float], share: float) -> list[str]:
    """What bounds it, and with how many warps."""
    row, time_us = variant.row, variant.row["time_us"]
    name = row["bound"]
    ranked = [(key, value) for key, value in bounds.items() if key != "latency"]
    out = []
    if name == "latency" or name not in bounds:
        busiest = ranked[0] if ranked else None
        part = busiest[1] / time_us if busiest is not None else 0.0
        text = "Bound by latency: " + ("no resource is busy for half of the time" if part < 0.5 else "the warps wait")
        if busiest is not None:
            text += f" (the busiest, {bound_words(busiest[0])}, for {percent(part)})"
        out.append(text + ("; the warps wait." if part < 0.5 else "."))
    else:
        word = "Bound by" if share >= BUSY else "Mostly bound by"
        text = f"{word} {bound_words(name)}: busy for {_us(bounds[name])} of {_us(time_us)} us ({percent(share)})"
        others = [(key, value) for key, value in ranked if key != name and value >= 0.5 * time_us]
        if others:
            text += f"; next {bound_words(others[0][0])}, {percent(others[0][1] / time_us)}"
        out.append(text + ".")
    traffic = _traffic(variant)
    if traffic:
        out.append(traffic)
    limiter = LIMITERS.get(row["limiter"], row["limiter"])
    ctas = row["ctas_per_sm"]
    if ctas is not None:
        out.append(
            f"{ctas} CTA{'s' if ctas != 1 else ''} of {variant.threads} threads an SM, {row['warps_per_sm']} warps "
            f"({percent(row['occupancy'])} occupancy), limited by {limiter}; {row['registers']} registers a thread."
        )
    if row["tier"] == "static":
        out.append("The static tier bounds the time only: lines and stalls need --tier sampled.")
    mix = [(reason, value) for reason, value in variant.mix().items() if value >= 0.05][:4]
    if mix:
        out.append("Warps are " + "; ".join(f"{percent(v)} {reason_words(r)} ({r})" for r, v in mix) + ".")
    return out


def _traffic(variant: Variant) -> str:
    memory, time_us = variant.map("memory"), variant.row["time_us"]
    reads = memory.get("dram_read_bytes", memory.get("dram_bytes", 0.0))
    dram = reads + memory.get("dram_write_bytes", 0.0)
    l2 = memory.get("l2_read_bytes", memory.get("l2_bytes", 0.0)) + memory.get("l2_write_bytes", 0.0)
    if not l2 or not time_us:
        return ""
    model = variant.model()
    text = f"L2 moves {byte_count(l2)}"
    if dram >= 0.01 * l2:
        text += (
            f", DRAM {byte_count(reads)} read and {byte_count(memory['dram_write_bytes'])} written"
            if "dram_write_bytes" in memory
            else f", DRAM {byte_count(dram)}"
        )
        text += f": {dram / time_us / 1e3:.0f} GB/s"
        if model is not None:
            text += f" of {model.dram.gb_per_s:.0f}"
    else:
        text += ", DRAM next to nothing"
    return text + f" (L2 {variant.row['l2']} at the launch)."


def _findings(variant: Variant, bound_share: float) -> list[Finding]:
    out = [*_conflicts(variant), *_scattered(variant), *_atomics(variant), *_local(variant)]
    out += [*_mix(variant), *_waves(variant), *_launch(variant), *_divergence(variant)]
    if variant.row["bound"] == "latency" or bound_share < BUSY:
        out += _occupancy(variant)
    return out


def _worst(lines: list[tuple[float, Line]]) -> tuple[float, Line]:
    return max(lines, key=lambda pair: (pair[0], -pair[1].pc))


def _conflicts(variant: Variant) -> list[Finding]:
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


def _scattered(variant: Variant) -> list[Finding]:
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


def _atomics(variant: Variant) -> list[Finding]:
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


def _mix(variant: Variant) -> list[Finding]:
    """The opcodes that fill the issue slots or a math pipe, when those are what bounds the kernel."""
    if variant.row["bound"] not in ("issue", "alu", "fma", "fma_heavy", "fp16", "fp64", "xu", "uniform"):
        return []
    counts: dict[str, float] = {}
    for line in variant.lines:
        opcode = parts(line.sass)[0]
        counts[opcode] = counts.get(opcode, 0.0) + line.executed
    total = sum(counts.values())
    if not total:
        return []
    top = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]
    text = f"{amount(total)} warp instructions are issued: " + ", ".join(f"{n} {percent(c / total)}" for n, c in top)
    numbers = {f"share_{name}": count / total for name, count in top}
    relief = "fewer instructions an element: wider accesses, index arithmetic moved out of the loop, cheaper operations"
    return [Finding("instruction_mix", 0.05, text, relief, "", {"warp_instructions": total, **numbers})]


def _local(variant: Variant) -> list[Finding]:
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
    if not executed:
        share = "none of them is executed in this launch"
    if stores or loads:
        text = (
            f"spills {stores} bytes to local memory and reads back {loads} bytes a thread, since registers are capped "
            f"at {row['registers']}{_cap(variant)}; {share}"
        )
        relief = "a higher cap (smaller __launch_bounds__ minimum, larger -maxrregcount), or fewer live values a thread"
        return [Finding("spill", max(cycles, executed / max(issued, 1)), text, relief, place, numbers)]
    text = f"a local array takes {row['stack_bytes']} bytes of stack a thread; {share}"
    relief = "indices known at compile time (unrolled loops), so that the array stays in registers"
    return [Finding("local_array", max(cycles, executed / max(issued, 1)), text, relief, place, numbers)]


def _cap(variant: Variant) -> str:
    """The CTAs an SM that a register cap stands for."""
    model = variant.model()
    if model is None or not variant.row["registers"]:
        return ""
    if variant.row["registers"] >= model.limits.max_registers_per_thread - 1:
        return " (all there are)"
    limits = _limits(variant, variant.row["registers"])
    return f" (room for {limits['registers']} CTAs of {variant.threads} threads an SM)" if limits else ""


def _limits(variant: Variant, registers: int, dynamic: int | None = None) -> dict[str, int] | None:
    """CTAs an SM that each resource allows; None when a CTA does not fit or the target is not known here."""
    model, row = variant.model(), variant.row
    if model is None:
        return None
    shared = row["dynamic_shared_bytes"] or 0 if dynamic is None else dynamic
    try:
        return occupancy(model, registers, variant.threads, row["static_shared_bytes"] or 0, shared).limits
    except CannotLaunch:
        return None


def _occupancy(variant: Variant) -> list[Finding]:
    """What stands in the way of more warps, when more warps could hide latency."""
    row = variant.row
    waiting = sum(
        variant.mix().get(reason, 0.0) for reason in ("long_scoreboard", "short_scoreboard", "wait", "barrier")
    )
    if not row["occupancy"] or row["occupancy"] >= 0.99 or waiting < 0.3:
        return []
    ctas, limiter = row["ctas_per_sm"], row["limiter"]
    numbers = {"occupancy": row["occupancy"], "ctas_per_sm": float(ctas), "waiting_share": waiting}
    model = variant.model()
    if model is not None and variant.ctas <= ctas * model.sm_count:
        return []  # a larger limit would not be used: the grid has no more CTAs
    head = (
        f"occupancy {percent(row['occupancy'])} ({ctas} CTAs, {row['warps_per_sm']} warps an SM) is limited by "
        f"{LIMITERS.get(limiter, limiter)}, and warps wait for {percent(waiting)} of their cycles"
    )
    relief = {
        "registers": "fewer registers a thread (smaller tiles, __launch_bounds__)",
        "shared_memory": "less shared memory a CTA",
        "blocks": "larger CTAs",
        "warps": "smaller CTAs, which fill the SM's warp slots without a remainder",
        "barriers": "fewer named barriers",
    }.get(limiter, "")
    step = _one_more(variant)
    if step:
        relief += f": {step[0]}"
        numbers |= step[1]
    return [Finding("occupancy", waiting * (1 - row["occupancy"]), head, relief, "", numbers)]


def _one_more(variant: Variant) -> tuple[str, dict[str, float]] | None:
    """What one more CTA an SM takes, found by the occupancy rules."""
    row = variant.row
    wanted = row["ctas_per_sm"] + 1
    if row["limiter"] == "registers":
        for registers in range(row["registers"] - 1, 15, -1):
            limits = _limits(variant, registers)
            if limits and limits["registers"] >= wanted:
                return f"{registers} instead of {row['registers']} give {wanted} CTAs", {
                    "registers_needed": float(registers)
                }
    if row["limiter"] == "shared_memory":
        model = variant.model()
        if model is not None:
            limit = model.limits
            each = limit.shared_per_sm_bytes // wanted // limit.shared_unit_bytes * limit.shared_unit_bytes
            room = each - limit.shared_reserved_per_block_bytes
            has = (row["static_shared_bytes"] or 0) + (row["dynamic_shared_bytes"] or 0)
            if room > 0:
                return f"{room} bytes instead of {has} give {wanted} CTAs", {"shared_bytes_needed": float(room)}
    return None


def _waves(variant: Variant) -> list[Finding]:
    """SMs that idle because the grid does not divide into whole waves."""
    waves, model = variant.row["waves"], variant.model()
    if not waves or model is None:
        return []
    slots = variant.row["ctas_per_sm"] * model.sm_count
    numbers = {"waves": waves, "ctas": float(variant.ctas), "sm_count": float(model.sm_count)}
    if variant.ctas < model.sm_count:
        idle = 1 - variant.ctas / model.sm_count
        text = f"{variant.ctas} CTAs on {model.sm_count} SMs: {percent(idle)} of the SMs have nothing to do"
        return [
            Finding("small_grid", idle, text, "more and smaller CTAs, or split the work further (split-K)", "", numbers)
        ]
    if waves <= 1:  # all CTAs at once: what counts is how evenly they spread over the SMs
        most = math.ceil(variant.ctas / model.sm_count)
        lost = 1 - variant.ctas / (most * model.sm_count)
        text = (
            f"{variant.ctas} CTAs in one wave on {model.sm_count} SMs: some SMs have {most} CTAs, others {most - 1}; "
            f"{percent(lost)} of the SMs' time is idle"
        )
    else:
        lost = 1 - waves / math.ceil(waves)
        text = (
            f"{variant.ctas} CTAs over {slots} places are {waves:.3g} waves: in the last one "
            f"{percent(math.ceil(waves) - waves)} "
            f"of the places are empty, {percent(lost)} of all"
        )
    if lost < 0.05:
        return []
    relief = "a grid that divides into whole waves: another tile size, or a persistent kernel"
    return [Finding("tail", lost, text, relief, "", {**numbers, "idle_share": lost})]


def _launch(variant: Variant) -> list[Finding]:
    """Fixed cost of a launch, and the cost of launching many short CTAs."""
    model, row = variant.model(), variant.row
    if model is None:
        return []
    time_us, out = row["time_us"], []
    overhead = model.launch.kernel_overhead_us
    if overhead >= 0.1 * time_us:
        text = f"launching the kernel takes {overhead:.2g} of {_us(time_us)} us ({percent(overhead / time_us)})"
        numbers = {"kernel_overhead_us": overhead, "time_us": time_us}
        out.append(
            Finding(
                "launch_overhead",
                overhead / time_us,
                text,
                "more work a launch: fused kernels, larger batches",
                "",
                numbers,
            )
        )
    launch = max(variant.map("bounds_us").get(name, 0.0) for name in ("cta_launch", "launch"))
    if launch >= 0.25 * time_us:
        text = (
            f"{amount(variant.ctas)} CTAs are launched at {model.launch.ctas_per_clk:.3g} a cycle: {_us(launch)} of "
            f"{_us(time_us)} us; a CTA executes only {row['warp_instructions'] / variant.ctas:.3g} warp instructions"
        )
        numbers = {"launch_us": launch, "ctas": float(variant.ctas)}
        relief = "fewer CTAs with more work each (several elements a thread)"
        out.append(Finding("cta_launch", launch / time_us, text, relief, "", numbers))
    return out


def _divergence(variant: Variant) -> list[Finding]:
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


def _us(value: float) -> str:
    digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{digits}f}"


__all__ = ["Explanation", "Finding", "explain"]
