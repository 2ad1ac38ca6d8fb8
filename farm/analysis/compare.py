"""Two variants compared: times, resources, stall mix and SASS, and the causes of a difference in words."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from farm.analysis.align import Pair, align
from farm.analysis.sass import normalised, parts
from farm.analysis.variant import REASONS, Line, Variant
from farm.analysis.verdict import Judgement, judge
from farm.analysis.words import byte_count, percent

NOTABLE = 0.01  # relative change of a count that is worth a word
POINTS = 0.02  # change of a stall reason's share, likewise

RESOURCES = (
    "registers", "spill_store_bytes", "spill_load_bytes", "stack_bytes", "static_shared_bytes", "dynamic_shared_bytes",
    "ctas_per_sm", "warps_per_sm", "occupancy", "limiter", "code_bytes", "grid_dim", "block_dim",
)  # fmt: skip


@dataclass(slots=True)
class Change:
    """One quantity before and after."""

    name: str
    before: Any
    after: Any


@dataclass(slots=True)
class LineChange:
    """A SASS line of the alignment. `delta_us`: change of the time attributed to it (share of warp-cycles x time)."""

    kind: str  # "same", "removed", "added"
    pc_a: int | None
    pc_b: int | None
    sass: str
    place: str
    executed_a: float | None
    executed_b: float | None
    delta_us: float


@dataclass(slots=True)
class Comparison:
    """B against A on one target. Times are simulated."""

    target: str
    a: str
    b: str
    time_a_us: float
    time_b_us: float
    judgement: Judgement
    measured_a_us: float | None
    measured_b_us: float | None
    resources_a: dict[str, Any]  # RESOURCES of each side
    resources_b: dict[str, Any]
    resources: list[Change]  # those that differ
    stalls: list[Change]  # shares of warp-cycles, largest change first
    causes: list[str]
    similarity: float  # share of SASS lines with a counterpart
    lines: list[LineChange] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return self.time_b_us / self.time_a_us

    def as_dict(self) -> dict[str, Any]:
        return {"simulated": True, "ratio": self.ratio, **dataclasses.asdict(self)}


def compare(a: Variant, b: Variant) -> Comparison:
    """Both must have an estimate for the same target (the caller sees to that)."""
    pairs = align([line.sass for line in a.lines], [line.sass for line in b.lines])
    lines = _line_changes(a, b, pairs)
    common = sum(1 for i, j in pairs if i is not None and j is not None)
    longest = max(len(a.lines), len(b.lines))
    resources = [Change(name, a.row[name], b.row[name]) for name in RESOURCES if a.row[name] != b.row[name]]
    judgement = judge(
        a.row["time_us"],
        b.row["time_us"],
        opcode_distance(a, b),
        a.row["bound"] == b.row["bound"],
        same_work(a, b),
        a.target,
        a.row["confidence"] or "",
    )
    return Comparison(
        target=a.target,
        a=a.label,
        b=b.label,
        time_a_us=a.row["time_us"],
        time_b_us=b.row["time_us"],
        judgement=judgement,
        measured_a_us=a.row["measured_us"],
        measured_b_us=b.row["measured_us"],
        resources_a={name: a.row[name] for name in RESOURCES},
        resources_b={name: b.row[name] for name in RESOURCES},
        resources=resources,
        stalls=_stall_changes(a, b),
        causes=causes(a, b, pairs),
        similarity=common / longest if longest else 1.0,
        lines=lines,
    )


def same_work(a: Variant, b: Variant) -> bool:
    """Whether both launch the same code (registers may be renamed) in the same way, with the same time by the model."""
    if any(a.row[name] != b.row[name] for name in RESOURCES if name != "code_bytes"):
        return False
    if a.row["time_us"] != b.row["time_us"]:
        return False
    return [normalised(line.sass) for line in a.lines] == [normalised(line.sass) for line in b.lines]


def opcode_distance(a: Variant, b: Variant) -> float:
    """Total variation distance of the executed warp instructions by opcode: 0 the same mix, 1 nothing in common.

    Not normalised to the same total: twice as many instructions of the same mix are a third apart.
    """
    first, second = _opcodes(a), _opcodes(b)
    total = sum(first.values()) + sum(second.values())
    if not total:
        return 0.0
    return sum(abs(first.get(name, 0.0) - second.get(name, 0.0)) for name in {*first, *second}) / total


def _opcodes(variant: Variant) -> dict[str, float]:
    counts: dict[str, float] = {}
    for line in variant.lines:
        opcode = parts(line.sass)[0]
        counts[opcode] = counts.get(opcode, 0.0) + line.executed
    return counts


def _attributed(variant: Variant) -> float:
    """Microseconds a warp-cycle stands for: the estimated time shared out over all warp-cycles."""
    total = variant.total_cycles
    return variant.row["time_us"] / total if total else 0.0


def _line_changes(a: Variant, b: Variant, pairs: list[Pair]) -> list[LineChange]:
    unit_a, unit_b = _attributed(a), _attributed(b)
    out = []
    for i, j in pairs:
        before, after = (None if i is None else a.lines[i]), (None if j is None else b.lines[j])
        line = after or before
        assert line is not None
        delta = (after.cycles * unit_b if after else 0.0) - (before.cycles * unit_a if before else 0.0)
        kind = "removed" if after is None else "added" if before is None else "same"
        out.append(
            LineChange(
                kind,
                before.pc if before else None,
                after.pc if after else None,
                line.sass,
                (b if after else a).place(line),
                before.executed if before else None,
                after.executed if after else None,
                delta,
            )
        )
    return out


def _stall_changes(a: Variant, b: Variant) -> list[Change]:
    before, after = a.mix(), b.mix()
    names = [name for name in REASONS if before.get(name) or after.get(name)]
    changes = [Change(name, before.get(name, 0.0), after.get(name, 0.0)) for name in names]
    return sorted(changes, key=lambda change: -abs(change.after - change.before))


def causes(a: Variant, b: Variant, pairs: list[Pair] | None = None) -> list[str]:
    """What changed from A to B, most telling first: resources, work, and where warps wait longer."""
    if pairs is None:
        pairs = align([line.sass for line in a.lines], [line.sass for line in b.lines])
    out = [*resource_causes(a.row, b.row), *_work_causes(a, b, pairs)]
    stall = _stall_cause(a, b, pairs)
    if stall:
        out.append(stall)
    if a.row["bound"] != b.row["bound"]:
        out.append(f"bound {a.row['bound']} → {b.row['bound']}")
    return out


def resource_causes(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Changes of launch, registers, spills, shared memory and residency, from rows of `variants` and `estimates`."""
    out = []
    for name, words in (("grid_dim", "grid"), ("block_dim", "block")):
        if a[name] != b[name]:
            out.append(f"{words} {a[name]} → {b[name]}")
    for name, words, unit in (
        ("registers", "registers", ""),
        ("stack_bytes", "stack", " B"),
        ("static_shared_bytes", "static shared memory", " B"),
        ("dynamic_shared_bytes", "dynamic shared memory", " B"),
        ("ctas_per_sm", "", " CTAs/SM"),
    ):
        before, after = a.get(name) or 0, b.get(name) or 0
        if before != after:
            out.append(f"{words} {before} → {after}{unit}".strip())
    stores, loads = (b["spill_store_bytes"] or 0), (b["spill_load_bytes"] or 0)
    if (stores, loads) != ((a["spill_store_bytes"] or 0), (a["spill_load_bytes"] or 0)):
        before_bytes = f"{a['spill_store_bytes'] or 0}+{a['spill_load_bytes'] or 0}"
        out.append(f"spills (stores+loads) {before_bytes} → {stores}+{loads} B")
    return out


def _work_causes(a: Variant, b: Variant, pairs: list[Pair]) -> list[str]:
    counts = []
    for name, words in (
        ("executed", "warp instructions"),
        ("wavefronts", "shared-memory wavefronts"),
        ("sectors", "global sectors"),
    ):
        before = sum(getattr(line, name) for line in a.lines)
        after = sum(getattr(line, name) for line in b.lines)
        if before != after and (before == 0 or abs(after / before - 1) >= NOTABLE):
            change = f"{100 * (after / before - 1):+.1f} %" if before else f"0 → {after:.0f}"
            where = _most_changed(a, b, pairs, name) if after > before else ""
            counts.append((abs(after / before - 1) if before else math.inf, f"{words} {change}{where}"))
    # what grew most first: its line is the one that reports point at
    out = [text for _, text in sorted(counts, key=lambda count: -count[0])]
    first, second = a.map("memory"), b.map("memory")
    for name, words in (("dram_read_bytes", "DRAM reads"), ("dram_write_bytes", "DRAM writes")):
        before, after = first.get(name, 0.0), second.get(name, 0.0)
        if max(before, after) > 1e5 and abs(after - before) >= 0.05 * max(before, after):
            out.append(f"{words} {byte_count(before)} → {byte_count(after)}")
    return out


def _most_changed(a: Variant, b: Variant, pairs: list[Pair], name: str) -> str:
    """ " at PLACE": the line of B with the largest gain of a count."""
    gains = [
        (getattr(b.lines[j], name) - (getattr(a.lines[i], name) if i is not None else 0.0), -j)
        for i, j in pairs
        if j is not None
    ]
    gain, row = max(gains, default=(0.0, 0))
    return f" at {b.place(b.lines[-row])}" if gain > 0 else ""


def _stall_cause(a: Variant, b: Variant, pairs: list[Pair]) -> str:
    """The stall reason whose attributed time grew most, with its change in points and the line it grew most at."""
    unit_a, unit_b = _attributed(a), _attributed(b)
    if not unit_a or not unit_b:
        return ""
    gains: dict[int, list[tuple[float, Line]]] = {}
    for i, j in pairs:
        if j is None:
            continue
        after = b.lines[j].stalls * unit_b
        delta = after - (a.lines[i].stalls * unit_a if i is not None else 0.0)
        for reason in range(1, len(REASONS)):
            gains.setdefault(reason, []).append((float(delta[reason]), b.lines[j]))
    before, after_mix = a.mix(), b.mix()
    best, words = 0.0, ""
    for reason, found in gains.items():
        name = REASONS[reason]
        points = after_mix.get(name, 0.0) - before.get(name, 0.0)
        time = after_mix.get(name, 0.0) * b.row["time_us"] - before.get(name, 0.0) * a.row["time_us"]
        if time > best and (points >= POINTS or time >= 0.01 * a.row["time_us"]):
            gain, line = max(found, key=lambda pair: (pair[0], -pair[1].pc))
            where = f" at {b.place(line)}" if gain > 0 else ""
            change = f"{100 * points:+.0f} points" if points >= 0.015 else f"{time:+.2g} us"
            best, words = time, f"{name} {change}{where}"
    return words


def change_words(comparison: Comparison) -> str:
    """ "13.4 % slower" and so on."""
    ratio = comparison.ratio
    if ratio == 1.0:
        return "the same time"
    return f"{percent(ratio - 1)} slower" if ratio > 1 else f"{percent(1 - ratio)} faster"
