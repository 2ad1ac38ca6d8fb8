"""Writing a run's pages: one file with everything chosen, or a folder with an index and a file a candidate."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farm.database import RunDatabase
from farm.output import writing_to
from farm.page.candidate import candidate_data
from farm.page.html import PAGE_SCRIPTS, render, write_page
from farm.page.index_data import index_data
from interpreter.errors import FarmError
from timing.stalls import STALLS, stall_name

# Pages of candidates that a folder gets when none are named: the best of each target.
DEFAULT_PAGES = 40

# What Nsight Compute says of each reason, in our words.
ABOUT = {
    "selected": "issued an instruction",
    "not_selected": "could have issued; another warp was chosen",
    "wait": "fixed stall count of the instruction before",
    "no_instruction": "instruction not fetched yet: cache miss or jump",
    "branch_resolving": "target of a branch not known yet",
    "dispatch_stall": "register read ports are busy",
    "math_pipe_throttle": "pipe still busy with earlier instructions",
    "mio_throttle": "queue to shared memory and special functions is full",
    "lg_throttle": "queue to local and global memory is full",
    "short_scoreboard": "waits for a result of shared memory, special function or shuffle",
    "long_scoreboard": "waits for a result of local or global memory",
    "barrier": "waits for other warps at a CTA barrier",
    "membar": "waits at a memory fence",
    "imc_miss": "constant cache miss",
    "drain": "at its exit, with stores not accepted yet",
    "sleeping": "asleep",
    "tex_throttle": "queue to the texture unit is full",
    "misc": "other",
}


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: the file to open, pages of candidates, and all candidates of the run."""

    path: Path
    pages: int
    candidates: int
    bytes: int


def write_pages(
    database: RunDatabase,
    output: Path,
    chosen: Sequence[tuple[str, int]] = (),
    pages: int = DEFAULT_PAGES,
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write the page of a run to `output`: a file when it ends in .html or .htm, else a folder with index.html.

    `chosen` are (family, variant); without any, the `pages` best of each family and target get a page, and the index
    lists all. A single file has the index too, except when exactly one candidate was named. Raises FarmError for a
    candidate that the run lacks or an output that cannot be written.
    """
    wanted = list(dict.fromkeys(chosen)) or best_candidates(database, pages)
    single = output.suffix.lower() in (".html", ".htm")
    if single and output.is_dir():
        raise FarmError(f"-o {output}: is a folder; name a file, or a folder without .html at its end")
    if not single and output.exists() and not output.is_dir():
        raise FarmError(f"-o {output}: is a file, not a folder; for one file give it a name that ends in .html")
    common = _common(database)
    with writing_to(f"-o {output}"):
        if single:
            return _one_file(database, output, wanted, common, bool(chosen), progress)
        return _folder(database, output, wanted, common, progress)


def best_candidates(database: RunDatabase, pages: int) -> list[tuple[str, int]]:
    """The first `pages` of each family and target by rank; failed ones only where nothing else is left."""
    rows = database.rows(
        """
        SELECT family, variant, min(n) AS n FROM (
            SELECT family, variant, row_number() OVER (PARTITION BY family, target
                   ORDER BY status <> 'ok', tier <> 'cycle', tier <> 'sampled', place, variant) AS n
            FROM best_ranking
        ) WHERE n <= ? GROUP BY family, variant ORDER BY family, n, variant
        """,
        [pages],
    )
    return [(row["family"], row["variant"]) for row in rows]


def version() -> str:
    """farm's version, "unknown" when it is not installed as a package."""
    try:
        return importlib.metadata.version("farm")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _common(database: RunDatabase) -> dict[str, Any]:
    manifest = database.folder.manifest
    return {
        "run": manifest.run,
        "complete": manifest.complete,
        "version": f"farm {version()}",
        "model": {name: family.identity.get("model", "")[:12] for name, family in manifest.families.items()},
        "stalls": [{"name": stall_name(stall), "about": ABOUT[stall_name(stall)]} for stall in STALLS],
        "command": f"farm page {manifest.run}",
        "index": None,
        "up": None,
        "candidates": {},
        "files": {},
    }


def _one_file(
    database: RunDatabase,
    output: Path,
    wanted: list[tuple[str, int]],
    common: dict[str, Any],
    named: bool,
    progress: Callable[[int, int], None] | None,
) -> Written:
    index = index_data(database)
    candidates = {}
    for n, (family, variant) in enumerate(wanted):
        candidates[f"{family}:{variant}"] = candidate_data(database, family, variant)
        if progress is not None:
            progress(n + 1, len(wanted))
    alone = named and len(wanted) == 1
    data = {**common, "candidates": candidates, "index": None if alone else index}
    size = _write(output, data, common["run"])
    return Written(output, len(wanted), len(index["rows"]), size)


def _folder(
    database: RunDatabase,
    output: Path,
    wanted: list[tuple[str, int]],
    common: dict[str, Any],
    progress: Callable[[int, int], None] | None,
) -> Written:
    names = file_names(wanted)
    size = 0
    for n, (key, name) in enumerate(names.items()):
        data = {**common, "up": "index.html", "candidates": {f"{key[0]}:{key[1]}": candidate_data(database, *key)}}
        size += _write(output / name, data, common["run"])
        if progress is not None:
            progress(n + 1, len(wanted))
    index = index_data(database)
    files = {f"{family}:{variant}": name for (family, variant), name in names.items()}
    size += _write(output / "index.html", {**common, "index": index, "files": files}, common["run"])
    return Written(output / "index.html", len(wanted), len(index["rows"]), size)


def file_names(wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """A file name for each candidate: plain characters only, and no two alike, whatever the families are called."""
    names: dict[tuple[str, int], str] = {}
    for family, variant in wanted:
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", family).lstrip(".")[:60]
        if plain != family or plain == "index":
            plain += "-" + hashlib.sha256(family.encode("utf-8", "backslashreplace")).hexdigest()[:8]
        names[family, variant] = f"{plain}-{variant}.html"
    return names


def _write(path: Path, data: dict[str, Any], run: str) -> int:
    keys = list(data["candidates"])
    title = f"{keys[0].rpartition(':')[0]} variant {keys[0].rpartition(':')[2]}" if len(keys) == 1 else "candidates"
    html = render("page.html", data, PAGE_SCRIPTS, title=f"{run}: {title}", run=run, version=version(), keys=True)
    return write_page(path, html)
