"""The statements of docs/dashboards.md, run as they stand there over a store of two runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import page_runs
import pytest

DOCS = Path(__file__).parents[3] / "docs" / "dashboards.md"
BLOCKS: dict[str, list[str]] = {
    language: re.findall(rf"^```{language}\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    for language in ("sql", "python")
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `farm-runs` in it: two runs of a family, one of them as written before some columns existed."""
    folder = tmp_path_factory.mktemp("dashboards")
    page_runs.make_run(folder / "farm-runs" / "first", parameters=["BLOCK"], candidates=8, detailed=range(8))
    page_runs.make_run(
        folder / "farm-runs" / "second", parameters=["BLOCK"], candidates=12, family="hgemm", detailed=range(12)
    )
    (path,) = (folder / "farm-runs" / "first" / "parts").glob("instructions-*")
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(path).drop_columns(["control", "source_file"]), path)
    return folder


@pytest.fixture
def here(store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(store)
    return store


def test_there_is_something_to_run() -> None:
    assert len(BLOCKS["sql"]) >= 8 and len(BLOCKS["python"]) == 2


@pytest.mark.parametrize("number", range(1, len(BLOCKS["sql"])))
def test_a_query_gives_rows(here: Path, number: int) -> None:
    database = duckdb.connect()
    database.execute(BLOCKS["sql"][0])
    rows = database.sql(BLOCKS["sql"][number]).fetchall()
    assert rows and not any(value is None for value in rows[0])


def rows_of(words: str) -> list[dict[str, Any]]:
    """The rows of the query that holds `words`."""
    (query,) = [text for text in BLOCKS["sql"] if words in text]
    database = duckdb.connect()
    database.execute(BLOCKS["sql"][0])
    return list(database.sql(query).to_arrow_table().to_pylist())


def test_what_the_queries_say(here: Path) -> None:
    database = duckdb.connect()
    database.execute(BLOCKS["sql"][0])
    assert database.sql("SELECT run, complete FROM runs ORDER BY 1").fetchall() == [("first", True), ("second", True)]
    assert {row["metric"] for row in rows_of("AS best_us\nFROM estimates e JOIN runs r")} == {
        "sgemm on h200", "sgemm on rtx4090", "hgemm on h200", "hgemm on rtx4090",
    }  # fmt: skip
    failed = rows_of("WHERE status <> 'ok' GROUP BY ALL")
    assert {(row["failure"], row["variants"]) for row in failed} == {("compile", 2)}
    agreement = {row["family"]: row for row in rows_of("AS spearman")}
    assert agreement["sgemm"]["n"] == 7 and agreement["hgemm"]["spearman"] > 0.8
    stalls = {row["reason"] for row in rows_of("AS warp_cycles")}
    assert {"selected", "long_scoreboard"} <= stalls
    shares = rows_of("AS percent,")
    assert shares[0]["percent"] >= shares[-1]["percent"] > 0 and len(shares[0]["reasons"]) == 3


@pytest.mark.parametrize("number", range(len(BLOCKS["python"])))
def test_notebook_cells(here: Path, number: int) -> None:
    names: dict[str, Any] = {}
    exec(compile(BLOCKS["python"][number], str(DOCS), "exec"), names)
    if "rows" in names:
        assert [row["family"] for row in names["rows"]] == ["hgemm", "hgemm", "sgemm", "sgemm"]
    else:
        assert names["table"].num_rows > 1 and names["table"].column_names == ["BLOCK", "best_us"]
