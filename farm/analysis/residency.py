"""Findings about how many warps an SM has, how evenly the grid fills the SMs, and what launching costs."""

from __future__ import annotations

import math

from farm.analysis.finding import BUSY, Finding, us
from farm.analysis.variant import Variant
from farm.analysis.words import LIMITERS, amount, percent
from timing.occupancy import CannotLaunch, occupancy


def cap_words(variant: Variant) -> str:
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


def given(variant: Variant) -> int | None:
    """CTAs that the grid gives the fullest SM, where that is fewer than it has room for; else None."""
    model, ctas = variant.model(), variant.row["ctas_per_sm"]
    if model is None or not ctas:
        return None
    most = math.ceil(variant.ctas / model.sm_count)
    return most if most < ctas else None


def resident_words(variant: Variant) -> list[str]:
    """A sentence where the grid leaves places of an SM empty: the occupancy is not reached then."""
    most, model = given(variant), variant.model()
    if most is None or model is None:
        return []
    places, warps = variant.row["ctas_per_sm"] * model.sm_count, most * math.ceil(variant.threads / 32)
    return [
        f"The grid has {variant.ctas} CTAs for {places} places: an SM gets at most {most}, {warps} "
        f"warp{'s' if warps != 1 else ''} ({percent(warps / model.limits.max_warps_per_sm)} of what it can hold)."
    ]


def few_warps(variant: Variant) -> list[Finding]:
    """What stands in the way of more warps, when more warps could hide latency."""
    row = variant.row
    waiting = sum(
        variant.mix().get(reason, 0.0) for reason in ("long_scoreboard", "short_scoreboard", "wait", "barrier")
    )
    if not row["occupancy"] or waiting < 0.3:
        return []
    ctas, limiter = row["ctas_per_sm"], row["limiter"]
    numbers = {"occupancy": row["occupancy"], "ctas_per_sm": float(ctas), "waiting_share": waiting}
    model = variant.model()
    if model is not None and variant.ctas <= ctas * model.sm_count:
        return _few_ctas(variant, waiting)  # a larger limit would not be used: the grid has no more CTAs
    if row["occupancy"] >= 0.99:
        return []
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


def _few_ctas(variant: Variant, waiting: float) -> list[Finding]:
    """A grid too small to hide latency, though it gives every SM something to do."""
    most, model = given(variant), variant.model()
    if most is None or model is None or variant.ctas < model.sm_count:
        return []
    warps, room = most * math.ceil(variant.threads / 32), model.limits.max_warps_per_sm
    if warps > room / 2:
        return []
    text = (
        f"{variant.ctas} CTAs on {model.sm_count} SMs give an SM at most {warps} of {room} warps to hide latency with, "
        f"and warps wait for {percent(waiting)} of their cycles"
    )
    numbers = {"ctas": float(variant.ctas), "warps_given": float(warps), "waiting_share": waiting}
    relief = "more and smaller CTAs, or split the work further (split-K)"
    return [Finding("small_grid", waiting * (1 - warps / room), text, relief, "", numbers)]


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


def uneven_waves(variant: Variant) -> list[Finding]:
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
    most = math.ceil(variant.ctas / model.sm_count)
    if waves > 1 and variant.busy(variant.row["bound"]) >= BUSY:
        # fewer CTAs keep what bounds the kernel as busy: places do not count, only what each SM has to do
        lost = 1 - variant.ctas / (most * model.sm_count)
        text = (
            f"{variant.ctas} CTAs on {model.sm_count} SMs: some SMs execute {most}, others {most - 1}; "
            f"{percent(lost)} of the SMs' time is idle"
        )
    elif waves <= 1:  # all CTAs at once: what counts is how evenly they spread over the SMs
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


def launching(variant: Variant) -> list[Finding]:
    """Fixed cost of a launch, and the cost of launching many short CTAs."""
    model, row = variant.model(), variant.row
    if model is None:
        return []
    time_us, out = row["time_us"], []
    overhead = model.launch.kernel_overhead_us
    if overhead >= 0.1 * time_us:
        text = f"launching the kernel takes {overhead:.2g} of {us(time_us)} us ({percent(overhead / time_us)})"
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
    other = variant.row["bound"] not in ("cta_launch", "launch") and variant.busy(variant.row["bound"]) >= BUSY
    if launch >= 0.25 * time_us and not other:  # under another resource that is busy all the time it is hidden
        text = (
            f"{amount(variant.ctas)} CTAs are launched at {model.launch.ctas_per_clk:.3g} a cycle: {us(launch)} of "
            f"{us(time_us)} us; a CTA executes only {row['warp_instructions'] / variant.ctas:.3g} warp instructions"
        )
        numbers = {"launch_us": launch, "ctas": float(variant.ctas)}
        relief = "fewer CTAs with more work each (several elements a thread)"
        out.append(Finding("cta_launch", launch / time_us, text, relief, "", numbers))
    return out
