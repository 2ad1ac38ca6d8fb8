"""Tables for people and rows for programs: rankings, correlations, run status, one variant's SASS."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from farm.database import RunDatabase, identifier

SHA_DIGITS = 12
# orders of `farm/queries/correlation.sql` that are no null models
ESTIMATES = ("cycle", "sampled", "static", "best tier")


def microseconds(value: float | None) -> str:
    """A time to four significant digits, as people compare them."""
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


def _percent(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{100 * value:.{digits}f}%"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def ranking_rows(
    database: RunDatabase, target: str | None = None, family: str | None = None, best: int | None = None
) -> list[dict[str, Any]]:
    """Rows of `farm rank` as plain data, best first within family, target and group; failed ones last.

    With `best`, that many of each group and of its failures, each with totals of the group for `print_ranking`.
    """
    return list(database.table(*ranking_query(database, target, family, best)).to_pylist())


# of a group, beside each of its rows where not all of them are fetched
TOTALS = ("group_ok", "group_failed", "group_static", "group_measured", "group_spills", "group_seconds", "group_us")


def ranking_query(
    database: RunDatabase, target: str | None = None, family: str | None = None, best: int | None = None
) -> tuple[str, list[Any]]:
    """The SQL of `farm rank` and its arguments. See `ranking_rows`."""
    columns = ", ".join(f"v.{identifier(database.column_of(name))}" for name in database.parameters)
    where, arguments = ["true"], []
    for column, value in (("target", target), ("family", family)):
        if value is not None:
            where.append(f"r.{column} = ?")
            arguments.append(value)
    order = "r.status <> 'ok', r.tier <> 'cycle', r.tier <> 'sampled', r.place, r.variant"
    totals = ""
    source = "best_ranking r"
    if best is not None:
        totals = """,
               count(*) FILTER (r.status = 'ok') OVER g AS group_ok,
               count(*) FILTER (r.status <> 'ok') OVER g AS group_failed,
               bool_or(r.status = 'ok' AND r.tier = 'static') OVER g AS group_static,
               bool_or(r.status = 'ok' AND r.measured_us IS NOT NULL) OVER g AS group_measured,
               bool_or(r.status = 'ok' AND (r.spill_store_bytes > 0 OR r.spill_load_bytes > 0)) OVER g AS group_spills,
               sum(r.simulation_seconds) FILTER (r.status = 'ok') OVER g AS group_seconds,
               sum(r.time_us) FILTER (r.status = 'ok') OVER g AS group_us"""
        # chosen by few columns, and only then with all of them: windows hold what they are given
        source = f"""(SELECT r.family, r.target, r.variant, r.tier, r."group", r.place, r.status, r.time_us,
                      r.measured_us, r.spread, r.spill_store_bytes, r.spill_load_bytes, r.simulation_seconds{totals}
        FROM best_ranking r WHERE {" AND ".join(where)}
        WINDOW g AS (PARTITION BY r.family, r.target, r."group")
        QUALIFY row_number() OVER (PARTITION BY r.family, r.target, r."group", r.status <> 'ok' ORDER BY {order})
                <= {best}) r JOIN estimates e USING (family, variant, target, tier)"""
        where, totals = ["true"], ", " + ", ".join(f"r.{name}" for name in TOTALS)
    wide, code = ("e", "v") if best is not None else ("r", "r")
    sql = f"""
        SELECT r.family, r.target, r."group", r.place, r.variant, {columns + "," if columns else ""}
               r.time_us, r.tier, {wide}.bound, {wide}.occupancy, {wide}.limiter, {code}.registers,
               r.spill_store_bytes, r.spill_load_bytes, {code}.cubin_sha, r.status, {wide}.failure, {wide}.message,
               r.measured_us, r.spread, {wide}.confidence, {wide}.expected_error, r.simulation_seconds{totals}
        FROM {source} JOIN variants v USING (family, variant, target)
        WHERE {" AND ".join(where)}
        ORDER BY r.family, r.target, try_cast(regexp_extract(r."group", '=(-?[0-9]+)', 1) AS BIGINT), r."group",
                 {order}
        """
    return sql, arguments


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV text with a header."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def as_json(rows: Any) -> str:
    """Rows as JSON; NaN and infinity, which JSON lacks, become null."""

    return json.dumps(finite(rows), indent=1, default=str) + "\n"


def finite(value: Any) -> Any:
    """The value with None for NaN and infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return value


def print_ranking(console: Console, database: RunDatabase, rows: list[dict[str, Any]], limit: int | None) -> None:
    """Ranking tables, one a family, target and group, `limit` lines each (None: all)."""
    for _, group in _grouped(rows, ("family", "target", "group")):
        _print_group(console, database, group, limit)


def _print_group(console: Console, database: RunDatabase, rows: list[dict[str, Any]], limit: int | None) -> None:
    first = rows[0]
    parameters = database.folder.manifest.families[first["family"]].parameters
    good = [row for row in rows if row["status"] == "ok"]
    totals = _totals(rows)
    measured, spills, count = totals["group_measured"], totals["group_spills"], totals["group_ok"]
    within = f", {first['group']}" if first["group"] else ""
    title = f"{first['family']} on {first['target']}{within}: {count} variants, times simulated"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold")
    table.add_column("#", justify="right")
    table.add_column("variant", justify="right")
    for name in parameters:
        table.add_column(name, justify="right")
    table.add_column("est. us", justify="right", style="bold")
    if measured:
        table.add_column("measured us", justify="right")
    table.add_column("bound")
    table.add_column("occ.", justify="right")
    table.add_column("limiter")
    table.add_column("regs", justify="right")
    if spills:
        table.add_column("spills B", justify="right")
    table.add_column("cubin")
    table.add_column("sim. s", justify="right")
    for row in good[:limit]:
        cells = [str(row["place"]) if row["tier"] != "static" else f"{row['place']}*", str(row["variant"])]
        cells += [str(row[database.column_of(name)]) for name in parameters]
        cells.append(microseconds(row["time_us"]))
        if measured:
            cells.append(microseconds(row["measured_us"]))
        cells += [row["bound"] or "-", _percent(row["occupancy"]), row["limiter"] or "-", _count(row["registers"])]
        if spills:
            cells.append(f"{row['spill_store_bytes'] or 0}+{row['spill_load_bytes'] or 0}")
        cells += [(row["cubin_sha"] or "-")[:SHA_DIGITS], f"{row['simulation_seconds'] or 0:.2f}"]
        table.add_row(*cells)
    if good:
        console.print(table)
    else:
        console.print(f"{first['family']} on {first['target']}{within}: no variant has an estimate", style="bold")
    if limit is not None and count > limit:
        console.print(f"  ... {count - limit} more (--all shows them)", highlight=False)
    _print_failures(console, rows, limit, totals["group_failed"])
    if good:
        seconds, gpu = totals["group_seconds"] or 0.0, microseconds(totals["group_us"])
        console.print(
            f"  Simulated in {seconds:.1f} s of CPU time; one launch of each on the GPU: {gpu} us.",
            highlight=False,
        )
    if totals["group_static"]:
        console.print("  * by the static tier alone", highlight=False)
    console.print()


def _totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The group's totals: beside its rows where not all were fetched, else of the rows."""
    if "group_ok" in rows[0]:
        return {name: rows[0][name] for name in TOTALS}
    good = [row for row in rows if row["status"] == "ok"]
    return {
        "group_ok": len(good),
        "group_failed": len(rows) - len(good),
        "group_static": any(row["tier"] == "static" for row in good),
        "group_measured": any(row["measured_us"] is not None for row in good),
        "group_spills": any(row["spill_store_bytes"] or row["spill_load_bytes"] for row in good),
        "group_seconds": sum(row["simulation_seconds"] or 0 for row in good),
        "group_us": sum(row["time_us"] for row in good),
    }


def _print_failures(console: Console, rows: list[dict[str, Any]], limit: int | None, count: int) -> None:
    failed = [row for row in rows if row["status"] != "ok"]
    shown = failed if limit is None else failed[:3]
    for row in shown:
        text = (row["message"] or "").splitlines()
        console.print(
            f"  variant {row['variant']}: {row['failure']}: {text[0] if text else ''}",
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip
    if count > len(shown):
        console.print(f"  ... {count - len(shown)} more failed (--all shows them)", highlight=False)


def correlation_query(groups: bool = False) -> str:
    """The SQL of `farm correlate --format`: without the mean over families, which is no family's."""
    if groups:
        return 'SELECT * FROM group_correlation ORDER BY family, target, "group", model_order'
    return "SELECT * FROM correlation"


def correlation_rows(database: RunDatabase, groups: bool = False) -> list[dict[str, Any]]:
    """Rows of `farm correlate`: a family each and then their mean, or each group."""
    if groups:
        return database.rows(correlation_query(groups))
    rows = database.rows(correlation_query())
    several = len({row["family"] for row in rows}) > 1  # the mean over one family is that family
    return rows + (database.rows("SELECT * FROM overall_correlation") if several else [])


def print_correlation(console: Console, rows: list[dict[str, Any]]) -> None:
    """Agreement of each order with the measured times; null models below the estimates."""
    for (family, target), group in _grouped(rows, ("family", "target")):
        groups = group[0]["groups"] or 1
        title = f"{family} on {target}: against {group[0]['n']} measured times"
        title += f", mean of {groups} groups" if groups > 1 else ""
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold")
        table.add_column("order by")
        for name in ("Spearman", "Kendall tau-b", "top-1 loss", "top-5 loss", "median error", "90 % error"):
            table.add_column(name, justify="right")
        for row in group:
            null = row["model"] not in ESTIMATES
            label = f"{row['model']} (null model)" if null else f"{row['model']} estimate"
            table.add_row(
                label,
                _figure(row["spearman"]),
                _figure(row["kendall"]),
                _percent(row["top1_loss"], 1),
                _percent(row["top5_loss"], 1),
                _percent(row["median_error"]),
                _percent(row["p90_error"]),
                style="dim" if null else None,
            )
        console.print(table)
    if any((row["n"] or 0) / max(row["groups"] or 1, 1) < 10 for row in rows):
        console.print("  Fewer than 10 variants a group: these figures say little.", highlight=False)


def print_rows(console: Console, rows: list[dict[str, Any]]) -> None:
    """Any query's rows as a table."""
    if not rows:
        console.print("no rows", highlight=False)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in rows[0]:
        numeric = all(isinstance(row[name], int | float | None) for row in rows)
        table.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*[_cell(value) for value in row.values()])
    console.print(table)


def print_figures(console: Console, row: dict[str, Any]) -> None:
    """A row as two columns."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in row.items():
        if value is not None and value != {} and value != []:
            table.add_row(name, _cell(value))
    console.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:.0f}"
    if isinstance(value, list):  # a map, as Arrow gives it
        if all(isinstance(entry, tuple) and len(entry) == 2 for entry in value):
            return ", ".join(f"{key}={_cell(inner)}" for key, inner in value)
        return ", ".join(_cell(inner) for inner in value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={_cell(inner)}" for key, inner in value.items())
    return str(value)


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _grouped(
    rows: Iterable[dict[str, Any]], keys: tuple[str, ...]
) -> list[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
    """Rows gathered by `keys`, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(groups.items())
