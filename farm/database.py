"""DuckDB over a run: its tables as views, each parameter a column, and the views of farm/queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from farm.statistics import kendall_tau
from interpreter.errors import FarmError
from jobs.blobs import Blobs
from jobs.parts import Part
from jobs.run_folder import RunError, RunFolder
from jobs.tables import SCHEMAS

# SQL does not tell upper case from lower case.
_TAKEN = {name.lower() for schema in SCHEMAS.values() for name in schema.names} | {"group", "place", "measured_us"}

BATCH_ROWS = 64 * 1024
QUERIES = ("ranking.sql", "correlation.sql")


class QueryError(FarmError):
    """A query that DuckDB refuses."""


class RunDatabase:
    """An in-memory database with the run's tables: variants, estimates, instructions, measurements and the views."""

    def __init__(self, folder: RunFolder, without: tuple[str, ...] = ()) -> None:
        """`without` names tables to leave empty."""
        self.folder = folder
        self._without = without
        self._connection = duckdb.connect(":memory:")
        self._connection.create_function("kendall_tau", _kendall_tau, [duckdb.list_type("DOUBLE")] * 3, "DOUBLE")
        for name in SCHEMAS:
            self._open(name)
            if name != "variants":
                self._connection.execute(f"CREATE VIEW {name} AS SELECT * FROM _{name}")
        self._connection.execute(self._variants_view())
        self._connection.execute(self._groups_view())
        for query in QUERIES:
            self._connection.execute((files("farm") / "queries" / query).read_text())

    def _open(self, name: str) -> None:
        """Make a table known as `_name`, without reading it: from files by DuckDB itself, from elsewhere by pyarrow.

        Either way DuckDB gets the exact list of files, and reads the columns and row groups that a query needs.
        """
        blobs = self.folder.blobs
        parts = [] if name in self._without else self.folder.manifest.parts.get(name, [])
        paths = [blobs.local_path(part.blob) for part in parts]
        if not parts:
            self._connection.register(f"_{name}", SCHEMAS[name].empty_table())
        elif None not in paths:
            files = ", ".join(_text(str(path)) for path in paths)
            self._connection.execute(f"CREATE OR REPLACE VIEW _{name} AS SELECT * FROM read_parquet([{files}])")
        else:
            self._connection.register(f"_{name}", dataset(blobs, name, parts))

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
        return self._run(sql, arguments, lambda relation: relation.to_arrow_table())

    def reader(self, sql: str, arguments: list[Any] | None = None) -> pa.RecordBatchReader:
        """The rows of a query a batch at a time, for results that memory should not hold at once."""
        found = self._run(sql, arguments, lambda relation: relation.to_arrow_reader(BATCH_ROWS))
        return found.to_reader() if isinstance(found, pa.Table) else found

    def _run(self, sql: str, arguments: list[Any] | None, fetch: Callable[[Any], Any]) -> Any:
        """Run a query; once more when a writer has merged the files that the manifest named when it was read."""
        try:
            return self._once(sql, arguments, fetch)
        except FileNotFoundError:
            before = self.folder.manifest.revision
            if self.folder.load().manifest.revision == before:
                raise RunError(f"run {self.folder.name}: a file that its manifest names is missing") from None
            for name in SCHEMAS:
                self._open(name)
        try:
            return self._once(sql, arguments, fetch)
        except FileNotFoundError:
            raise RunError(f"run {self.folder.name}: was changed while it was read; try again") from None

    def _once(self, sql: str, arguments: list[Any] | None, fetch: Callable[[Any], Any]) -> Any:
        try:
            relation = self._connection.sql(sql, params=arguments or None)
            return pa.table({}) if relation is None else fetch(relation)
        except duckdb.Error as error:
            if self._lost_files():
                raise FileNotFoundError from None
            if "AWS Error" in str(error) or isinstance(error, duckdb.IOException):
                raise self.folder.blobs.explain(OSError(str(error))) from None
            raise QueryError(f"query: {error}") from None
        except FileNotFoundError:
            raise
        except OSError as error:  # from pyarrow, through DuckDB
            raise self.folder.blobs.explain(error) from None

    def _lost_files(self) -> bool:
        """Whether files of the manifest as it was read have gone, where files are what is read."""
        paths = [self.folder.blobs.local_path(blob) for blob in self.folder.manifest.named()]
        return any(path is not None and not path.exists() for path in paths)

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


def dataset(blobs: Blobs, name: str, parts: Sequence[Part]) -> ds.FileSystemDataset:
    """A table's parts as a dataset. Parts outside the families and variants of a filter are not opened."""
    filesystem, base = blobs.filesystem()
    form = ds.ParquetFileFormat(default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True))
    fragments = [
        form.make_fragment(
            f"{base}/{part.blob}", filesystem, partition_expression=_range_of(part), file_size=part.bytes
        )
        for part in parts
    ]
    return ds.FileSystemDataset(fragments, SCHEMAS[name], form, filesystem)


def _range_of(part: Part) -> pc.Expression:
    """What holds of every row of a part."""
    (first, low), (last, high) = part.first, part.last
    family = pc.field("family")
    if first != last:
        return (family >= first) & (family <= last)
    return (family == first) & (pc.field("variant") >= low) & (pc.field("variant") <= high)


def identifier(name: str) -> str:
    """An SQL identifier, quoted."""
    return '"' + name.replace('"', '""') + '"'


def _kendall_tau(scores: list[float], measured: list[float], noise: list[float]) -> float:
    """NaN where there is nothing to order: a function of DuckDB's may not give NULL for what is not NULL."""
    found = kendall_tau(scores, measured, noise)
    return math.nan if found is None else found


def _text(value: str) -> str:
    """An SQL string literal."""
    return "'" + value.replace("'", "''") + "'"
