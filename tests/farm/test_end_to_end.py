"""The command with the real simulator: a sweep of which one variant works, one kernel a mishap."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from interpreter.errors import ToolchainError
from interpreter.toolchain import find_tools

BAD = Path(__file__).parents[1] / "data" / "bad"


def _nvcc() -> bool:
    try:
        return find_tools().nvcc is not None
    except ToolchainError:
        return False


@pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")
def test_mishaps_do_not_stop_the_rest(command, tmp_path: Path) -> None:
    arguments = ["--jobs", 1, "--target", "h200", "--instructions", 20_000, "--store", tmp_path / "store"]
    code, out, err = command("submit", BAD, *arguments)
    assert code == 0, err
    run = out.strip()
    assert "Traceback" not in err
    code, out, _ = command("rank", run, "--csv", "--store", f"file://{tmp_path}/store")
    assert code == 0
    rows = {int(row["CASE"]): row for row in csv.DictReader(io.StringIO(out))}
    assert {case: row["failure"] for case, row in rows.items()} == {
        0: "", 1: "runtime", 2: "timeout", 3: "runtime", 4: "runtime", 5: "compile", 6: "runtime",
    }  # fmt: skip
    assert float(rows[0]["time_us"]) > 0 and len(rows[0]["cubin_sha"]) == 64 and rows[0]["bound"]
    code, out, _ = command("show", f"{run}:0", "--store", tmp_path / "store")
    assert code == 0 and "STG.E" in out and "EXIT" in out
    code, out, _ = command("show", f"{run}:3", "--store", tmp_path / "store")
    assert code == 0 and "waits for barrier 1" in out
