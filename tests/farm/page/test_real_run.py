"""From source to page with the real compiler and simulator: lines of the source, control fields, ideal counts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from farm.database import RunDatabase
from farm.page.sources import source_texts
from farm.store import LocalStore
from interpreter.compile import compile_cubin
from interpreter.decode import load_program
from interpreter.errors import ToolchainError
from interpreter.toolchain import find_tools
from jobs.sweep import load_sweep
from jobs.variants import expand

ROOT = Path(__file__).parents[3]


def _nvcc() -> bool:
    try:
        return find_tools().nvcc is not None
    except ToolchainError:
        return False


pytestmark = pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """examples/transpose, compiled with a line table."""
    folder = tmp_path / "transpose"
    shutil.copytree(ROOT / "examples" / "transpose", folder)
    text = (folder / "sweep.yaml").read_text()
    assert "flags: []" in text
    (folder / "sweep.yaml").write_text(text.replace("flags: []", "flags: [-lineinfo]"))
    return folder


def test_a_line_table_leaves_the_code_alone(sweep: Path) -> None:
    found = load_sweep(sweep)
    variant = expand(found)[0]
    codes = [
        compile_cubin(sweep / found.kernel.source, "sm_90a", variant.names, flags).cubin
        for flags in ([], ["-lineinfo"])
    ]
    plain, lined = (load_program(cubin, found.kernel.entry, lines=True).instructions for cubin in codes)
    assert [(i.text, i.high) for i in plain] == [(i.text, i.high) for i in lined]
    assert {i.source_line for i in plain} == {0} and max(i.source_line for i in lined) > 10


def test_page_of_a_real_run(command: Any, sweep: Path, tmp_path: Path, visit: Any) -> None:
    store = ["--store", tmp_path / "store"]
    code, out, err = command("submit", sweep, "--limit", 2, "--jobs", 1, "-t", "h200", "-t", "rtx4090", *store)
    assert code == 0, err
    code, out, err = command("page", out.strip(), "-o", tmp_path / "page.html", *store)
    assert code == 0, err
    html = (tmp_path / "page.html").read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert len(data["index"]["rows"]) == len(data["candidates"]) == 2
    for candidate in data["candidates"].values():
        assert list(candidate["sources"]) == ["kernel.cu"]
        assert candidate["sources"]["kernel.cu"] == (sweep / "kernel.cu").read_text().splitlines()
        for target in candidate["targets"].values():
            listing, lines = candidate["codes"][target["listing"]], target["lines"]
            assert listing["files"] == ["kernel.cu"] and max(listing["line"]) > 10
            assert listing["control"] and any(listing["waits"])
            assert max(listing["live"]) <= target["code"]["registers"]
            assert any(lines["sectors"])
            assert any(lines["wavefronts"]) == (candidate["parameters"]["USE_SHARED"] == 1)
            for actual, ideal in (("sectors", "sectors_ideal"), ("wavefronts", "wavefronts_ideal")):
                assert all(i <= a * (1 + 1e-6) for a, i in zip(lines[actual], lines[ideal], strict=True))
            assert target["code"]["compiler"].startswith("ptxas 1")
            assert target["occupancy"]["warps"] == target["tiers"][0]["warps_per_sm"]
            assert target["occupancy"]["limiter"] == target["tiers"][0]["limiter"]
            assert sum(target["coverage"].values()) == pytest.approx(1, abs=1e-3)
    seen = visit(tmp_path / "page.html")
    seen.press("j", "Enter")
    seen.page.wait_for_selector("main.candidate")
    seen.press("n", "c")
    assert "kernel.cu" in seen.text(".source .vhead") and seen.page.locator(".source .vrow.selected").count() == 1
    # a run that names other files gets none of them
    (tmp_path / "secret").write_text("secret")
    database = RunDatabase(LocalStore(tmp_path / "store").find(data["run"]))
    family = database.folder.manifest.families["transpose"]
    names = ["kernel.cu", "../secret", str(tmp_path / "secret"), "missing.cuh"]
    assert list(source_texts(database.folder, family, names)) == ["kernel.cu"]
    # the source has changed since: the run's own copy is shown, not what the lines no longer belong to
    before = (sweep / "kernel.cu").read_text()
    (sweep / "kernel.cu").write_text("// changed since\n" + before)
    code, _, _ = command("page", data["run"], "-o", tmp_path / "page.html", *store)
    assert code == 0 and "// changed since" not in (tmp_path / "page.html").read_text()
    again = RunDatabase(LocalStore(tmp_path / "store").find(data["run"]))
    assert source_texts(again.folder, family, names) == {"kernel.cu": before.splitlines()}
    (again.folder.path / "inputs.zip").unlink()
    gone = RunDatabase(LocalStore(tmp_path / "store").find(data["run"]))
    assert source_texts(gone.folder, family, names) == {}
