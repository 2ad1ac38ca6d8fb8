"""`farm import`: measurements of other tools into a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from farm.commands.names import FamilyOption, StoreOption, TargetOption, family_of, open_run, target_of
from interpreter.errors import FarmError


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="Nsight Compute CSV (raw, details or source page), Kernel Tuner cache, T4, *.autotune.json."
        ),
    ],
    run: Annotated[str, typer.Option("--run", help="The run to add to.")],
    target: TargetOption = None,
    family: FamilyOption = None,
    variant: Annotated[int | None, typer.Option(help="Number of the variant that was measured or profiled.")] = None,
    rename: Annotated[
        list[str] | None, typer.Option(help="THEIRS=OURS: the name of a parameter in the file and here; repeat.")
    ] = None,
    l2: Annotated[str | None, typer.Option(help="L2 cache while measuring: warm or cold, if known.")] = None,
    store: StoreOption = None,
) -> None:
    """Add measured times, or a profile of SASS lines, to a run. What the file is, is found from its content.

    Times replace those the run had for the same variants and GPU. farm correlate, rank and show then use them.
    """
    from farm.interchange.nsight import SourcePage
    from farm.interchange.reading import read_any, store_page, store_records

    names = dict(_pair(text) for text in rename or [])
    if l2 not in (None, "warm", "cold"):
        raise FarmError(f"--l2 {l2}: one of warm, cold")
    database = open_run(run, store)
    chosen_family = family_of(database, family)
    found = read_any(file)
    chosen_target = _target(database, target_of(database, target), getattr(found, "device", None), chosen_family)
    if isinstance(found, SourcePage):
        line = store_page(database, chosen_family, chosen_target, variant, found, file.name, store)
    else:
        line = store_records(database, chosen_family, chosen_target, variant, found, file.name, names, l2, store)
    print(line, file=sys.stderr)


def _pair(text: str) -> tuple[str, str]:
    theirs, separator, ours = text.partition("=")
    if not separator or not theirs or not ours:
        raise FarmError(f"--rename {text}: THEIRS=OURS")
    return theirs, ours


def _target(database: object, target: str | None, device: str | None, family: str) -> str:
    """The GPU: as asked for, as the file says, or the run's only one."""
    from farm.database import RunDatabase
    from timing.target import TargetError, load_target

    assert isinstance(database, RunDatabase)
    if target is not None:
        return target
    known = database.folder.manifest.families[family].targets
    if device:
        try:
            named = load_target(device).name
        except TargetError:
            named = ""
        if named in known:
            return named
        if named or len(known) > 1:
            raise FarmError(f"the file's device is {device!r}; the run has {', '.join(known)}: say which with --target")
    if len(known) != 1:
        raise FarmError(f"measured on which GPU? Say so with --target ({', '.join(known)})")
    return known[0]
