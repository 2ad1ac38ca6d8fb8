"""The funnel: which variants go on from one tier to the next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

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


Tier = Literal["sampled", "cycle"]
_WAITING, _FAILED, _KNOWN = 0, 1, 2
_OPEN, _KEPT, _DROPPED = 0, 1, 2
_WINDOW = 16 * 1024  # outcomes looked at together


@dataclass(frozen=True, slots=True)
class Groups:
    """The rank_within group of each variant asked for, as a number: a byte a variant where groups are few."""

    of: np.ndarray
    count: int

    @classmethod
    def numbered(cls, values: Iterable[Hashable]) -> Groups:
        """Groups of variants by what they have in common."""
        numbers: dict[Hashable, int] = {}
        of = np.fromiter((numbers.setdefault(value, len(numbers)) for value in values), np.int32)
        return cls(of.astype(np.min_scalar_type(len(numbers))), len(numbers))

    @classmethod
    def single(cls, variants: int) -> Groups:
        """All in one group."""
        return cls(np.zeros(variants, np.uint8), 1)


class StreamingFunnel:
    """The selection of `survivors` for one target, made as results come in instead of at the end.

    A variant goes on as soon as no outcome of the variants still out can keep it from being chosen, and is dropped as
    soon as none can bring it in, so whatever the order of results, those that go on are exactly `survivors`. Holds a
    few bytes a variant; `groups`, of the variants asked for in their order, may be shared.
    """

    def __init__(self, sweep: Sweep, tier: Tier, groups: Groups) -> None:
        self._share = sweep.funnel.sampled if tier == "sampled" else sweep.funnel.cycle
        self._tier = tier
        count = len(groups.of)
        self._group = groups.of
        self._groups = groups.count
        self._state = np.zeros(count, np.int8)
        self._fate = np.zeros(count, np.int8)
        self._time = np.full(count, np.inf)
        self._best = np.full(groups.count, np.inf)  # time of each group's fastest
        self._fresh = 0
        self._gone: list[int] = []  # failed since the last settling
        self._waiting = count

    @property
    def waiting(self) -> int:
        """Variants whose result of the tier before is still out."""
        return self._waiting

    def take(self, index: int, time_us: float | None) -> None:
        """The tier before has a result of a variant: its time, or None when it failed."""
        if self._state[index] != _WAITING:
            return
        self._state[index] = _FAILED if time_us is None else _KNOWN
        if time_us is None:
            self._fate[index] = _DROPPED
            self._gone.append(index)
        else:
            self._time[index] = time_us
            group = self._group[index]
            self._best[group] = min(self._best[group], time_us)
        self._fresh += 1
        self._waiting -= 1

    def fate(self, index: int) -> bool | None:
        """Whether a variant goes on; None while that is open."""
        return None if self._fate[index] == _OPEN else bool(self._fate[index] == _KEPT)

    def behind_best(self, index: int) -> float:
        """The variant's time in the tier before over the best of its group so far; infinite when it has none."""
        best = self._best[self._group[index]]
        return float(self._time[index] / best) if np.isfinite(best) else float("inf")

    def kept(self) -> int:
        """How many go on as far as is known."""
        return int(np.count_nonzero(self._fate == _KEPT))

    def known(self) -> int:
        """How many have a result of the tier before."""
        return len(self._state) - self._waiting

    def expected(self) -> int:
        """About how many will go on."""
        total = len(self._state)
        return min(self._share, total) if isinstance(self._share, int) else keep_count(self._share, total, self._tier)

    def due(self) -> bool:
        """Whether `settle` would find enough that is new (a few per cent of the variants, or the last of them)."""
        return self._fresh > 0 and (self._waiting == 0 or self._fresh * 32 >= len(self._state))

    def settle(self) -> list[int]:
        """Decide what can be decided; indices of the variants newly decided, of those that go on the fastest first."""
        self._fresh = 0
        decided, self._gone = self._gone, []
        known = int(np.count_nonzero(self._state == _KNOWN))
        for group in range(self._groups):
            members = self._group == group
            ranked = np.flatnonzero(members & (self._state == _KNOWN))
            # as `survivors`: by time, then by number
            ranked = ranked[np.argsort(self._time[ranked], kind="stable")]
            waiting = int(np.count_nonzero(members & (self._state == _WAITING)))
            sure, possible = self._bounds(len(ranked), waiting, known, self._waiting - waiting)
            for fate, part in ((_KEPT, ranked[:sure]), (_DROPPED, ranked[possible:])):
                new = part[self._fate[part] == _OPEN]
                self._fate[new] = fate
                decided += [int(index) for index in new]
        return decided

    def _bounds(self, found: int, waiting: int, known: int, elsewhere: int) -> tuple[int, int]:
        """(ranks certain to go on, ranks that may): of `found` known in a group, with `waiting` more out in it.

        `known` of all groups have a time, `elsewhere` are out in the other groups.
        """
        sure, possible = found, 0
        for first in range(0, waiting + 1, _WINDOW):
            # how many of those out in this group will have a time
            more = np.arange(first, min(first + _WINDOW, waiting + 1))
            least = self._counts(found + more, known + more + elsewhere)
            most = self._counts(found + more, known + more)
            # at worst, all of them are faster than every one known
            sure, possible = min(sure, int((least - more).min())), max(possible, int(most.max()))
        return max(0, sure), min(found, possible)

    def _counts(self, found: np.ndarray, total: np.ndarray) -> np.ndarray:
        """How many `survivors` keeps of groups of `found` variants when all groups have `total`."""
        share = self._share
        if not isinstance(share, int):
            percent = float(share.strip().removesuffix("%"))
            return -np.floor_divide(-(found * percent), 100).astype(np.int64)  # keep_count of each
        if not share:
            return np.zeros(len(found), np.int64)
        # np.round rounds halves to even, as round() does
        return np.maximum(1, np.round(share * found / np.maximum(total, 1))).astype(np.int64)
