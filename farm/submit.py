"""Submitting sweeps: what is to be done, doing it on the workers, keeping what is done."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from farm.announce import Announcer
from farm.board import Board
from farm.drive import Cancelled, Drive
from farm.events import Event, Telemetry
from farm.executors.interface import Executor, default_jobs
from farm.executors.process_pool import ProcessPool
from farm.inputs import keep
from farm.measured import MeasuredError, read_measured
from farm.observability.redact import redacted
from farm.progress import Reporter
from farm.sink import Sink, Tables
from farm.store import Store
from farm.submit_options import Options, SubmitError
from farm.timelines import announcement, summary, with_timelines
from interpreter.disassembly import cache_directory
from jobs.bundle import check_inside
from jobs.expression import close_match
from jobs.parts import Encoded
from jobs.plan import Plan, Settings, model_digest, plan_sweep
from jobs.run_folder import Family, RunError, RunFolder
from jobs.stream import SweepStream
from jobs.sweep import load_sweep
from jobs.tables import from_rows
from timing.target import load_target
from timing.warm_up import compile_engine, is_compiled

EVALUATOR = "jobs.evaluate:evaluate_batch"


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
    """Ctrl-C, or a wish to cancel: what was finished is kept."""

    def __init__(self, run: str, done: int, total: int, why: str = "stopped") -> None:
        super().__init__(f"{why}; {done} of {total} work items are done and kept in run {run}")
        self.run = run


Listen = Callable[[Telemetry], None]


def submit(
    paths: list[Path], options: Options, store: Store, console: Console, listeners: Sequence[Listen] = ()
) -> Outcome:
    """Evaluate sweeps into one run of `store`, redoing nothing that is finished.

    `listeners` are given the run's telemetry before anything happens, to add what they want to hear (farm.events).
    Raises FarmError for bad input, Interrupted when stopped or cancelled.
    """
    started = time.monotonic()
    plans = plan_all(paths, options)
    measured = _measured_files(plans, options)
    notes: list[str] = []
    name = options.run or default_run_name(plans, options)
    folder = store.folder(name)
    outcome = Outcome(name, folder, notes=notes)
    telemetry = Telemetry(name)
    for listen in listeners:
        listen(telemetry)
    with folder.writing():
        for plan in plans:
            _register(folder, plan, options)
        board = Board(folder)
        trouble = keep(board, paths, plans, options)
        if trouble:
            notes.append(trouble)
        _store_measured(folder, measured, notes)
        if options.retry:
            dropped = folder.drop(lambda row: row["status"] == "failed")
            if dropped:
                notes.append(f"{dropped} failed results are tried again")
        with Announcer(board, telemetry) as announcer:
            _evaluate(plans, options, outcome, telemetry, announcer, console)
            folder.finish()
            telemetry.progress.state = "complete"
            telemetry.say("run_finished", f"{outcome.evaluated} evaluations")
    outcome.seconds = time.monotonic() - started
    return outcome


def _evaluate(
    plans: list[Plan],
    options: Options,
    outcome: Outcome,
    telemetry: Telemetry,
    announcer: Announcer,
    console: Console,
) -> None:
    """All the work of the sweeps that the run does not have yet."""
    progress = telemetry.progress
    with _state_of(telemetry):
        sink = Sink(functools.partial(_store, outcome.folder, telemetry))
        try:
            streams = _streams(plans, options, outcome.folder, sink)
            outcome.resumed = sum(s.counts[s.first_tiers[0]].resumed for s in streams)
            # what the run has may already send variants on
            for stream in streams:
                stream.settle(all_of_it=True)
            if any(stream.remaining() or stream.has_promotions() for stream in streams):
                with executor_for(plans, options, console) as executor:
                    progress.executor, progress.state = executor.kind, "running"
                    for stream in streams:
                        _announce(stream, executor, console)
                    drive = Drive(streams, executor, sink, telemetry, announcer.cancelled)
                    try:
                        _drive(drive, telemetry, announcer, console, outcome)
                    finally:
                        outcome.evaluated = drive.evaluated
        finally:
            sink.close()
    for stream in streams:
        outcome.notes += stream.notes()
        outcome.notes += filter(None, [summary(stream.plan, outcome.folder)])
        outcome.failed += stream.variants_failed()


def _store(folder: RunFolder, telemetry: Telemetry, tables: Tables, encoded: Sequence[Encoded] = ()) -> None:
    telemetry.progress.bytes_written += folder.add(tables, encoded)


def _drive(drive: Drive, telemetry: Telemetry, announcer: Announcer, console: Console, outcome: Outcome) -> None:
    reporter = Reporter(console, outcome.run, drive.items_left())

    def tell(event: Event) -> None:
        if event.kind == "variant_finished":
            reporter.total = drive.evaluated + drive.items_left()
            reporter.advance(event.fields["failure"] is not None)
        elif event.kind not in ("run_started", "worker_started", "run_finished"):
            reporter.say(event.text)

    def tick() -> None:
        reporter.under_way(telemetry.progress.under_way)
        announcer.tick()

    telemetry.listen(tell)
    telemetry.say("run_started", f"run {outcome.run} begins")
    try:
        with reporter.running():
            drive.run(tick)
    except KeyboardInterrupt:
        raise Interrupted(outcome.run, drive.evaluated, drive.evaluated + drive.items_left()) from None
    except Cancelled as why:
        raise Interrupted(outcome.run, drive.evaluated, drive.evaluated + drive.items_left(), str(why)) from None


@contextmanager
def _state_of(telemetry: Telemetry) -> Iterator[None]:
    """Let the run's snapshot say how it ended, if it ends badly."""
    try:
        yield
    except BaseException as error:
        progress = telemetry.progress
        stopped = isinstance(error, Interrupted | KeyboardInterrupt)
        progress.state = "failed" if not stopped else "cancelled" if "cancelled" in str(error) else "interrupted"
        progress.why = redacted(str(error)) or type(error).__name__
        telemetry.say("run_finished", progress.why)
        raise


@contextmanager
def executor_for(plans: list[Plan], options: Options, console: Console) -> Iterator[Executor]:
    """The workers that a submission asks for, stopped at the end."""
    if options.ray is not None:
        from farm.executors.ray_pool import RayPool
        from jobs.bundle import sweep_bundle

        bundles = {plan.sweep.name: sweep_bundle(plan) for plan in plans}
        with RayPool(options.ray, options.jobs, EVALUATOR, bundles) as cluster:
            yield cluster
        return
    whole_chip = options.tier == "cycle" or (options.tier is None and any(_goes_to_cycle(plan) for plan in plans))
    if options.tier != "static" and not is_compiled(whole_chip):
        # here, so that the workers load it instead of each compiling its own
        console.print("compiling the timing engine (once a version and machine) ...", style="dim")
        compile_engine(whole_chip)
    with ProcessPool(options.jobs or default_jobs(), EVALUATOR) as pool:
        yield pool


def default_run_name(plans: list[Plan], options: Options) -> str:
    """A name from the content: the same sweeps with the same simulator continue the same run."""
    digest = hashlib.sha256(options.l2.encode() + model_digest().encode())
    for plan in plans:
        digest.update(plan.sweep.digest().encode())
    families = plans[0].sweep.name if len(plans) == 1 else f"{plans[0].sweep.name}+{len(plans) - 1}"
    return f"{families}-{digest.hexdigest()[:8]}"


def plan_all(paths: list[Path], options: Options) -> list[Plan]:
    """The sweeps' work. Raises FarmError for anything wrong with them or the options."""
    targets = tuple(str(Path(t).resolve()) if t.endswith(".yaml") else load_target(t).name for t in options.targets)
    settings = Settings(
        l2=options.l2,
        seconds=options.seconds,
        instructions=options.instructions,
        memory=options.memory,
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
        plan = plan_sweep(sweep if options.adjust is None else options.adjust(sweep), settings)
        if not options.allow_outside:
            check_inside(plan)
        plans.append(with_timelines(plan, options))
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


def _streams(plans: list[Plan], options: Options, folder: RunFolder, sink: Sink) -> list[SweepStream]:
    cores = 1 if options.ray is not None else options.jobs or default_jobs()
    key = ["family", "variant", "target", "tier"]
    streams: list[SweepStream] = []
    for plan in plans:
        name = plan.sweep.name
        known = folder.scan("estimates", [*key, "status", "time_us"], family=name)
        recorded = folder.scan("recordings", key, family=name) if options.timeline else ()
        streams.append(
            SweepStream(plan, options.tier, known, lambda result: sink.take(result.rows.tables()), cores, recorded)
        )
    return streams


def _announce(stream: SweepStream, executor: Executor, console: Console) -> None:
    plan, left = stream.plan, stream.remaining()
    said = announcement(plan)
    if said is not None:
        console.print(said, highlight=False)
    if left:
        variants = min(left, len(plan.numbers))
        console.print(
            f"{plan.sweep.name} ({'/'.join(stream.first_tiers)}): {variants} variant{'s' if variants != 1 else ''} on "
            f"{len(plan.targets)} target(s), {len(plan.architectures)} architecture(s), "
            f"{min(executor.workers, left)} {'Ray worker(s)' if executor.kind == 'ray' else 'process(es)'}",
            highlight=False,
        )


def _goes_to_cycle(plan: Plan) -> bool:
    return plan.sweep.funnel.cycle not in (0, "0%")
