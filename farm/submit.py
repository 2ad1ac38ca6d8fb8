"""Submitting sweeps: what is to be done, doing it on the process pool, keeping what is done."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from rich.console import Console

from farm.executors import ProcessPool, default_jobs
from farm.measured import MeasuredError, read_measured
from farm.progress import Reporter
from farm.store import Store
from interpreter.disassembly import cache_directory
from interpreter.errors import FarmError
from jobs.expression import close_match
from jobs.funnel import passes_all, survivors
from jobs.plan import Plan, Settings, excluded_rows, model_digest, plan_sweep
from jobs.run_folder import Family, RunError, RunFolder
from jobs.sweep import Sweep, load_sweep
from jobs.tables import Rows, from_rows
from jobs.work import DEFAULT_INSTRUCTIONS, WorkItem
from timing.target import load_target
from timing.warm_up import compile_engine, is_compiled

EVALUATOR = "jobs.evaluate:evaluate_batch"
FLUSH_SECONDS = 2.0  # a kill loses at most this much finished work
FLUSH_ROWS = 200_000  # rows of `instructions` held in memory


class SubmitError(FarmError):
    """A submission that contradicts itself or the run it would extend."""


@dataclass(slots=True)
class Options:
    """What `farm submit` was asked for."""

    targets: tuple[str, ...] = ()
    tier: str | None = None  # the last tier: "static", "sampled" or "cycle"; None: as the sweep's funnel says
    run: str | None = None
    limit: int | None = None
    jobs: int | None = None
    measured: tuple[str, ...] = ()
    l2: str = "warm"
    seconds: float | None = None  # None: the tier's default
    instructions: int = DEFAULT_INSTRUCTIONS
    allow_outside: bool = False
    retry: bool = False
    adjust: Callable[[Sweep], Sweep] | None = None  # a change to every sweep before it is planned


@dataclass(slots=True)
class Outcome:
    """What a submission did. `failed` variants have no estimate for any target."""

    run: str
    folder: RunFolder
    evaluated: int = 0
    resumed: int = 0
    failed: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)


class Interrupted(Exception):
    """Ctrl-C: what was finished is kept."""

    def __init__(self, run: str, done: int, total: int) -> None:
        super().__init__(f"stopped; {done} of {total} work items are done and kept in run {run}")
        self.run = run


def submit(paths: list[Path], options: Options, store: Store, console: Console) -> Outcome:
    """Evaluate sweeps into one run of `store`, redoing nothing that is finished.

    Raises FarmError for bad input, Interrupted when stopped.
    """
    started = time.monotonic()
    plans = _plans(paths, options)
    measured = _measured_files(plans, options)
    notes: list[str] = []
    name = options.run or default_run_name(plans, options)
    folder = store.folder(name)
    outcome = Outcome(name, folder, notes=notes)
    whole_chip = options.tier == "cycle" or (options.tier is None and any(_goes_to_cycle(plan) for plan in plans))
    if options.tier != "static" and not is_compiled(whole_chip):
        # here, so that the workers load it instead of each compiling its own
        console.print("compiling the timing engine (once a version and machine) ...", style="dim")
        compile_engine(whole_chip)
    with folder.writing(), ProcessPool(options.jobs or default_jobs(), EVALUATOR) as pool:
        for plan in plans:
            _register(folder, plan, options)
        _store_measured(folder, measured, notes)
        if options.retry:
            dropped = folder.drop(lambda row: row["status"] == "failed")
            if dropped:
                notes.append(f"{dropped} failed results are tried again")
        for plan in plans:
            _evaluate(plan, options, outcome, pool, console)
        folder.finish()
    outcome.failed = _failed_variants(folder)
    outcome.seconds = time.monotonic() - started
    return outcome


def default_run_name(plans: list[Plan], options: Options) -> str:
    """A name from the content: the same sweeps with the same simulator continue the same run."""
    digest = hashlib.sha256(options.l2.encode() + model_digest().encode())
    for plan in plans:
        digest.update(plan.sweep.digest().encode())
    families = plans[0].sweep.name if len(plans) == 1 else f"{plans[0].sweep.name}+{len(plans) - 1}"
    return f"{families}-{digest.hexdigest()[:8]}"


def _plans(paths: list[Path], options: Options) -> list[Plan]:
    targets = tuple(str(Path(t).resolve()) if t.endswith(".yaml") else load_target(t).name for t in options.targets)
    settings = Settings(
        l2=options.l2,
        seconds=options.seconds,
        instructions=options.instructions,
        cache=cache_directory(None),
        limit=options.limit,
        targets=tuple(dict.fromkeys(targets)),
    )
    plans: list[Plan] = []
    for path in paths:
        sweep = load_sweep(path, allow_outside=options.allow_outside)
        twin = next((p.sweep for p in plans if p.sweep.name == sweep.name), None)
        if twin is not None:
            raise SubmitError(f"{sweep.path}: name: {sweep.name} is also the name of {twin.path}")
        plans.append(plan_sweep(sweep if options.adjust is None else options.adjust(sweep), settings))
    return plans


def _register(folder: RunFolder, plan: Plan, options: Options) -> None:
    """Enter a sweep in the run's manifest, or check that the run holds the same sweep already."""
    sweep = plan.sweep
    identity = {"sweep": sweep.digest(), "model": model_digest(), "l2": options.l2}
    known = folder.manifest.families.get(sweep.name)
    if known is not None and known.identity != identity:
        reasons = {
            "sweep": f"the sweep {sweep.name} or its source has changed",
            "model": "the simulator has changed",
            "l2": f"it was made with --l2 {known.identity.get('l2')}",
        }
        why = " and ".join(text for key, text in reasons.items() if known.identity.get(key) != identity[key])
        raise RunError(f"run {folder.name}: {why} since it was made; choose another --run name")
    targets = list(dict.fromkeys([*(known.targets if known else []), *plan.targets]))
    planned = max(len(plan.numbers), known.planned if known else 0)
    folder.manifest.families[sweep.name] = Family(
        name=sweep.name,
        identity=identity,
        parameters=list(sweep.parameters),
        rank_within=list(sweep.rank_within),
        targets=targets,
        path=str(sweep.path),
        sweep=sweep.model_dump(mode="json", exclude_defaults=True),
        variants=plan.total,
        planned=planned,
    )
    folder.manifest.complete = False
    folder.save()


def _measured_files(plans: list[Plan], options: Options) -> list[tuple[Plan, str, Path]]:
    """Files of measured times: those of the sweeps, then --measured (TARGET=FILE, or FILE when one target is meant)."""
    found = {
        (plan.sweep.name, target): (plan, target, plan.sweep.folder / text)
        for plan in plans
        for target, text in plan.sweep.measured.items()
    }
    for text in options.measured:
        name, separator, file = text.partition("=")
        path = Path(file if separator else text)
        if len(plans) > 1:
            raise SubmitError("--measured goes with one sweep; write it in each sweep.yaml under measured")
        plan = plans[0]
        if separator:
            target = load_target(name).name
        elif path.stem in plan.targets:
            target = path.stem
        elif len(plan.targets) == 1:
            target = next(iter(plan.targets))
        else:
            raise SubmitError(
                f"--measured {text}: measured on which GPU? Write TARGET={text} (targets: {', '.join(plan.targets)})"
            )
        found[plan.sweep.name, target] = (plan, target, path)
    for _, _, path in found.values():
        if not path.is_file():
            siblings = [p.name for p in path.parent.glob("*.csv")]
            raise MeasuredError(f"{path}: no such file{close_match(path.name, siblings)}")
    return list(found.values())


def _store_measured(folder: RunFolder, measured: list[tuple[Plan, str, Path]], notes: list[str]) -> None:
    """Replace the measurements of the families and targets named, keeping the others."""
    if not measured:
        return
    replaced = {(plan.sweep.name, target) for plan, target, _ in measured}
    rows = [r for r in folder.read("measurements").to_pylist() if (r["family"], r["target"]) not in replaced]
    for plan, target, path in measured:
        variants = plan.variants.get(target) or next(iter(plan.variants.values()))
        found = read_measured(path, target, variants)
        rows += found.rows
        if found.disturbed or found.failed or found.unmatched:
            notes.append(f"{path.name} of {plan.sweep.name}: {found.summary()}")
    folder.replace("measurements", from_rows("measurements", rows))


def _evaluate(plan: Plan, options: Options, outcome: Outcome, pool: ProcessPool, console: Console) -> None:
    """Run one sweep's work through the tiers, skipping what the run has."""
    name, folder = plan.sweep.name, outcome.folder
    everything = {target: list(plan.numbers) for target in plan.targets}
    one_pass = options.tier != "static" and passes_all(plan.sweep, len(plan.numbers))
    static_done = folder.done(name, "static")
    outcome.resumed += len(_pairs(everything) & static_done)
    _pass(plan, ("static", "sampled") if one_pass else ("static",), everything, static_done, outcome, pool, console)
    if options.tier == "static":
        return
    if one_pass:
        # variants that an earlier submission took through the static tier alone
        kept = {target: [n for n in plan.numbers if (n, target) in static_done] for target in plan.targets}
    else:
        kept = _funnel(plan, outcome, "static", "sampled")
    _pass(plan, ("sampled",), kept, folder.done(name, "sampled"), outcome, pool, console)
    if options.tier == "sampled" or (options.tier is None and not _goes_to_cycle(plan)):
        return
    # all that the sampled tier has when asked for by name, with a sweep that sends nothing there
    kept = _funnel(plan, outcome, "sampled", "cycle")
    done = folder.done(name, "cycle")
    todo = sum((number, target) not in done for target, numbers in kept.items() for number in numbers)
    # few long evaluations: cores that have none of their own help with the others
    plan.settings = replace(plan.settings, threads=max(1, pool.jobs // max(todo, 1)))
    _pass(plan, ("cycle",), kept, done, outcome, pool, console)


def _goes_to_cycle(plan: Plan) -> bool:
    return plan.sweep.funnel.cycle not in (0, "0%")


def _funnel(plan: Plan, outcome: Outcome, before: str, tier: Literal["sampled", "cycle"]) -> dict[str, list[int]]:
    """The variants of each target that go on from the tier `before` to `tier`."""
    name = plan.sweep.name
    columns = ["family", "variant", "target", "tier", "status", "time_us"]
    within = plan.sweep.rank_within
    groups = {v.number: tuple(v.parameters[n] for n in within) for vs in plan.variants.values() for v in vs}
    asked = set(plan.numbers)
    rows = [
        {**row, "group": groups[row["variant"]]}
        for row in outcome.folder.read("estimates", columns).to_pylist()
        if row["family"] == name and row["tier"] == before and row["variant"] in asked and row["target"] in plan.targets
    ]
    if tier == "cycle" and not _goes_to_cycle(plan):
        kept = {t: {r["variant"] for r in rows if r["target"] == t and r["status"] == "ok"} for t in plan.targets}
    else:
        kept = survivors(plan.sweep, rows, tier)
    count = sum(len(numbers) for numbers in kept.values())
    outcome.notes.append(f"{name}: the funnel takes {count} of {len(rows)} (variant, target) pairs to the {tier} tier")
    return {target: sorted(kept.get(target, ())) for target in plan.targets}


def _pairs(wanted: Mapping[str, Collection[int]]) -> set[tuple[int, str]]:
    return {(number, target) for target, numbers in wanted.items() for number in numbers}


def _pass(
    plan: Plan,
    tiers: tuple[str, ...],
    wanted: Mapping[str, Collection[int]],
    done: Collection[tuple[int, str]],
    outcome: Outcome,
    pool: ProcessPool,
    console: Console,
) -> None:
    """Evaluate what is not done, writing results every FLUSH_SECONDS and when interrupted."""
    folder = outcome.folder
    items, excluded = plan.items(tiers, wanted, done)
    finished = 0
    writer = _Writer(folder)
    writer.take(excluded_rows(excluded))
    if not items:
        writer.flush()
        return
    label = f"{plan.sweep.name} ({'/'.join(tiers)})"
    architectures = len({item.build.arch for item in items})
    console.print(
        f"{label}: {_count(items)} on {len(plan.targets)} target(s), {architectures} architecture(s), "
        f"{min(pool.jobs, len(items))} process(es)",
        highlight=False,
    )
    reporter = Reporter(console, label, len(items))
    results = pool.run(items)
    try:
        with reporter.running():
            for result in results:
                if result is None:
                    writer.take(Rows())
                    reporter.under_way(pool.under_way())
                    continue
                writer.take(_narrowed(result.rows, tiers))
                finished += 1
                outcome.evaluated += 1
                reporter.advance(result.failure is not None)
        writer.flush()
    except KeyboardInterrupt:
        results.close()
        writer.flush()
        raise Interrupted(outcome.run, finished, len(items)) from None
    except BaseException:
        results.close()
        writer.flush()
        raise


def _narrowed(rows: Rows, tiers: tuple[str, ...]) -> Rows:
    """A second pass writes estimates only: the first has written the variants."""
    return Rows(rows.variants if "static" in tiers else [], rows.estimates, rows.instructions)


def _count(items: list[WorkItem]) -> str:
    variants = len({item.variant for item in items})
    return f"{variants} variant{'s' if variants != 1 else ''}"


class _Writer:
    """Gathers rows and writes them as a part now and then."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._rows = Rows()
        self._written = time.monotonic()

    def take(self, rows: Rows) -> None:
        self._rows.extend(rows)
        held = sum(len(block["pc"]) for block in self._rows.instructions)
        if time.monotonic() - self._written >= FLUSH_SECONDS or held >= FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        tables = self._rows.tables()
        if tables:
            self._folder.add(tables)
        self._rows = Rows()
        self._written = time.monotonic()


def _failed_variants(folder: RunFolder) -> int:
    """Variants without an estimate for any target."""
    rows = folder.read("estimates", ["family", "variant", "status"]).to_pylist()
    good = {(r["family"], r["variant"]) for r in rows if r["status"] == "ok"}
    return len({(r["family"], r["variant"]) for r in rows} - good)
