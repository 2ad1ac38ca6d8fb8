"""The accuracy page: how a run's estimates agree with measured times, in Markdown."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from farm.database import RunDatabase
from farm.profiles import agreement, profiles_of, read_profile
from farm.render import correlation_rows
from interpreter.errors import FarmError
from jobs.tables import STALL_COLUMNS

ESTIMATES = ("sampled", "static", "cycle")


def accuracy_page(database: RunDatabase, profiles: Path | None = None) -> str:
    """The page as Markdown. `profiles` holds a folder a family with Nsight source pages (`*profile.N.csv[.gz]`)."""
    rows = [row for row in correlation_rows(database) if row["family"] in database.folder.manifest.families]
    if not rows:
        raise FarmError(f"run {database.folder.name}: no measured times to compare with")
    out = [
        "# Accuracy",
        "",
        "Made by `farm accuracy`. Estimates are simulated; the times they are compared with were measured on the GPU"
        " named. Rank figures are computed within groups of equal problems and averaged over the groups; a loss is how"
        " much slower the best of the first k by estimate is than the best measured.",
        "",
        *_times(rows),
    ]
    if profiles is not None:
        out += ["", *_stalls(database, profiles)]
    return "\n".join(out) + "\n"


def _times(rows: list[dict[str, Any]]) -> list[str]:
    out = [
        "| family | target | n | Spearman | Kendall tau-b | top-1 loss | top-5 loss | median error | p90 error |"
        " null models: Spearman |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    best: list[dict[str, Any]] = []
    for row in rows:
        if row["model"] not in ESTIMATES or (row["model"] == "static" and _has(rows, row, "sampled")):
            continue
        best.append(row)
        nulls = "; ".join(
            f"{other['model']} {_number(other['spearman'])}"
            for other in rows
            if other["family"] == row["family"] and other["target"] == row["target"] and other["model"] not in ESTIMATES
        )
        out.append(
            f"| {row['family']} | {row['target']} | {row['n']} | {_number(row['spearman'])} |"
            f" {_number(row['kendall'])} |"
            f" {_percent(row['top1_loss'])} | {_percent(row['top5_loss'])} | {_percent(row['median_error'])} |"
            f" {_percent(row['p90_error'])} | {nulls} |"
        )
    values = {
        name: [row[name] for row in best if row[name] is not None]
        for name in ("spearman", "top1_loss", "median_error")
    }
    out += [
        "",
        f"Median Spearman {median(values['spearman']):.3f}, lowest {min(values['spearman']):.3f};"
        f" median top-1 loss {_percent(median(values['top1_loss']))}, worst {_percent(max(values['top1_loss']))};"
        f" median of the families' median errors {_percent(median(values['median_error']))}.",
    ]
    return out


def _has(rows: list[dict[str, Any]], row: dict[str, Any], model: str) -> bool:
    return any(r["family"] == row["family"] and r["target"] == row["target"] and r["model"] == model for r in rows)


def _stalls(database: RunDatabase, profiles: Path) -> list[str]:
    """Agreement of stall attribution with Nsight's samples, a line a profiled variant."""
    out = [
        "## Stalls",
        "",
        "Against Nsight Compute's samples of the same cubins: the share of its five most sampled lines that are among"
        " the estimate's five, and the total variation distance of the mix of reasons (0 the same, 1 nothing in"
        " common).",
        "",
        "| family | variant | top 5 lines | reason distance |",
        "| --- | ---: | ---: | ---: |",
    ]
    found = []
    columns = ", ".join(STALL_COLUMNS)
    for family in database.folder.manifest.families:
        folder = profiles / family
        if not folder.is_dir():
            continue
        for number, path in profiles_of(folder):
            table = database.table(
                f"SELECT {columns} FROM instructions WHERE family = ? AND variant = ? AND tier = 'sampled' ORDER BY pc",
                [family, number],
            )
            if table.num_rows == 0:
                continue
            estimated = np.column_stack([table[column].to_numpy() for column in STALL_COLUMNS])
            result = agreement(np.nan_to_num(estimated), read_profile(path))
            if result is not None:
                found.append(result)
                out.append(
                    f"| {family} | {number} | {_percent(result.top_lines, 0)} | {result.reason_distance:.2f} |"
                )
    if not found:
        raise FarmError(f"{profiles}: no profile of a variant of this run (FAMILY/*profile.N.csv or .csv.gz)")
    lines = sum(r.top_lines for r in found) / len(found)
    distance = sum(r.reason_distance for r in found) / len(found)
    out += ["", f"Mean over {len(found)} profiles: top lines {_percent(lines, 0)}, reason distance {distance:.2f}."]
    return out


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{100 * value:.{digits}f} %"
