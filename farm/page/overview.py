"""The overview of a store: every run, the best times and the agreement with measurements from run to run, failures."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from farm.database import RunDatabase
from farm.observability.redact import redacted
from farm.output import writing_to
from farm.page.html import OVERVIEW_SCRIPTS, render, write_page
from farm.page.index_data import compact
from farm.page.write import Written, version, write_pages
from farm.render import ESTIMATES, correlation_rows
from interpreter.errors import FarmError
from jobs.run_folder import RunFolder

_FAILURES = 12  # rows a run


class Runs(Protocol):
    """What is needed of a store."""

    location: str

    def runs(self) -> list[str]:
        """Names of the runs, the latest last."""

    def find(self, run: str) -> RunFolder:
        """A run, loaded."""


def write_overview(
    store: Runs,
    output: Path,
    pages: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Write the overview of all runs of a store to `output`: a file ending in .html, or a folder with index.html.

    With `pages` (folders only) each run's own pages go to a folder beside it and are linked. A run that cannot be read
    is listed with the reason. Raises FarmError when there is no run, or the output cannot be written.
    """
    names = store.runs()
    if not names:
        raise FarmError(f"the store {store.location} holds no runs (begin with `farm submit SWEEP`)")
    single = output.suffix.lower() in (".html", ".htm")
    if single and pages:
        raise FarmError(f"-o {output}: pages of the runs need a folder, not a file")
    if single and output.is_dir() or not single and output.exists() and not output.is_dir():
        raise FarmError(f"-o {output}: is a {'folder' if single else 'file'}; files end in .html, folders do not")
    data: dict[str, Any] = {"runs": [], "best": [], "agreement": [], "version": version()}
    size = 0
    for n, name in enumerate(names):
        try:
            folder = store.find(name)
            database = RunDatabase(folder, without=() if pages else ("instructions",))
            run = _add(data, database)
            if pages:
                size += write_pages(database, output / name).bytes
                run["page"] = f"{name}/index.html"
        except FarmError as error:
            data["runs"].append({"run": name, "problem": redacted(str(error))})
        if progress is not None:
            progress(n + 1, len(names))
    title = f"{len(names)} runs"
    html = render("page.html", data, OVERVIEW_SCRIPTS, title=title, run=title, version=version(), keys=False)
    path = output if single else output / "index.html"
    with writing_to(f"-o {output}"):
        size += write_page(path, html)
    return Written(path, len(names) if pages else 0, len(names), size)


def _add(data: dict[str, Any], database: RunDatabase) -> dict[str, Any]:
    """Add one run's rows to `data`; returns its entry in `runs`."""
    manifest = database.folder.manifest
    name = manifest.run
    counts = database.rows(
        """
        SELECT count(*) FILTER (status = 'ok') AS estimated, count(*) FILTER (status <> 'ok') AS failed,
               count(DISTINCT (family, variant)) AS candidates
        FROM best_ranking
        """
    )[0]
    spent = database.rows("SELECT sum(simulation_seconds) AS seconds FROM estimates")[0]
    run = {
        "run": name,
        "written": _written(database.folder),
        "complete": manifest.complete,
        "families": list(manifest.families),
        "targets": list(dict.fromkeys(t for family in manifest.families.values() for t in family.targets)),
        **counts,
        "simulation_seconds": compact(spent["seconds"]),
        "failures": [
            {**{key: compact(value) for key, value in row.items()}, "message": redacted(row["message"] or "")}
            for row in database.rows(
                """
                SELECT family, target, failure, count(*) AS variants,
                       mode(left(split_part(message, chr(10), 1), 400)) AS message
                FROM best_ranking WHERE status <> 'ok' GROUP BY ALL ORDER BY variants DESC, family, target LIMIT ?
                """,
                [_FAILURES],
            )
        ],
    }
    data["runs"].append(run)
    for row in database.rows(
        """
        SELECT r.family, r.target, r."group", r.variant, r.time_us, r.tier, v.parameters,
               count(*) OVER (PARTITION BY r.family, r.target, r."group", r.tier) AS candidates
        FROM best_ranking r JOIN variants v USING (family, variant, target)
        WHERE r.status = 'ok'
        QUALIFY row_number() OVER (PARTITION BY r.family, r.target, r."group"
                                   ORDER BY r.tier <> 'cycle', r.tier <> 'sampled', r.time_us, r.variant) = 1
        ORDER BY r.family, r.target, r."group"
        """
    ):
        parameters = " ".join(f"{key}={value}" for key, value in row.pop("parameters") or [])
        data["best"].append({"run": name, **{k: compact(v) for k, v in row.items()}, "parameters": parameters})
    for row in correlation_rows(database):
        if row["family"] in manifest.families and row["model"] in ESTIMATES:
            data["agreement"].append({"run": name, **{key: compact(value) for key, value in row.items()}})
    return run


def _written(folder: RunFolder) -> str | None:
    """When the manifest was last written, UTC, where the store knows it."""
    seconds = folder.modified
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M")
