"""From a file of any supported kind into a run's tables."""

from __future__ import annotations

from pathlib import Path

from farm.analysis.variant import VariantTable, load_variant
from farm.database import RunDatabase
from farm.interchange import kernel_tuner, nsight, triton
from farm.interchange.match import match
from farm.interchange.profile import differs, find_variant, profile_rows, without
from farm.interchange.records import InterchangeError, Records, parse_json, read_text
from farm.store import open_store
from jobs.tables import from_rows

KINDS = "Nsight Compute's raw, details or source page in CSV, a cache of Kernel Tuner, T4, Triton's *.autotune.json"


def read_any(path: Path) -> Records | nsight.SourcePage:
    """The file's content, its kind found from what it holds. Raises InterchangeError."""
    text = read_text(path)
    if text.lstrip().startswith("{"):
        data = parse_json(path, kernel_tuner.closed(text) if '"tune_params_keys"' in text else text)
        if kernel_tuner.is_cache(data):
            return kernel_tuner.read_cache(path, text)
        if kernel_tuner.is_t4(data):
            return kernel_tuner.read_t4(path, text)
        if triton.is_autotune(data):
            return triton.read_autotune(path, text)
        raise InterchangeError(f"{path}: JSON of an unknown kind (known: {KINDS})")
    rows = nsight.table_of(path, text)
    if rows and nsight.is_source(rows):
        return nsight.read_source(path, rows)
    if rows and nsight.is_launches(rows):
        return nsight.read_launches(path, rows)
    raise InterchangeError(f"{path}: of an unknown kind (known: {KINDS})")


def store_records(
    database: RunDatabase,
    family: str,
    target: str,
    variant: int | None,
    found: Records,
    source: str,
    rename: dict[str, str],
    l2: str | None,
    store: str | None,
) -> str:
    """Put measured times into the run, replacing older ones of the same variants; returns a line about it."""
    if variant is not None:
        if len(found.records) != 1:
            raise InterchangeError(f"{source}: --variant goes with one record, the file has {len(found.records)}")
        found.records[0].variant = variant
    matched = match(database, family, target, found, source, rename, l2)
    replaced = {(row["family"], row["variant"], row["target"]) for row in matched.rows}
    folder = open_store(store).find(database.folder.manifest.run)
    with folder.writing():
        kept = [
            row
            for row in folder.read("measurements").to_pylist()
            if (row["family"], row["variant"], row["target"]) not in replaced
        ]
        folder.replace("measurements", from_rows("measurements", [*kept, *matched.rows]))
    parts = [f"{len(matched.rows)} measured times of {family} on {target} from {found.kind}"]
    disturbed = sum(not row["used"] for row in matched.rows)
    if disturbed:
        parts.append(f"{disturbed} with too wide a spread left out of correlations")
    if matched.failed:
        parts.append(f"{matched.failed} that did not run")
    if matched.unmatched:
        parts.append(f"{len(matched.unmatched)} that are no variant of the run")
    return ", ".join(parts) + "".join(f"\nnote: {note}" for note in found.notes)


def store_page(
    database: RunDatabase,
    family: str,
    target: str,
    variant: int | None,
    page: nsight.SourcePage,
    source: str,
    store: str | None,
) -> str:
    """Put a profile into the run, for the variant whose code it shows; returns a line about it."""
    if page.simulated:
        raise InterchangeError(f"{source}: holds simulated counts, which are no measurements")
    if variant is not None:
        chosen = load_variant(database, family, variant, target)
        reason = differs(chosen, page)
        if reason:
            raise InterchangeError(f"{source}: is of other code than variant {variant}: {reason}")
    else:
        chosen = find_variant(list(VariantTable(database, family, target)), page, source)
    rows = profile_rows(chosen, page, source)
    folder = open_store(store).find(database.folder.manifest.run)
    with folder.writing():
        kept = without(folder.read("profiles"), family, chosen.number, target)
        folder.replace("profiles", from_rows("profiles", [*kept, *rows]))
    samples = sum(line.samples for line in page.lines)
    return f"profile of {family} variant {chosen.number} on {target}: {len(rows)} lines, {samples:.0f} samples"
