"""One sweep's work as a stream: items nobody has begun, and items that go on to a later tier as results come in.

The order in which results come does not matter: which variants go on is decided by `jobs.funnel`, and an item of a
later tier is made when the fates of its variant on all targets of its architecture are known, so that its SASS is
executed once for all of them. Holds some ten bytes a variant and target, whatever has been evaluated, and of items that
go on their numbers: they are made when they are handed out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.funnel import Groups, StreamingFunnel, Tier, passes_all
from jobs.plan import Plan
from jobs.work import TIERS, Finished, Kind, VariantResult, WorkItem


@dataclass(slots=True)
class TierCounts:
    """(variant, target) pairs of one tier. `planned` is an expectation until the funnel has decided (`decided`)."""

    tier: str
    planned: int
    done: int = 0  # failed ones too
    failed: int = 0
    resumed: int = 0  # of `done`, found in the run
    decided: bool = True


class Promotion(NamedTuple):
    """A variant that goes on. The lowest priority is the most promising: its time over the best of its group.

    `home` is the node that has its cubin.
    """

    kind: Kind
    variant: int
    priority: float
    home: str


class _Gate:
    """The way into one later tier: a funnel a target."""

    def __init__(self, plan: Plan, tier: Tier, groups: Groups, everything: bool) -> None:
        self.tier = tier
        sweep = plan.sweep
        if everything:
            sweep = sweep.model_copy(update={"funnel": sweep.funnel.model_copy(update={tier: "100%"})})
        self.funnels = {target: StreamingFunnel(sweep, tier, groups) for target in plan.variants}
        self.rows = 0  # results of the tier before
        self.emitted: dict[str, np.ndarray] = {}  # architecture -> variants whose item is made, or that have none


class SweepStream:
    """Everything `plan` has to do up to `last` ("static", "sampled", "cycle"; None: as the sweep's funnel says).

    `known` are rows of `estimates` that the run has already (family, variant, target, tier, status, time_us), a table
    at a time.
    `excluded` is called with results that are known without running anything. `recorded` are rows of `recordings`:
    where the plan asks for timelines, estimates that the run has without one are made again for it.
    """

    def __init__(
        self,
        plan: Plan,
        last: str | None,
        known: Iterable[pa.Table],
        excluded: Callable[[VariantResult], None],
        cores: int = 1,
        recorded: Iterable[pa.Table] = (),
    ) -> None:
        self.plan = plan
        self._excluded = excluded
        self._cores = cores
        count = len(plan.numbers)
        sweep = plan.sweep
        to_cycle = sweep.funnel.cycle not in (0, "0%")
        one_pass = last != "static" and passes_all(sweep, count)
        self.first_tiers: tuple[str, ...] = ("static", "sampled") if one_pass else ("static",)
        tiers: list[Tier] = []
        if last != "static":
            if not one_pass:
                tiers.append("sampled")
            if last == "cycle" or (last is None and to_cycle):
                tiers.append("cycle")
        groups = _groups(plan) if tiers else Groups.single(0)
        self._gates = [_Gate(plan, tier, groups, everything=tier == "cycle" and not to_cycle) for tier in tiers]
        self._architectures = plan.architectures
        self._arch_of = {name: arch for arch, names in self._architectures.items() for name in names}
        for gate in self._gates:
            gate.emitted = {arch: np.zeros(count, bool) for arch in self._architectures}
        self._done = {
            (tier, target): np.zeros(count, bool) for tier in (*self.first_tiers, *tiers) for target in plan.targets
        }
        self._nodes: list[str] = [""]
        # seconds of each variant's item in the last tier it has been through: what it takes in the next is like it
        self._took = {arch: np.zeros(count if tiers else 0, np.float32) for arch in self._architectures}
        self._homes = {arch: np.zeros(count if tiers else 0, np.int16) for arch in self._architectures}
        self._promoted: list[Promotion] = []
        self._failed = np.zeros(count, bool)
        self._estimated = np.zeros(count, bool)
        self.counts = {
            tier: TierCounts(tier, count * len(plan.targets), decided=tier in self.first_tiers)
            for tier in (*self.first_tiers, *tiers)
        }
        for gate in self._gates:
            self.counts[gate.tier].planned = sum(funnel.expected() for funnel in gate.funnels.values())
        # few long evaluations: cores that have none of their own help with the others
        self._threads = max(1, cores // max(1, self.counts["cycle"].planned)) if "cycle" in self.counts else 1
        self._unrecorded: dict[str, np.ndarray] = {}
        if plan.settings.record is not None:
            self._unrecorded = {target: np.zeros(count, bool) for target in plan.targets}
        for table in known:
            self._take_known(table)
        for table in recorded:
            self._note_timelines(table, missing=False)
        # variants that an earlier submission took through the static tier alone
        self._half_done = {
            target: self._done["static", target] & ~self._done["sampled", target] for target in plan.targets if one_pass
        }
        self._unrecordable: list[str] = []  # why
        self._remaining = self._count_fresh() + self._count_unrecorded()

    # ---- what is to be done

    def fresh(self) -> Iterator[WorkItem]:
        """Items nobody has begun, made one by one."""
        for found in self.plan.first_items(self.first_tiers, lambda n, t: self._has(self.first_tiers[0], n, t)):
            self._remaining = max(0, self._remaining - 1)
            if isinstance(found, WorkItem):
                yield found
            else:
                self._excluded(found)
                for row in found.rows.estimates:
                    self._take(row["target"], row["tier"], self._index(found.variant), None)
        if self._half_done:
            yield from self._static_only()
        yield from self._timelines_only()

    def remaining(self) -> int:
        """About how many items `fresh` will still give."""
        return self._remaining

    def has_promotions(self) -> bool:
        """Whether items have come to go on since the last call of `promotions`."""
        return bool(self._promoted)

    def promotions(self) -> list[Promotion]:
        """Variants that have come to go on since the last call."""
        found, self._promoted = self._promoted, []
        return found

    def later_items(self, kind: Kind, variant: int) -> list[WorkItem]:
        """The work of a promotion: one item, or more where code or launch differ between targets."""
        _, arch, (tier,) = kind
        gate = next(gate for gate in self._gates if gate.tier == tier)
        index = self._index(variant)
        items, _ = self.plan.items_of(variant, self._going_on(gate, arch, index), (tier,))
        return [replace(item, threads=self._threads) for item in items] if tier == "cycle" else items

    # ---- what has been done

    def take(self, finished: Finished, node: str = "") -> None:
        """A result of one of the items; `node` has its cubin now."""
        if finished.record_only and finished.failure is not None:
            self._unrecordable.append(f"variant {finished.variant}: {finished.message}")
        index = self._index(finished.variant)
        if self._gates:
            if node not in self._nodes:
                self._nodes.append(node)
            self._homes[finished.arch][index] = self._nodes.index(node)
            self._took[finished.arch][index] = finished.seconds
        for (target, tier), time_us in finished.times.items():
            self._take(target, tier, index, time_us)

    def took(self, arch: str, variant: int) -> float:
        """Seconds that a variant took in the last tier it has been through; 0 when that is not known."""
        took = self._took[arch]
        return float(took[self._index(variant)]) if len(took) else 0.0

    def settle(self, all_of_it: bool = False) -> None:
        """Let the funnels decide what they can: when enough is new, or all of it now."""
        for position, gate in enumerate(self._gates):
            for target, funnel in gate.funnels.items():
                if funnel.due() or all_of_it:
                    for index in funnel.settle():
                        self._decided(position, self._arch_of[target], index)
            counts = self.counts[gate.tier]
            if not counts.decided and all(funnel.waiting == 0 for funnel in gate.funnels.values()):
                counts.planned = sum(funnel.kept() for funnel in gate.funnels.values())
                counts.decided = True

    def notes(self) -> list[str]:
        """What the funnels did, and timelines that could not be had, in words."""
        said = [
            f"{self.plan.sweep.name}: the funnel takes {sum(f.kept() for f in gate.funnels.values())} of {gate.rows} "
            f"(variant, target) pairs to the {gate.tier} tier"
            for gate in self._gates
        ]
        if self._unrecordable:
            count = len(self._unrecordable)
            said.append(f"{self.plan.sweep.name}: {count} timeline(s) not recorded, first {self._unrecordable[0]}")
        return said

    def variants_failed(self) -> int:
        """Variants with results, but no estimate for any target."""
        return int(np.count_nonzero(self._failed & ~self._estimated))

    # ---- inside

    def _index(self, number: int) -> int:
        numbers = self.plan.numbers
        return number if isinstance(numbers, range) else bisect_left(numbers, number)

    def _has(self, tier: str, number: int, target: str) -> bool:
        return bool(self._done[tier, target][self._index(number)])

    def _take(self, target: str, tier: str, index: int, time_us: float | None, resumed: bool = False) -> None:
        done = self._done.get((tier, target))
        if done is None or done[index]:
            return
        done[index] = True
        counts = self.counts[tier]
        counts.done += 1
        counts.failed += time_us is None
        counts.resumed += resumed
        if time_us is None:
            self._failed[index] = True
        else:
            self._estimated[index] = True
        for gate in self._gates:
            if gate.tier == _after(tier):
                gate.rows += 1
                gate.funnels[target].take(index, time_us)

    def _decided(self, position: int, arch: str, index: int) -> None:
        """A variant's fate at a gate is known for one target: it goes on if it is for all of the architecture."""
        gate = self._gates[position]
        targets = self._architectures[arch]
        fates = {target: gate.funnels[target].fate(index) for target in targets}
        if gate.emitted[arch][index] or None in fates.values():
            return
        gate.emitted[arch][index] = True
        if position + 1 < len(self._gates):  # those that stay here never come to the next gate
            for target, fate in fates.items():
                if not fate and not self._done[gate.tier, target][index]:
                    self._gates[position + 1].funnels[target].take(index, None)
        ours = self._going_on(gate, arch, index)
        if ours:
            kind = (self.plan.sweep.name, arch, (gate.tier,))
            priority = min(gate.funnels[target].behind_best(index) for target in ours)
            home = self._nodes[self._homes[arch][index]]
            self._promoted.append(Promotion(kind, self.plan.numbers[index], priority, home))

    def _going_on(self, gate: _Gate, arch: str, index: int) -> list[str]:
        """The targets of an architecture on which a variant goes through a gate and has no result behind it."""
        return [
            target
            for target in self._architectures[arch]
            if gate.funnels[target].fate(index) and not self._done[gate.tier, target][index]
        ]

    def _take_known(self, known: pa.Table) -> None:
        """Results the run has."""
        known = known.filter(pc.field("family") == self.plan.sweep.name)
        columns = (known.column(c).to_pylist() for c in ("variant", "target", "tier", "status", "time_us"))
        for variant, target, tier, status, time_us in zip(*columns, strict=True):
            index = self._asked_for(variant)
            if index is not None:
                self._take(target, tier, index, time_us if status == "ok" else None, resumed=True)
        if self._unrecorded:
            self._note_timelines(known.filter(pc.field("status") == "ok"), missing=True)

    def _asked_for(self, variant: int) -> int | None:
        """The index of a variant, if it was asked for."""
        index = self._index(variant)
        return index if index < len(self.plan.numbers) and self.plan.numbers[index] == variant else None

    def _count_fresh(self) -> int:
        total = 0
        for targets in self._architectures.values():
            missing = np.zeros(len(self.plan.numbers), bool)
            for target in targets:
                missing |= ~self._done[self.first_tiers[0], target]
            total += int(np.count_nonzero(missing))
            if self._half_done:
                half = np.logical_or.reduce([self._half_done[target] for target in targets])
                total += int(np.count_nonzero(half & ~missing))
        return total

    def _static_only(self) -> Iterator[WorkItem]:
        for targets in self._architectures.values():
            for index, number in enumerate(self.plan.numbers):
                ours = [target for target in targets if self._half_done[target][index]]
                if ours:
                    self._remaining = max(0, self._remaining - 1)
                    yield from self.plan.items_of(number, ours, ("sampled",))[0]

    def _note_timelines(self, rows: pa.Table, missing: bool) -> None:
        """Estimates of the tier whose timelines are wanted: they have none so far, or (`recordings`) have one."""
        settings = self.plan.settings
        if settings.record is None:
            return
        found = rows.filter((pc.field("family") == self.plan.sweep.name) & (pc.field("tier") == settings.record.tier))
        for variant, target in zip(*(found.column(c).to_pylist() for c in ("variant", "target")), strict=True):
            index = self._asked_for(variant)
            if target in self._unrecorded and index is not None:
                wanted = not settings.record_variants or variant in settings.record_variants
                self._unrecorded[target][index] = missing and wanted

    def _count_unrecorded(self) -> int:
        return sum(
            int(np.count_nonzero(np.logical_or.reduce([self._unrecorded[target] for target in targets])))
            for targets in self._architectures.values()
            if self._unrecorded
        )

    def _timelines_only(self) -> Iterator[WorkItem]:
        record = self.plan.settings.record
        if record is None:
            return
        threads = max(1, self._cores // max(1, self._count_unrecorded())) if record.tier == "cycle" else 1
        for targets in self._architectures.values():
            for index, number in enumerate(self.plan.numbers):
                ours = [target for target in targets if self._unrecorded[target][index]]
                if ours:
                    self._remaining = max(0, self._remaining - 1)
                    for item in self.plan.items_of(number, ours, (record.tier,))[0]:
                        yield replace(item, record_only=True, threads=threads)


def _groups(plan: Plan) -> Groups:
    """The rank_within groups of the variants asked for: parameters are the same for all targets."""
    within = plan.sweep.rank_within
    if not within:
        return Groups.single(len(plan.numbers))
    variants = next(iter(plan.variants.values()))
    return Groups.numbered(tuple(variants[n].parameters[p] for p in within) for n in plan.numbers)


def _after(tier: str) -> str | None:
    place = TIERS.index(tier) + 1
    return TIERS[place] if place < len(TIERS) else None
