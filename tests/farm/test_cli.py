"""The command: what it prints where, its exit codes, and one clear message for bad input."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import farm_fakes
import pytest

MEASURED = (
    "BLOCK,MISHAP,time_us,spread\n64,0,11.0,0.01\n64,2,11.5,0.01\n128,0,12.5,0.01\n256,0,13.0,0.2\n512,0,20.0,0.01\n"
)


@pytest.fixture
def run(toy: Path, fake: Path, command) -> str:
    """A finished run of the toy sweep with measured times; its name."""
    (toy.parent / "h200.csv").write_text(MEASURED)
    code, out, err = command("submit", toy, "--measured", toy.parent / "h200.csv", "--jobs", 2)
    assert code == 0, err
    return out.strip()


def test_submit_prints_only_the_name_on_stdout(toy: Path, fake: Path, command) -> None:
    code, out, err = command("submit", toy, "--jobs", 1)
    assert code == 0
    assert out.startswith("toy-") and out.count("\n") == 1
    assert "toy on h200" in err and "times simulated" in err
    assert "compile: kernel.cu(1): error: expected a ;" in err  # the failed variant, with its reason


def test_rank_orders_by_estimated_time(run: str, command) -> None:
    code, out, _ = command("rank", run, "--csv", "--target", "h200")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    good = [row for row in rows if row["status"] == "ok"]
    assert [int(row["BLOCK"]) for row in good] == [64, 64, 128, 256, 512]
    assert [float(row["time_us"]) for row in good] == [11.0, 11.0, 12.0, 14.0, 18.0]
    assert [row["place"] for row in good] == ["1", "1", "3", "4", "5"]
    assert good[0]["measured_us"] == "11.0" and good[0]["cubin_sha"] == "ab" * 32
    assert [(row["failure"], row["variant"]) for row in rows if row["status"] == "failed"] == [("compile", "1")]


def test_rank_json_and_alias(run: str, command) -> None:
    code, out, _ = command("rank", run, "--json", "-t", "RTX 4090")
    assert code == 0
    assert {row["target"] for row in json.loads(out)} == {"rtx4090"}


def test_correlate_counts_what_it_uses(run: str, command) -> None:
    code, out, _ = command("correlate", run, "--json")
    assert code == 0
    rows = {row["model"]: row for row in json.loads(out)}
    assert rows["sampled"]["n"] == 4  # variant 1 failed, BLOCK=256 was disturbed
    assert rows["sampled"]["spearman"] > 0.9
    assert rows["sampled"]["median_error"] == pytest.approx(0.0426, abs=0.001)
    assert rows["occupancy"]["spearman"] == 0  # a constant orders nothing
    assert {"static bound", "warp instructions", "occupancy"} <= set(rows)


def test_show_gives_sass_with_counts(run: str, command) -> None:
    for arguments in ((f"{run}:3",), (run, 3)):
        code, out, _ = command("show", *arguments)
        assert code == 0
        assert "LDG.E R2" in out and "long_scoreboard 75%" in out


def test_show_of_a_failed_variant_gives_the_reason(run: str, command) -> None:
    code, out, _ = command("show", f"{run}:1")
    assert code == 0 and "expected a ;" in out


def test_query(run: str, command) -> None:
    code, out, _ = command("query", "SELECT BLOCK, count(*) AS n FROM variants GROUP BY 1 ORDER BY 1", "--csv")
    assert code == 0
    assert out == "BLOCK,n\n64,6\n128,2\n256,2\n512,2\n"
    code, _, err = command("query", "SELECT nothing FROM estimates")
    assert code == 2 and "nothing" in err and "Traceback" not in err


def test_status(run: str, command) -> None:
    code, out, _ = command("status", run, "--json")
    assert code == 0
    first = json.loads(out)[0]
    assert (first["state"], first["variants"], first["sampled"], first["why"]) == ("complete", 6, 5, "1 compile")
    code, out, _ = command("status")
    assert code == 0 and run in out


def test_a_run_that_cannot_be_read_does_not_hide_the_others(run: str, command) -> None:
    old = Path(os.environ["FARM_STORE"]) / "old"
    old.mkdir()
    (old / "manifest.json").write_text('{"schema_version": 1}')
    code, out, err = command("status")
    assert code == 0 and run in out and "not shown: " in err and "old: tables of schema version 1" in err
    code, _, err = command("status", "old")
    assert code == 2 and "schema version 1" in err


def test_a_run_of_two_sweeps(toy: Path, fake: Path, command, tmp_path: Path) -> None:
    other = farm_fakes.write_sweep(tmp_path / "other", farm_fakes.SWEEP.replace("name: toy", "name: other"))
    code, out, err = command("submit", toy, other, "-t", "h200", "--run", "both")
    assert code == 0, err
    code, out, _ = command("rank", "both", "--csv", "--family", "other")
    assert {row["family"] for row in csv.DictReader(io.StringIO(out))} == {"other"}
    code, _, err = command("show", "both:0")
    assert code == 2 and "--family (toy, other)" in err
    code, out, _ = command("show", "both:0", "--family", "other")
    assert code == 0 and "other" in out
    code, _, err = command("submit", toy, toy, "--run", "twice")
    assert code == 2 and "also the name of" in err


def test_every_variant_failed_is_exit_code_1(toy: Path, fake: Path, command) -> None:
    toy.write_text(farm_fakes.SWEEP.replace("MISHAP: [0, 1, 2]", "MISHAP: [1]"))
    code, out, err = command("submit", toy)
    assert code == 1 and out.strip() and "every variant failed" in err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("constraints:", "constrants:"), ["sweep.yaml:7", "constrants", "did you mean constraints"]),
        (("MISHAP == 0", "MISHAPP == 0"), ["MISHAPP", "did you mean MISHAP"]),
        (("MISHAP == 0", "BLOCK > 9999 and MISHAP == 0"), []),
        (("MISHAP == 0 or BLOCK == 64", "BLOCK == 0"), ["no variant is left", "12 by 'BLOCK == 0'"]),
        (("source: kernel.cu", "source: kernal.cu"), ["no such file", "did you mean kernel.cu"]),
        (("source: kernel.cu", "source: ../../etc"), ["outside the sweep's folder"]),
        (("[h200, rtx4090]", "[mi300x]"), ["AMD GPUs are not modelled", "h200"]),
        (("[h200, rtx4090]", "[gfx942]"), ["AMD GPUs are not modelled"]),
        (("language: cuda", "language: triton"), ["Triton sources are not compiled by this version", "cubin"]),
        (("name: toy", "name: toy\nmeasured: {h200: none.csv}"), ["none.csv", "no such file"]),
    ],
)
def test_bad_sweeps_give_one_message(toy: Path, fake: Path, command, change, words) -> None:
    toy.write_text(farm_fakes.SWEEP.replace(*change))
    code, out, err = command("submit", toy)
    if not words:
        return  # a legal sweep
    assert code == 2 and out == ""
    assert err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit", "nowhere.yaml"), ["nowhere.yaml: no such file"]),
        (("submit", "SWEEP", "--target", "h20"), ["h20", "h200"]),
        (("submit", "SWEEP", "--tier", "best"), ["best", "static, sampled, cycle"]),
        (("submit", "SWEEP", "--l2", "tepid"), ["tepid", "warm, cold"]),
        (("submit", "SWEEP", "--run", "a/b"), ["a/b"]),
        (("submit", "SWEEP", "--store", "s3://key:secret@bucket/x"), ["credentials do not belong"]),
        (("submit", "SWEEP", "--measured", "none.csv"), ["none.csv"]),
        (("rank", "norun"), ["norun", "holds no runs"]),
        (("show", "norun"), ["RUN:N"]),
        (("query", "SELECT 1"), ["holds no runs"]),
    ],
)
def test_bad_usage_gives_one_message(toy: Path, fake: Path, command, arguments, words) -> None:
    code, out, err = command(*[toy if argument == "SWEEP" else argument for argument in arguments])
    assert code == 2 and out == ""
    assert err.count("\n") == 1
    for word in words:
        assert word in err


def test_unknown_option_is_a_usage_error(command) -> None:
    code, _, err = command("submit", "--no-such-option")
    assert code == 2 and "--no-such-option" in err


def test_targets_schema_version_doctor(fake: Path, command) -> None:
    code, out, _ = command("targets", "--json")
    assert code == 0
    assert {"h100", "h200", "b200", "l40s", "rtx4090", "rtx5090", "orin", "thor"} <= {
        t["target"] for t in json.loads(out)
    }
    code, out, _ = command("schema")
    schema = json.loads(out)
    assert code == 0 and set(schema["required"]) == {"name", "kernel", "launch"}
    code, out, _ = command("doctor", "--json")
    assert code in (0, 3)
    assert {"nvcc", "nvdisasm", "cache", "store", "cores"} <= {finding["name"] for finding in json.loads(out)}
