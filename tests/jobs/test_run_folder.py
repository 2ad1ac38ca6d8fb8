"""Parts, manifest and merging: the tables a run holds are exactly what was added."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from jobs.parts import check_version
from jobs.run_folder import RunError, RunFolder
from jobs.tables import SCHEMA_VERSION, SCHEMAS, STALL_COLUMNS, Rows, from_rows
from timing.stalls import STALLS


def estimate(variant: int, target: str = "h200", status: str = "ok") -> dict[str, object]:
    return {"family": "f", "variant": variant, "target": target, "tier": "sampled", "status": status, "time_us": 1.5}


def block(variant: int, lines: int) -> dict[str, object]:
    return {
        "family": "f", "variant": variant, "target": "h200", "tier": "sampled",
        "pc": np.arange(lines) * 16, "sass": [f"IADD3 R{n}, R1, R2, RZ" for n in range(lines)],
        "executed": np.ones(lines), STALL_COLUMNS[3]: np.full(lines, 2.0),
    }  # fmt: skip


def test_a_stall_column_a_reason() -> None:
    assert len(STALL_COLUMNS) == len(STALLS) and "stall_long_scoreboard" in STALL_COLUMNS
    assert set(STALL_COLUMNS) <= set(SCHEMAS["instructions"].names)


def test_tables_round_trip_and_merge(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        for n in range(3):
            folder.add(Rows(estimates=[estimate(n)], instructions=[block(n, n + 1)]).tables())
        assert len(folder.manifest.parts["estimates"]) == 3
        before = folder.read("instructions").to_pylist()
        folder.finish()
    assert len(folder.manifest.parts["estimates"]) == len(folder.manifest.parts["instructions"]) == 1
    assert len(list((tmp_path / "run" / "parts").iterdir())) == 2
    again = RunFolder(tmp_path / "run").load()
    assert again.manifest.complete
    assert again.read("instructions").to_pylist() == before
    assert [row["sass"] for row in before if row["variant"] == 1] == ["IADD3 R0, R1, R2, RZ", "IADD3 R1, R1, R2, RZ"]
    assert again.done("f", "sampled") == {(0, "h200"), (1, "h200"), (2, "h200")}
    assert again.done("f", "static") == set() and again.done("g", "sampled") == set()
    assert again.read("measurements").num_rows == 0


def test_files_are_zstd_with_a_schema_version(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        folder.add(Rows(estimates=[estimate(0)]).tables())
    (part,) = folder.manifest.parts["estimates"]
    path = tmp_path / "run" / part.blob
    metadata = pq.read_metadata(path)
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert metadata.metadata[b"farm.schema_version"] == str(SCHEMA_VERSION).encode()
    other = pq.read_table(path).replace_schema_metadata({"farm.schema_version": "99"})
    with pytest.raises(ValueError, match="schema version 99"):
        check_version(other.schema, "other.parquet")


def test_the_same_rows_twice_are_one_part(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        for _ in range(2):
            folder.add(Rows(estimates=[estimate(0)]).tables())
    assert folder.read("estimates").num_rows == 1


def test_what_the_manifest_does_not_name_is_removed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        folder.add(Rows(estimates=[estimate(0)]).tables())
    (folder.path / "parts" / "estimates-0123.parquet").write_bytes(b"cut off")
    for note in ("manifest.json", "progress.json", "inputs.zip"):
        (folder.path / f".{note}-1.tmp").write_text("{")
    (folder.path / "parts" / ".estimates-1-0.tmp").write_bytes(b"half a part")
    assert RunFolder(folder.path).load().read("estimates").num_rows == 1
    with RunFolder(folder.path).writing() as again:
        assert again.read("estimates").num_rows == 1
    assert sorted(p.name for p in folder.path.iterdir()) == ["lock", "manifest.json", "parts"]
    assert len(list((folder.path / "parts").iterdir())) == 1


def test_drop_removes_a_variant_from_every_table(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        rows = Rows([{"family": "f", "variant": n, "target": "h200"} for n in range(2)], [], [block(0, 2), block(1, 2)])
        rows.estimates += [estimate(0), estimate(1, status="failed")]
        folder.add(rows.tables())
        assert folder.drop(lambda row: row["status"] == "failed") == 1
        assert folder.drop(lambda row: row["status"] == "failed") == 0
    for name in ("variants", "estimates", "instructions"):
        assert set(folder.read(name).column("variant").to_pylist()) == {0}


def test_unreadable_runs_say_why(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run here"):
        RunFolder(tmp_path).load()
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RunError, match="not a manifest"):
        RunFolder(tmp_path).load()
    (tmp_path / "manifest.json").write_text(json.dumps({"schema_version": 99}))
    with pytest.raises(RunError, match="schema version 99"):
        RunFolder(tmp_path).load()


def test_a_column_the_schema_lacks_is_a_bug() -> None:
    with pytest.raises(KeyError, match="no column colour"):
        from_rows("estimates", [{"colour": 1}])
