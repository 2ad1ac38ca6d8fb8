"""From a sweep and targets to work items: which variants, which targets share an execution, what is done already."""

from __future__ import annotations

import functools
import hashlib
import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import interpreter
import timing
from jobs.sweep import LIMITS, Sweep, SweepError
from jobs.tables import Rows
from jobs.variants import Variant, VariantSpace, uses_limits
from jobs.work import (
    CONSTRAINTS,
    CYCLE_SECONDS,
    DEFAULT_MEMORY,
    DEFAULT_SECONDS,
    KernelBuild,
    Recording,
    VariantResult,
    WorkItem,
    failed_result,
)
from timing.target import Target, load_target


@dataclass(slots=True)
class Plan:
    """A sweep's work. `variants` maps a target's name to its variants, made when asked for."""

    sweep: Sweep
    targets: dict[str, str]  # name -> what load_target takes
    variants: dict[str, Sequence[Variant]]
    numbers: Sequence[int]  # the variants asked for, ascending
    settings: Settings
    _loaded: dict[str, Target] = field(default_factory=dict)

    def target(self, name: str) -> Target:
        """One of the sweep's targets, read once."""
        if name not in self._loaded:
            self._loaded[name] = load_target(self.targets[name])
        return self._loaded[name]

    @property
    def total(self) -> int:
        """Variants of the whole sweep."""
        return max(map(len, self.variants.values()))

    @property
    def architectures(self) -> dict[str, list[str]]:
        """Architecture -> its targets, which may share an execution."""
        found: dict[str, list[str]] = {}
        for name in self.targets:
            found.setdefault(self.target(name).arch, []).append(name)
        return dict(sorted(found.items()))

    def items(
        self, tiers: Sequence[str], wanted: Mapping[str, Collection[int]], done: Collection[tuple[int, str]]
    ) -> tuple[list[WorkItem], list[VariantResult]]:
        """Work for the variants `wanted` of each target, less the (variant, target) pairs that are `done`.

        Targets of one architecture that share code and launch share an item. The second list holds results known
        without running anything: variants a target's limits exclude.
        """
        chosen = {name: set(numbers) for name, numbers in wanted.items()}
        items: list[WorkItem] = []
        excluded: list[VariantResult] = []
        for names in self.architectures.values():
            for number in self.numbers:
                ours = [name for name in names if number in chosen[name] and (number, name) not in done]
                found, left_out = self.items_of(number, ours, tiers)
                items += found
                excluded += left_out
        return items, excluded

    def items_of(
        self, number: int, targets: Sequence[str], tiers: Sequence[str]
    ) -> tuple[list[WorkItem], list[VariantResult]]:
        """Work for one variant on `targets`, all of one architecture, and the results known without running anything.

        One item when code and launch are the same on all of them, as they nearly always are.
        """
        items: list[WorkItem] = []
        excluded: list[VariantResult] = []
        made: dict[int, int] = {}  # identity of a target's variants -> its item: most sweeps have one for all targets
        for name in targets:
            spec, variants = self.targets[name], self.variants[name]
            place = made.get(id(variants))
            if place is None:
                variant = variants[number]
                item = self._item(variant, self.target(name), spec, tuple(tiers))
                if variant.excluded:
                    excluded.append(failed_result(item, CONSTRAINTS, variant.excluded))
                    continue
                place = next((i for i, known in enumerate(items) if _shared_part(known) == _shared_part(item)), None)
                made[id(variants)] = len(items) if place is None else place
                if place is None:
                    items.append(item)
                    continue
            items[place] = replace(items[place], targets=(*items[place].targets, (name, spec)))
        return items, excluded

    def first_items(
        self, tiers: Sequence[str], done: Callable[[int, str], bool]
    ) -> Iterator[WorkItem | VariantResult]:
        """All that is to be done of the variants asked for, one by one, architecture after architecture."""
        for names in self.architectures.values():
            for number in self.numbers:
                ours = [name for name in names if not done(number, name)]
                if ours:
                    found, excluded = self.items_of(number, ours, tiers)
                    yield from excluded
                    yield from found

    def _item(self, variant: Variant, target: Target, spec: str, tiers: tuple[str, ...]) -> WorkItem:
        settings = self.settings
        record = settings.record if settings.record is not None and settings.record.tier in tiers else None
        if settings.record_variants and variant.number not in settings.record_variants:
            record = None
        build = kernel_build(self.sweep, variant, target)
        return WorkItem(
            family=variant.family,
            variant=variant.number,
            parameters=tuple(variant.parameters.items()),
            names=build.macros or tuple(variant.names.items()),  # the same object travels once
            build=build,
            grid=variant.grid,
            block=variant.block,
            shared=variant.shared,
            arguments=variant.arguments,
            targets=((target.name, spec),),
            tiers=tiers,
            l2=settings.l2,
            seconds=settings.seconds or (CYCLE_SECONDS if "cycle" in tiers else DEFAULT_SECONDS),
            instructions=settings.instructions,
            memory=settings.memory,
            cache=settings.cache,
            threads=settings.threads,
            record=record,
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """What a submission decides besides the sweep."""

    l2: str
    seconds: float | None  # None: the tier's default
    instructions: int
    cache: Path
    limit: int | None = None
    targets: tuple[str, ...] = field(default=())  # overrides the sweep's
    threads: int = 1  # of one evaluation by the cycle tier
    memory: int = DEFAULT_MEMORY
    record: Recording | None = None  # timelines
    record_variants: frozenset[int] = frozenset()  # of these only; empty: of all


def plan_sweep(sweep: Sweep, settings: Settings) -> Plan:
    """Expand a sweep for its targets. Raises SweepError, also when the kernel cannot be built by this version."""
    if sweep.kernel.language == "triton":
        raise SweepError(
            f"{sweep.where('kernel', 'language')}: Triton sources are not compiled by this version. A cubin that "
            "Triton has compiled works: kernel: {cubin: FILE, entry: NAME}, with launch.block and every argument listed"
        )
    targets: dict[str, str] = {}
    for spec in settings.targets or sweep.targets:
        name = load_target(spec).name
        if name in targets and targets[name] != spec:
            raise SweepError(f"target {name} is named twice")
        targets[name] = spec
    if uses_limits(sweep):
        variants: dict[str, Sequence[Variant]] = {
            name: VariantSpace(sweep, target_limits(load_target(spec))) for name, spec in targets.items()
        }
    else:
        variants = dict.fromkeys(targets, VariantSpace(sweep))
    numbers = range(len(next(iter(variants.values()))))
    return Plan(sweep, targets, variants, evenly(numbers, settings.limit), settings)


def evenly(numbers: Sequence[int], limit: int | None) -> Sequence[int]:
    """`limit` of `numbers`, spread evenly over the sweep (all of them without a limit)."""
    if limit is None or limit >= len(numbers):
        return numbers
    return [numbers[index * len(numbers) // limit] for index in range(limit)]


def target_limits(target: Target) -> dict[str, int]:
    """The limits an expression may use (`jobs.sweep.LIMITS`): bytes a CTA may ask for, registers and warps of an SM."""
    values = {
        "smem_per_block": target.limits.shared_per_block_optin_bytes,
        "regs_per_sm": target.limits.registers_per_sm,
        "max_warps": target.limits.max_warps_per_sm,
        "sm_count": target.sm_count,
    }
    assert set(values) == set(LIMITS)
    return values


def kernel_build(sweep: Sweep, variant: Variant, target: Target) -> KernelBuild:
    """How to get a variant's cubin for a target."""
    kernel = sweep.kernel
    if kernel.source is not None:
        return KernelBuild(
            arch=target.arch,
            entry=kernel.entry,
            source=_source(sweep.path, kernel.source),
            macros=tuple(variant.names.items()),
            flags=tuple(kernel.flags),
        )
    assert kernel.cubin is not None
    scope = {name: str(value) for name, value in variant.names.items()} | {"arch": target.arch}
    try:
        named = kernel.cubin.format_map(scope)
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        fields = [f for _, f, _, _ in string.Formatter().parse(kernel.cubin) if f] if "{" in kernel.cubin else []
        raise SweepError(
            f"{sweep.where('kernel', 'cubin')}: '{kernel.cubin}': {error} is not a name of this sweep "
            f"(placeholders: {', '.join(fields)}; names: {', '.join(scope)})"
        ) from None
    if not re.search(r"\{", kernel.cubin):
        named = kernel.cubin
    path = (sweep.folder / named).resolve()
    if not sweep.holds(path):
        raise SweepError(
            f"{sweep.where('kernel', 'cubin')}: '{named}' lies outside the sweep's folder "
            "(allow it with --allow-outside)"
        )
    return KernelBuild(arch=target.arch, entry=kernel.entry, cubin=path)


def excluded_rows(results: Iterable[VariantResult]) -> Rows:
    """The rows of results known without running anything."""
    rows = Rows()
    for result in results:
        rows.extend(result.rows)
    return rows


@functools.lru_cache(maxsize=1)
def model_digest() -> str:
    """SHA-256 (hex) of the simulator's own sources and data: estimates of different digests are different models'."""
    digest = hashlib.sha256()
    files = [Path(__file__).parent / name for name in ("evaluate.py", "arguments.py")]
    for package in (interpreter, timing):
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        files += sorted(path for path in root.rglob("*") if path.suffix in (".py", ".yaml"))
    for path in files:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _source(sweep: Path, name: str) -> Path:
    """The kernel's source, named in the file `sweep`: absolute, links followed."""
    # a relative path means another file when the working directory changes
    return _resolved(sweep if sweep.is_absolute() else sweep.absolute(), name)


@functools.lru_cache(maxsize=256)
def _resolved(sweep: Path, name: str) -> Path:
    return (sweep.parent / name).resolve()


def _shared_part(item: WorkItem) -> tuple[object, ...]:
    return (item.build, item.grid, item.block, item.shared, item.arguments)

