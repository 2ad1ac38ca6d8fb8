"""How to encode a large table: bytes a row and rows a second for each choice, on a real run's rows.

    python benchmarks/encodings.py STORE/RUN
    python benchmarks/encodings.py STORE/RUN --timeline        of a run made with farm submit --timeline

The rows are sorted as parts are, and written in row groups as parts are. `jobs/tables.py` holds the choice made.
"""

from __future__ import annotations

import argparse
import io
import time
from typing import Any

import common
import pyarrow as pa
import pyarrow.parquet as pq

from farm.store import open_store
from jobs.parts import ROW_GROUP, sorted_table
from jobs.tables import STALL_COLUMNS, write_options

REPEATS = 3
PLAIN: dict[str, Any] = {"use_dictionary": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a finished run: STORE/RUN")
    parser.add_argument("--timeline", action="store_true", help="the table timeline instead of instructions")
    options = parser.parse_args()
    store, _, run = options.run.rstrip("/").rpartition("/")
    name = "timeline" if options.timeline else "instructions"
    table = sorted_table(name, open_store(store or ".").find(run).read(name))
    common.use_one_core()
    print(f"{common.heading()}; {table.num_rows:,} rows, {table.nbytes / table.num_rows:.0f} B/row in memory\n")
    print(f"{'columns and encoding':38} zstd   B/row   write M rows/s   read M rows/s")
    if options.timeline:
        timeline(table)
    else:
        instructions(table)


def timeline(table: pa.Table) -> None:
    """Warp after warp, as parts have them, and cycle after cycle."""
    orders = {"by warp": table, "by cycle": table.sort_by([(c, "ascending") for c in ("variant", "sm", "cycle")])}
    for order, rows in orders.items():
        for level in (3, 6):
            measure(f"{order}: dictionaries", rows, level)
            measure(f"{order}: plain", rows, level, **PLAIN)
            chosen = write_options("timeline")
            measure(f"{order}: as chosen", rows, level, **{**chosen, "compression_level": level})
        for column in ("cycle", "cta", "warp", "pc", "stalled"):
            one = rows.select([column])
            measure(f"{order}: {column}: dictionary", one, 6)
            measure(f"{order}: {column}: plain", one, 6, **PLAIN)
            measure(f"{order}: {column}: delta", one, 6, **PLAIN, column_encoding={column: "DELTA_BINARY_PACKED"})


def instructions(table: pa.Table) -> None:
    text = table.select(["sass"])
    coded = text.set_column(0, "sass", text.column(0).dictionary_encode())
    integers = table.select(["variant", "pc", "source_line"])
    counts = table.select(["executed", "thread_executed", "sectors", "wavefronts"])
    stalls = table.select(list(STALL_COLUMNS))
    for level in (1, 3, 6, 9):
        measure("all: dictionaries", table, level)
    for level in (3, 6):
        measure("sass: Arrow dictionary", coded, level)
        measure("sass: dictionary", text, level)
        measure("sass: plain", text, level, **PLAIN)
        for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
            measure(f"sass: {encoding}", text, level, **PLAIN, column_encoding={"sass": encoding})
        numbers = {"variant, pc, source_line": (integers, "DELTA_BINARY_PACKED")}
        numbers |= {"counts": (counts, "BYTE_STREAM_SPLIT"), "stalls": (stalls, "BYTE_STREAM_SPLIT")}
        for label, (columns, encoding) in numbers.items():
            measure(f"{label}: dictionary", columns, level)
            measure(f"{label}: plain", columns, level, **PLAIN)
            by_column = dict.fromkeys(columns.column_names, encoding)
            measure(f"{label}: {encoding}", columns, level, **PLAIN, column_encoding=by_column)
    chosen = write_options("instructions")
    measure("all: as chosen", table, chosen.pop("compression_level"), **chosen)
    measure("all: snappy, dictionaries", table, 0, compression="snappy")


def measure(label: str, table: pa.Table, level: int, **options: Any) -> None:
    """Write and read the table some times; print its size and the best speeds."""
    arguments = {"compression": "zstd", "row_group_size": ROW_GROUP, "compression_level": level or None, **options}
    write = read = float("inf")
    for _ in range(REPEATS):
        sink = io.BytesIO()
        began = time.perf_counter()
        pq.write_table(table, sink, **arguments)
        write = min(write, time.perf_counter() - began)
        began = time.perf_counter()
        pq.read_table(sink, use_threads=False)
        read = min(read, time.perf_counter() - began)
    rows = table.num_rows
    size = len(sink.getvalue()) / rows
    print(f"{label:38} {level or '-':>4} {size:7.3f} {rows / write / 1e6:12.2f} {rows / read / 1e6:15.2f}", flush=True)


if __name__ == "__main__":
    main()
