"""Reading a run while it changes, and when its files cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from s3_server import Proxy

from farm.database import QueryError, RunDatabase
from farm.store import LocalStore, Store, open_store
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


def test_errors_in_the_middle_of_a_stream_are_told_apart(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.folder("r").writing() as writer:
        writer.add(estimates(*range(300)).tables())
    folder = store.find("r")
    sql = "SELECT CASE WHEN variant = 299 THEN error('as asked') ELSE 'fine' END FROM estimates ORDER BY variant"
    with pytest.raises(QueryError, match="as asked"):
        RunDatabase(folder).reader(sql).read_all()
    reader = RunDatabase(folder).reader("SELECT family, pc, sass FROM instructions")
    assert reader.read_all().num_rows == 600
