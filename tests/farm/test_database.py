"""Reading a run while it changes, and when its files cannot be read."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from s3_server import Fault, Proxy, Request

from farm.database import QueryError, RunDatabase
from farm.store import LocalStore, Store, open_store
from jobs import tables
from jobs.blobs import StorageError
from jobs.tables import Rows


def estimates(*numbers: int) -> Rows:
    return Rows(
        estimates=[
            {"family": "f", "variant": n, "target": "h200", "tier": "sampled", "status": "ok", "time_us": n + 1.0}
            for n in numbers
        ],
        instructions=[
            {"family": "f", "variant": n, "target": "h200", "tier": "sampled", "pc": [0, 16], "sass": ["NOP", "EXIT"]}
            for n in numbers
        ],
    )


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return LocalStore(tmp_path / "store")
    request.getfixturevalue("s3")
    return open_store()


def test_a_query_survives_a_merge(store: Store) -> None:
    with store.folder("r").writing() as writer:
        for n in range(4):
            writer.add(estimates(n).tables())
        database = RunDatabase(store.find("r"))
        writer.add(estimates(4).tables())
        writer.finish()  # the files that the reader knows are gone
        sql = "SELECT count(*) AS n, (SELECT count(*) FROM instructions) AS lines FROM estimates"
        assert database.rows(sql) == [{"n": 5, "lines": 10}]


def test_a_lost_file_is_the_storage_s_fault(store: Store) -> None:
    with store.folder("r").writing() as writer:
        writer.add(estimates(0, 1).tables())
    database = RunDatabase(store.find("r"))
    (part,) = database.folder.manifest.parts["estimates"]
    database.folder.blobs.delete([part.blob])
    with pytest.raises(StorageError):
        database.rows("SELECT sum(time_us) FROM estimates")


def test_bad_sql_is_the_user_s(store: Store) -> None:
    with store.folder("r").writing() as writer:
        writer.add(estimates(0).tables())
    with pytest.raises(QueryError, match="nonsense"):
        RunDatabase(store.find("r")).rows("SELECT nonsense FROM estimates")


def test_one_variant_costs_one_part(s3: Proxy) -> None:
    """Of 12 parts in S3, a query about one variant opens the one that has it."""
    store = open_store()
    with store.folder("r").writing() as writer:
        for n in range(12):
            writer.add(estimates(n).tables())
    database = RunDatabase(store.find("r"))
    s3.clear()
    rows = database.rows("SELECT pc FROM instructions WHERE family = 'f' AND variant = 7 AND target = 'h200'")
    assert [row["pc"] for row in rows] == [0, 16]
    read = {request.path.split("?")[0] for request in s3.requests}
    assert len(read) == 1 and "instructions" in read.pop()


def test_the_run_s_own_name_wins_over_longer_ones(store: Store) -> None:
    for name in ("run", "run-2"):
        with store.folder(name).writing() as writer:
            writer.add(estimates(0).tables())
    assert store.find("run").name == "run" and store.find("run-").name == "run-2"
    assert store.runs() == ["run", "run-2"]
    written = store.find("run").modified
    assert written is not None and abs(written - time.time()) < 600 and store.folder("none").modified is None


@pytest.mark.parametrize("harm", ["short", "scrambled"])
def test_a_damaged_part_is_the_storage_s_fault(harm: str, store: Store) -> None:
    with store.folder("r").writing() as writer:
        writer.add(estimates(*range(50)).tables())
    folder = store.find("r")
    (part,) = folder.manifest.parts["estimates"]
    content = bytearray(folder.blobs.read(part.blob)[0])
    if harm == "short":
        del content[len(content) // 2 :]
    else:
        content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    folder.blobs.write(part.blob, bytes(content))
    with pytest.raises(StorageError):
        folder.read("estimates")
    with pytest.raises(StorageError):
        RunDatabase(folder).rows("SELECT sum(time_us), max(family) FROM estimates")


def test_the_damaged_or_missing_part_is_named(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    with store.folder("r").writing() as writer:
        writer.add(estimates(*range(50)).tables())
    folder = store.find("r")
    (part,) = folder.manifest.parts["estimates"]
    path = tmp_path / "r" / part.blob
    content = bytearray(path.read_bytes())
    for harm in (0x5A, 0xFF, 0x13):  # each another error of DuckDB's
        path.write_bytes(
            bytes(b ^ harm if n in range(len(content) // 4, len(content) // 2) else b for n, b in enumerate(content))
        )
        with pytest.raises(StorageError, match=f"{part.blob}: damaged"):
            RunDatabase(folder).rows("SELECT * FROM estimates")
    path.unlink()
    with pytest.raises(StorageError) as missing:
        RunDatabase(folder).rows("SELECT * FROM estimates")
    assert path.name in str(missing.value) and "LINE 1" not in str(missing.value)
    with pytest.raises(StorageError, match=path.name):
        folder.read("estimates")


def test_errors_in_the_middle_of_a_stream_are_told_apart(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.folder("r").writing() as writer:
        writer.add(estimates(*range(300)).tables())
    folder = store.find("r")
    sql = "SELECT CASE WHEN variant = 299 THEN error('as asked') ELSE 'fine' END FROM estimates ORDER BY variant"
    with pytest.raises(QueryError, match="as asked"):
        RunDatabase(folder).reader(sql).read_all()
    reader = RunDatabase(folder).reader("SELECT family, pc, sass FROM instructions")
    assert reader.read_all().num_rows == 600


def test_parts_older_than_a_column_read_as_null_there(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two parts one lacks a column, and both lack another: read, queried and merged."""
    now = tables.SCHEMAS["estimates"]
    older = now.remove(now.get_field_index("cycles"))
    newer = now.append(pa.field("joules", pa.map_(pa.string(), pa.float64())))
    with store.folder("r").writing() as writer:
        monkeypatch.setitem(tables.SCHEMAS, "estimates", older)
        writer.add(estimates(0).tables())
        monkeypatch.setitem(tables.SCHEMAS, "estimates", now)
        rows = estimates(1)
        rows.estimates[0]["cycles"] = 7.0
        writer.add(rows.tables())
        monkeypatch.setitem(tables.SCHEMAS, "estimates", newer)
        sql = "SELECT variant, cycles, joules FROM estimates ORDER BY variant"
        expected = [{"variant": 0, "cycles": None, "joules": None}, {"variant": 1, "cycles": 7.0, "joules": None}]
        for _ in ("as written", "merged"):
            folder = store.find("r")
            assert RunDatabase(folder).rows(sql) == expected
            assert folder.read("estimates").schema.names == newer.names
            assert folder.read("estimates", ["joules", "cycles"]).to_pylist()[1] == {"joules": None, "cycles": 7.0}
            writer.finish()
    assert len(store.find("r").manifest.parts["estimates"]) == 1


def test_reads_by_pyarrow_are_retried_too(s3: Proxy) -> None:
    store = open_store()
    with store.folder("r").writing() as writer:
        writer.add(estimates(*range(300)).tables())
    for fault in (Fault(cut=100), Fault(status=503, code="SlowDown"), Fault(drop=True)):
        database, left = RunDatabase(store.find("r")), [2]

        def plan(request: Request, fault: Fault = fault, left: list[int] = left) -> Fault | None:
            left[0] -= ".parquet" in request.path
            return fault if ".parquet" in request.path and left[0] >= 0 else None

        s3.plan = plan
        assert database.rows("SELECT sum(time_us) AS sum FROM estimates") == [{"sum": 300 * 301 / 2}]
        assert left[0] < 0
        s3.plan = None
