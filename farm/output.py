"""Results as files for programs: JSON, CSV, Parquet or Arrow, to stdout or to a file, a batch of rows at a time."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from farm.render import finite
from interpreter.errors import FarmError
from jobs.blobs import StorageError, disk_errors, temporary_file

FORMATS = ("table", "json", "csv", "parquet", "arrow")
BINARY = ("parquet", "arrow")
_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


@contextlib.contextmanager
def writing_to(named: str) -> Iterator[None]:
    """What goes wrong with a file that the user named, as an error that begins with how it was named.

    A path that cannot be is the user's (FarmError), a full or broken disk the machine's (StorageError).
    """
    try:
        yield
    except OSError as error:
        kind = StorageError if error.errno in _MACHINE else FarmError
        what = os.strerror(error.errno) if error.errno else str(error)
        if isinstance(error, FileExistsError | NotADirectoryError):
            what = f"{error.filename} is not a folder"
        raise kind(f"{named}: {what}") from None


def chosen_format(form: str | None, csv_output: bool, json_output: bool, output: Path | None) -> str:
    """The format asked for: by name, by --csv or --json, or by the file's ending. Raises FarmError."""
    asked = {name for name, on in ((form, form is not None), ("csv", csv_output), ("json", json_output)) if on}
    if len(asked) > 1:
        raise FarmError(f"--format, --csv, --json: one format, not {' and '.join(sorted(map(str, asked)))}")
    found = next(iter(asked), None)
    if found is None and output is not None:
        found = output.suffix.removeprefix(".").lower()
        if found not in FORMATS[1:]:
            raise FarmError(f"--output {output}: say what it should hold: --format {', '.join(FORMATS[1:])}")
    if found is not None and found not in FORMATS:
        raise FarmError(f"--format {found}: one of {', '.join(FORMATS)}")
    if found == "table" and output is not None:
        raise FarmError(f"--output {output}: a table is for reading; --format {', '.join(FORMATS[1:])}")
    if found in BINARY and output is None and sys.stdout.isatty():
        raise FarmError(f"--format {found}: is binary; name a file with --output, or send it through a pipe")
    return found or "table"


def write(reader: pa.RecordBatchReader, form: str, output: Path | None) -> int:
    """Write all rows of `reader` as `form` (not "table"), whole or not at all; returns how many there were.

    Parquet files are zstd, Arrow is the IPC stream format. CSV has maps and lists as JSON.
    """
    with whole_or_not(output) as sink:
        rows = 0
        if form == "parquet":
            with _parquet(sink, reader.schema) as writer:
                for batch in reader:
                    rows += batch.num_rows
                    writer.write_batch(batch)
        elif form == "arrow":
            with pa.ipc.new_stream(sink, reader.schema) as stream:
                for batch in reader:
                    rows += batch.num_rows
                    stream.write_batch(batch)
        elif form == "csv":
            rows = _csv(sink, reader)
        else:
            rows = _json(sink, reader)
    return rows


def _json(sink: IO[bytes], reader: pa.RecordBatchReader) -> int:
    """A list, a row a line."""
    rows = 0
    for batch in reader:
        lines = (json.dumps(finite(row), default=str) for row in batch.to_pylist())
        sink.write((",\n " if rows else "[\n ").encode() + ",\n ".join(lines).encode() if batch.num_rows else b"")
        rows += batch.num_rows
    sink.write(b"\n]\n" if rows else b"[]\n")
    return rows


@contextlib.contextmanager
def _parquet(sink: IO[bytes], schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        yield writer


def _csv(sink: IO[bytes], reader: pa.RecordBatchReader) -> int:
    rows = 0
    text = io.TextIOWrapper(sink, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(reader.schema.names)
    nested = [pa.types.is_nested(field.type) for field in reader.schema]
    for batch in reader:
        columns = [
            [None if value is None else json.dumps(finite(_plain(value)), default=str) for value in column.to_pylist()]
            if is_nested
            else column.to_pylist()
            for column, is_nested in zip(batch.columns, nested, strict=True)
        ]
        writer.writerows(zip(*columns, strict=True))
        rows += batch.num_rows
    text.flush()
    text.detach()
    return rows


def _plain(value: Any) -> Any:
    """A map, which Arrow gives as pairs, as an object."""
    if isinstance(value, list) and value and all(isinstance(entry, tuple) and len(entry) == 2 for entry in value):
        return dict(value)
    return value


@contextlib.contextmanager
def whole_or_not(output: Path | None) -> Iterator[IO[bytes]]:
    """Where to write: stdout, or a file that appears at the end, if nothing goes wrong before."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if not output.parent.is_dir():
        raise FarmError(f"--output {output}: there is no folder {output.parent}")
    with temporary_file(output.parent, output.name) as path:
        with open(path, "wb") as file:
            yield file
        with disk_errors(output):
            os.replace(path, output)
