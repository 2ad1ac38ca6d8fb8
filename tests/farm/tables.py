"""All tables of a run, for comparing runs: what was disturbed must hold what was not."""

from __future__ import annotations

from jobs.run_folder import RunFolder

TIMING = ("simulation_seconds", "compile_seconds")
KEYS = {"variants": 3, "estimates": 4, "instructions": 5, "measurements": 3}  # columns that name a row

Contents = dict[str, list[tuple[str, ...]]]


def contents(folder: RunFolder) -> Contents:
    """Sorted rows of each table, without columns that say how long something took; each row must be there once."""
    tables = {}
    for name, keys in KEYS.items():
        table = folder.read(name)
        columns = [column for column in table.column_names if column not in TIMING]
        rows = [tuple(map(repr, row.values())) for row in table.select(columns).to_pylist()]
        assert len({row[:keys] for row in rows}) == len(rows), f"{name}: a row twice"
        tables[name] = sorted(rows)
    return tables
