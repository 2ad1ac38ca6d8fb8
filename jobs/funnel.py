"""The funnel: which variants go on from one tier to the next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from jobs.sweep import Sweep, keep_count


def passes_all(sweep: Sweep, total: int) -> bool:
    """Whether every variant goes on to the sampled tier, so that both tiers can run in one pass."""
    return keep_count(sweep.funnel.sampled, total, "sampled") >= total


def survivors(
    sweep: Sweep, rows: Iterable[Mapping[str, Any]], tier: Literal["sampled", "cycle"] = "sampled"
) -> dict[str, set[int]]:
    """Per target, the variants that go on to `tier`: the fastest by the tier before it.

    `rows` are that tier's rows of `estimates` with target, variant, status, time_us and `group` (the values of the
    rank_within parameters): each group keeps its own share, so that a small problem does not crowd out a large one.
    """
    times: dict[tuple[str, Any], list[tuple[float, int]]] = defaultdict(list)
    for row in rows:
        if row["status"] == "ok":
            times[row["target"], row.get("group")].append((row["time_us"], row["variant"]))
    totals: dict[str, int] = defaultdict(int)
    for (target, _), found in times.items():
        totals[target] += len(found)
    kept: dict[str, set[int]] = defaultdict(set)
    for (target, _), found in times.items():
        share = sweep.funnel.sampled if tier == "sampled" else sweep.funnel.cycle
        if isinstance(share, int):  # a count is for the whole sweep: each group gets its part, at least one
            count = max(1, round(share * len(found) / totals[target])) if share else 0
        else:
            count = keep_count(share, len(found), tier)
        kept[target].update(variant for _, variant in sorted(found)[:count])
    return dict(kept)
