"""What commands share: options with the same meaning everywhere, and finding a variant by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from interpreter.errors import FarmError

if TYPE_CHECKING:
    from farm.analysis.variant import Variant
    from farm.database import RunDatabase

PIPED_COLUMNS = 200

StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="Folder, file:// or s3:// URI of the runs (default: FARM_STORE, else ./farm-runs)."),
]
TargetOption = Annotated[str | None, typer.Option("--target", "-t", help="Only this target.")]
FamilyOption = Annotated[str | None, typer.Option("--family", help="Only this family of a run with several.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


def console(stderr: bool = False) -> Console:
    """A console; tables are not squeezed to 80 columns when no terminal limits them."""
    found = Console(stderr=stderr)
    return found if found.is_terminal else Console(stderr=stderr, width=PIPED_COLUMNS)


def open_run(run: str, store: str | None) -> RunDatabase:
    """The run's tables. Raises StoreError when there is no such run."""
    from farm.database import RunDatabase
    from farm.store import open_store

    return RunDatabase(open_store(store).find(run))


def target_of(database: RunDatabase, target: str | None) -> str | None:
    """The run's target of that name or alias."""
    from timing.target import load_target

    if target is None:
        return None
    known = sorted({name for family in database.folder.manifest.families.values() for name in family.targets})
    name = target if target in known else load_target(target).name
    if name not in known:
        raise FarmError(f"run {database.folder.manifest.run}: has no target {name} (targets: {', '.join(known)})")
    return name


def family_of(database: RunDatabase, family: str | None) -> str:
    """The family named, or the run's only one."""
    families = list(database.folder.manifest.families)
    if family is not None and family not in families:
        raise FarmError(f"run {database.folder.manifest.run}: has no family {family} (families: {', '.join(families)})")
    if family is None and len(families) != 1:
        raise FarmError(f"run {database.folder.manifest.run}: name one family with --family ({', '.join(families)})")
    return family or families[0]


def open_variant(name: str, number: int | None, target: str | None, family: str | None, store: str | None) -> Variant:
    """The variant RUN:N on one target. Raises FarmError naming what is wrong with the name."""
    from farm.analysis.variant import load_variant, required_name

    run, found = required_name(name, number)
    database = open_run(run, store)
    return load_variant(database, family_of(database, family), found, target_of(database, target))
