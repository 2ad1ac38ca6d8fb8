"""`farm show`: one variant's figures and SASS, also as Nsight Compute's pages."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from farm.commands.names import (
    FamilyOption,
    JsonOption,
    StoreOption,
    TargetOption,
    console,
    family_of,
    open_run,
    target_of,
)
from interpreter.errors import FarmError

PAGES = ("details", "source", "raw")


def show(
    variant: Annotated[str, typer.Argument(help="RUN:N, or the run's name followed by N.", metavar="RUN:N")],
    number: Annotated[int | None, typer.Argument(help="Number of the variant.", metavar="[N]")] = None,
    target: TargetOption = None,
    family: FamilyOption = None,
    page: Annotated[
        str, typer.Option(help="details: figures and SASS; source, raw: Nsight Compute's pages.", metavar="PAGE")
    ] = "details",
    csv_output: Annotated[
        bool, typer.Option("--csv", help="With --page source or raw: CSV with Nsight Compute's own column names.")
    ] = False,
    json_output: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """One variant: its figures and its SASS, with executed counts and where its warps spent their cycles."""
    from farm.analysis.variant import load_variant, required_name
    from farm.interchange.profile import measured_shares
    from farm.render import as_json, print_figures
    from farm.sass_table import print_sass
    from farm.source_page import raw_csv, raw_metrics, source_csv, source_rows

    if page not in PAGES:
        raise FarmError(f"--page {page}: one of {', '.join(PAGES)}")
    if csv_output and page == "details":
        raise FarmError("--csv goes with --page source or --page raw")
    run, found = required_name(variant, number)
    database = open_run(run, store)
    chosen = load_variant(database, family_of(database, family), found, target_of(database, target))
    # parameters that have a column of their own are in the map as well
    row = {key: value for key, value in chosen.row.items() if key not in database.parameters and key != "names"}
    if page == "source":
        if csv_output:
            sys.stdout.write(source_csv(chosen))
        elif json_output:
            sys.stdout.write(as_json(source_rows(chosen)))
        else:
            print_sass(console(), chosen, measured_shares(database, chosen))
    elif page == "raw":
        if csv_output:
            sys.stdout.write(raw_csv([chosen]))
        elif json_output:
            metrics = raw_metrics(chosen)
            sys.stdout.write(as_json({name: {"unit": unit, "value": value} for name, (unit, value) in metrics.items()}))
        else:
            for name, (unit, value) in raw_metrics(chosen).items():
                text = f"{value:.6g}" if isinstance(value, float) else str(value)
                print(f"{name:82} {text:>16} {unit}".rstrip())
            print("simulated, not measured")
    elif json_output:
        lines = database.rows(
            "SELECT * FROM instructions WHERE family = ? AND variant = ? AND target = ? AND tier = ? ORDER BY pc",
            [chosen.family, chosen.number, chosen.target, chosen.row["tier"]],
        )
        sys.stdout.write(as_json({"variant": row, "instructions": lines}))
    else:
        out = console()
        out.print(f"{escape(chosen.label)} {escape(chosen.family)} on {escape(chosen.target)}", style="bold", end="")
        out.print(": every number is simulated, except measured ones", style="dim", highlight=False)
        print_figures(out, row)
        if chosen.lines:
            print_sass(console(), chosen, measured_shares(database, chosen))
