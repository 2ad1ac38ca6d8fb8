"""`farm gate`: kernels against a baseline, for CI."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from farm.commands.names import console
from interpreter.errors import FarmError

if TYPE_CHECKING:
    from farm.gate.config import Gate

SUMMARY = "GITHUB_STEP_SUMMARY"


def gate(
    config: Annotated[Path, typer.Argument(help="The gate's file, or its folder.", metavar="[CONFIG]")] = Path(
        ".farm.yaml"
    ),
    baseline: Annotated[
        str | None,
        typer.Option(help="Git ref (main, git:v1), FILE.parquet, or STORE#RUN; wins over the file's.", metavar="WHAT"),
    ] = None,
    target: Annotated[list[str] | None, typer.Option("--target", "-t", help="Only this GPU; repeat.")] = None,
    max_slowdown: Annotated[
        str | None, typer.Option(help="Allowed slowdown, e.g. 3%; a sweep's or target's own stays.")
    ] = None,
    per_target: Annotated[list[str] | None, typer.Option(help="TARGET=SHARE, e.g. l40s=5%; repeat.")] = None,
    only: Annotated[str | None, typer.Option(help="resources: compile only, no times.", metavar="resources")] = None,
    output_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="stdout: text, json, junit, sarif, summary, annotations, benchmark-action, bencher, csv.",
            metavar="FORMAT",
        ),
    ] = "text",
    report: Annotated[
        list[str] | None,
        typer.Option(help="FORMAT=FILE besides; summary alone appends to $GITHUB_STEP_SUMMARY. Repeat."),
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option(help="Write the current estimates to this Parquet file; compare nothing.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Processes (default: one a core).")] = None,
    work: Annotated[
        Path | None, typer.Option(help="Folder for results that later gates reuse (default: in FARM_CACHE).")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of .farm.yaml.")] = False,
) -> None:
    """Compare kernels with a baseline and fail when one got slower than allowed, with the cause.

    Exit codes: 0 ok, 1 slower (or broken, or more resources), 2 bad input or nothing to compare, 3 the machine's fault.
    """
    from farm.gate.config import json_schema, load_gate
    from farm.gate.evaluate import Evaluation
    from farm.gate.reports import FORMATS
    from farm.gate.run import run_gate
    from farm.output import writing_to
    from farm.render import as_json

    if schema:
        sys.stdout.write(as_json(json_schema()))
        return
    reports = [_report(text) for text in report or []]
    if output_format not in FORMATS:
        raise FarmError(f"--format {output_format}: one of {', '.join(FORMATS)}")
    chosen = _with_options(load_gate(config), baseline, target, max_slowdown, per_target, only)
    # a place that cannot be written is said before the work, not after it
    for named, path in _destinations(reports, write_baseline, work):
        with writing_to(named):
            (path if path == work else path.parent).mkdir(parents=True, exist_ok=True)
            if path != work and path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "is a folder")
    result = run_gate(chosen, Evaluation(console(stderr=True), jobs, work), write_baseline)
    if result is None:
        print(f"baseline written: {write_baseline}", file=sys.stderr)
        return
    for name, file in reports:
        content = FORMATS[name](result)
        with writing_to(f"--report {name}={file}"):
            if name == "summary" and file == os.environ.get(SUMMARY):
                with open(file, "a", encoding="utf-8") as summary:
                    summary.write(content + "\n")
            else:
                Path(file).write_text(content, encoding="utf-8")
    sys.stdout.write(FORMATS[output_format](result))
    if not result.ok:
        raise typer.Exit(1)


def _destinations(
    reports: list[tuple[str, str]], baseline: Path | None, work: Path | None
) -> Iterator[tuple[str, Path]]:
    """How each thing to be written was named, and where it goes."""
    for name, file in reports:
        yield f"--report {name}={file}", Path(file)
    if baseline is not None:
        yield f"--write-baseline {baseline}", baseline
    if work is not None:
        yield f"--work {work}", work


def _report(text: str) -> tuple[str, str]:
    from farm.gate.reports import FORMATS

    name, separator, file = text.partition("=")
    if name not in FORMATS:
        raise FarmError(f"--report {text}: FORMAT=FILE, FORMAT one of {', '.join(FORMATS)}")
    if not separator:
        file = os.environ.get(SUMMARY, "") if name == "summary" else ""
        if not file:
            raise FarmError(f"--report {text}: to which file? Write {name}=FILE")
    return name, file


def _with_options(
    gate: Gate,
    baseline: str | None,
    targets: list[str] | None,
    max_slowdown: str | None,
    per_target: list[str] | None,
    only: str | None,
) -> Gate:
    """The gate with what the command line says instead."""
    from farm.gate.run import parse_baseline
    from timing.target import load_target

    changes: dict[str, object] = {}
    if baseline is not None:
        changes["baseline"] = parse_baseline(baseline, Path.cwd())
    if targets:
        changes["targets"] = list(dict.fromkeys(load_target(name).name for name in targets))
    if max_slowdown is not None:
        changes["max_slowdown"] = _share("--max-slowdown", max_slowdown)
    if per_target:
        own = dict(gate.per_target)
        for text in per_target:
            name, separator, value = text.partition("=")
            if not separator:
                raise FarmError(f"--per-target {text}: TARGET=SHARE, e.g. l40s=5%")
            own[load_target(name).name] = _share("--per-target", value)
        changes["per_target"] = own
    if only is not None:
        if only != "resources":
            raise FarmError(f"--only {only}: only resources")
        changes["only"] = only
    return gate.model_copy(update=changes)


def _share(option: str, text: str) -> float:
    from farm.gate.config import share

    try:
        return share(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError as error:
        raise FarmError(f"{option} {text}: {error}") from None
