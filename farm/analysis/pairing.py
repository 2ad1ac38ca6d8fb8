"""Which variants of two runs belong together, and their comparison row by row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from farm.analysis.compare import Comparison, compare
from farm.analysis.variant import Variant, VariantError, VariantTable, load_variant
from farm.database import RunDatabase

Key = tuple[str, tuple[tuple[str, int], ...], str]  # family, parameters, target


@dataclass(slots=True)
class PairedRuns:
    """Comparisons of all variants that both runs have an estimate for, and what was left over."""

    comparisons: list[tuple[Key, Comparison]] = field(default_factory=list)
    only_a: int = 0
    only_b: int = 0
    failed_a: list[Key] = field(default_factory=list)  # an estimate in b only: the variant failed in a
    failed_b: list[Key] = field(default_factory=list)


def compare_runs(a: RunDatabase, b: RunDatabase, family: str | None = None, target: str | None = None) -> PairedRuns:
    """Pair variants by family, parameters and target. Families of different names pair when each run has one.

    Raises VariantError when no variant is in both.
    """
    first, second = _variants(a, family, target), _variants(b, family, target)
    names_a, names_b = {key[0] for key in first}, {key[0] for key in second}
    renamed = {}
    if not names_a & names_b and len(names_a) == len(names_b) == 1:
        renamed = dict.fromkeys(names_b, next(iter(names_a)))
    second = {(renamed.get(key[0], key[0]), *key[1:]): value for key, value in second.items()}
    found = PairedRuns(only_a=len(first.keys() - second.keys()), only_b=len(second.keys() - first.keys()))
    wanted: dict[tuple[str, str, str], list[Key]] = {}
    for key, before in first.items():
        if key not in second:
            continue
        after = second[key]
        if before["status"] == "ok" and after["status"] == "ok":
            wanted.setdefault((key[0], after["family"], key[2]), []).append(key)
        elif after["status"] != "ok" and before["status"] == "ok":
            found.failed_b.append(key)
        elif before["status"] != "ok" and after["status"] == "ok":
            found.failed_a.append(key)
    for (family_a, family_b, on), keys in wanted.items():
        ours, others = VariantTable(a, family_a, on), VariantTable(b, family_b, on)
        numbers_a, numbers_b = ours.numbers(), others.numbers()
        for key in keys:
            one, other = ours.get(numbers_a[key[1]]), others.get(numbers_b[key[1]])
            _same_tier(one, other)
            found.comparisons.append((key, compare(one, other)))
    if not first.keys() & second.keys():
        raise VariantError(
            f"runs {a.folder.manifest.run} and {b.folder.manifest.run} have no variant in common (families "
            f"{', '.join(sorted(names_a)) or 'none'} and {', '.join(sorted(names_b)) or 'none'}; variants pair by "
            "family, parameters and target)"
        )
    return found


def _variants(database: RunDatabase, family: str | None, target: str | None) -> dict[Key, dict[str, Any]]:
    rows = database.rows(
        """
        SELECT family, variant, target, parameters, r.status FROM best_ranking r
        JOIN (SELECT family, variant, target, parameters FROM variants) v USING (family, variant, target)
        WHERE (? IS NULL OR family = ?) AND (? IS NULL OR target = ?)
        ORDER BY family, variant, target
        """,
        [family, family, target, target],
    )
    return {(row["family"], tuple(row["parameters"]), row["target"]): row for row in rows}


def common_targets(
    a: RunDatabase, family_a: str, number_a: int, b: RunDatabase, family_b: str, number_b: int
) -> list[str]:
    """Targets for which both variants have an estimate, in the order of the first run. Raises VariantError."""
    sql = "SELECT DISTINCT target FROM estimates WHERE family = ? AND variant = ? AND status = 'ok'"
    first = [row["target"] for row in a.rows(sql + " ORDER BY target", [family_a, number_a])]
    second = {row["target"] for row in b.rows(sql, [family_b, number_b])}
    both = [target for target in first if target in second]
    if not both:
        raise VariantError(
            f"{a.folder.manifest.run}:{number_a} has estimates for {', '.join(first) or 'no target'}, "
            f"{b.folder.manifest.run}:{number_b} for {', '.join(sorted(second)) or 'no target'}: none in common"
        )
    return both


def load_pair(
    a: RunDatabase, family_a: str, number_a: int, b: RunDatabase, family_b: str, number_b: int, target: str
) -> tuple[Variant, Variant]:
    """Both variants on one target, by the best tier that both have (tiers are not compared with one another)."""
    one, other = load_variant(a, family_a, number_a, target), load_variant(b, family_b, number_b, target)
    _same_tier(one, other)
    return one, other


def _same_tier(one: Variant, other: Variant) -> None:
    if one.row["tier"] != other.row["tier"]:
        raise VariantError(
            f"on {one.target} {one.label} has an estimate of the {one.row['tier']} tier and {other.label} of the "
            f"{other.row['tier']} tier: submit both with the same --tier"
        )
