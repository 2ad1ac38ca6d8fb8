"""The result tables: one schema each, written as zstd Parquet with the schema's version in the file's metadata.

`variants` and `estimates` have a row a (family, variant, target), estimates also a tier; `instructions` a row a SASS
line of each estimate; `timeline`, on request, a row an issued warp instruction of the simulated part, with a row of
`recordings` for each estimate that has one; `measurements` a row a time measured on real hardware, `profiles` a row a
SASS line profiled there. Estimates are simulated, always.

A new column needs no new version: files written before it read as null there. Any other change does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from timing.stalls import STALLS, stall_name

SCHEMA_VERSION = 2
VERSION_KEY = b"farm.schema_version"
TABLE_KEY = b"farm.table"

STALL_COLUMNS = tuple(f"stall_{stall_name(stall)}" for stall in STALLS)

_KEY = [("family", pa.string()), ("variant", pa.int32()), ("target", pa.string())]
_TEXT = pa.dictionary(pa.int32(), pa.string())

_VARIANTS: list[tuple[str, pa.DataType]] = [
    *_KEY,
    ("arch", pa.string()),
    ("parameters", pa.map_(pa.string(), pa.int64())),
    ("names", pa.map_(pa.string(), pa.int64())),  # problem sizes, parameters and derived names: the macros
    ("grid_dim", pa.string()),  # "32x32x1", as in files of measured times
    ("block_dim", pa.string()),
    ("dynamic_shared_bytes", pa.int64()),
    ("status", pa.string()),  # ok or failed
    ("failure", pa.string()),  # compile, runtime, correctness, timeout or constraints; null when ok
    ("message", pa.string()),
    ("kernel", pa.string()),
    ("cubin_sha", pa.string()),  # SHA-256, hex
    ("command", pa.string()),  # the compiler's command line
    ("compiler", pa.string()),  # name and version of the assembler, as the cubin says: "ptxas 13.0.88"
    ("registers", pa.int32()),
    ("static_shared_bytes", pa.int32()),
    ("stack_bytes", pa.int32()),
    ("spill_store_bytes", pa.int32()),
    ("spill_load_bytes", pa.int32()),
    ("code_bytes", pa.int32()),
    ("barriers", pa.int32()),  # named barriers a CTA uses
    ("compile_seconds", pa.float64()),
]

_ESTIMATES: list[tuple[str, pa.DataType]] = [
    *_KEY,
    ("tier", pa.string()),
    ("l2", pa.string()),  # warm or cold at the launch
    ("status", pa.string()),
    ("failure", pa.string()),
    ("message", pa.string()),
    ("time_us", pa.float64()),
    ("cycles", pa.float64()),
    ("clock_mhz", pa.float64()),
    ("bound", pa.string()),
    ("ctas_per_sm", pa.int32()),
    ("warps_per_sm", pa.int32()),
    ("occupancy", pa.float64()),
    ("limiter", pa.string()),
    ("waves", pa.float64()),
    ("warp_instructions", pa.float64()),  # of the whole grid
    ("executed_share", pa.float64()),
    ("expected_error", pa.float64()),
    ("confidence", pa.string()),
    ("coverage", pa.map_(pa.string(), pa.float64())),
    ("bounds_us", pa.map_(pa.string(), pa.float64())),
    ("memory", pa.map_(pa.string(), pa.float64())),
    ("simulation_seconds", pa.float64()),
]

_INSTRUCTIONS: list[tuple[str, pa.DataType]] = [
    ("family", _TEXT),
    ("variant", pa.int32()),
    ("target", _TEXT),
    ("tier", _TEXT),
    ("pc", pa.int32()),
    ("sass", pa.string()),
    ("source_line", pa.int32()),  # 0 where the cubin has no line table (nvcc -lineinfo)
    ("executed", pa.float64()),  # warps, of the whole grid
    ("thread_executed", pa.float64()),
    ("sectors", pa.float64()),
    ("wavefronts", pa.float64()),
    ("sectors_ideal", pa.float64()),  # what the same lanes would touch if they lay side by side
    ("wavefronts_ideal", pa.float64()),  # without bank conflicts
    ("control", pa.int32()),  # bits 125:105 of the encoding: stall count, yield, barriers set, barriers awaited, reuse
    ("source_file", _TEXT),
    *[(column, pa.float32()) for column in STALL_COLUMNS],  # warp-cycles of the simulated part
]

_TIMELINE: list[tuple[str, pa.DataType]] = [
    ("family", _TEXT),
    ("variant", pa.int32()),
    ("target", _TEXT),
    ("tier", _TEXT),
    ("sm", pa.int16()),
    ("sub_core", pa.int8()),
    ("cta", pa.int32()),  # linear number in the grid
    ("warp", pa.int16()),  # within the CTA
    ("cycle", pa.int64()),  # SM cycles from the launch to the issue
    ("pc", pa.int32()),
    ("stalled", pa.int32()),  # cycles between the warp's issue before (or its launch) and this one
    ("reason", _TEXT),  # of the most of them, as the stall columns are named; null when there are none
]

_RECORDINGS: list[tuple[str, pa.DataType]] = [
    *_KEY,
    ("tier", pa.string()),
    ("sms", pa.int32()),  # recorded ones
    ("records", pa.int64()),  # rows of `timeline`
    ("issued", pa.int64()),  # what the recorded SMs issued in all
    ("until_cycle", pa.int64()),  # issues from this cycle on are left out, on all SMs; null when none are
]

_MEASUREMENTS: list[tuple[str, pa.DataType]] = [
    *_KEY,
    ("time_us", pa.float64()),
    ("min_us", pa.float64()),
    ("spread", pa.float64()),  # (max - min) / median
    ("used", pa.bool_()),  # false when the spread says that the measurement was disturbed
    ("l2", pa.string()),
    ("clock_mhz", pa.float64()),
    ("source", pa.string()),
]

_PROFILES: list[tuple[str, pa.DataType]] = [
    *_KEY,
    ("pc", pa.int32()),
    ("sass", pa.string()),
    ("executed", pa.float64()),
    ("thread_executed", pa.float64()),
    ("sectors", pa.float64()),
    ("wavefronts", pa.float64()),
    ("samples", pa.float64()),
    ("source", pa.string()),
    *[(column, pa.float32()) for column in STALL_COLUMNS],  # samples
]

SCHEMAS: dict[str, pa.Schema] = {
    name: pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode(), TABLE_KEY: name.encode()})
    for name, fields in {
        "variants": _VARIANTS,
        "estimates": _ESTIMATES,
        "instructions": _INSTRUCTIONS,
        "timeline": _TIMELINE,
        "recordings": _RECORDINGS,
        "measurements": _MEASUREMENTS,
        "profiles": _PROFILES,
    }.items()
}

# Tables with rows that come of evaluating a variant, and go when it is evaluated again.
EVALUATED = ("variants", "estimates", "instructions", "timeline", "recordings")


@dataclass(slots=True)
class Rows:
    """Rows gathered before they are written: dictionaries for the narrow tables, column blocks for `instructions`.

    Rows of `timeline` are too many: they are encoded where they are made (`jobs.timeline`).
    A block of `instructions` maps column names to arrays of one length, or to a single value for all its rows.
    """

    variants: list[dict[str, Any]] = field(default_factory=list)
    estimates: list[dict[str, Any]] = field(default_factory=list)
    instructions: list[dict[str, Any]] = field(default_factory=list)
    recordings: list[dict[str, Any]] = field(default_factory=list)

    def extend(self, other: Rows) -> None:
        self.variants += other.variants
        self.estimates += other.estimates
        self.instructions += other.instructions
        self.recordings += other.recordings

    def tables(self) -> dict[str, pa.Table]:
        """The Arrow tables that have rows."""
        found = {
            "variants": from_rows("variants", self.variants),
            "estimates": from_rows("estimates", self.estimates),
            "instructions": _from_blocks(self.instructions),
            "recordings": from_rows("recordings", self.recordings),
        }
        return {name: table for name, table in found.items() if table.num_rows}


def from_rows(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """A table of `name`'s schema. A row with a column the schema lacks is a bug and raises KeyError."""
    schema = SCHEMAS[name]
    known = set(schema.names)
    rows = list(rows)
    for row in rows:
        if not known.issuperset(row):
            raise KeyError(f"{name} has no column {', '.join(sorted(set(row) - known))}")
    columns = [pa.array([row.get(f.name) for row in rows], type=f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _from_blocks(blocks: list[dict[str, Any]]) -> pa.Table:
    """One table of all blocks, a column at a time: blocks are many and short."""
    schema = SCHEMAS["instructions"]
    if not blocks:
        return schema.empty_table()
    blocks = sorted(blocks, key=lambda block: (block["family"], block["variant"], block["target"], block["tier"]))
    lengths = np.array([len(block["pc"]) for block in blocks])
    columns = [_column(f.type, [block.get(f.name) for block in blocks], lengths) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _column(kind: pa.DataType, values: list[Any], lengths: np.ndarray) -> pa.ChunkedArray | pa.Array:
    """Values of one column, a block each: an array of the block's length, one value for all its rows, or None."""
    if all(value is None or isinstance(value, str | int | float) for value in values):
        known = {value: place for place, value in enumerate(dict.fromkeys(values))}
        places = np.repeat(np.array([known[value] for value in values], np.int32), lengths)
        dictionary = pa.array(list(known), kind.value_type if pa.types.is_dictionary(kind) else kind)
        if pa.types.is_dictionary(kind) and dictionary.null_count == 0:
            return pa.DictionaryArray.from_arrays(pa.array(places), dictionary)
        return dictionary.take(pa.array(places)).cast(kind)
    chunks = []
    for value, length in zip(values, lengths.tolist(), strict=True):
        if value is None or isinstance(value, str | int | float):
            chunks.append(pa.array([value] * length, kind))
        else:
            chunks.append(value if isinstance(value, pa.Array) and value.type == kind else pa.array(value, kind))
    return pa.chunked_array(chunks, kind)


def with_new_columns(table: pa.Table, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
    """The table with nulls in columns (of `columns`, or all) that were added to the schema after it was written."""
    names = schema.names if columns is None else list(columns)
    if table.schema.names == names:
        return table
    present = set(table.schema.names)
    found = [
        table.column(name) if name in present else pa.nulls(table.num_rows, schema.field(name).type) for name in names
    ]
    return pa.Table.from_arrays(found, schema=pa.schema([schema.field(n) for n in names], metadata=schema.metadata))


def write_options(name: str) -> dict[str, Any]:
    """How a table is written as Parquet: arguments of pyarrow's ParquetWriter, chosen by benchmarks/encodings.py."""
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 6}
    if name == "instructions":
        # Text without a dictionary: variants repeat lines near each other, which zstd finds as well, and it is read
        # faster. (Never as an Arrow dictionary: each row group would get all of it.) Integers as differences. Stall
        # columns as they are: dictionaries save nothing and cost time.
        differences = ("variant", "pc", "source_line")
        plain = {"sass", *differences, *STALL_COLUMNS}
        options["use_dictionary"] = [column for column in SCHEMAS[name].names if column not in plain]
        options["column_encoding"] = dict.fromkeys(differences, "DELTA_BINARY_PACKED")
    elif name == "timeline":
        # Rows follow each other as a warp issues them: PCs mostly 16 apart, cycles a few. Waits are of few lengths.
        alike = ("variant", "sm", "cta", "warp", "cycle", "pc")
        options["use_dictionary"] = [column for column in SCHEMAS[name].names if column not in alike]
        options["column_encoding"] = dict.fromkeys(alike, "DELTA_BINARY_PACKED")
    return options
