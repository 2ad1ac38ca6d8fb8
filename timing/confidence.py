"""How far an estimate can be trusted, from where its numbers come from and how much was executed."""

from __future__ import annotations

import numpy as np

from timing.target import SOURCES, Target

COVERAGE_OF_SOURCE = {
    "measured": "measured",
    "vendor": "quoted",
    "literature": "quoted",
    "derived": "quoted",
    "guess": "guessed",
}
# Numbers that decide most kernels' times, whatever their instructions.
DECISIVE = (
    "gpu.clock_mhz",
    "l2.bytes",
    "l2.hit_cycles",
    "l2.bytes_per_clk",
    "l2.write_bytes_per_clk",
    "dram.gb_per_s",
    "dram.read_efficiency",
    "dram.mixed_efficiency",
    "dram.latency_cycles",
    "mio.address_interval_cycles",
    "mio.dispatch_interval_cycles",
    "shared.pass_cycles",
    "l1.tag_lines_per_clk",
    "classes.ldg.latency",
    "classes.lds.latency",
    "pipes.ALU.interval",
    "pipes.FMA.interval",
    "pipes.FMA_HEAVY.interval",
    "launch.ctas_per_clk",
    "launch.kernel_overhead_us",
)


def coverage(rows: np.ndarray, executed: np.ndarray) -> dict[str, float]:
    """Shares of issued warp instructions whose timing is "measured", "quoted" or "guessed"; they sum to 1.

    `rows` is `timing.target.row_timing`'s array (its field `source`), `executed` counts per row.
    """
    shares = dict.fromkeys(("measured", "quoted", "guessed"), 0.0)
    total = float(executed.sum())
    if total == 0.0:
        return shares
    for code, kind in enumerate(SOURCES):
        shares[COVERAGE_OF_SOURCE[kind]] += float(executed[rows["source"] == code].sum()) / total
    return shares


def decisive_shares(target: Target) -> dict[str, float]:
    """The same split over the target's DECISIVE numbers, each counted once."""
    shares = dict.fromkeys(("measured", "quoted", "guessed"), 0.0)
    for path in DECISIVE:
        shares[COVERAGE_OF_SOURCE[target.source(path).kind]] += 1 / len(DECISIVE)
    return shares


def confidence(target: Target, instructions: dict[str, float] | None = None, scouted: bool = True) -> str:
    """ "high", "medium" or "low", for `Estimate.confidence`.

    low: a third or more of the decisive numbers, or of the issued instructions (`instructions`, from `coverage`), are
    guesses, or nothing was executed (`scouted` false). high: at least half of the decisive numbers were measured on
    this very GPU. Everything else is medium.
    """
    decisive = decisive_shares(target)
    guessed = max(decisive["guessed"], (instructions or {}).get("guessed", 0.0))
    if not scouted or guessed >= 1 / 3:
        return "low"
    return "high" if decisive["measured"] >= 0.5 else "medium"
