"""The gate's verdicts: each variant against its baseline, by time and by resources, with the causes of a change."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass, field
from typing import Any

from farm.analysis.align import align
from farm.analysis.compare import causes, resource_causes
from farm.analysis.variant import Variant
from farm.gate.config import Gate, GateError, Resources
from farm.gate.evaluate import Key, Side
from farm.observability.redact import redacted

ROUNDING = 1e-9
OK, SLOWER, MORE, BROKEN, FASTER = "ok", "slower", "resources", "broken", "faster"
FAILURES = (SLOWER, MORE, BROKEN)
_PLACE = re.compile(r" at (\S+):(\d+) \(0x")
_FEWER_IS_WORSE = ("ctas_per_sm",)


@dataclass(slots=True)
class Row:
    """One variant on one target. Times are simulated microseconds; `allowed` is the share it may be slower."""

    family: str
    parameters: dict[str, int]
    target: str
    status: str
    before_us: float | None
    after_us: float | None
    allowed: float
    causes: list[str]
    before: dict[str, Any]
    after: dict[str, Any]
    message: str = ""
    file: str = ""
    line: int = 0

    @property
    def name(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.family} {values}".strip()

    @property
    def change(self) -> float | None:
        """Relative change of the time, positive when slower."""
        if self.before_us is None or self.after_us is None:
            return None
        return self.after_us / self.before_us - 1.0

    @property
    def failed(self) -> bool:
        return self.status in FAILURES


@dataclass(slots=True)
class Result:
    """What the gate found."""

    baseline: str
    rows: list[Row] = field(default_factory=list)
    new: list[str] = field(default_factory=list)  # without a counterpart in the baseline
    gone: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)  # fail on both sides
    missing: list[str] = field(default_factory=list)  # entries that the baseline does not have
    failures: list[str] = field(default_factory=list)  # of the gate as a whole
    mean_change: float | None = None

    @property
    def ok(self) -> bool:
        return not self.failures and not any(row.failed for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        rows = [{"name": row.name, "change": row.change, **dataclasses.asdict(row)} for row in self.rows]
        return {"simulated": True, "ok": self.ok, **dataclasses.asdict(self), "rows": rows}


def judge(gate: Gate, before: Side, after: Side) -> Result:
    """Compare both sides. Raises GateError when they cannot be compared: nothing in common, or two simulators."""
    result = Result(before.label, missing=before.missing)
    entries = gate.entries()
    for key, variant in sorted(
        after.variants.items(), key=lambda item: (after.entry_of[item[0][0]], item[1].number, item[0][2])
    ):
        position = after.entry_of[key[0]]
        own = entries[position].max_slowdown if position < len(entries) else None
        allowed = gate.allowed(key[2], own)
        old = before.variants.get(key)
        if old is None:
            result.new.append(_label(key))
            if not _usable(gate, variant):
                result.failures.append(f"{_label(key)} is new and fails: {_reason(variant)}")
            continue
        row = _row(gate, key, old, variant, allowed, before.model != after.model)
        if row is None:
            result.unusable.append(f"{_label(key)}: {_reason(variant)}")
            continue
        row.file = after.sources.get(key[0], "")
        _locate(row)
        result.rows.append(row)
    families = set(after.entry_of)
    result.gone = [_label(key) for key in before.variants if key not in after.variants and key[0] in families]
    _mean(gate, result)
    _check_coverage(result, before, after)
    return result


def _row(gate: Gate, key: Key, old: Variant, new: Variant, allowed: float, other_model: bool) -> Row | None:
    """The verdict on one variant; None when neither side has anything to compare."""
    if not _usable(gate, old) and not _usable(gate, new):
        return None
    row = Row(
        family=key[0], parameters=dict(key[1]), target=key[2], status=OK, allowed=allowed, causes=[],
        before_us=_time(gate, old), after_us=_time(gate, new), before=_facts(old), after=_facts(new),
    )  # fmt: skip
    if not _usable(gate, new):
        row.status, row.message = BROKEN, _reason(new)
        row.causes = [row.message]
        return row
    if not _usable(gate, old):
        row.message = f"failed in the baseline: {_reason(old)}"
        return row
    limits = gate.resources or (Resources() if gate.only == "resources" else None)
    over = _over(limits, old.row, new.row) if limits is not None else []
    if gate.only == "resources":
        row.causes = over or resource_causes(old.row, new.row)
        row.status = MORE if over else OK
        return row
    if other_model:
        if _code(old) != _code(new):
            raise GateError(
                f"{_label(key)}: its code has changed, and the baseline was made by another version of the simulator: "
                "times of two models say nothing about code. Make the baseline again with this version "
                "(farm gate --write-baseline FILE, or farm submit into the store)"
            )
        row.after_us = row.before_us
    change = row.change
    if change is not None and change > allowed + ROUNDING:
        row.status = SLOWER
    elif over:
        row.status = MORE
    elif change is not None and change < -max(allowed, ROUNDING):
        row.status = FASTER
    if row.status != OK or row.before_us != row.after_us:
        pairs = align([line.sass for line in old.lines], [line.sass for line in new.lines])
        row.causes = causes(old, new, pairs)
    if row.status == MORE:
        row.causes = [*over, *(cause for cause in row.causes if cause not in over)]
    if row.status == SLOWER and not row.causes:
        row.causes = _last_resort(old, new)
    return row


def _last_resort(old: Variant, new: Variant) -> list[str]:
    """When no count or mix has moved enough: the first line of SASS that differs."""
    for i, j in align([line.sass for line in old.lines], [line.sass for line in new.lines]):
        if i is None and j is not None:
            return [f"SASS differs from {new.place(new.lines[j])} on: {new.lines[j].sass}"]
        if j is None and i is not None:
            return [f"SASS lacks {old.lines[i].sass} (was at {old.place(old.lines[i])})"]
    return ["the same SASS in another order or with other registers"]


def _over(limits: Resources, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Resources that grew by more than is allowed."""
    quantities = {
        "registers": ("registers",),
        "spill_bytes": ("spill_store_bytes", "spill_load_bytes"),
        "shared_bytes": ("static_shared_bytes", "dynamic_shared_bytes"),
        "stack_bytes": ("stack_bytes",),
        "ctas_per_sm": ("ctas_per_sm",),
    }
    out = []
    for name, columns in quantities.items():
        limit = getattr(limits, name)
        if limit is None or any(side[column] is None for side in (old, new) for column in columns[:1]):
            continue
        before, after = (sum(side[column] or 0 for column in columns) for side in (old, new))
        growth = before - after if name in _FEWER_IS_WORSE else after - before
        if growth > limit:
            words = {"registers": "registers", "stack_bytes": "stack bytes", "ctas_per_sm": "CTAs/SM"}
            text = words.get(name, name.replace("_", " "))
            out.append(f"{before} → {after} CTAs/SM" if name == "ctas_per_sm" else f"{text} {before} → {after}")
            if name == "ctas_per_sm" and new["limiter"]:
                out[-1] += f" (limited by {new['limiter'].replace('_', ' ')})"
    return out


def _usable(gate: Gate, variant: Variant) -> bool:
    if gate.only == "resources":
        return variant.row["registers"] is not None and bool(variant.row["ctas_per_sm"])
    return variant.row["status"] == "ok" and variant.row["time_us"] is not None


def _time(gate: Gate, variant: Variant) -> float | None:
    return variant.row["time_us"] if gate.only != "resources" and variant.row["status"] == "ok" else None


def _reason(variant: Variant) -> str:
    message = (variant.row["message"] or "no estimate").splitlines()
    return f"{variant.row['failure'] or 'failed'}: {redacted(message[0])}"  # reports are published


def _facts(variant: Variant) -> dict[str, Any]:
    names = ("registers", "spill_store_bytes", "spill_load_bytes", "static_shared_bytes", "dynamic_shared_bytes",
             "stack_bytes", "ctas_per_sm", "occupancy", "limiter", "bound")  # fmt: skip
    return {name: variant.row.get(name) for name in names}


def _code(variant: Variant) -> tuple[object, ...]:
    row = variant.row
    return tuple(line.sass for line in variant.lines), row["registers"], row["grid_dim"], row["block_dim"], (
        row["dynamic_shared_bytes"] or 0
    )  # fmt: skip


def _locate(row: Row) -> None:
    """The source line that the causes name, for annotations."""
    for cause in row.causes:
        if (match := _PLACE.search(cause)) and match[1] == row.file.rpartition("/")[2]:
            row.line = int(match[2])
            return


def _mean(gate: Gate, result: Result) -> None:
    changes = [row.change for row in result.rows if row.change is not None]
    if not changes:
        return
    result.mean_change = math.exp(sum(math.log1p(change) for change in changes) / len(changes)) - 1.0
    limit = gate.max_mean_slowdown
    if limit is not None and result.mean_change > limit + ROUNDING:
        result.failures.append(
            f"the geometric mean of {len(changes)} variants is {100 * result.mean_change:.2f} % slower "
            f"({100 * limit:g} % allowed)"
        )


def _check_coverage(result: Result, before: Side, after: Side) -> None:
    """A gate that compared nothing has not passed; nor has an entry of which nothing was compared."""
    compared = {row.family for row in result.rows}
    if not compared:
        why = []
        if result.new:
            why.append(f"{len(result.new)} variants are not in the baseline ({result.new[0]}, ...)")
        if result.unusable:
            why.append(f"{len(result.unusable)} fail on both sides ({result.unusable[0]})")
        if result.missing:
            why.append(f"the baseline has no {', '.join(result.missing)}")
        there = ", ".join(sorted({key[0] for key in before.variants})) or "none"
        raise GateError(
            f"nothing was compared with {before.label}: {'; '.join(why) or 'it holds other kernels'}. Families: "
            f"{', '.join(sorted(after.entry_of))}; in the baseline: {there}"
        )
    known = {key[0] for key in before.variants}
    for family in after.entry_of:
        if family in known and family not in compared:
            example = next((text for text in [*result.unusable, *result.new] if text.startswith(family)), "")
            result.failures.append(f"{family}: nothing was compared ({example})")


def _label(key: Key) -> str:
    values = " ".join(f"{name}={value}" for name, value in key[1])
    return f"{key[0]} {values}".strip() + f" on {key[2]}"
