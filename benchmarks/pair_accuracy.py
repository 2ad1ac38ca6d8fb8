"""How often the faster of two variants by estimate was the faster one measured, by how much the estimates differ.

    python benchmarks/pair_accuracy.py farm-runs/RUN

The run needs measured times (`farm submit` with `measured:`). Pairs are formed within rank groups. `similar` pairs
execute much the same opcodes and have the same bound: the thresholds of `farm.analysis.verdict` come from this table.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import defaultdict
from pathlib import Path

import common  # noqa: F401  (puts the project before this folder on the path)

from farm.analysis.verdict import SIMILAR_MIX
from farm.database import RunDatabase
from farm.store import open_store

EDGES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, math.inf)
TIE = 0.01  # measured times closer than this are no order


def main(folder: Path) -> None:
    database = RunDatabase(open_store(str(folder.parent)).find(folder.name))
    variants = database.rows(
        """
        SELECT family, target, "group", variant, time_us, measured_us, bound FROM best_ranking
        WHERE status = 'ok' AND used
        """
    )
    opcodes: dict[tuple[str, int, str], dict[str, float]] = defaultdict(dict)
    for row in database.rows(
        r"""
        SELECT family, variant, target, regexp_extract(sass, '^(?:@!?U?P\w+ +)?(\w+)', 1) AS opcode,
               sum(executed) AS executed
        FROM instructions GROUP BY ALL
        """
    ):
        opcodes[row["family"], row["variant"], row["target"]][row["opcode"]] = row["executed"]
    groups = defaultdict(list)
    for row in variants:
        groups[row["family"], row["target"], row["group"]].append(row)
    counts: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for rows in groups.values():
        for a, b in itertools.combinations(rows, 2):
            mixes = [opcodes[r["family"], r["variant"], r["target"]] for r in (a, b)]
            estimated, measured = b["time_us"] / a["time_us"], b["measured_us"] / a["measured_us"]
            place = sum(max(estimated, 1 / estimated) - 1 >= edge for edge in EDGES) - 1
            similar = distance(*mixes) < SIMILAR_MIX and a["bound"] == b["bound"]
            tie = abs(math.log(measured)) < TIE
            right = not tie and (estimated > 1) == (measured > 1)
            for kind in ("all", "similar" if similar else "other"):
                for i, one in enumerate((1, right, tie)):
                    counts[kind, place][i] += one
    print("| estimates differ by | " + " | ".join(f"{k}: pairs | right" for k in ("all", "similar", "other")) + " |")
    print("| --- |" + " ---: |" * 6)
    for place, (low, high) in enumerate(itertools.pairwise(EDGES)):
        cells = [f"{100 * low:g} to {100 * high:g} %" if math.isfinite(high) else f"over {100 * low:g} %"]
        for kind in ("all", "similar", "other"):
            pairs, right, ties = counts[kind, place]
            cells += [str(pairs), f"{100 * right / (pairs - ties):.0f} %" if pairs > ties else "-"]
        print("| " + " | ".join(cells) + " |")


def distance(a: dict[str, float], b: dict[str, float]) -> float:
    """As `farm.analysis.compare.opcode_distance`."""
    total = sum(a.values()) + sum(b.values())
    return sum(abs(a.get(name, 0.0) - b.get(name, 0.0)) for name in {*a, *b}) / total if total else 0.0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
