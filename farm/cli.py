"""The `farm` command. Results go to stdout, everything about them (progress, tables of a submission) to stderr.

Exit codes: 0 done, 1 every variant failed, 2 bad input or usage, 3 the machine's fault (a tool or worker is missing or
broken), 130 stopped by Ctrl-C with everything finished kept.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from farm.commands import control, insight, overview, page
from farm.commands.measure import measure
from farm.commands.names import FamilyOption, JsonOption, StoreOption, TargetOption, console, open_run, target_of
from farm.commands.observation import LogFormatOption, LogLevelOption, MetricsOption
from farm.commands.ray_option import complete_ray_option
from farm.commands.timeline_options import (
    TimelineLimitOption,
    TimelineOption,
    TimelineSmsOption,
    TimelineVariantsOption,
    timeline_options,
)
from interpreter.errors import FarmError, ToolchainError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="How fast a CUDA kernel will run on GPUs you do not have, and why. Times are simulated, except measured ones.",
)

control.register(app)

CsvOption = Annotated[bool, typer.Option("--csv", help="CSV on stdout.")]
FormatOption = Annotated[
    str | None, typer.Option("--format", "-f", help="table, json, csv, parquet or arrow (IPC stream), on stdout.")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="File to write instead of stdout; its ending names the format.")
]
RunArgument = Annotated[str, typer.Argument(help="Name of the run, or the beginning of it.", metavar="RUN")]


insight.register(app)


def main() -> None:
    """Entry point: one message a failure, no traceback unless FARM_DEBUG is set."""
    sys.argv[1:] = complete_ray_option(sys.argv[1:])
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(_say("stopped", 130))
    except BrokenPipeError:  # the reader of stdout has gone (`farm rank ... | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("FARM_DEBUG"):
            raise
        sys.exit(_report(error))


def _report(error: Exception) -> int:
    from farm.executors.interface import ExecutorError
    from farm.submit import Interrupted
    from jobs.blobs import StorageError

    if isinstance(error, Interrupted):
        return _say(f"{error}. To go on, give the same command again, or: farm resume {error.run}", 130)
    if isinstance(error, ToolchainError | ExecutorError | StorageError):
        return _say(f"error: {error}", 3)
    if isinstance(error, FarmError):
        return _say(f"error: {error}", 2)
    if isinstance(error, OSError):
        return _say(f"error: {error}", 3)
    return _say(f"error: {type(error).__name__}: {error} (a fault of farm; FARM_DEBUG=1 shows where)", 3)


def _say(message: str, code: int) -> int:
    from farm.observability.logs import complain

    complain(message)
    return code


app.command()(measure)


@app.command()
def submit(
    sweeps: Annotated[list[Path], typer.Argument(help="sweep.yaml files, or their folders.", metavar="SWEEP...")],
    target: Annotated[
        list[str] | None, typer.Option("--target", "-t", help="GPU to estimate for; repeat (default: the sweep's).")
    ] = None,
    tier: Annotated[
        str | None,
        typer.Option(
            help="How far to go: static (bounds only), sampled, or cycle (default: as the sweep's funnel says)."
        ),
    ] = None,
    store: StoreOption = None,
    run: Annotated[str | None, typer.Option(help="Name of the run (default: from the content).")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="That many variants, spread over the sweep.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Processes (default: one a core).")] = None,
    measured: Annotated[
        list[str] | None, typer.Option(help="CSV of measured times: FILE, or TARGET=FILE; repeat.")
    ] = None,
    l2: Annotated[str, typer.Option(help="L2 cache at the launch: warm or cold.")] = "warm",
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Simulation time a variant and architecture may take (default: 120, cycle tier: 3600)."
        ),
    ] = None,
    instructions: Annotated[
        int, typer.Option(min=1, help="Instructions a warp may issue before it counts as an endless loop.")
    ] = 20_000_000,
    memory: Annotated[
        float, typer.Option(min=0.1, help="GiB of memory a variant may need beyond what its worker holds anyway.")
    ] = 8.0,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            envvar="RAY_ADDRESS",
            metavar="[ADDRESS]",
            help="Run on the Ray cluster at HOST:PORT, or `auto`; without an address on a Ray started here.",
        ),
    ] = None,
    timeline: TimelineOption = False,
    timeline_limit: TimelineLimitOption = None,
    timeline_variants: TimelineVariantsOption = None,
    timeline_sms: TimelineSmsOption = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try failed variants of the run again.")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="In the background; `farm watch` follows it.")] = False,
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="Let a sweep name files outside its folder.")
    ] = False,
    metrics: MetricsOption = None,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = None,
) -> None:
    """Estimate every variant of the sweeps, and rank them.

    Prints the run's name on stdout; progress and tables go to stderr. Giving the same command again continues the run
    and redoes nothing.
    """
    from farm.commands.observation import Observation
    from farm.commands.submission import run_and_report, run_detached
    from farm.submit_options import Options

    observation = Observation(metrics, log_format, log_level)
    if tier is not None:
        _one_of("--tier", tier, ("static", "sampled", "cycle"))
    _one_of("--l2", l2, ("warm", "cold"))
    options = Options(
        targets=tuple(target or ()),
        tier=tier,
        run=run,
        limit=limit,
        jobs=jobs,
        measured=tuple(measured or ()),
        l2=l2,
        seconds=seconds,
        instructions=instructions,
        allow_outside=allow_outside,
        memory=int(memory * 2**30),
        retry=retry,
        ray=ray,
        **timeline_options(timeline, timeline_limit, timeline_variants, timeline_sms),
    )
    if detach:
        run_detached(sweeps, options, store, [word for word in sys.argv[1:] if word not in ("--detach", "-d")])
    else:
        run_and_report(sweeps, options, store, observation)


@app.command()
def status(
    run: Annotated[str | None, typer.Argument(help="Name of the run (default: all runs).")] = None,
    store: StoreOption = None,
    json_output: JsonOption = False,
) -> None:
    """How far runs have come."""
    from farm.render import as_json, print_rows
    from farm.status import run_status, store_status
    from farm.store import open_store

    opened = open_store(store)
    rows, unread = store_status(opened) if run is None else (run_status(opened.find(run)), [])
    if json_output:
        sys.stdout.write(as_json(rows))
    elif rows:
        print_rows(console(), rows)
    elif not unread:
        print(f"no runs in {opened.location}", file=sys.stderr)
    for reason in unread:
        print(f"not shown: {reason}", file=sys.stderr)


@app.command()
def rank(
    run: RunArgument,
    target: TargetOption = None,
    family: FamilyOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Every variant, not the best ten.")] = False,
    form: FormatOption = None,
    output: OutputOption = None,
    csv_output: CsvOption = False,
    json_output: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Variants by estimated time, best first, each parameter a column. Formats but `table` hold all of them."""
    from farm.output import chosen_format, write
    from farm.render import print_ranking, ranking_query, ranking_rows

    form = chosen_format(form, csv_output, json_output, output)
    database = open_run(run, store)
    chosen = target_of(database, target), _family_of(database, family)
    if form != "table":
        write(database.reader(*ranking_query(database, *chosen)), form, output)
    else:
        best = None if everything else 10
        print_ranking(console(), database, ranking_rows(database, *chosen, best), best)


@app.command()
def correlate(
    run: RunArgument,
    groups: Annotated[bool, typer.Option("--groups", help="Each group, not their mean.")] = False,
    form: FormatOption = None,
    output: OutputOption = None,
    csv_output: CsvOption = False,
    json_output: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Agreement of the estimates, and of null models, with times measured on real hardware."""
    from farm.output import chosen_format, write
    from farm.render import as_json, correlation_query, correlation_rows, print_correlation, print_rows

    form = chosen_format(form, csv_output, json_output, output)
    database = open_run(run, store)
    if form not in ("table", "json") or output is not None:
        write(database.reader(correlation_query(groups)), form, output)
        return
    rows = correlation_rows(database, groups)
    if form == "json":
        sys.stdout.write(as_json(rows))
    elif not rows:
        raise FarmError(f"run {database.folder.name}: no measured times to compare with (farm submit --measured FILE)")
    elif groups:
        print_rows(console(), rows)
    else:
        print_correlation(console(), rows)


@app.command()
def accuracy(
    run: RunArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write (default: stdout).")] = None,
    profiles: Annotated[
        Path | None,
        typer.Option("--profiles", help="Folder with FAMILY/*profile.N.csv[.gz], Nsight Compute's source pages."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """The accuracy page of a run in Markdown: times against measured ones, stalls against a profiler's samples."""
    from farm.accuracy import accuracy_page

    if profiles is not None and not profiles.is_dir():
        raise FarmError(f"--profiles {profiles}: no such folder")
    page = accuracy_page(open_run(run, store), profiles)
    if output is None:
        sys.stdout.write(page)
    else:
        output.write_text(page, encoding="utf-8")


@app.command()
def calibrate(
    gpu: Annotated[str, typer.Option("--gpu", help="Target that this machine's GPU is, e.g. h200.")],
    out: Annotated[Path, typer.Option("--out", help="JSON file to write the measured numbers to.")],
    groups: Annotated[str | None, typer.Option("--groups", help="Only these, comma-separated.")] = None,
    nvcc: Annotated[str | None, typer.Option("--nvcc", help="Path of nvcc.")] = None,
) -> None:
    """Measure latencies, rates and bandwidths of the GPU in this machine by microbenchmarks (needs that GPU)."""
    from timing.calibrate.run import GROUPS, calibrate_target

    wanted = groups.split(",") if groups else list(GROUPS)
    calibrate_target(gpu, out, wanted, nvcc, lambda line: print(line, file=sys.stderr))


@app.command()
def targets(json_output: JsonOption = False) -> None:
    """The GPUs that estimates can be made for."""
    from farm.render import as_json, print_rows
    from timing.target import TARGETS, load_target

    rows = [
        {
            "target": t.name,
            "GPU": t.full_name,
            "arch": t.arch,
            "SMs": t.sm_count,
            "MHz": t.clock_mhz,
            "L2 MB": round(t.l2.bytes / 2**20),
            "DRAM GB/s": round(t.dram.gb_per_s),
            "shared KiB/SM": t.limits.shared_per_sm_bytes // 1024,
            "aliases": ", ".join(t.aliases),
        }
        for t in map(load_target, TARGETS)
    ]
    if json_output:
        sys.stdout.write(as_json(rows))
    else:
        print_rows(console(), rows)


@app.command()
def query(
    sql: Annotated[
        str, typer.Argument(help="DuckDB SQL, e.g. 'SELECT target, min(time_us) FROM estimates GROUP BY 1'.")
    ],
    run: Annotated[str | None, typer.Option("--run", help="Name of the run (default: the latest).")] = None,
    form: FormatOption = None,
    output: OutputOption = None,
    csv_output: CsvOption = False,
    json_output: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """SQL over a run: its tables (variants, estimates, instructions, timeline, recordings, measurements), ranking,
    correlation, group_correlation."""
    from farm.output import chosen_format, write
    from farm.render import print_rows
    from farm.store import open_store

    form = chosen_format(form, csv_output, json_output, output)
    if run is None:
        opened = open_store(store)
        names = opened.runs()
        if not names:
            raise FarmError(f"the store {opened.location} holds no runs (begin with `farm submit SWEEP`)")
        run = names[-1]
    database = open_run(run, store)
    if form != "table":
        write(database.reader(sql), form, output)
    else:
        print_rows(console(), database.rows(sql))


@app.command()
def doctor(store: StoreOption = None, json_output: JsonOption = False) -> None:
    """What this installation finds: tools, packages, folders, cores. Exit code 3 when something needed is missing."""
    import dataclasses

    from farm.doctor import examine
    from farm.render import as_json

    findings = examine(store)
    if json_output:
        sys.stdout.write(as_json([dataclasses.asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            mark = "ok" if not finding.problem else "FAIL" if finding.fatal else "note"
            print(f"{mark:4}  {finding.name:11} {finding.value}" + (f": {finding.problem}" if finding.problem else ""))
    if any(finding.fatal for finding in findings):
        raise typer.Exit(3)


@app.command()
def schema() -> None:
    """The JSON Schema of sweep.yaml, for editors."""
    from farm.render import as_json
    from jobs.sweep import json_schema

    sys.stdout.write(as_json(json_schema()))


@app.command()
def version() -> None:
    """The version of farm."""
    import importlib.metadata

    try:
        print(importlib.metadata.version("farm"))
    except importlib.metadata.PackageNotFoundError:
        raise FarmError("farm is not installed as a package (pip install .)") from None


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise FarmError(f"{option} {value}: one of {', '.join(allowed)}")


def _family_of(database: Any, family: str | None) -> str | None:
    families = list(database.folder.manifest.families)
    if family is not None and family not in families:
        raise FarmError(f"run {database.folder.name}: has no family {family} (families: {', '.join(families)})")
    return family


overview.register(app)
page.register(app)

if __name__ == "__main__":
    main()
