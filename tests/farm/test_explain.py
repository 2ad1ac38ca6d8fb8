"""farm explain, show's pages and diff on real kernels, each made to have one known fault."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from test_end_to_end import _nvcc

from farm.profiles import read_profile

DATA = Path(__file__).parents[1] / "data" / "explain"
pytestmark = pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("explain") / "store"


@pytest.fixture
def run(store: Path, command, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of the eight kernels; made once, since the same command continues the same run."""
    monkeypatch.setenv("FARM_STORE", str(store))
    code, out, err = command("submit", DATA, "--jobs", 1, "--run", "explained")
    assert code == 0, err
    return out.strip()


def explained(command, run: str, case: int) -> dict:
    code, out, err = command("explain", f"{run}:{case}", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["simulated"] is True
    return found


def finding(found: dict, kind: str) -> dict:
    return next(f for f in found["findings"] if f["kind"] == kind)


def line_of(text: str) -> int:
    """Number of the source line that holds a text."""
    return next(i for i, line in enumerate((DATA / "kernel.cu").read_text().splitlines(), 1) if text in line)


def test_bank_conflicts(run: str, command) -> None:
    found = explained(command, run, 0)
    conflict = finding(found, "bank_conflict")
    assert conflict["numbers"]["ways"] == 32
    # 64 stores and 64 loads of 8192 warps, 31 of 32 wavefronts too many
    assert conflict["numbers"]["wavefronts"] == 2 * 64 * 8192 * 32
    assert conflict["numbers"]["excess_wavefronts"] == 2 * 64 * 8192 * 31
    assert f"kernel.cu:{line_of('tile[threadIdx.x % 32][(threadIdx.x / 32 + k) % 32]')} (" in conflict["text"]
    assert found["bound"] == "lsu" and found["bound_share"] > 0.95
    assert len(found["lines"]) == 3 and "32-way" in found["lines"][0]["text"]


def test_uncoalesced_stores(run: str, command) -> None:
    scattered = finding(explained(command, run, 1), "uncoalesced")
    assert scattered["numbers"]["sectors_per_request"] == 32
    assert scattered["numbers"]["ideal_sectors_per_request"] == 4
    assert scattered["numbers"]["excess_sectors"] == 1024 * 28
    assert "stores at kernel.cu" in scattered["text"]


def test_spills(run: str, command) -> None:
    spill = finding(explained(command, run, 2), "spill")
    assert spill["numbers"]["registers"] == 32 and spill["numbers"]["spill_store_bytes"] > 0
    assert "capped at 32 (room for 8 CTAs of 256 threads an SM)" in spill["text"]
    _, out, _ = command("query", "SELECT spill_store_bytes AS s FROM variants WHERE variant = 2", "--json")
    assert f"spills {json.loads(out)[0]['s']} bytes" in spill["text"]


def test_a_small_grid_and_the_launch(run: str, command) -> None:
    found = explained(command, run, 3)
    assert "33 CTAs on 132 SMs: 75 % of the SMs" in finding(found, "small_grid")["text"]
    launch = finding(found, "launch_overhead")
    assert launch["numbers"]["kernel_overhead_us"] / found["time_us"] > 0.2


def test_few_warps_and_their_limiter(run: str, command) -> None:
    found = explained(command, run, 4)
    assert found["bound"] == "latency" and next(iter(found["stalls"])) == "long_scoreboard"
    limited = finding(found, "occupancy")
    assert "limited by shared memory" in limited["text"]
    # three CTAs of 64 KiB now; four take (228 KiB / 4) less the reserved KiB
    assert limited["numbers"]["shared_bytes_needed"] == 233472 // 4 - 1024
    assert "57344 bytes instead of 65536 give 4 CTAs" in limited["relief"]
    assert finding(found, "tail")["numbers"]["waves"] == pytest.approx(1024 / 396)
    assert f"waits for LDG at kernel.cu:{line_of('const float got')} (" in found["lines"][0]["text"]
    assert "6 warps a sub-core" in found["lines"][0]["text"]


def test_atomics_local_arrays_and_divergence(run: str, command) -> None:
    atomics = finding(explained(command, run, 5), "global_atomics")
    assert atomics["numbers"]["atomic_instructions"] == 8192 and atomics["numbers"]["atomic_lanes"] == 262144
    local = finding(explained(command, run, 6), "local_array")
    assert local["numbers"]["stack_bytes"] == 256
    found = explained(command, run, 7)
    diverging = finding(found, "divergence")
    assert diverging["numbers"]["mean_active_lanes"] < 6
    assert "FFMA 9" in finding(found, "instruction_mix")["text"]
    assert not {"bank_conflict", "spill", "uncoalesced", "global_atomics"} & {f["kind"] for f in found["findings"]}


def test_text_and_errors(run: str, command) -> None:
    code, out, _ = command("explain", run, 0)
    assert code == 0 and "Costliest lines" in out and "relief:" in out and "simulated" in out
    assert all(line == line.rstrip() for line in out.splitlines())
    assert command("explain", run)[0] == 2
    assert "name it RUN:N" in command("explain", f"{run}:x")[2]
    assert "no variant 99" in command("explain", f"{run}:99")[2]
    code, _, err = command("explain", f"{run}:0", "-t", "mi300x")
    assert code == 2 and "AMD GPUs are not modelled" in err


def test_source_page_has_nsights_columns(run: str, command, tmp_path: Path) -> None:
    code, out, _ = command("show", f"{run}:0", "--page", "source", "--csv")
    assert code == 0
    rows = list(csv.reader(io.StringIO(out)))
    assert rows[0][:2] == ["Kernel Name", "explained"] and "simulated" in rows[0][2]
    with open(Path(__file__).parents[1] / "data" / "interchange" / "source_columns.txt") as file:
        nsight = file.read().splitlines()
    assert [name for name in rows[1] if name not in nsight] == []
    store = next(dict(zip(rows[1], row)) for row in rows if len(row) > 1 and row[1].startswith("STS"))
    assert store["L1 Conflicts Shared N-Way"] == "32" and store["Access Operation"] == "Store"
    assert int(store["L1 Wavefronts Shared Excessive"]) == 31 * int(store["L1 Wavefronts Shared Ideal"])
    (tmp_path / "page.csv").write_text(out)
    stalls = read_profile(tmp_path / "page.csv")  # what reads Nsight's own export reads this
    assert stalls.shape[0] == len(rows) - 2 and stalls.sum() > 0
    code, out, _ = command("show", f"{run}:0", "--page", "source")
    assert code == 0 and "short_scoreboard" in out and "(warp-cycles, simulated" in out
    code, out, _ = command("show", f"{run}:4", "--page", "raw", "--json")
    metrics = json.loads(out)
    assert metrics["launch__occupancy_limit_shared_mem"]["value"] == 3
    assert metrics["smsp__average_warps_issue_stalled_selected_per_issue_active.ratio"]["value"] == 1
    assert command("show", f"{run}:0", "--csv")[0] == 2 and command("show", f"{run}:0", "--page", "x")[0] == 2


def test_diff_of_two_variants(run: str, command) -> None:
    code, out, err = command("diff", f"{run}:3", f"{run}:3", "--json")
    assert code == 0, err
    same = json.loads(out)[0]
    assert same["judgement"]["verdict"] == "SAME" and same["causes"] == [] and same["similarity"] == 1
    code, out, _ = command("diff", f"{run}:7", f"{run}:0", "--json")
    found = json.loads(out)[0]
    assert found["judgement"]["verdict"] == "SLOWER" and found["ratio"] > 10
    assert found["judgement"]["threshold"] == 0.2 and "other instructions" in found["judgement"]["basis"]
    assert "bound issue → lsu" in found["causes"]
    code, out, _ = command("diff", f"{run}:0", f"{run}:7")
    assert "FASTER" in out and "lines only in A" in out and "simulated" in out
    a, b = found["resources_b"], found["resources_a"]  # the other way round here
    for name in ("sure from", "registers", "occupancy"):
        assert name in out
    assert f"{a['registers']} → {b['registers']}" in out and f"{100 * b['occupancy']:.0f} %" in out
    assert f"{b['code_bytes'] - a['code_bytes']:+d}" in out
    code, out, _ = command("diff", f"{run}:0", f"{run}:7", "--sass")
    assert "EXIT" in out
    assert command("diff", run, f"{run}:7")[0] == 2


def test_diff_of_two_runs_with_other_flags(run: str, command, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(DATA, folder)
    sweep = (folder / "sweep.yaml").read_text().replace("[0, 1, 2, 3, 4, 5, 6, 7]", "[3, 4]")
    (folder / "sweep.yaml").write_text(sweep.replace("[-lineinfo]", "[-lineinfo, --use_fast_math, -maxrregcount=24]"))
    assert command("submit", folder, "--jobs", 1, "--run", "capped")[0] == 0
    code, out, err = command("diff", run, "capped", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert sum(found["verdicts"].values()) == 2 and (found["only_in_a"], found["only_in_b"]) == (6, 0)
    rows = {row["parameters"]["CASE"]: row for row in found["variants"]}
    assert rows[3]["judgement"]["verdict"] == "SAME"  # needed no more than 24 registers
    assert any(cause.startswith("registers 32 → 24") for cause in rows[4]["causes"])
    code, out, _ = command("diff", run, "capped")
    assert code == 0 and "geometric mean of B/A" in out and "sure from" in out
    assert all(f"{100 * row['judgement']['threshold']:g} %" in out for row in rows.values())
