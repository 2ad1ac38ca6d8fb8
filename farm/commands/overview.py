"""`farm overview`: all runs of a store as one HTML page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from farm.commands.names import StoreOption


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("overview")(overview)


def overview(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder, or one file when it ends in .html.", metavar="DIR|FILE")
    ] = Path("farm-overview"),
    pages: Annotated[bool, typer.Option("--pages", help="Also each run's own pages, linked.")] = False,
    store: StoreOption = None,
) -> None:
    """All runs of a store as self-contained HTML: best times and correlation from run to run, failures.

    Prints the file to open.
    """
    from farm.page.overview import write_overview
    from farm.store import open_store

    shown = sys.stderr.isatty()

    def progress(done: int, of: int) -> None:
        if shown:
            print(f"\r{done} of {of} runs", end="" if done < of else "\n", file=sys.stderr, flush=True)

    written = write_overview(open_store(store), output, pages, progress)
    print(f"{written.candidates} runs, {written.bytes / 1e6:.1f} MB", file=sys.stderr)
    print(written.path)
