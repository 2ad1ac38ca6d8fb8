"""Parts and their merging: no row lost or out of order, few files, memory that does not grow with the run."""

from __future__ import annotations

import operator
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs import parts
from jobs.blobs import LocalBlobs, StorageError
from jobs.run_folder import RunFolder
from jobs.tables import STALL_COLUMNS, Rows

TARGETS = ("h100", "h200", "rtx4090")


def results(rng: np.random.Generator, number: int) -> list[tuple[str, int, str]]:
    """(family, variant, target) in the order in which a cluster might finish them."""
    keys = [(family, n, target) for family in ("b", "a") for n in range(number) for target in TARGETS]
    return [keys[place] for place in rng.permutation(len(keys))]


def rows_of(keys: list[tuple[str, int, str]], rng: np.random.Generator) -> Rows:
    rows = Rows()
    for family, variant, target in keys:
        key = {"family": family, "variant": variant, "target": target}
        rows.variants.append({**key, "registers": variant % 255, "parameters": [("N", variant)]})
        for tier in ("static", "sampled"):
            rows.estimates.append({**key, "tier": tier, "status": "ok", "time_us": float(variant + 1)})
            lines = int(rng.integers(1, 40))
            rows.instructions.append(
                {
                    **key, "tier": tier, "pc": np.arange(lines, dtype=np.int32) * 16,
                    "sass": [f"FFMA R{n}, R{variant}, R2, R3" for n in range(lines)],
                    "executed": rng.integers(0, 1000, lines).astype(float),
                    STALL_COLUMNS[0]: rng.random(lines, np.float32) if tier == "sampled" else None,
                }
            )  # fmt: skip
    return rows


def keys_of(table: pa.Table, name: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(key).to_pylist() for key in parts.key_of(name)), strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_merging_keeps_all_rows_and_sorts_them(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ROW_GROUP", 700)
    monkeypatch.setattr(parts, "MERGED_BATCH", 90)  # variants span batches
    monkeypatch.setattr(parts, "MERGED_ROWS", 300)
    monkeypatch.setattr(parts, "FAN_IN", 4)
    monkeypatch.setattr(parts, "MERGED_BYTES", 40_000)
    rng = np.random.default_rng(seed)
    todo, expected = results(rng, 40), {name: [] for name in ("variants", "estimates", "instructions")}
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        while todo:
            count = int(rng.integers(1, 15))
            tables = rows_of(todo[:count], rng).tables()
            todo = todo[count:]
            for name, table in tables.items():
                expected[name] += table.to_pylist()
            folder.add(tables)
            for found in folder.manifest.parts.values():
                levels = [part.level for part in found if part.bytes < parts.MERGED_BYTES]
                assert all(levels.count(level) < parts.FAN_IN for level in levels)
        folder.finish()
    again = RunFolder(tmp_path / "run").load()
    for name, rows in expected.items():
        for part in again.manifest.parts[name]:
            keys = keys_of(pa.concat_tables(parts.batches(again.blobs, part)), name)
            assert keys == sorted(set(keys)) and len(keys) == part.rows
            assert part.first == keys[0][:2] and part.last == keys[-1][:2]
            assert (tmp_path / "run" / part.blob).stat().st_size == part.bytes
        in_order = operator.itemgetter(*parts.key_of(name))
        assert sorted(again.read(name).to_pylist(), key=in_order) == sorted(rows, key=in_order)
    assert len(again.manifest.parts["instructions"]) > 1
    wanted = [row for row in expected["instructions"] if row["family"] == "a" and row["variant"] == 17]
    found = pa.concat_tables(again.scan("instructions", family="a", variant=17))
    assert found.num_rows == len(wanted) and set(found.column("variant").to_pylist()) == {17}
    read = again.read("estimates", ["variant", "time_us"])
    assert read.column_names == ["variant", "time_us"] and read.num_rows == len(expected["estimates"])


def test_a_variant_is_read_without_opening_other_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path / "run")
    rng = np.random.default_rng(0)
    with folder.writing():
        for first in range(0, 12, 3):
            folder.add(rows_of([("f", n, "h200") for n in range(first, first + 3)], rng).tables())
    opened = []
    real = parts.open_part
    monkeypatch.setattr(parts, "open_part", lambda blobs, part: opened.append(part.file) or real(blobs, part))
    (table,) = folder.scan("estimates", family="f", variant=7)
    assert table.num_rows == 2 and len(opened) == 1
    assert list(folder.scan("estimates", family="g")) == [] and len(opened) == 1


def test_workers_stage_what_the_driver_names(tmp_path: Path) -> None:
    """Staged by another process for an epoch; until they are named they do not count, and later runs remove them."""
    folder, rng = RunFolder(tmp_path / "run"), np.random.default_rng(0)
    worker = LocalBlobs(tmp_path / "run")
    with folder.writing():
        staged = parts.stage(worker, folder.epoch, rows_of([("f", 0, "h200")], rng).tables())
        forgotten = parts.stage(worker, folder.epoch, rows_of([("f", 1, "h200")], rng).tables())
        assert RunFolder(tmp_path / "run").load().read("estimates").num_rows == 0
        folder.publish(staged)
        folder.publish(staged)  # told twice
        assert RunFolder(tmp_path / "run").load().read("estimates").num_rows == 2
    with RunFolder(tmp_path / "run").writing() as again:
        assert not (tmp_path / "run" / forgotten["estimates"].blob).exists()
        assert again.read("estimates").num_rows == 2


def test_a_missing_part_stops_a_merge(tmp_path: Path) -> None:
    folder, rng = RunFolder(tmp_path / "run"), np.random.default_rng(0)
    with folder.writing():
        for n in range(3):
            folder.add(rows_of([("f", n, "h200")], rng).tables())
        before = folder.manifest.to_json()
        (tmp_path / "run" / folder.manifest.parts["estimates"][1].blob).unlink()
        with pytest.raises(StorageError, match="missing"):
            folder.finish()
    on_disk = RunFolder(tmp_path / "run").load().manifest
    assert on_disk.parts["estimates"] and '"complete": false' in before and not on_disk.complete


MEMORY = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, pyarrow as pa
from pathlib import Path
from jobs import merging, parts
from jobs.run_folder import RunFolder
from test_parts import rows_of
merging.LARGE_GROUPS = 10**9  # what a merge holds is measured here
parts.ROW_GROUP, parts.BATCH, parts.MERGED_ROWS, parts.MERGED_BYTES = 8192, 1024, 8192, 400_000
rng = np.random.default_rng(0)
folder = RunFolder(Path(sys.argv[2]))
with folder.writing():
    for first in range(0, int(sys.argv[3]), 100):
        folder.add(rows_of([("f", int(n), "h200") for n in rng.permutation(100) + first], rng).tables())
    folder.finish()
print(pa.default_memory_pool().max_memory(), folder.manifest.parts["instructions"][0].rows)
"""


def test_memory_does_not_grow_with_the_run(tmp_path: Path) -> None:
    """Four times the rows, about the same peak of Arrow's memory, merging included."""
    peaks = []
    for number in (800, 3200):
        arguments = [str(Path(__file__).parent), str(tmp_path / str(number)), str(number)]
        done = subprocess.run([sys.executable, "-c", MEMORY, *arguments], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.split()[0]))
    assert peaks[1] < 1.8 * peaks[0], peaks


FULL_SIZE = """
import sys
import numpy as np, pyarrow as pa
from pathlib import Path
from jobs import merging
from jobs.run_folder import RunFolder
from jobs.tables import STALL_COLUMNS, Rows
merging.LARGE_GROUPS = 10**9  # what a merge holds is measured here
rng = np.random.default_rng(0)
LINES = 500
def block(variant):
    key = {"family": "f", "variant": variant, "target": "h200", "tier": "sampled"}
    stalls = {name: rng.choice([0.0, 0.0, 0.0, 1.0, 8.0], LINES).astype(np.float32) for name in STALL_COLUMNS}
    sass = [f"FFMA R{n}, R{variant % 255}, R2, R3" for n in range(LINES)]
    return {**key, "pc": np.arange(LINES, dtype=np.int32) * 16, "sass": sass, **stalls}
folder = RunFolder(Path(sys.argv[1]))
with folder.writing():
    for flush in range(int(sys.argv[2])):
        numbers = range(flush, 8 * int(sys.argv[2]), int(sys.argv[2]))  # every part spans the whole sweep
        folder.add(Rows(instructions=[block(n) for n in numbers]).tables())
    folder.finish()
print(pa.default_memory_pool().max_memory())
"""


def test_memory_is_that_of_a_thousand_small_variants_in_parts_of_full_size(tmp_path: Path) -> None:
    """As written by default: 80,000 rows and eight times as many differ by a few MB."""
    peaks = []
    for flushes in (20, 160):
        arguments = [str(tmp_path / str(flushes)), str(flushes)]
        done = subprocess.run([sys.executable, "-c", FULL_SIZE, *arguments], capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout) / 2**20)
    assert peaks[1] < peaks[0] + 12, peaks


def test_the_writer_reads_while_it_merges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's threads: one adds and merges, one asks what is done. Every answer is a whole one."""
    monkeypatch.setattr(parts, "FAN_IN", 3)
    folder, rng, errors = RunFolder(tmp_path / "run"), np.random.default_rng(0), []
    tables = [rows_of([("f", n, "h200")], rng).tables() for n in range(40)]
    with folder.writing():

        def write() -> None:
            try:
                for table in tables:
                    folder.add(table)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        last = 0
        while thread.is_alive():
            found = len(folder.done("f", "sampled"))
            assert found >= last
            last = found
        thread.join()
        assert not errors and len(folder.done("f", "sampled")) == 40
