"""`farm page`: a run as HTML, all candidates and each one's SASS."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from farm.commands.names import StoreOption, family_of
from interpreter.errors import FarmError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("page")(page)


def page(
    run: Annotated[str, typer.Argument(help="Name of the run, or the beginning of it; RUN:N also names a variant.")],
    variant: Annotated[
        list[str] | None,
        typer.Argument(help="Variants to make pages of: N or FAMILY:N (default: the best of each target)."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder, or one file when it ends in .html.", metavar="DIR|FILE")
    ] = Path("farm-page"),
    pages: Annotated[
        int, typer.Option("--pages", min=0, help="Candidates of each family and target that get a page, best first.")
    ] = 40,
    everything: Annotated[bool, typer.Option("--all", help="A page for every candidate.")] = False,
    family: Annotated[
        str | None,
        typer.Option("--family", help="Family of variants named by number alone; without any, of all pages made."),
    ] = None,
    store: StoreOption = None,
) -> None:
    """A run as self-contained HTML: all candidates, and for each its panels and SASS on every target.

    Prints the file to open. It needs no network and no server: open it from disk or from a CI artefact.
    """
    from farm.database import RunDatabase
    from farm.page.write import best_candidates, write_pages
    from farm.store import open_store

    name, _, number = run.rpartition(":")
    named = list(variant or [])
    if name and re.fullmatch(r"\d+", number):
        run, named = name, [number, *named]
    database = RunDatabase(open_store(store).find(run))
    if family is not None:
        family = family_of(database, family)
    count = sys.maxsize if everything else pages
    chosen = [_candidate(text, family, list(database.folder.manifest.families), run) for text in named]
    if family is not None and not named:
        chosen = [candidate for candidate in best_candidates(database, count) if candidate[0] == family]
    shown = sys.stderr.isatty()

    def progress(done: int, of: int) -> None:
        if shown:
            print(f"\r{done} of {of} pages", end="" if done < of else "\n", file=sys.stderr, flush=True)

    written = write_pages(database, output, chosen, pages=count, progress=progress)
    size = f"{written.bytes / 1e6:.1f} MB"
    print(f"{written.candidates} candidates, {written.pages} with a page of their own, {size}", file=sys.stderr)
    print(written.path)


def _candidate(text: str, family: str | None, families: list[str], run: str) -> tuple[str, int]:
    """(family, variant) of "N" or "FAMILY:N"."""
    name, _, number = text.rpartition(":")
    if not re.fullmatch(r"\d+", number):
        raise FarmError(
            f"variant {text}: name it N or FAMILY:N, N being its number (the column `variant` of farm rank)"
        )
    wanted = name or family
    if wanted is None:
        if len(families) != 1:
            raise FarmError(f"variant {text}: name it FAMILY:{number}; the run's families are {', '.join(families)}")
        wanted = families[0]
    if wanted not in families:
        raise FarmError(f"run {run}: has no family {wanted} (families: {', '.join(families)})")
    return wanted, int(number)
