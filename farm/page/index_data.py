"""The data of a run's index page: every candidate with its estimates on each target, correlation, funnel."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from farm.database import RunDatabase
from farm.observability.redact import redacted
from farm.render import correlation_rows

# Columns of a candidate on one target, in the order the page's script reads them.
TARGET_COLUMNS = (
    "time_us", "place", "of", "tier", "bound", "occupancy", "ctas_per_sm", "limiter", "waves", "registers",
    "spill_bytes", "shared_bytes", "measured_us", "spread", "used", "confidence", "expected_error",
    "simulation_seconds", "status", "failure", "message",
)  # fmt: skip
_MESSAGE = 300  # characters of a failure's message


def compact(value: Any) -> Any:
    """A number with five significant digits; NaN and infinity, which JSON lacks, become None."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        short = float(f"{value:.5g}")
        return int(short) if short == int(short) and abs(short) < 1e15 else short
    return value


def index_data(database: RunDatabase) -> dict[str, Any]:
    """What the index page shows, as plain data for JSON.

    `rows`: one a (family, variant): family number, variant, group, values of the family's parameters, and for each
    target of the run a list in the order of TARGET_COLUMNS, or None.
    """
    families = list(database.folder.manifest.families.values())
    numbers = {family.name: n for n, family in enumerate(families)}
    targets = list(dict.fromkeys(t for family in families for t in family.targets))
    cells: dict[tuple[str, int], dict[str, list[Any]]] = defaultdict(dict)
    facts: dict[tuple[str, int], tuple[str, dict[str, int]]] = {}
    for row in _best_rows(database):
        key = row["family"], row["variant"]
        facts.setdefault(key, (row["group"], dict(row["parameters"] or [])))
        row["message"] = row["message"] and redacted(row["message"])
        cells[key][row["target"]] = [compact(row[name]) for name in TARGET_COLUMNS]
    rows = []
    for key in sorted(cells, key=lambda k: (numbers.get(k[0], 0), k[1])):
        family, variant = key
        group, parameters = facts[key]
        values = [parameters.get(name) for name in families[numbers[family]].parameters]
        rows.append([numbers[family], variant, group, values, [cells[key].get(target) for target in targets]])
    return {
        "families": [
            {
                "name": family.name,
                "parameters": family.parameters,
                "within": family.rank_within,
                "targets": family.targets,
                "l2": family.identity.get("l2"),
            }
            for family in families
        ],
        "targets": targets,
        "columns": TARGET_COLUMNS,
        "rows": rows,
        "correlation": [
            {name: compact(value) for name, value in row.items()}
            for row in correlation_rows(database)
            if row["family"] in numbers
        ],
        "funnel": funnel(database),
    }


def _best_rows(database: RunDatabase) -> list[dict[str, Any]]:
    """Each candidate by its best tier, on each target; `of` counts those ranked with it."""
    return database.rows(
        """
        SELECT r.family, r.variant, r.target, r."group", v.parameters, r.time_us, r.place,
               count(*) FILTER (r.status = 'ok') OVER (PARTITION BY r.family, r.target, r."group", r.tier) AS "of",
               r.tier, r.bound, r.occupancy, r.ctas_per_sm, r.limiter, r.waves, r.registers,
               -- of what did not compile nothing is known, which is not 0
               CASE WHEN r.registers IS NOT NULL
                    THEN coalesce(r.spill_store_bytes, 0) + coalesce(r.spill_load_bytes, 0) END AS spill_bytes,
               CASE WHEN r.registers IS NOT NULL
                    THEN coalesce(r.static_shared_bytes, 0) + coalesce(r.dynamic_shared_bytes, 0) END AS shared_bytes,
               r.measured_us, r.spread, r.used, r.confidence, r.expected_error, r.simulation_seconds,
               r.status, r.failure, left(r.message, ?) AS message
        FROM best_ranking r JOIN variants v USING (family, variant, target)
        ORDER BY r.family, r.variant, r.target
        """,
        [_MESSAGE],
    )


def funnel(database: RunDatabase) -> list[dict[str, Any]]:
    """How many candidates each stage kept, a row a (family, target)."""
    counts = {
        (row["family"], row["target"], row["tier"], row["outcome"]): row["n"]
        for row in database.rows(
            """
            SELECT family, target, tier, CASE WHEN status = 'ok' THEN 'ok' ELSE coalesce(failure, 'failed') END
                   AS outcome, count(*) AS n
            FROM estimates GROUP BY ALL
            """
        )
    }
    rows = []
    for family in database.folder.manifest.families.values():
        for target in family.targets:
            mine = {(tier, o): n for (f, t, tier, o), n in counts.items() if (f, t) == (family.name, target)}
            first = next((tier for tier in ("static", "sampled", "cycle") if any(k[0] == tier for k in mine)), "static")
            failed = {outcome: n for (tier, outcome), n in mine.items() if tier == first and outcome != "ok"}
            rows.append(
                {
                    "family": family.name,
                    "target": target,
                    "sweep": family.variants,
                    "planned": family.planned,
                    "failed": dict(sorted(failed.items())),
                    **{tier: mine.get((tier, "ok"), 0) for tier in ("static", "sampled", "cycle")},
                }
            )
    return rows
