"""When a difference of two estimates is worth a word: thresholds from pairs of variants measured on an H200.

Among all pairs of variants within the groups of twelve families (46,344 pairs, docs/compare.md has the table;
`benchmarks/pair_accuracy.py` makes it from a run), the share in which the faster one by estimate was the faster one
measured grows with the estimated difference, and sooner for pairs that execute much the same instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SIMILAR_MIX = 0.10  # total variation distance of the executed opcodes, below which two kernels count as similar
SAME_WITHIN = 0.01
# From these differences on, at least nine in ten pairs were ordered rightly.
SURE_SIMILAR = 0.075  # 92 % of 308 pairs between 7.5 and 10 %
SURE_OTHER = 0.20  # 93 % of 3,848 pairs between 20 and 30 %
COMPARED = ("h200",)  # targets whose estimates have been compared with hardware


class Verdict(StrEnum):
    """B against A."""

    SAME = "SAME"
    FASTER = "FASTER"
    SLOWER = "SLOWER"
    UNSURE = "UNSURE"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with the difference from which it would have been sure, and why that one."""

    verdict: Verdict
    threshold: float
    basis: str


def judge(
    time_a: float, time_b: float, mix_distance: float, same_bound: bool, identical: bool, target: str, confidence: str
) -> Judgement:
    """The verdict on B against A, times in microseconds.

    `mix_distance` is `opcode_distance` of the two; `identical` that code, launch and resources are the same.
    """
    if identical:
        return Judgement(Verdict.SAME, 0.0, "the same code, launch and resources")
    ratio = max(time_a, time_b) / min(time_a, time_b) - 1.0
    similar = mix_distance < SIMILAR_MIX and same_bound and confidence != "low"
    threshold = SURE_SIMILAR if similar else SURE_OTHER
    if similar:
        basis = (
            f"much the same instructions ({100 * mix_distance:.0f} % of them differ) and the same bound: 9 in 10 such "
        )
        basis += f"pairs that differ by {100 * threshold:g} % or more were ordered rightly"
    else:
        why = "few of this target's numbers are measured" if confidence == "low" else "another bound"
        if mix_distance >= SIMILAR_MIX:
            why = f"other instructions ({100 * mix_distance:.0f} % of them differ)"
        basis = f"{why}: 9 in 10 such pairs that differ by {100 * threshold:g} % or more were ordered rightly"
    basis += " on an H200" + ("" if target in COMPARED else f"; estimates for {target} were not compared with hardware")
    if similar and ratio < SAME_WITHIN:
        return Judgement(Verdict.SAME, SAME_WITHIN, basis)
    if ratio < threshold:
        return Judgement(Verdict.UNSURE, threshold, basis)
    return Judgement(Verdict.FASTER if time_b < time_a else Verdict.SLOWER, threshold, basis)
