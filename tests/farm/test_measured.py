"""Matching files of measured times to variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.measured import MeasuredError, read_measured
from jobs.sweep import load_sweep
from jobs.variants import Variant, expand


@pytest.fixture
def variants(toy: Path) -> list[Variant]:
    return expand(load_sweep(toy))


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "m.csv"
    path.write_text(text)
    return path


def test_by_parameters_in_any_order(variants: list[Variant], tmp_path: Path) -> None:
    path = write(tmp_path, "MISHAP,time_us,BLOCK\n0,5.5,256\n2,4.5,64\n")
    found = read_measured(path, "h200", variants)
    assert [(row["variant"], row["time_us"], row["used"]) for row in found.rows] == [(4, 5.5, True), (2, 4.5, True)]


def test_by_number(variants: list[Variant], tmp_path: Path) -> None:
    found = read_measured(write(tmp_path, "variant,time_us\n5,1.5\n"), "h200", variants)
    assert found.rows[0]["variant"] == 5 and found.rows[0]["source"] == "m.csv"


def test_what_is_left_out_is_counted(variants: list[Variant], tmp_path: Path) -> None:
    text = "variant,time_us,spread,status\n0,1,0.01,ok\n1,2,0.051,ok\n2,,,launch failed\n77,1,0.01,ok\n"
    found = read_measured(write(tmp_path, text), "h200", variants)
    assert [row["used"] for row in found.rows] == [True, False]
    assert (found.disturbed, found.failed, found.unmatched) == (1, 1, 1)
    assert "1 with a spread above 0.05" in found.summary()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("variant,time\n0,1\n", "no column time_us, did you mean time?"),
        ("BLOCK,time_us\n64,1\n", "missing: MISHAP"),
        ("variant,time_us\n0,fast\n", "m.csv:2: time_us: 'fast' is not a number"),
        ("variant,time_us\n0,0\n", "m.csv:2: time_us: 0 is not a time"),
        ("variant,time_us\n0,1\n0,2\n", "m.csv:3: variant 0 again"),
        ("variant,time_us\n0\n", "m.csv:2: not as many fields"),
        ("variant,time_us\n99,1\n", "no row gives a time"),
        ("", "no column time_us"),
    ],
)
def test_bad_files(variants: list[Variant], tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(MeasuredError) as error:
        read_measured(write(tmp_path, text), "h200", variants)
    assert words in str(error.value)
