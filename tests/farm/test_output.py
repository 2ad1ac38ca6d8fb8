"""Results as files: every format holds the same rows, and what cannot be is said."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def run(toy: Path, fake: Path, command) -> str:
    code, out, err = command("submit", toy, "--jobs", 1)
    assert code == 0, err
    return str(out.strip())


@pytest.mark.parametrize(
    "arguments",
    [("rank", "RUN"), ("query", "SELECT family, variant, parameters FROM variants ORDER BY ALL")],
)
def test_formats_hold_the_same_rows(arguments: tuple[str, ...], run: str, command, tmp_path: Path) -> None:
    words = [word.replace("RUN", run) for word in arguments]
    files = {}
    for form in ("json", "csv", "parquet", "arrow"):
        files[form] = tmp_path / f"rows.{form}"
        code, out, err = command(*words, "-o", files[form])
        assert code == 0 and out == "", err
    table = pq.read_table(files["parquet"])
    assert table.num_rows == 12
    assert pa.ipc.open_stream(files["arrow"]).read_all().equals(table)
    rows = json.loads(files["json"].read_text())
    assert [row["variant"] for row in rows] == table.column("variant").to_pylist()
    lines = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    assert [int(line["variant"]) for line in lines] == table.column("variant").to_pylist()
    assert list(lines[0]) == table.column_names == list(rows[0])
    code, out, _ = command(*words, "--format", "json")
    assert code == 0 and json.loads(out) == rows
    if "parameters" in lines[0]:
        assert json.loads(lines[0]["parameters"])["BLOCK"] == 64
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


def test_correlations_as_files(run: str, toy: Path, command, tmp_path: Path) -> None:
    measured = tmp_path / "h200.csv"
    measured.write_text("BLOCK,MISHAP,time_us\n64,0,11\n128,0,12\n256,0,15\n")
    assert command("submit", toy, "--run", run, "--measured", f"h200={measured}")[0] == 0
    code, _, err = command("correlate", run, "-o", tmp_path / "c.parquet")
    assert code == 0, err
    rows = pq.read_table(tmp_path / "c.parquet").to_pylist()
    assert rows[0]["model"] == "sampled" and rows[0]["kendall"] == 1.0


def test_an_empty_result(run: str, command) -> None:
    sql = "SELECT variant FROM variants WHERE false"
    assert command("query", sql, "--format", "json")[1].strip() == "[]"
    assert command("query", sql, "--format", "csv")[1] == "variant\n"
    code, out, _ = command("query", sql)
    assert code == 0 and "no rows" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "xml"), "one of table, json, csv, parquet, arrow"),
        (("--format", "json", "--csv"), "one format"),
        (("-o", "rows.txt"), "--format json, csv, parquet, arrow"),
        (("-o", "nowhere/rows.csv"), "there is no folder nowhere"),
        (("--format", "table", "-o", "rows.csv"), "for reading"),
    ],
)
def test_bad_options(options: tuple[str, ...], words: str, run: str, command) -> None:
    code, out, err = command("rank", run, *options)
    assert code == 2 and out == "" and words in err and "Traceback" not in err


def test_the_best_of_each_group_are_those_of_the_whole(run: str, command) -> None:
    """The short table and --all agree on counts and order."""
    _, short, _ = command("rank", run)
    _, whole, _ = command("rank", run, "--all")
    assert short == whole  # fewer than ten variants
    assert "5 variants" in short and "variant 1: compile" in short
