"""How far a run has come: counts a family and target."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pyarrow.compute as pc

from farm.liveness import driver_state
from farm.store import Store
from interpreter.errors import FarmError
from jobs.run_folder import RunFolder


def store_status(store: Store) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of all runs of a store, and why others could not be read: one broken or old run does not hide the rest."""
    rows, unread = [], []
    for name in store.runs():
        try:
            rows += run_status(store.find(name))
        except FarmError as error:
            unread.append(str(error))
    return rows, unread


def run_status(folder: RunFolder) -> list[dict[str, Any]]:
    """One row a family and target: variants asked for, estimated by each tier, failed by class."""
    results = folder.read("estimates", ["family", "variant", "target", "tier", "status", "failure"])
    good = pc.equal(results.column("status"), "ok")
    counts = results.filter(good).group_by(["family", "target", "tier"]).aggregate([("variant", "count")]).to_pylist()
    done = {(row["family"], row["target"], row["tier"]): row["variant_count"] for row in counts}
    failures: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for row in results.filter(pc.invert(good)).to_pylist():
        failures[row["family"], row["target"]][row["variant"]] = row["failure"]
    rows = []
    state = driver_state(folder)
    for family in folder.manifest.families.values():
        for target in family.targets:
            failed = failures[family.name, target]
            classes = Counter(failed.values())
            rows.append(
                {
                    "run": folder.name,
                    "family": family.name,
                    "target": target,
                    "state": state,
                    "variants": family.planned,
                    "of": family.variants,
                    **{tier: done.get((family.name, target, tier), 0) for tier in ("static", "sampled", "cycle")},
                    "failed": len(failed),
                    "why": ", ".join(f"{count} {name}" for name, count in sorted(classes.items())),
                }
            )
    return rows
