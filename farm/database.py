"""DuckDB over a run: its tables as views, each parameter a column, and the views of farm/queries."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from farm.statistics import kendall_tau
from interpreter.errors import FarmError
from jobs.blobs import Blobs
from jobs.parts import Part, batches, damaged
from jobs.run_folder import RunFolder
from jobs.tables import SCHEMAS

# SQL does not tell upper case from lower case.
# A sweep may well have a parameter WARP or CTA: timelines are not joined with rankings, and keep such columns apart.
_APART = ("timeline", "recordings")
_NAMED = {name.lower() for table, schema in SCHEMAS.items() if table not in _APART for name in schema.names}
_TAKEN = _NAMED | {"group", "place", "measured_us"}

BATCH_ROWS = 64 * 1024
QUERIES = ("ranking.sql", "correlation.sql")


class QueryError(FarmError):
    """A query that DuckDB refuses."""


class _CannotRead(OSError):
    """Files of the run cannot be read: gone because they were merged, or the storage fails."""


# words of pyarrow's errors, which DuckDB passes on within its own
_READING = ("AWS Error", "does not exist", "No such file", "HTTP status", "curlCode")
# and of DuckDB and pyarrow about files that are no whole Parquet files
_DAMAGED = (
    "magic bytes", "too small to be a Parquet", "TProtocolException", "Couldn't deserialize", "ecompression", "orrupt",
)  # fmt: skip
# errors of DuckDB that are about the SQL, whatever the files hold
_OF_THE_QUERY = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)


class RunDatabase:
    """An in-memory database with the run's tables (`jobs.tables`) and the views."""

    def __init__(self, folder: RunFolder, without: tuple[str, ...] = ()) -> None:
        """`without` names tables to leave empty."""
        self.folder = folder
        self._without = without
        # opened by the first query that names them: they may have thousands of parts, whose schemas DuckDB reads
        self._later = {"timeline"}
        self._connection = duckdb.connect(":memory:")
        self._connection.create_function("kendall_tau", _kendall_tau, [duckdb.list_type("DOUBLE")] * 3, "DOUBLE")
        self._again(self._open_all)
        for name in SCHEMAS:
            if name != "variants":
                self._connection.execute(f"CREATE VIEW {name} AS SELECT * FROM _{name}")
        self._connection.execute(self._variants_view())
        self._connection.execute(self._groups_view())
        for query in QUERIES:
            self._connection.execute((files("farm") / "queries" / query).read_text())

    def _open_all(self) -> None:
        for name in SCHEMAS:
            self._open(name)

    def _open(self, name: str) -> None:
        """Make a table known as `_name`, without reading it: from files by DuckDB itself, from elsewhere by pyarrow.

        Either way DuckDB gets the exact list of files, and reads the columns and row groups that a query needs.
        """
        blobs = self.folder.blobs
        parts = [] if name in self._without or name in self._later else self.folder.manifest.parts.get(name, [])
        paths = [blobs.local_path(part.blob) for part in parts]
        if not parts:
            self._connection.register(f"_{name}", SCHEMAS[name].empty_table())
        elif None not in paths:
            files = ", ".join(_text(str(path)) for path in paths)
            # by name: parts may be older than a column of others, or of the schema
            source = f"FROM read_parquet([{files}], union_by_name = true)"
            with self._errors():
                found = {row[0] for row in self._connection.execute(f"DESCRIBE {source}").fetchall()}
                new = _nulls(name, [column for column in SCHEMAS[name].names if column not in found])
                self._connection.execute(f"CREATE OR REPLACE VIEW _{name} AS SELECT {', '.join(['*', *new])} {source}")
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
        if isinstance(found, pa.Table):  # a statement without rows
            return found.to_reader()
        return pa.RecordBatchReader.from_batches(found.schema, self._batches(found))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            with self._errors():
                yield from reader
        except _CannotRead as error:
            raise self.folder.blobs.explain(error) from None

    def _run(self, sql: str, arguments: list[Any] | None, fetch: Callable[[Any], Any]) -> Any:
        def once() -> Any:
            for name in [name for name in self._later if name in sql.lower()]:
                self._later.discard(name)
                self._connection.unregister(f"_{name}")
                self._open(name)
            with self._errors():
                relation = self._connection.sql(sql, params=arguments or None)
                return pa.table({}) if relation is None else fetch(relation)

        return self._again(once)

    def _again(self, act: Callable[[], Any]) -> Any:
        """Do it; once more when a writer has merged the files that the manifest named when it was read."""
        try:
            return act()
        except _CannotRead as error:
            before = self.folder.manifest.revision
            if self.folder.load().manifest.revision == before:
                raise self.folder.blobs.explain(error) from None
        try:
            if act != self._open_all:
                self._open_all()
            return act()
        except _CannotRead as error:
            raise self.folder.blobs.explain(error) from None

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Tell what the query did wrong from what the files or the storage do."""
        try:
            yield
        except duckdb.Error as error:
            text = str(error)
            if isinstance(error, duckdb.IOException) or any(word in text for word in _READING):
                raise _CannotRead(text.split("\n\nLINE ")[0]) from None  # the query there is not the user's
            part = None if isinstance(error, _OF_THE_QUERY) else self._damaged_part()
            if part is not None or any(word in text for word in _DAMAGED):
                raise damaged(self.folder.blobs, part or "parts", error) from None
            raise QueryError(f"query: {text}") from None
        except OSError as error:  # from pyarrow, through DuckDB
            raise _CannotRead(str(error)) from None

    def _damaged_part(self) -> str | None:
        """The first of the run's parts that cannot be read to its end: DuckDB's error does not always name it.

        Of a run on this machine only: an error is not worth fetching a whole run from afar.
        """
        blobs = self.folder.blobs
        for name, table in self.folder.manifest.parts.items():
            for part in [] if name in self._without else table:
                if blobs.local_path(part.blob) is None:
                    return None
                try:
                    for _ in batches(blobs, part):
                        pass
                except (OSError, ValueError, FarmError):
                    return part.blob
        return None

    def _variants_view(self) -> str:
        parts = ["SELECT *"]
        for name in self.parameters:
            parts.append(f"map_extract_value(parameters, {_text(name)}) AS {identifier(self.column_of(name))}")
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


def _nulls(name: str, columns: list[str]) -> list[str]:
    """SQL of columns of a table that none of its parts has."""
    if not columns:
        return []
    with duckdb.connect(":memory:") as connection:
        connection.register("empty", SCHEMAS[name].empty_table().select(columns))
        types = connection.execute("DESCRIBE empty").fetchall()
    return [f"NULL::{row[1]} AS {identifier(row[0])}" for row in types]


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
