"""Parts: the Parquet files of a run. Each is sorted by its table's key, and named by its content.

A part is written to a local scratch file, then published whole. Merging streams through its inputs, so that memory
holds a row group, and of each input a batch and its row group compressed, however large the run. `stage` needs no lock:
workers may write parts that the process holding the run's lock names in the manifest afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.blobs import Blobs, StorageError, temporary_file
from jobs.tables import SCHEMA_VERSION, SCHEMAS, VERSION_KEY, with_new_columns, write_options

FOLDER = "parts"
SUFFIX = ".parquet"
# Rows that a reader of one variant has to read, and that a merge holds decoded: a few MB, which a run of a thousand
# small variants fills as well as one of a million.
ROW_GROUP = 32 * 1024
WIDE_ROW_GROUP = 8 * 1024  # of tables whose rows are several times as long as those of `instructions`
WIDE = ("variants", "estimates")
BATCH = 16 * 1024  # rows read at a time
MERGED_ROWS = 16 * 1024  # rows that a merge reads at a time from all its inputs together
MERGED_BATCH = 512  # but from each of them at least so many
WHOLE_BYTES = 1 << 20  # a part of this size is read by one request, however little of it is wanted
MERGED_BYTES = 64 << 20  # a merged part is closed at this size
# Parts of `timeline` are closed from this size on: a variant may have more rows than a merge should hold.
CLOSED_BYTES = {"timeline": 1 << 20}

# Parts are merged when as many as FAN_IN have a size of one level; each level is FAN_IN times the one before.
FAN_IN = 16
LAST_FAN_IN = 8  # at the end, of parts of any size: a merge's memory is what it keeps of each
FIRST_LEVEL_BYTES = 64 << 10

# The order of rows in a part, as far as its table has these columns. The first two say where a variant's rows are.
ORDER = ("family", "variant", "target", "tier", "sm", "cta", "warp", "cycle", "pc")

# How a merge keeps rows it does not need yet. By its own thread: others would each keep memory for it.
_PACKED = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1), use_threads=False)
_UNPACKED = pa.ipc.IpcReadOptions(use_threads=False)

Key = tuple[str, int]  # family, variant


@dataclass(frozen=True, slots=True)
class Encoded:
    """A part that travels: the bytes of its file, of one variant, sorted."""

    table: str
    key: Key
    rows: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """A published part. `first` and `last` are the (family, variant) its sorted rows begin and end with."""

    file: str
    rows: int
    bytes: int
    first: Key
    last: Key

    @property
    def table(self) -> str:
        return self.file.partition("-")[0]

    @property
    def blob(self) -> str:
        return f"{FOLDER}/{self.file}"

    @property
    def level(self) -> int:
        """Of its size, for merging: parts of the last level are left alone until the run is finished."""
        return max(0, math.ceil(math.log(max(self.bytes, 1) / FIRST_LEVEL_BYTES, FAN_IN)))

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file, "rows": self.rows, "bytes": self.bytes,
            "first": list(self.first), "last": list(self.last),
        }  # fmt: skip

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Part:
        first, last = (content[name] for name in ("first", "last"))
        return cls(content["file"], content["rows"], content["bytes"], (first[0], first[1]), (last[0], last[1]))

    def same_content(self, other: Part) -> bool:
        """Whether both hold the same bytes, whoever wrote them."""
        return self.file.split(".")[0] == other.file.split(".")[0]


def epoch_of(file: str) -> int | None:
    """The epoch in a part's file name: of the process that wrote it, or for which it was written."""
    pieces = file.split(".")
    return int(pieces[1]) if len(pieces) == 3 and pieces[1].isdigit() else None


def stage(blobs: Blobs, epoch: int, tables: Mapping[str, pa.Table]) -> dict[str, Part]:
    """Publish tables as parts that no manifest names yet. The same rows have the same content and name."""
    return {
        name: write_part(blobs, epoch, name, [sorted_table(name, table)])
        for name, table in tables.items()
        if table.num_rows
    }


def write_part(blobs: Blobs, epoch: int, name: str, tables: Iterable[pa.Table]) -> Part:
    """Publish sorted tables, in their order, as one part."""
    (part,) = _write(blobs, epoch, name, tables, math.inf)
    return part


def encode(name: str, table: pa.Table) -> Encoded:
    """A sorted table of one variant as the bytes of a part."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, SCHEMAS[name], **write_options(name)) as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)
    return Encoded(name, first_key(table), table.num_rows, sink.getvalue())


def stage_encoded(blobs: Blobs, epoch: int, encoded: Encoded) -> dict[str, Part]:
    """Publish encoded rows as a part that no manifest names yet, as `stage` does with tables."""
    with temporary_file(blobs.scratch(), encoded.table) as path:
        path.write_bytes(encoded.content)
        file = f"{encoded.table}-{_digest(path)[:16]}.{epoch}{SUFFIX}"
        blobs.publish(path, f"{FOLDER}/{file}")
    return {encoded.table: Part(file, encoded.rows, len(encoded.content), encoded.key, encoded.key)}


def merge(
    blobs: Blobs, epoch: int, name: str, parts: Sequence[Part], keep: Callable[[pa.Table], pa.Table] | None = None
) -> list[Part]:
    """Publish the rows of `parts`, sorted, as parts of about MERGED_BYTES; `keep` may filter them."""
    return list(_write(blobs, epoch, name, _merged(blobs, name, parts, keep), MERGED_BYTES))


def _write(blobs: Blobs, epoch: int, name: str, tables: Iterable[pa.Table], limit: float) -> Iterator[Part]:
    """Parts with all rows of `tables` (sorted, each a whole number of variants), closed when over `limit` bytes."""
    waiting = iter(tables)
    table = next(waiting, None)
    while table is not None:
        with temporary_file(blobs.scratch(), name) as path:
            first, rows, last = first_key(table), 0, last_key(table)
            with open(path, "wb") as sink, pq.ParquetWriter(sink, SCHEMAS[name], **write_options(name)) as writer:
                while table is not None and (rows == 0 or sink.tell() < limit):
                    writer.write_table(table, row_group_size=row_group(name))
                    rows, last = rows + table.num_rows, last_key(table)
                    table = None  # not held while the next is made
                    table = next(waiting, None)
            size = path.stat().st_size
            file = f"{name}-{_digest(path)[:16]}.{epoch}{SUFFIX}"
            blobs.publish(path, f"{FOLDER}/{file}")
        yield Part(file, rows, size, first, last)


def row_group(name: str) -> int:
    """Rows of a row group of a table, at most."""
    return min(ROW_GROUP, WIDE_ROW_GROUP) if name in WIDE else ROW_GROUP


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- order


def key_of(name: str) -> tuple[str, ...]:
    """The columns that order a table's rows, and that no two rows share."""
    return tuple(column for column in ORDER if column in SCHEMAS[name].names)


def sorted_table(name: str, table: pa.Table) -> pa.Table:
    """The rows in the order of the table's key."""
    table = table.unify_dictionaries()
    columns = [_ordinals(table.column(key)) for key in reversed(key_of(name))]
    in_order = np.ones(max(table.num_rows - 1, 0), bool)
    for column in columns:
        step = np.diff(column)
        in_order = (step > 0) | ((step == 0) & in_order)
    # taken from the chunks, which brings them together a column at a time
    return table.combine_chunks() if in_order.all() else table.take(pa.array(np.lexsort(columns)))


def _ordinals(column: pa.ChunkedArray) -> np.ndarray:
    """Integers in the order of the column's values."""
    if pa.types.is_integer(column.type):
        return column.to_numpy()
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    values = np.array(array.dictionary.to_pylist(), object)
    places = np.empty(len(values), np.int64)
    places[np.argsort(values, kind="stable")] = np.arange(len(values))
    indices = array.indices.to_numpy(zero_copy_only=False)
    return places[indices]


def first_key(table: pa.Table) -> Key:
    return table.column("family")[0].as_py(), table.column("variant")[0].as_py()


def last_key(table: pa.Table) -> Key:
    return table.column("family")[-1].as_py(), table.column("variant")[-1].as_py()


def variant_starts(table: pa.Table) -> np.ndarray:
    """Rows at which another (family, variant) begins, and the number of rows, of a sorted table."""
    variants, families = table.column("variant").to_numpy(), _ordinals(table.column("family"))
    changes = np.flatnonzero((np.diff(variants) != 0) | (np.diff(families) != 0)) + 1
    return np.concatenate([[0], changes, [table.num_rows]])


# ---- reading and merging


def open_part(blobs: Blobs, part: Part) -> pq.ParquetFile:
    """The part's Parquet file. Raises OSError (`blobs.explain` words it) and ValueError for another schema version."""
    local = blobs.local_path(part.blob)
    if local is not None:
        file = pq.ParquetFile(local, memory_map=True)
    elif part.bytes <= WHOLE_BYTES:
        file = pq.ParquetFile(pa.BufferReader(blobs.read(part.blob)[0]))
    else:
        filesystem, base = blobs.filesystem()
        file = pq.ParquetFile(filesystem.open_input_file(f"{base}/{part.blob}"), pre_buffer=True)
    check_version(file.schema_arrow, part.file)
    return file


def check_version(schema: pa.Schema, where: str) -> None:
    version = (schema.metadata or {}).get(VERSION_KEY, b"none").decode()
    if version != str(SCHEMA_VERSION):
        raise ValueError(f"{where}: schema version {version}, this program reads {SCHEMA_VERSION}")


def batches(blobs: Blobs, part: Part, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The part's rows, BATCH at a time. Raises StorageError where the storage fails."""
    with _opened(blobs, part) as file:
        present = None if columns is None else [c for c in columns if c in file.schema_arrow.names]
        for group in range(file.num_row_groups):  # one at a time: what comes from afar is fetched by the group
            for batch in file.iter_batches(batch_size=BATCH, columns=present, row_groups=[group]):
                yield with_new_columns(pa.Table.from_batches([batch]), SCHEMAS[part.table], columns)


def _row_groups(blobs: Blobs, part: Part) -> Iterator[pa.Table]:
    """The part's rows, a row group at a time, of which nothing is held here. Raises as `batches`."""
    with _opened(blobs, part) as file:
        for group in range(file.num_row_groups):
            # by this thread alone: others would each keep memory for what decoding a column takes
            yield with_new_columns(file.read_row_group(group, use_threads=False), SCHEMAS[part.table])


@contextlib.contextmanager
def _opened(blobs: Blobs, part: Part) -> Iterator[pq.ParquetFile]:
    """The part's file, read within. Raises StorageError where the storage fails."""
    try:
        with open_part(blobs, part) as file:
            yield file
    except FileNotFoundError:
        raise
    except pa.ArrowInvalid as error:
        raise damaged(blobs, part.blob, error) from None
    except OSError as error:
        raise blobs.explain(error) from None


def damaged(blobs: Blobs, what: str, error: Exception) -> StorageError:
    """A part that is there and cannot be read."""
    reason = str(error).splitlines()[0]
    return StorageError(f"{blobs.location}/{what}: damaged: {reason}. Restore it, or remove the run and submit again")


def _merged(
    blobs: Blobs, name: str, parts: Sequence[Part], keep: Callable[[pa.Table], pa.Table] | None
) -> Iterator[pa.Table]:
    """Sorted tables of about a row group's rows, each a whole number of variants."""
    most = row_group(name)
    gathered: list[pa.Table] = []  # written as they are, in their chunks: a copy in one piece would be as large again
    rows = 0
    for table in _in_order(blobs, name, parts):
        if keep is not None:
            table = keep(table)
        while rows + table.num_rows > most:
            starts = variant_starts(table)[1:]
            fitting = starts[starts <= most - rows]
            if not len(fitting) and not rows:
                fitting = starts[:1]  # one variant larger than a row group
            if len(fitting):
                gathered.append(table.slice(0, int(fitting[-1])))
                table = table.slice(int(fitting[-1]))
            group, gathered, rows = gathered, [], 0
            yield pa.concat_tables(group).unify_dictionaries()
            del group  # while the next is gathered
        if table.num_rows:
            gathered.append(table)
            rows += table.num_rows
    if rows:
        yield pa.concat_tables(gathered).unify_dictionaries()


class _Input:
    """A part that is merged: the rows read and not yet taken, and where its variants begin in them."""

    def __init__(self, blobs: Blobs, part: Part, size: int) -> None:
        self._batches = _small_batches(blobs, part, size)
        self._rows: pa.Table | None = None
        self._starts: list[int] = []
        self._keys: list[Key] = []
        self.over = False  # no more can be read
        self.read()

    @property
    def last(self) -> Key:
        """The variant that the rows end with: more of it may follow."""
        return self._keys[-1]

    @property
    def waiting(self) -> bool:
        return self._rows is not None

    def read(self) -> None:
        """Read on, behind the rows that are left."""
        table = next(self._batches, None)
        if table is None:
            self.over = True
            return
        self._keep(table if self._rows is None else _joined([self._rows, table]))

    def take(self, before: Key | None) -> pa.Table | None:
        """The rows of the variants before that one (all, for None), which are given up here."""
        rows = self._rows
        place = len(self._keys) if before is None else bisect_left(self._keys, before)
        if rows is None or not place:
            return None
        cut = self._starts[place]
        self._rows = rows.slice(cut) if cut < rows.num_rows else None
        self._starts = [start - cut for start in self._starts[place:]]
        self._keys = self._keys[place:]
        return rows.slice(0, cut)

    def _keep(self, rows: pa.Table) -> None:
        self._rows, self._starts = rows, variant_starts(rows).tolist()
        firsts = pa.array(self._starts[:-1])
        families = rows.column("family").take(firsts).to_pylist()
        self._keys = list(zip(families, rows.column("variant").take(firsts).to_pylist(), strict=True))


def _in_order(blobs: Blobs, name: str, parts: Sequence[Part]) -> Iterator[pa.Table]:
    """All rows in order, each table a whole number of variants: as many as are known to be complete."""
    size = max(MERGED_BATCH, MERGED_ROWS // max(1, len(parts)))
    closed = sorted(parts, key=lambda part: part.first, reverse=True)  # opened when their turn comes
    inputs: list[_Input] = []
    while True:
        inputs = [found for found in inputs if found.waiting]
        if not inputs and not closed:
            return
        while True:
            # the first variant that is not known to be complete
            limit = min((found.last for found in inputs if not found.over), default=None)
            if not closed or (inputs and limit is not None and closed[-1].first > limit):
                break
            inputs.append(_Input(blobs, closed.pop(), size))
        taken = [table for found in inputs if (table := found.take(limit)) is not None]
        if taken:
            complete = sorted_table(name, pa.concat_tables(taken)) if len(taken) > 1 else taken[0]
            taken.clear()
            yield complete
            del complete  # neither is held while more is read
        for found in inputs:
            if not found.over and (not found.waiting or found.last == limit):
                found.read()


def _small_batches(blobs: Blobs, part: Part, size: int) -> Iterator[pa.Table]:
    """The part's rows, `size` at a time, without a row group of them in memory meanwhile.

    Parquet's reader holds the pages it is in, of every column: of a large part they are most of a row group. So a row
    group is read at once and kept as compressed batches, a twentieth of its size.
    """
    for table in _row_groups(blobs, part):
        if table.num_rows <= size:
            yield table
            continue
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=_PACKED) as writer:
            writer.write_table(table, max_chunksize=size)
        del table
        for batch in pa.ipc.open_stream(sink.getvalue(), options=_UNPACKED):
            yield pa.Table.from_batches([batch])


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def due(parts: Sequence[Part]) -> list[Part]:
    """Parts that should be merged now: FAN_IN or more of a level, with all smaller ones; none when few."""
    open_parts = [part for part in parts if part.bytes < CLOSED_BYTES.get(part.table, MERGED_BYTES)]
    for level in sorted({part.level for part in open_parts}, reverse=True):
        if sum(part.level == level for part in open_parts) >= FAN_IN:
            return [part for part in open_parts if part.level <= level]
    return []


def unmerged(parts: Sequence[Part]) -> list[Part]:
    """Parts to merge when a run is finished: all that are well below the size of a merged one."""
    small = [part for part in parts if part.bytes < CLOSED_BYTES.get(part.table, MERGED_BYTES // 2)]
    return small if len(small) > 1 else []
