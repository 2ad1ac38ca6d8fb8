"""The text of source files that SASS lines name: from where the sweep was, or from the run's own copy of it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

from farm.board import Board
from farm.inputs import recall
from interpreter.errors import FarmError
from jobs.run_folder import Family, RunFolder
from jobs.sweep import Sweep, load_sweep

MAX_SOURCE_BYTES = 512 << 10


def source_texts(folder: RunFolder, family: Family, names: Iterable[str]) -> dict[str, list[str]]:
    """Lines of the files of those names, as they were when the run was made; a file that is not to be had is left out.

    Names come from the run: nothing outside the source's folder gets into a page.
    """
    wanted = sorted(set(names))
    sweep = _sweep(folder, family.name) if wanted else None
    if sweep is None:
        return {}
    source = sweep.kernel.source
    base = (sweep.folder / source).parent if source is not None else sweep.folder
    found = {}
    for name in wanted:
        path = (base / name).resolve()
        if not path.is_relative_to(base.resolve()):
            continue
        try:
            if path.stat().st_size <= MAX_SOURCE_BYTES:
                found[name] = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
    return found


@functools.lru_cache(maxsize=64)  # a run's pages ask for the same again and again
def _sweep(folder: RunFolder, name: str) -> Sweep | None:
    """The sweep that the family was made from: where it was submitted from if it has not changed, else the copy."""
    family = folder.manifest.families[name]
    for path in _places(folder, family):
        try:
            sweep = load_sweep(path, allow_outside=True)
            if sweep.name == name and sweep.digest() == family.identity.get("sweep"):
                return sweep
        except (FarmError, OSError):
            continue
    return None


def _places(folder: RunFolder, family: Family) -> Iterator[Path]:
    yield Path(family.path)  # may be relative to the folder that `farm submit` was given in
    try:
        yield from recall(folder, Board(folder))[0]
    except (FarmError, OSError):
        return
