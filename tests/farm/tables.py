"""All tables of a run, for comparing runs: what was disturbed must hold what was not."""

from __future__ import annotations

from jobs.parts import key_of
from jobs.run_folder import RunFolder
from jobs.tables import SCHEMAS

TIMING = ("simulation_seconds", "compile_seconds")
Contents = dict[str, list[tuple[str, ...]]]


def contents(folder: RunFolder) -> Contents:
    """Sorted rows of each table, without columns that say how long something took; each row must be there once."""
    tables = {}
    for name in SCHEMAS:
        table, key = folder.read(name), key_of(name)
        columns = [*key, *(column for column in table.column_names if column not in (*TIMING, *key))]
        rows = [tuple(map(repr, row.values())) for row in table.select(columns).to_pylist()]
        assert len({row[: len(key)] for row in rows}) == len(rows), f"{name}: a row twice"
        tables[name] = sorted(rows)
    return tables
