"""Profiles of SASS lines in a run: checked against the variant's code, so that counts stand beside the right lines."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from farm.analysis.variant import Variant
from farm.database import RunDatabase
from farm.interchange.nsight import SourcePage, plain_sass
from farm.interchange.records import InterchangeError
from jobs.tables import STALL_COLUMNS


def differs(variant: Variant, page: SourcePage) -> str:
    """Where the profile's code is another than the variant's: the first line that differs, "" when none does."""
    ours = [plain_sass(line.sass, 0) for line in variant.lines]
    theirs = [line.sass for line in page.lines]
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return f"at {16 * i:#06x} the run has {a!r}, the profile {b!r}"
    # a profiler may leave out the padding behind the last instruction
    rest = [*ours[len(theirs) :], *theirs[len(ours) :]]
    if any(text != "NOP" for text in rest):
        return f"the run has {len(ours)} lines of SASS, the profile {len(theirs)}"
    return ""


def find_variant(candidates: list[Variant], page: SourcePage, source: str) -> Variant:
    """The variant whose code was profiled. Raises InterchangeError when it is none or several."""
    reasons = [(variant, differs(variant, page)) for variant in candidates]
    same = [variant for variant, reason in reasons if not reason]
    if len(same) == 1:
        return same[0]
    if same:
        numbers = ", ".join(str(variant.number) for variant in same[:8])
        raise InterchangeError(f"{source}: variants {numbers} have this very code; name one with --variant")
    nearest = max(reasons, key=lambda pair: _common(pair[0], page), default=None)
    about = f" (nearest is variant {nearest[0].number}: {nearest[1]})" if nearest is not None else ""
    raise InterchangeError(
        f"{source}: is of other code than the run's{about}; profile the cubin that the run compiled, or submit the one "
        "profiled"
    )


def _common(variant: Variant, page: SourcePage) -> int:
    """How many lines agree, place by place."""
    return sum(plain_sass(a.sass, 0) == b.sass for a, b in zip(variant.lines, page.lines, strict=False))


def profile_rows(variant: Variant, page: SourcePage, source: str) -> list[dict[str, Any]]:
    """Rows of the table `profiles`."""
    return [
        {
            "family": variant.family,
            "variant": variant.number,
            "target": variant.target,
            "pc": 16 * i,
            "sass": line.sass,
            "executed": line.executed,
            "thread_executed": line.thread_executed,
            "sectors": line.sectors,
            "wavefronts": line.wavefronts,
            "samples": line.samples,
            "source": source,
            **{column: line.stalls[column.removeprefix("stall_")] for column in STALL_COLUMNS},
        }
        for i, line in enumerate(page.lines)
    ]


def without(table: pa.Table, family: str, variant: int, target: str) -> list[dict[str, Any]]:
    """The rows of other variants."""
    key = family, variant, target
    return [row for row in table.to_pylist() if (row["family"], row["variant"], row["target"]) != key]


def measured_shares(database: RunDatabase, variant: Variant) -> dict[int, float] | None:
    """Share of a profiler's samples by address, None when no profile was imported for the variant."""
    rows = database.rows(
        "SELECT pc, samples FROM profiles WHERE family = ? AND variant = ? AND target = ?",
        [variant.family, variant.number, variant.target],
    )
    total = sum(row["samples"] for row in rows)
    return {row["pc"]: row["samples"] / total for row in rows} if total else None
