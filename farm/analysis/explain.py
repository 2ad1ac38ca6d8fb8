"""A variant explained in plain words: what bounds it, where its warps spend their cycles, what would relieve that.

Every claim comes from the tables and carries its number. Nothing is estimated here: what a change would gain is for
another run to say.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from farm.analysis.causes import LineCause, costliest, l2_bytes
from farm.analysis.finding import BUSY, Finding, us
from farm.analysis.residency import few_warps, launching, resident_words, uneven_waves
from farm.analysis.variant import Variant, VariantError
from farm.analysis.words import LIMITERS, bound_words, byte_count, percent, reason_words
from farm.analysis.work import bank_conflicts, divergence, global_atomics, instruction_mix, local_memory, scattered


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
    share = variant.busy(name)
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
        text = f"{word} {bound_words(name)}: busy for {us(share * time_us)} of {us(time_us)} us ({percent(share)})"
        others = [(key, value) for key, value in ranked if key != name and value >= 0.5 * time_us]
        if others:
            text += f"; next {bound_words(others[0][0])}, {percent(variant.busy(others[0][0]))}"
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
        out += resident_words(variant)
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
    l2 = l2_bytes(variant)
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
    out = [*bank_conflicts(variant), *scattered(variant), *global_atomics(variant), *local_memory(variant)]
    out += [*instruction_mix(variant), *uneven_waves(variant), *launching(variant), *divergence(variant)]
    if variant.row["bound"] == "latency" or bound_share < BUSY:
        out += few_warps(variant)
    return out


__all__ = ["Explanation", "Finding", "explain"]
