"""DuckDB over a run: its tables as views, each parameter a column, and the views of farm/queries."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import duckdb
import pyarrow as pa

from interpreter.errors import FarmError
from jobs.run_folder import RunFolder
from jobs.tables import SCHEMAS

# SQL does not tell upper case from lower case.
_TAKEN = {name.lower() for schema in SCHEMAS.values() for name in schema.names} | {"group", "place", "measured_us"}

QUERIES = ("ranking.sql", "correlation.sql")


class QueryError(FarmError):
    """A query that DuckDB refuses."""


class RunDatabase:
    """An in-memory database with the run's tables: variants, estimates, instructions, measurements and the views."""

    def __init__(self, folder: RunFolder, without: tuple[str, ...] = ()) -> None:
        """`without` names tables to leave empty: `instructions` is most of a run, and rankings do not need it."""
        self.folder = folder
        self._connection = duckdb.connect(":memory:")
        for name in SCHEMAS:
            content = SCHEMAS[name].empty_table() if name in without else folder.read(name)
            self._connection.register(f"_{name}", content)
            if name != "variants":
                self._connection.execute(f"CREATE VIEW {name} AS SELECT * FROM _{name}")
        self._connection.execute(self._variants_view())
        self._connection.execute(self._groups_view())
        for query in QUERIES:
            self._connection.execute((files("farm") / "queries" / query).read_text())

    @property
    def parameters(self) -> list[str]:
        """Parameters of all the run's families, in order."""
        names = [name for family in self.folder.manifest.families.values() for name in family.parameters]
        return list(dict.fromkeys(names))

    def column_of(self, parameter: str) -> str:
        """The column that holds a parameter: its name, unless a table or a ranking has a column of that name."""
        return f"param_{parameter}" if parameter.lower() in _TAKEN else parameter

    def rows(self, sql: str, arguments: list[Any] | None = None) -> list[dict[str, Any]]:
        """The rows of a query as dictionaries. Raises QueryError with DuckDB's words."""
        return list(self.table(sql, arguments).to_pylist())

    def table(self, sql: str, arguments: list[Any] | None = None) -> pa.Table:
        """The rows of a query as an Arrow table."""
        try:
            relation = self._connection.sql(sql, params=arguments or None)
            return pa.table({}) if relation is None else relation.to_arrow_table()
        except duckdb.Error as error:
            raise QueryError(f"query: {error}") from None

    def _variants_view(self) -> str:
        parts = ["SELECT *"]
        for name in self.parameters:
            parts.append(f'map_extract_value(parameters, {_text(name)}) AS {identifier(self.column_of(name))}')
        return f"CREATE VIEW variants AS {', '.join(parts)} FROM _variants"

    def _groups_view(self) -> str:
        selects = []
        for family in self.folder.manifest.families.values():
            values = [
                f"{_text(name + '=')} || map_extract_value(parameters, {_text(name)})::VARCHAR"
                for name in family.rank_within
            ]
            group = " || ' ' || ".join(values) if values else "''"
            selects.append(
                f'SELECT family, variant, any_value({group}) AS "group" FROM _variants '
                f"WHERE family = {_text(family.name)} GROUP BY family, variant"
            )
        if not selects:
            selects = ["SELECT ''::VARCHAR AS family, 0 AS variant, ''::VARCHAR AS \"group\" WHERE false"]
        return f"CREATE VIEW groups AS {' UNION ALL '.join(selects)}"


def identifier(name: str) -> str:
    """An SQL identifier, quoted."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    """An SQL string literal."""
    return "'" + value.replace("'", "''") + "'"
