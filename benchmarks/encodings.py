"""How to encode the table `instructions`: bytes a row and rows a second for each choice, on a real run's rows.

    python benchmarks/encodings.py STORE/RUN

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
    store, _, run = parser.parse_args().run.rstrip("/").rpartition("/")
    table = sorted_table("instructions", open_store(store or ".").find(run).read("instructions"))
    common.use_one_core()
    print(f"{common.heading()}; {table.num_rows:,} rows, {table.nbytes / table.num_rows:.0f} B/row in memory\n")
    print(f"{'columns and encoding':38} zstd   B/row   write M rows/s   read M rows/s")
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
    arguments = {"compression": "zstd", "compression_level": level or None, "row_group_size": ROW_GROUP, **options}
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
