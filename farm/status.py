"""How far a run has come: counts a family and target."""

from __future__ import annotations

from typing import Any

from farm.liveness import driver_state
from jobs.run_folder import RunFolder


def run_status(folder: RunFolder) -> list[dict[str, Any]]:
    """One row a family and target: variants asked for, estimated by each tier, failed by class."""
    columns = ["family", "variant", "target", "tier", "status", "failure"]
    results = folder.read("estimates", columns).to_pylist()
    rows = []
    state = driver_state(folder)
    for family in folder.manifest.families.values():
        for target in family.targets:
            mine = [r for r in results if r["family"] == family.name and r["target"] == target]
            failed: dict[int, str] = {r["variant"]: r["failure"] for r in mine if r["status"] != "ok"}
            classes = sorted(set(failed.values()))
            rows.append(
                {
                    "run": folder.name,
                    "family": family.name,
                    "target": target,
                    "state": state,
                    "variants": family.planned,
                    "of": family.variants,
                    "static": _count(mine, "static"),
                    "sampled": _count(mine, "sampled"),
                    "cycle": _count(mine, "cycle"),
                    "failed": len(failed),
                    "why": ", ".join(f"{sum(c == f for f in failed.values())} {c}" for c in classes),
                }
            )
    return rows


def _count(rows: list[dict[str, Any]], tier: str) -> int:
    return sum(row["tier"] == tier and row["status"] == "ok" for row in rows)
