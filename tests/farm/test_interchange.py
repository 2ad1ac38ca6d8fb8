"""Import and export, on files in the layouts of Nsight Compute, Kernel Tuner and Triton, with times of an H200."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from farm_fakes import write_sweep
from test_end_to_end import _nvcc

import farm.submit
from farm.interchange.nsight import plain_sass
from farm.interchange.reading import read_any
from farm.interchange.records import InterchangeError, Records

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parents[1] / "data" / "interchange"
MATMUL = """\
name: matmul
kernel: {language: cuda, source: kernel.cu, entry: toy}
problem: {M: 2048, N: 2048}
parameters: {BM: [64, 128], BN: [64, 128, 256], BK: [32, 64], GROUP_M: [1, 8], num_warps: [4, 8], num_stages: [2, 4]}
launch: {grid: [M / BM], block: [32 * num_warps]}
targets: [h200]
"""


@pytest.fixture
def store(fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store for runs whose estimates a stand-in makes."""
    monkeypatch.setattr(farm.submit, "EVALUATOR", "gate_fakes:evaluate_batch")
    return tmp_path / "store"


@pytest.fixture
def transpose(store: Path, tmp_path: Path, command) -> str:
    """A run of the transpose example without measured times."""
    folder = tmp_path / "transpose"
    shutil.copytree(ROOT / "examples" / "transpose", folder)
    sweep = folder / "sweep.yaml"
    sweep.write_text(sweep.read_text().replace("measured: {h200: h200.csv}\n", ""))
    code, out, err = command("submit", folder, "--jobs", 1, "--run", "transpose")
    assert code == 0, err
    return out.strip()


def times(command, run: str) -> dict[tuple[int, ...], float]:
    sql = "SELECT v.parameters, m.time_us FROM measurements m JOIN variants v USING (family, variant, target)"
    code, out, err = command("query", sql, "--run", run, "--json")
    assert code == 0, err
    return {tuple(value for _, value in row["parameters"]): row["time_us"] for row in json.loads(out)}


H200 = {(16, 1, 1, 0, 1): 131.5, (16, 2, 0, 0, 4): 80.65}


@pytest.mark.parametrize("name", ["kernel_tuner_cache.json", "t4.json"])
def test_kernel_tuner(transpose: str, command, name: str) -> None:
    code, _, err = command("import", DATA / name, "--run", transpose)
    assert code == 0, err
    assert "5 measured times of transpose on h200" in err and "1 that did not run" in err
    found = times(command, transpose)
    assert len(found) == 5
    assert {key: found[key] for key in H200} == pytest.approx(H200)
    row = json.loads(command("query", "SELECT * FROM measurements ORDER BY variant LIMIT 1", "--json")[1])[0]
    assert row["spread"] == pytest.approx(0.003) and row["used"] and row["min_us"] == pytest.approx(131.5)
    assert command("import", DATA / name, "--run", transpose)[0] == 0
    assert len(times(command, transpose)) == 5  # again: replaced, not added


@pytest.mark.parametrize("name", ["kernel_tuner_cache.json", "t4.json"])
def test_a_cold_first_run_is_no_disturbance(transpose: str, command, tmp_path: Path, name: str) -> None:
    """Kernel Tuner's first run of a configuration is often 10 % longer; one in the middle means a disturbed GPU."""
    cold, disturbed = [0.1460, 0.1318, 0.1315, 0.1316, 0.1315, 0.1317], [0.1315, 0.1318, 0.1460, 0.1316, 0.1315, 0.1317]
    for runs, used in ((cold, True), (disturbed, False)):
        text = (DATA / name).read_text()
        first = re.search(r"\[\s*0\.1315,\s*0\.1315,\s*0\.1318945\s*\]", text)
        assert first is not None
        (tmp_path / "runs.json").write_text(text.replace(first[0], json.dumps(runs), 1))
        code, _, err = command("import", tmp_path / "runs.json", "--run", transpose)
        assert code == 0 and ("too wide a spread" not in err) == used, err
        row = json.loads(command("query", "SELECT * FROM measurements ORDER BY variant LIMIT 1", "--json")[1])[0]
        assert row["used"] == used and row["min_us"] == pytest.approx(131.5)
        assert (row["spread"] == pytest.approx(0.0003 / 0.1316, rel=0.02)) == used


@pytest.mark.parametrize("kind", ["cache", "t4"])
def test_files_that_kernel_tuner_wrote(transpose: str, command, kind: str) -> None:
    """Written by Kernel Tuner 1.5.0 while it tuned the transpose on an H200; the block is among its parameters."""
    file = DATA / f"kernel_tuner_1.5.0_{kind}.json"
    code, _, err = command("import", file, "--run", transpose)
    assert code == 0, err
    assert "33 measured times of transpose on h200" in err and "note" not in err
    tuned = json.loads(file.read_text())
    configurations = (
        list(tuned["cache"].values()) if kind == "cache" else [entry["configuration"] for entry in tuned["results"]]
    )
    names = ("TILE", "ROWS_PER_THREAD", "USE_SHARED", "PAD", "VEC")
    found = times(command, transpose)
    assert set(found) == {tuple(one[name] for name in names) for one in configurations}
    if kind == "cache":
        theirs = {tuple(one[name] for name in names): 1e3 * one["time"] for one in configurations}
        assert found == pytest.approx(theirs)


def test_a_file_that_triton_wrote(store: Path, command, tmp_path: Path) -> None:
    """Written by Triton 3.6.0 while it tuned a matrix product of 1024 on an H200."""
    write_sweep(tmp_path / "matmul", MATMUL)
    assert command("submit", tmp_path / "matmul", "--jobs", 1, "--run", "m")[0] == 0
    sample = DATA / "triton_3.6.0_matmul.autotune.json"
    code, _, err = command("import", sample, "--run", "m")
    assert code == 0, err
    assert "8 measured times" in err
    key = [word for part in json.loads(sample.read_text())["key"] for word in ("--key", part)]
    code, out, err = command("export", "triton", "m", "--measured", *key)
    assert code == 0, err
    ours, theirs = json.loads(out), json.loads(sample.read_text())
    assert ours["key"] == theirs["key"]
    median = {json.dumps(config["kwargs"], sort_keys=True): timing[0] for config, timing in theirs["configs_timings"]}
    exported = {json.dumps(config["kwargs"], sort_keys=True): timing[0] for config, timing in ours["configs_timings"]}
    assert exported == pytest.approx(median)


def test_t4_round_trip(transpose: str, command, tmp_path: Path) -> None:
    assert command("import", DATA / "t4.json", "--run", transpose)[0] == 0
    before = times(command, transpose)
    file = tmp_path / "out" / "t4.json"
    code, _, err = command("export", "t4", transpose, "--measured", "-o", file)
    assert code == 0, err
    again = tmp_path / "again"
    assert command("submit", tmp_path / "transpose", "--jobs", 1, "--run", "again", "--store", again)[0] == 0
    code, _, err = command("import", file, "--run", "again", "--store", again)
    assert code == 0, err
    code, out, _ = command(
        "query", "SELECT count(*) AS n, sum(time_us) AS t FROM measurements", "--store", again, "--json"
    )
    assert json.loads(out) == [{"n": 5, "t": pytest.approx(sum(before.values()))}]


def test_t4_of_estimates_says_so_and_follows_the_format(transpose: str, command, tmp_path: Path) -> None:
    code, out, err = command("export", "t4", transpose)
    assert code == 0, err
    found = json.loads(out)
    assert found["schema_version"] == "1.0.0" and found["metadata"]["simulated"] is True
    assert len(found["results"]) == 105
    for result in found["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= set(result)
        assert result["invalidity"] == "correct" and result["times"]["runtimes"] == []
        assert {"name": "provenance", "value": "simulated", "unit": ""} in result["measurements"]
        assert set(result["configuration"]) == {"TILE", "ROWS_PER_THREAD", "USE_SHARED", "PAD", "VEC"}
        assert result["measurements"][0]["unit"] == "ms" and result["measurements"][0]["value"] > 0
    (tmp_path / "sim.json").write_text(out)
    code, _, err = command("import", tmp_path / "sim.json", "--run", transpose)
    assert code == 2 and "simulated times, which are no measurements" in err


def test_triton_round_trip(store: Path, command, tmp_path: Path) -> None:
    write_sweep(tmp_path / "matmul", MATMUL)
    assert command("submit", tmp_path / "matmul", "--jobs", 1, "--run", "m")[0] == 0
    sample = DATA / "matmul.autotune.json"
    code, _, err = command("import", sample, "--run", "m")
    assert code == 0, err
    assert "6 measured times" in err and "1 that did not run" in err
    code, out, err = command("export", "triton", "m", "--measured", "--key", 1024, "--key", "torch.float16")
    assert code == 0, err
    ours, theirs = json.loads(out), json.loads(sample.read_text())
    assert ours["key"] == [1024, "torch.float16"] and ours["simulated"] is False
    wanted = {
        json.dumps(config["kwargs"], sort_keys=True): (config, timing) for config, timing in theirs["configs_timings"]
    }
    for config, timing in ours["configs_timings"]:
        their_config, their_timing = wanted[json.dumps(config["kwargs"], sort_keys=True)]
        assert {**config, "ir_override": None} == their_config  # Triton 3.2 and older know no ir_override
        assert timing[0] == pytest.approx(their_timing[0])
    code, out, _ = command("export", "triton", "m")
    assert code == 0 and json.loads(out)["simulated"] is True and json.loads(out)["key"] == [2048, 2048]
    (tmp_path / "sim.autotune.json").write_text(out)
    code, _, err = command("import", tmp_path / "sim.autotune.json", "--run", "m")
    assert code == 2 and "simulated" in err


def test_renamed_parameters(transpose: str, command, tmp_path: Path) -> None:
    text = (DATA / "t4.json").read_text().replace('"TILE"', '"tile"')
    (tmp_path / "renamed.json").write_text(text)
    code, _, err = command("import", tmp_path / "renamed.json", "--run", transpose)
    assert code == 2 and "--rename THEIRS=TILE" in err and "renamed.json: results[0]" in err
    assert command("import", tmp_path / "renamed.json", "--run", transpose, "--rename", "tile=TILE")[0] == 0
    assert len(times(command, transpose)) == 5


def test_values_may_be_texts_and_floats(transpose: str, command, tmp_path: Path) -> None:
    text = (DATA / "t4.json").read_text().replace('"VEC": 1', '"VEC": "1"').replace('"PAD": 0', '"PAD": 0.0')
    (tmp_path / "texts.json").write_text(text)
    assert command("import", tmp_path / "texts.json", "--run", transpose)[0] == 0
    assert len(times(command, transpose)) == 5


SMALL = """\
parameters: {TILE: [16], ROWS_PER_THREAD: [1], USE_SHARED: [0, 1], PAD: [0], VEC: [1]}
"""


@pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")
def test_nsight_pages(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source page finds the variant whose SASS it shows; a raw page the variant whose launch it shows."""
    monkeypatch.setenv("FARM_STORE", str(tmp_path / "store"))
    folder = tmp_path / "transpose"
    shutil.copytree(ROOT / "examples" / "transpose", folder)
    text = (folder / "sweep.yaml").read_text()
    start, end = text.index("parameters:"), text.index("derive:")
    text = text[:start] + SMALL + text[end:].replace("measured: {h200: h200.csv}\n", "")
    (folder / "sweep.yaml").write_text(text)
    code, _, err = command("submit", folder, "--jobs", 1, "--tier", "static", "--run", "t")
    assert code == 0, err
    page = DATA / "transpose.source.csv.gz"
    code, _, err = command("import", page, "--run", "t")
    assert code == 0, err
    assert "profile of transpose variant 0 on h200: 40 lines, 31089 samples" in err
    code, out, _ = command("show", "t:0", "--page", "source")
    assert "measured" in out and "75.6 %" in next(line for line in out.splitlines() if "STG.E desc" in line)
    code, _, err = command("import", page, "--run", "t", "--variant", 1)
    assert code == 2 and "is of other code than variant 1: at 0x" in err
    code, _, err = command("import", DATA / "transpose.raw.csv", "--run", "t")
    assert code == 0 and "1 measured times" in err and "4 that are no variant of the run" in err
    assert "--clock-control none" in err
    assert times(command, "t") == {(16, 1, 0, 0, 1): pytest.approx(244.384)}
    # what farm itself prints in Nsight's format is read by the same code, and refused as a measurement
    for name in ("source", "raw"):
        code, out, _ = command("show", "t:0", "--page", name, "--csv")
        (tmp_path / f"{name}.csv").write_text(out)
        code, _, err = command("import", tmp_path / f"{name}.csv", "--run", "t")
        assert code == 2 and "simulated" in err, name


def test_nsight_details_page_in_other_units(tmp_path: Path) -> None:
    """`ncu --csv` prints a row a metric, times in the unit that suits them; repeated launches become one record."""
    rows = ['"ID","Kernel Name","Block Size","Grid Size","Metric Name","Metric Unit","Metric Value"']
    for launch, (time, unit) in enumerate((("0.25", "ms"), ("251,000", "ns"), ("249", "us"))):
        for name, u, value in (("Duration", unit, time), ("Registers Per Thread", "register/thread", "24")):
            rows.append(f'"{launch}","k<int>(int)","(256, 1, 1)","(64, 1, 1)","{name}","{u}","{value}"')
    path = tmp_path / "details.csv"
    path.write_text("==PROF== Disconnected\n" + "\n".join(rows) + "\n")
    found = read_any(path)
    assert isinstance(found, Records) and len(found.records) == 1 and found.kernel == "k"
    record = found.records[0]
    assert record.time_us == pytest.approx(250.0) and record.spread == pytest.approx(2 / 250)
    assert record.launch == {"block_dim": "256x1x1", "grid_dim": "64x1x1", "registers": 24, "kernel": "k"}


def test_addresses_become_offsets() -> None:
    assert plain_sass("@P0   BRA 0x7fa8337a0180", 0x7FA8337A0000) == "@P0 BRA 0x180"
    assert plain_sass("IADD3 R2, R3.reuse, 0x12345678, RZ", 0x7FA8337A0000) == "IADD3 R2, R3, 0x12345678, RZ"


def test_a_cache_left_open_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = (DATA / "kernel_tuner_cache.json").read_text()
    assert not text.rstrip().endswith("}}")  # as Kernel Tuner leaves it
    closed = tmp_path / "closed.json"
    closed.write_text(text.rstrip(",\n") + "}\n}")
    first, second = read_any(DATA / "kernel_tuner_cache.json"), read_any(closed)
    assert isinstance(first, Records) and isinstance(second, Records)
    assert [r.time_us for r in first.records] == [r.time_us for r in second.records]
    assert first.device == "NVIDIA H200" and first.records[-1].failure == "runtime"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unknown kind"),
        ("{", "not JSON"),
        ("{}", "JSON of an unknown kind"),
        ('{"tune_params_keys": 3, "cache": {}}', "a list tune_params_keys"),
        ('{"tune_params_keys": ["A"], "cache": {"1": {"B": 1}}}', "lacks the parameter A"),
        ('{"tune_params_keys": ["A"], "cache": {"1": {"A": 1, "time": "fast"}}}', "'fast' is not a time"),
        ('{"schema_version": "1.0.0", "results": [{}]}', "results[0]: needs an object configuration"),
        ('{"schema_version": "1.0.0", "results": [{"configuration": {}, "invalidity": "odd"}]}', "invalidity: 'odd'"),
        ('{"schema_version": "1.0.0", "results": [{"configuration": {"A": 1}}]}', "gives a time"),
        ('{"schema_version": "1.0.0", "metadata": {"timeunit": "days"}, "results": []}', "timeunit: 'days'"),
        ('{"configs_timings": [1]}', "configs_timings[0]"),
        ("a,b\n1,2\n", "unknown kind"),
        ("Address,Source\n0x0,NOP\n", "no column 'Instructions Executed'"),
        ("Address,Source,Instructions Executed\n0x0,NOP\n", ":2: 2 fields, the header has 3"),
        ("variant,gpu__time_duration.sum\n0,fast\n0,5\n", "unknown unit 'fast'"),
        ("variant,gpu__time_duration.sum\nx,5\n", ":2: variant: 'x' is not a number"),
    ],
)  # fmt: skip
def test_bad_files_give_one_message(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(InterchangeError, match=r"^.*file") as error:
        read_any(path)
    assert words in str(error.value)


def test_bad_commands(transpose: str, command, tmp_path: Path) -> None:
    for arguments, words in (
        (("import", tmp_path / "none.json", "--run", transpose), "no such file"),
        (("import", DATA / "t4.json", "--run", transpose, "--l2", "hot"), "one of warm, cold"),
        (("import", DATA / "t4.json", "--run", transpose, "--rename", "a"), "THEIRS=OURS"),
        (("import", DATA / "t4.json", "--run", transpose, "-t", "mi300x"), "AMD GPUs are not modelled"),
        (("import", DATA / "matmul.autotune.json", "--run", transpose), "--rename THEIRS=TILE"),
        (("export", "csv", transpose), "one of t4, triton"),
        (("export", "t4", transpose, "--measured"), "no measured times"),
    ):
        code, _, err = command(*arguments)
        assert code == 2 and words in err and "Traceback" not in err, arguments
