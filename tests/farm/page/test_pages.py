"""The data of the pages, and the files that `farm page` and `farm overview` write."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import page_runs
import pytest

from farm.database import RunDatabase
from farm.page.candidate import candidate_data
from farm.page.html import json_for_script, static
from farm.page.index_data import TARGET_COLUMNS, compact, index_data
from farm.page.overview import write_overview
from farm.page.what_if import Footprint, occupancy_panel
from farm.page.work_done import operations, roofline, traffic
from farm.page.write import ABOUT, best_candidates, file_names, write_pages
from farm.store import LocalStore
from interpreter.decode import parse_instruction
from interpreter.errors import FarmError
from timing.occupancy import occupancy
from timing.stalls import STALLS, stall_name
from timing.target import load_target


@pytest.fixture(scope="module")
def database(run_folder: Any) -> RunDatabase:
    return RunDatabase(run_folder)


def data_in(path: Path) -> Any:
    """The data embedded in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


class TestData:
    def test_index_has_what_farm_rank_has(self, database: RunDatabase) -> None:
        index = index_data(database)
        assert index["targets"] == ["h200", "rtx4090"] and len(index["rows"]) == 24
        place, time = TARGET_COLUMNS.index("place"), TARGET_COLUMNS.index("time_us")
        for target, name in enumerate(index["targets"]):
            order = database.rows(
                "SELECT variant FROM ranking WHERE target = ? AND tier = 'sampled' AND status = 'ok' ORDER BY place",
                [name],
            )
            ours = sorted((row[4][target][place], row[1]) for row in index["rows"] if row[4][target][time] is not None)
            assert [variant for _, variant in ours] == [row["variant"] for row in order]
        failed = next(row for row in index["rows"] if row[1] == 3)
        assert failed[4][0][TARGET_COLUMNS.index("failure")] == "compile"

    def test_funnel_counts(self, database: RunDatabase) -> None:
        rows = index_data(database)["funnel"]
        assert [row["target"] for row in rows] == ["h200", "rtx4090"]
        assert rows[0] | {"target": ""} == {
            "family": "sgemm", "target": "", "sweep": 48, "planned": 24, "failed": {"compile": 1},
            "static": 23, "sampled": 23, "cycle": 0,
        }  # fmt: skip

    def test_candidate_keeps_exact_counts(self, database: RunDatabase) -> None:
        data = candidate_data(database, "sgemm", 1)
        assert list(data["targets"]) == ["h200", "rtx4090"] and len(data["codes"]) == 1  # the same code on both
        lines = data["targets"]["h200"]["lines"]
        table = database.table(
            "SELECT * FROM instructions WHERE variant = 1 AND target = 'h200' AND family = 'sgemm' ORDER BY pc"
        )
        assert lines["executed"] == table.column("executed").to_pylist()
        total = sum(flat[k] for flat in lines["stalls"] for k in range(1, len(flat), 2))
        stored = sum(sum(table.column(f"stall_{stall_name(stall)}").to_pylist()) for stall in STALLS)
        assert total == pytest.approx(stored, rel=1e-3)
        assert [tier["tier"] for tier in data["targets"]["h200"]["tiers"]] == ["sampled", "static"]
        assert data["targets"]["h200"]["measured"]["us"] > 0 and "measured" not in data["targets"]["rtx4090"]

    def test_a_failed_candidate(self, database: RunDatabase) -> None:
        data = candidate_data(database, "sgemm", 3)
        assert data["codes"] == {} and data["targets"]["h200"]["failures"][0]["failure"] == "compile"

    def test_no_such_candidate(self, database: RunDatabase) -> None:
        with pytest.raises(FarmError, match="no variant 99 of sgemm"):
            candidate_data(database, "sgemm", 99)

    def test_numbers_json_lacks(self) -> None:
        assert compact(float("nan")) is None and compact(float("inf")) is None
        assert compact(3.0) == 3 and compact(0.123456789) == 0.12346 and compact("x") == "x"


class TestPanels:
    def test_what_if_is_occupancy(self) -> None:
        target = load_target("h200")
        footprint = Footprint(registers=70, threads=128, static_shared=8192, dynamic_shared=4096, barriers=1)
        found = occupancy_panel(target, footprint, 256)
        assert found is not None
        now = occupancy(target, 70, 128, 8192, 4096, 1)
        assert (found["warps"], found["limiter"]) == (now.warps_per_sm, now.limiter) and found["limits"] == now.limits
        curves = found["curves"]
        for threads, warps in curves["block size"]["points"]:
            assert warps == (0 if threads > 896 else occupancy(target, 70, threads, 8192, 4096, 1).warps_per_sm)
        assert dict(curves["registers"]["points"])[128] == occupancy(target, 128, 128, 8192, 4096, 1).warps_per_sm
        assert dict(curves["shared memory"]["points"])[65536] == occupancy(target, 70, 128, 0, 65536, 1).warps_per_sm
        assert curves["shared memory"]["at"] == 12288
        assert found["waves"]["slots"] == 132 * now.ctas_per_sm

    def test_a_cta_that_does_not_fit(self) -> None:
        assert occupancy_panel(load_target("h200"), Footprint(255, 1024, 0, 0, 0), 1) is None

    @pytest.mark.parametrize(
        ("sass", "kind", "lane", "warp"),
        [
            ("FFMA R1, R2, R3, R4", "FP32", 2, 0),
            ("HFMA2 R1, R2, R3, R4", "FP16", 4, 0),
            ("DADD R2, R4, R6", "FP64", 1, 0),
            ("HMMA.16816.F32 R24, R4, R8, R24", "tensor", 0, 2 * 16 * 8 * 16),
            ("IMMA.16832.S8.S8 R4, R8.ROW, R10.COL, R4", "tensor", 0, 2 * 16 * 8 * 32),
        ],
    )
    def test_operations(self, sass: str, kind: str, lane: float, warp: float) -> None:
        found = operations(parse_instruction(sass))
        assert found is not None and (found.kind, found.lane, found.warp) == (kind, lane, warp)

    def test_moves_are_no_arithmetic(self) -> None:
        assert operations(parse_instruction("HFMA2.MMA R37, -RZ, RZ, 0, 0")) is None
        assert operations(parse_instruction("IADD3 R1, R2, R3, RZ")) is None

    def test_roofline_of_fused_multiply_adds(self) -> None:
        """A million warps' FFMA in 10 us: 64 operations each; the roof is what the FMA pipes of all SMs issue."""
        target = load_target("h200")
        instructions = [parse_instruction("FFMA R1, R2, R3, R4"), parse_instruction("EXIT")]
        counts = np.array([1e6, 1.0])
        found = roofline(
            instructions, counts, counts * 32, target, 10.0, {"dram_read_bytes": 1e6, "l2_read_bytes": 2e6}
        )
        assert found is not None
        (kind,) = found["kinds"]
        assert kind["operations"] == 64e6 and kind["rate"] == pytest.approx(6400)
        assert kind["roof"] == pytest.approx(132 * 128 * 2 * target.clock_mhz / 1e3)
        assert (found["dram_bytes"], found["l2_bytes"]) == (1e6, 2e6)
        assert roofline(instructions[1:], counts[1:], counts[1:], target, 10.0, {}) is None

    def test_traffic_by_space(self) -> None:
        texts = ["LDG.E R1, [R2.64]", "LDS R1, [R2]", "STL [R1], R4", "FADD R1, R2, R3"]
        rows = traffic(
            [parse_instruction(t) for t in texts], np.full(4, 10.0), np.array([40.0, 0, 0, 0]),
            np.array([0, 20.0, 0, 0]), 90,
        )  # fmt: skip
        assert {(r["space"], r["what"]): (r["requests"], r["bytes"], r["wavefronts"]) for r in rows} == {
            ("global", "load"): (10, 1280, 0), ("shared", "load"): (10, 0, 20), ("local", "store"): (10, 0, 0),
        }  # fmt: skip


class TestFiles:
    def test_a_folder_and_a_file(self, database: RunDatabase, tmp_path: Path) -> None:
        written = write_pages(database, tmp_path / "pages", pages=2)
        names = sorted(path.name for path in (tmp_path / "pages").iterdir())
        assert written.pages == len(names) - 1 and 2 <= written.pages <= 4 and "index.html" in names
        data = data_in(tmp_path / "pages" / "index.html")
        assert len(data["index"]["rows"]) == 24 and data["candidates"] == {} and len(data["files"]) == written.pages
        write_pages(database, tmp_path / "one.html", [("sgemm", 2)])
        data = data_in(tmp_path / "one.html")
        assert list(data["candidates"]) == ["sgemm:2"] and data["index"] is None

    def test_same_run_same_bytes(self, database: RunDatabase, tmp_path: Path) -> None:
        for name in ("a.html", "b.html"):
            write_pages(database, tmp_path / name, [("sgemm", 0), ("sgemm", 1)])
        assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
        (tmp_path / "plain").touch()
        assert (tmp_path / "a.html").stat().st_mode == (tmp_path / "plain").stat().st_mode  # others may read it
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html", "plain"]

    def test_nothing_is_loaded_from_elsewhere(self, pages: Path) -> None:
        for path in pages.iterdir():
            text = path.read_text()
            assert "default-src 'none'" in text and "unsafe-eval" not in text and "script-src 'sha256-" in text
            assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)
            assert not re.search(r"\bfetch\(|XMLHttpRequest|import\(|WebSocket|sendBeacon", text)

    def test_scripts_never_parse_markup(self) -> None:
        scripts = Path(__file__).parents[3] / "farm" / "page" / "static"
        for path in scripts.glob("*.js"):
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", path.read_text()
            )
            assert len(path.read_text().splitlines()) < 500, path.name

    def test_best_ones_get_pages(self, database: RunDatabase) -> None:
        best = best_candidates(database, 1)
        firsts = database.rows("SELECT DISTINCT variant FROM ranking WHERE tier = 'sampled' AND place = 1")
        assert {variant for _, variant in best} == {row["variant"] for row in firsts}
        assert len(best_candidates(database, 1000)) == 24

    def test_file_names(self) -> None:
        names = file_names([("a", 1), ("../a", 1), ("a/b", 1), ("a_b", 1), ("index", 0), ("", 2), (".", 3)])
        assert names["a", 1] == "a-1.html" and len(set(names.values())) == 7
        assert all(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*\.html", name) for name in names.values())

    def test_json_cannot_end_its_element(self) -> None:
        hostile = {"</script>": "<!--<script>&\u2028\u2029", "\ud800": 1}
        text = str(json_for_script(hostile))
        assert not set("<>&\u2028\u2029") & set(text)
        assert json.loads(text.replace("\\\\ud800", "\\ud800"))["</script>"] == hostile["</script>"]
        with pytest.raises(ValueError):
            json_for_script(float("nan"))

    def test_every_stall_reason_has_a_colour_and_words(self) -> None:
        style = static("style.css")
        assert all(re.search(rf"\.r{int(stall)} \{{ background: ", style) for stall in STALLS)
        assert set(ABOUT) == {stall_name(stall) for stall in STALLS}


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
VISION = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900],
    ],
}  # fmt: skip


def lab(color: str, vision: str) -> np.ndarray:
    """CIE L*a*b* of "#rrggbb" as seen with a kind of vision."""
    srgb = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    f = np.cbrt(xyz / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_plain_stall_colours_are_told_apart(vision: str) -> None:
    found = re.findall(r"^\.r(\d+) \{ background: (#[0-9a-f]{6}); \}", static("style.css"), re.MULTILINE)
    assert len(found) >= 7
    for n, (first, a) in enumerate(found):
        for second, b in found[:n]:
            assert np.linalg.norm(lab(a, vision) - lab(b, vision)) > 10, (STALLS[int(first)], STALLS[int(second)])


class TestCommands:
    def test_page(self, command: Any, run_folder: Any, tmp_path: Path) -> None:
        store = ["--store", run_folder.path.parent]
        code, out, err = command("page", "demo", "-o", tmp_path / "out", *store)
        assert (code, out.strip()) == (0, str(tmp_path / "out" / "index.html")) and "24 candidates" in err
        code, out, _ = command("page", "demo:2", "1", "-o", tmp_path / "two.html", *store)
        assert code == 0 and set(data_in(tmp_path / "two.html")["candidates"]) == {"sgemm:1", "sgemm:2"}
        code, _, _ = command("page", "demo", "sgemm:0", "-o", tmp_path / "x.html", *store)
        assert code == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["demo", "99"], "no variant 99 of sgemm"),
            (["demo", "best"], "variant best: name it N or FAMILY:N"),
            (["demo", "other:1"], "has no family other (families: sgemm)"),
            (["nothing"], "run nothing: not in"),
            (["demo", "--family", "other"], "has no family other (families: sgemm)"),
        ],
    )
    def test_page_refuses(
        self, command: Any, run_folder: Any, tmp_path: Path, arguments: list[str], message: str
    ) -> None:
        code, out, err = command("page", *arguments, "-o", tmp_path / "o", "--store", run_folder.path.parent)
        assert code == 2 and out == "" and message in err and "Traceback" not in err

    def test_page_outputs_that_do_not_work(self, command: Any, run_folder: Any, tmp_path: Path) -> None:
        store = ["--store", run_folder.path.parent]
        (tmp_path / "d.html").mkdir()
        code, _, err = command("page", "demo", "-o", tmp_path / "d.html", *store)
        assert code == 2 and "is a folder" in err
        (tmp_path / "file").write_text("mine")
        code, _, err = command("page", "demo", "-o", tmp_path / "file", *store)
        assert code == 2 and "ends in .html" in err and (tmp_path / "file").read_text() == "mine"
        for command_line in (["page", "demo"], ["overview"], ["export", "t4", "demo", "-t", "h200"]):
            code, _, err = command(*command_line, "-o", tmp_path / "file" / "x.html", *store)
            assert code == 2 and err.strip().endswith(f"-o {tmp_path}/file/x.html: {tmp_path}/file is not a folder"), (
                err
            )

    def test_overview(self, command: Any, tmp_path: Path) -> None:
        store = tmp_path / "store"
        page_runs.make_run(store / "first", candidates=6)
        page_runs.make_run(store / "second", candidates=8)
        (store / "broken").mkdir()
        (store / "broken" / "manifest.json").write_text('{"schema_version": 999}')
        code, out, _ = command("overview", "--store", store, "-o", tmp_path / "all.html")
        assert code == 0 and out.strip() == str(tmp_path / "all.html")
        data = data_in(tmp_path / "all.html")
        runs = {run["run"]: run for run in data["runs"]}
        assert runs["second"]["candidates"] == 8 and runs["second"]["failed"] == 2
        assert "schema version 999" in runs["broken"]["problem"]
        assert runs["first"]["failures"][0]["failure"] == "compile"
        assert {(row["run"], row["target"]) for row in data["best"]} == {
            (run, target) for run in ("first", "second") for target in page_runs.TARGETS
        }
        assert {row["run"] for row in data["agreement"]} == {"first", "second"}
        best = RunDatabase(LocalStore(store).find("first")).rows(
            "SELECT min(time_us) AS t FROM estimates WHERE tier = 'sampled' AND target = 'h200'"
        )[0]["t"]
        (row,) = [r for r in data["best"] if (r["run"], r["target"]) == ("first", "h200")]
        assert row["time_us"] == pytest.approx(best, rel=1e-4)

    def test_overview_of_nothing(self, command: Any, tmp_path: Path) -> None:
        code, _, err = command("overview", "--store", tmp_path / "none", "-o", tmp_path / "x")
        assert code == 2 and f"the store {tmp_path / 'none'} holds no runs" in err


def test_overview_in_a_browser(visit: Any, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for number, name in enumerate(("one", "two", "three")):
        page_runs.make_run(store / name, candidates=6 + number)
    written = write_overview(LocalStore(store), tmp_path / "out", pages=True)
    seen = visit(written.path)
    assert seen.page.locator(".card.best").count() == 2 and seen.page.locator(".card.best circle").count() == 6
    assert seen.page.locator(".card.agreement circle").count() == 3
    assert [cells.split("\t")[1] for cells in seen.texts(".runs >> nth=0 >> tbody tr")] == ["three", "two", "one"]
    assert "expected a ;" in seen.text(".runs >> nth=1")
    seen.page.click(".runs a >> nth=0")
    seen.page.wait_for_selector("main.index")
    assert "8 of 8 candidates" in seen.text(".note")
