"""The pages in real Chromium, opened from disk. Every visit must log nothing and ask for nothing (see conftest)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import page_runs
import pytest

from farm.database import RunDatabase
from farm.page.write import write_pages

Go = Callable[..., Any]


def column(seen: Any, number: int) -> list[str]:
    """Shown texts of a column of the index, by its place, in order of the rows."""
    return list(
        seen.page.evaluate(
            "n => [...document.querySelectorAll('.candidates .vrow')]"
            ".sort((a, b) => a.ariaRowIndex - b.ariaRowIndex).map(r => r.children[n].innerText)",
            number,
        )
    )


def place_of(seen: Any, name: str) -> int:
    """Place of a column by its id."""
    ids = seen.page.evaluate("[...document.querySelectorAll('.vhead button')].map(b => b.dataset.column)")
    return int(ids.index(name))


def selected_line(seen: Any) -> str:
    return str(seen.page.inner_text(".sass .vrow.selected .pc"))


def hash_of(seen: Any) -> str:
    return str(seen.page.evaluate("location.hash"))


class TestIndex:
    def test_lists_every_candidate_best_first(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "index.html")
        assert "24 of 24 candidates" in seen.text(".note")
        assert column(seen, 0)[:3] == ["1", "2", "3"]
        times = [float(t.split()[0]) for t in column(seen, place_of(seen, "time"))[:20]]
        assert times == sorted(times)
        assert seen.page.locator(".vhead .tag.sim").count() == 2 and seen.page.locator(".vhead .tag.real").count() == 1
        assert "simulated unless" in seen.text("header.page")

    def test_sorts_by_any_column_both_ways(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "index.html")
        seen.page.click("[data-column=regs]")
        registers = [int(t) for t in column(seen, place_of(seen, "regs"))]
        assert registers == sorted(registers) and len(set(registers)) > 3
        seen.page.click("[data-column=regs]")
        assert [int(t) for t in column(seen, place_of(seen, "regs"))] == sorted(registers, reverse=True)[
            : len(registers)
        ]
        assert seen.page.get_attribute(".th.sorted", "aria-sort") == "descending"

    def test_filters_by_conditions_and_words(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "index.html")
        seen.page.fill(".filter", "regs<=100 bound=lsu")
        shown = column(seen, place_of(seen, "regs"))
        assert shown and all(int(t) <= 100 for t in shown)
        assert set(column(seen, place_of(seen, "bound"))) == {"lsu"}
        seen.page.fill(".filter", "compile")
        assert [row.split()[-1] for row in seen.texts(".candidates .vrow")] == [";"]  # the failed one, with its message
        seen.page.fill(".filter", "nonsense<3")
        assert "no column nonsense" in seen.text(".note")
        seen.page.fill(".filter", "occupancy>20% bm>=1")
        assert "candidates" in seen.text(".note")
        seen.until("location.hash.includes('occupancy')")  # the link keeps the filter
        again = visit(pages / "index.html", hash_of(seen))
        assert again.page.input_value(".filter") == "occupancy>20% bm>=1"
        assert again.text(".note") == seen.text(".note")

    def test_another_target(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "index.html")
        assert seen.page.locator(".agreement circle").count() == 23  # measured on the H200
        assert re.search(r"Spearman 0\.\d{3}", seen.text(".agreement"))
        before = column(seen, place_of(seen, "time"))
        seen.page.click("[role=tab][data-target=rtx4090]")
        assert column(seen, place_of(seen, "time")) != before
        assert "No measured times on rtx4090" in seen.text(".agreement")
        assert seen.page.get_attribute("[data-target=rtx4090]", "aria-selected") == "true"
        seen.press("[")
        assert column(seen, place_of(seen, "time")) == before

    def test_a_failed_candidate_says_why(self, visit: Go, run_folder: Any, tmp_path: Path) -> None:
        write_pages(RunDatabase(run_folder), tmp_path / "out", [("sgemm", 3)])
        seen = visit(tmp_path / "out" / "index.html", "#/?q=status!=ok")
        assert column(seen, place_of(seen, "bound")) == ["compile"]
        assert "None of those shown was measured" in seen.text(".agreement")
        seen.page.click(".candidates .vrow a")
        seen.page.wait_for_selector("main.candidate")
        assert seen.texts(".failure b") == ["compile (sampled, static tiers)"]
        assert "expected a ;" in seen.text(".failure") and "no estimate" in seen.text(".summary")
        assert "256 CTAs" in seen.text(".card:has(h2:text('Launch'))")

    def test_nothing_is_said_of_what_did_not_compile(self, visit: Go, tmp_path: Path) -> None:
        run = page_runs.make_run(tmp_path / "demo", candidates=6, compiled=False)
        write_pages(RunDatabase(run), tmp_path / "out", [("sgemm", 3)])
        seen = visit(tmp_path / "out" / "index.html", "#/?q=status!=ok")
        assert [column(seen, place_of(seen, name)) for name in ("regs", "spills", "smem")] == [["–"], ["–"], ["–"]]
        seen.page.click(".candidates .vrow a")
        seen.page.wait_for_selector("main.candidate")
        launch = seen.text(".card:has(h2:text('Launch'))")
        assert "256 CTAs" in launch and not [name for name in ("spills", "shared memory", "stack") if name in launch]

    def test_keyboard_moves_and_opens(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "index.html")
        seen.press("/")
        assert seen.page.evaluate("document.activeElement.className").startswith("filter")
        seen.page.keyboard.type("variant<3")
        seen.press("Enter", "j")
        assert seen.page.locator(".candidates .vrow.selected").count() == 1
        number = seen.page.get_attribute(".vrow.selected", "data-variant")
        assert seen.page.locator(".dot.here").count() == 2  # in the scatter and in the Pareto plot
        seen.press("Enter")
        seen.page.wait_for_selector("main.candidate")
        assert f"variant {number}" in seen.text("h1")

    def test_charts(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "index.html")
        on_front = seen.page.locator(".pareto .dot.front").count()
        assert 1 <= on_front < seen.page.locator(".pareto .dot").count() == 23
        assert f"{on_front} of 23" in seen.text(".pareto")
        seen.page.select_option(".pareto select", "shared_bytes")
        assert seen.page.locator(".pareto .dot.front").count() <= 4
        assert seen.texts(".stage b") == ["48", "24", "23", "23"]
        seen.page.click(".funnel button.link")  # show the failed ones
        assert "1 of 24" in seen.text(".note")
        seen.page.fill(".filter", "")
        seen.until("document.querySelectorAll('.agreement circle').length === 23")
        seen.page.locator(".agreement circle").first.click(force=True)
        assert seen.page.locator(".candidates .vrow.selected").count() == 1


class TestCandidate:
    def test_panels_say_where_numbers_come_from(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "sgemm-0.html")
        headings = " ".join(seen.texts(".card h2"))
        for name in ("Speed of Light", "Warp states", "Memory", "Occupancy", "Roofline", "Launch", "How this was made"):
            assert name in headings
        for title in ("Speed of Light", "Warp states", "Memory", "Roofline"):
            assert seen.page.locator(f".card h2:has-text('{title}') .tag.sim").count() == 1
        assert seen.page.locator(".figure .tag.real").count() == 1
        made = seen.text(".card:has(h2:text('How this was made'))")
        for fact in (
            "sampled",
            "2.00 %",
            "1,980 MHz",
            "confidence",
            "simulated in",
            "nvcc -arch=sm_90a",
            "ptxas 13.0.88",
            "warm",
        ):
            assert fact in made
        assert seen.page.locator(".card:has(h2:text('Occupancy')) svg.chart").count() == 3

    def test_sass_table(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "sgemm-0.html")
        heads = [text.split("\n")[0] for text in seen.texts(".sass .th")]
        assert heads == [
            "Address", "Line", "SASS", "Stalls sim", "Executed", "Lanes", "Live regs", "Sect/req", "Wavef/req",
            "Conflicts",
        ]  # fmt: skip
        texts, _ = page_runs.real_code()
        assert seen.text(".sass .vrow[data-row='5'] code") == texts[5]
        assert seen.page.locator(".sass .vrow").count() < 120  # only those in view
        assert seen.page.locator(".stallcell .bar i").count() > 10

    def test_selecting_a_line_shows_what_it_waits_for(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "sgemm-0.html")
        texts, _ = page_runs.real_code()
        row = next(n for n, text in enumerate(texts) if text.startswith("FFMA"))
        seen.page.evaluate(
            "row => { const s = document.querySelector('.sass'); s.scrollIntoView(); s.scrollTop = row * 20 - 200; }",
            row,
        )
        seen.page.click(f".sass .vrow[data-row='{row}']")
        assert seen.text(".sassline") == texts[row]
        assert "Waits for" in seen.text(".detail") and "LDS" in seen.text(".detail")
        assert seen.page.locator(".arrows .dep.register").count() >= 2
        assert seen.page.locator(".arrows .dep.scoreboard").count() >= 1
        assert seen.page.locator(".vrow.producer").count() >= 1
        seen.page.click(".detail .linklist .link >> nth=0")
        assert selected_line(seen) != f"0x{16 * row:04x}"

    def test_link_to_a_line(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "sgemm-0.html", "#/sgemm/0?t=rtx4090&line=0x0a10")
        assert selected_line(seen) == "0x0a10"
        assert seen.page.get_attribute("[data-target=rtx4090]", "aria-selected") == "true"
        box = seen.page.locator(".sass .vrow.selected").bounding_box()
        assert box is not None and 0 < box["y"] < 1000
        seen.press("j")
        assert "line=0x0a20" in hash_of(seen)
        for odd in ("line=0xzz", "line=0x7", "line=0xfffff0", "t=nothing&with=neither", "%E0%A4%A"):
            visit(pages / "sgemm-0.html", f"#/sgemm/0?{odd}")

    def test_keyboard(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "sgemm-0.html")
        seen.press("n")
        first = float(seen.text(".vrow.selected .pct").split()[0])
        seen.press("n")
        assert float(seen.text(".vrow.selected .pct").split()[0]) <= first
        seen.press("p")
        assert float(seen.text(".vrow.selected .pct").split()[0]) == first
        seen.press("End")
        assert selected_line(seen) == f"0x{16 * (len(page_runs.real_code()[0]) - 1):04x}"
        seen.press("Home", "j")
        assert selected_line(seen) == "0x0010"
        texts, _ = page_runs.real_code()
        branch = next(n for n, text in enumerate(texts) if " BRA 0x" in f" {text}")
        seen = visit(pages / "sgemm-0.html", f"#/sgemm/0?line=0x{16 * branch:x}")
        seen.press("b")
        assert int(selected_line(seen), 16) == int(texts[branch].rpartition("0x")[2], 16)
        seen.press("?")
        assert "costliest lines" in seen.text("dialog")
        seen.press("Escape", "r")
        assert seen.page.locator("svg.ranges").count() > 10
        seen.press("g")
        seen.page.wait_for_selector("main.index")

    def test_target_and_side_by_side(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "sgemm-0.html", "#/sgemm/0?line=0x0100")
        time = seen.text(".figure.big b")
        seen.press("]")
        assert seen.text(".figure.big b") != time and "RTX 4090" in seen.text(".figure.big small")
        assert selected_line(seen) == "0x0100"  # the same code: the same line
        seen.press("s")
        assert seen.page.locator(".pane").count() == 2
        assert [t.split()[-1] for t in seen.texts(".figure.big small")] == ["sim", "sim"]
        assert seen.texts(".figure.big b")[1] == time
        assert "with=h200" in hash_of(seen)
        seen.page.click(".pane >> nth=1 >> .sass .vrow[data-row='20']")
        assert seen.texts(".sass .vrow.selected .pc") == ["0x0140", "0x0140"]
        seen.press("s")
        assert seen.page.locator(".pane").count() == 1

    def test_light_and_dark(self, visit: Go, pages: Path) -> None:
        seen = visit(pages / "sgemm-0.html", scheme="dark")
        background = "getComputedStyle(document.body).backgroundColor"
        dark = seen.page.evaluate(background)
        assert max(map(int, re.findall(r"\d+", dark)[:3])) < 60
        seen.page.click("#theme")
        assert min(map(int, re.findall(r"\d+", seen.page.evaluate(background))[:3])) > 200
        assert visit(pages / "sgemm-0.html").page.evaluate(background) != dark

    @pytest.mark.parametrize("width", [420, 900, 2200])
    def test_nothing_is_wider_than_the_window(self, visit: Go, pages: Path, width: int) -> None:
        for name in ("index.html", "sgemm-0.html"):
            seen = visit(pages / name, width=width)
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width

    def test_spills_are_marked(self, visit: Go, tmp_path: Path) -> None:
        code = page_runs.real_code("kernels.sm_90a.cubin", "generic")
        run = page_runs.make_run(tmp_path / "run", code=code, detailed=[0], spills=16)
        write_pages(RunDatabase(run), tmp_path / "one.html", [("sgemm", 0)])
        seen = visit(tmp_path / "one.html")
        assert "spills 32 B" in seen.text(".summary")
        assert seen.page.locator(".sass .tag.spill").count() >= 1
        assert "16 B stored, 16 B loaded" in seen.text(".card:has(h2:text('Launch'))")


def test_a_run_without_stalls_and_control_fields(visit: Go, tmp_path: Path) -> None:
    run = page_runs.make_run(tmp_path / "run", detailed=[0], bare=True, measured=False)
    written = write_pages(RunDatabase(run), tmp_path / "out", [("sgemm", 0), ("sgemm", 5)])
    assert "static estimate" not in visit(written.path).text("main")
    seen = visit(tmp_path / "out" / "sgemm-0.html")
    heads = [text.split("\n")[0] for text in seen.texts(".sass .th")]
    assert heads == ["Address", "SASS", "Executed", "Lanes", "Live regs"]
    seen.press("n", "j", "r", "c", "End")
    assert "static" in seen.text(".summary") and "No source lines" in seen.text(".detail")
    assert seen.page.locator(".dep.scoreboard").count() == 0
    assert "No SASS is kept" in visit(tmp_path / "out" / "sgemm-5.html").text("main")


HOSTILE = "</script><img src=x onerror=alert(1)><!--"


def test_hostile_names_are_text(visit: Go, tmp_path: Path) -> None:
    """Names that try to end the script, open a comment, close an attribute or break SQL appear as they are."""
    parameter = "\"><b onmouseover=alert(2)>'; DROP"
    run = page_runs.make_run(
        tmp_path / "run", family=HOSTILE, parameters=[parameter, "__proto__", "constructor"], kernel=HOSTILE,
        message=f"{HOSTILE} \u2028 {{{{ 7*7 }}}}", detailed=[0],
        code=([f"IADD3 R1, R1, R2, RZ {HOSTILE}", "LDS R2, [R1]", "EXIT"], page_runs.real_code()[1][:3]),
    )  # fmt: skip
    run.manifest.run = HOSTILE
    database = RunDatabase(run)
    written = write_pages(database, tmp_path / "out", [(HOSTILE, 0)])
    seen = visit(written.path)
    assert seen.text(".toolbar .family") == HOSTILE
    assert seen.text(".page .run") == HOSTILE
    assert seen.page.locator("img, b[onmouseover]").count() == 0
    assert parameter in [text.strip() for text in seen.texts(".vhead .th")]
    seen.page.fill(".filter", "status!=ok")
    assert HOSTILE in seen.text(".candidates .vrow") and "{{ 7*7 }}" in seen.text(".candidates .vrow")
    seen.page.fill(".filter", "constructor>=1 __proto__>=1")
    assert "24 of 24" in seen.text(".note")
    assert (
        visit(written.path, f"#/{'%3Cimg src=x onerror=alert(3)%3E'}/0?t=%3Cb%3E&q=%3Cimg%3E")
        .page.locator("img")
        .count()
        == 0
    )
    (page,) = [path for path in (tmp_path / "out").iterdir() if path.name != "index.html"]
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", page.name) and page.parent == tmp_path / "out"
    seen = visit(page)
    assert seen.text("h1").startswith(HOSTILE)
    assert seen.text(".sass .vrow[data-row='0'] code") == f"IADD3 R1, R1, R2, RZ {HOSTILE}"
    assert seen.page.locator("img").count() == 0 and seen.page.title().startswith(HOSTILE)


def test_an_unfinished_run_says_so(visit: Go, run_folder: Any, pages: Path, tmp_path: Path) -> None:
    assert "unfinished" not in visit(pages / "index.html").text("main")
    database = RunDatabase(run_folder)
    run_folder.manifest.complete = False
    try:
        write_pages(database, tmp_path / "out", [("sgemm", 1)])
    finally:
        run_folder.manifest.complete = True
    assert "unfinished run" in visit(tmp_path / "out" / "index.html").text(".toolbar >> nth=0")


def test_one_file_with_everything(visit: Go, run_folder: Any, tmp_path: Path) -> None:
    written = write_pages(RunDatabase(run_folder), tmp_path / "all.html", [("sgemm", 1), ("sgemm", 2)])
    seen = visit(written.path)
    seen.page.click(".candidates .vrow[data-variant='2'] a")
    seen.page.wait_for_selector("main.candidate")
    assert "variant 2" in seen.text("h1")
    seen.page.click("a.back")
    seen.page.wait_for_selector("main.index")
    seen.page.go_back()
    seen.page.wait_for_selector("main.candidate")


def test_large_pages_hold_few_rows(visit: Go, tmp_path: Path) -> None:
    """5,000 lines and 5,000 candidates: what is drawn does not grow with them."""
    run = page_runs.make_run(
        tmp_path / "run",
        candidates=5000,
        code=page_runs.long_code(5000),
        detailed=[0],
        measured=False,
        targets=["h200"],
    )
    write_pages(RunDatabase(run), tmp_path / "out", [("sgemm", 0)])
    for name, box, rows in (("sgemm-0.html", ".sass", 5000), ("index.html", ".candidates", 5000)):
        seen = visit(tmp_path / "out" / name)
        for place in (0.0, 0.5, 1.0):
            shown = seen.page.evaluate(
                """async ([box, place]) => {
                  const list = document.querySelector(box);
                  list.scrollTop = place * list.scrollHeight;
                  await new Promise((d) => requestAnimationFrame(() => requestAnimationFrame(d)));
                  return [...list.querySelectorAll(".vrow")].map((row) => Number(row.ariaRowIndex) - 2);
                }""",
                [box, place],
            )
            assert 10 < len(shown) < 120
            middle = sorted(shown)[len(shown) // 2]
            assert abs(middle - place * rows) < 60
