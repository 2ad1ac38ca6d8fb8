"""How long the pages of large runs take in Chromium: opening, and each frame while scrolling.

A kernel of 5,000 SASS lines and an index of 5,000 candidates (real SASS, invented times), from file://.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, machine_name

sys.path.insert(0, str(ROOT / "tests" / "farm" / "page"))

# Scrolls by `step` pixels each frame; returns milliseconds between frames, and of the script's own work in each.
SCROLL = """
([selector, step, frames]) => new Promise((done) => {
  const box = document.querySelector(selector);
  const gaps = [];
  let last = performance.now();
  let n = 0;
  const work = [];
  const draw = () => {
    const now = performance.now();
    if (n++) gaps.push(now - last);
    last = now;
    if (n > frames) return done({ gaps, work, empty: box.querySelectorAll(".vrow").length === 0 });
    box.scrollTop += step;
    requestAnimationFrame(() => {});
    setTimeout(() => { work.push(performance.now() - now); requestAnimationFrame(draw); }, 0);
  };
  requestAnimationFrame(draw);
})
"""
OPENED = """
() => {
  const entry = performance.getEntriesByType("navigation")[0];
  return [entry.responseEnd, performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null];
}
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lines", type=int, default=5000, help="SASS lines")
    options.add_argument("--candidates", type=int, default=5000)
    options.add_argument("--repeat", type=int, default=5)
    options.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    given = options.parse_args()
    if not given.chromium:
        raise SystemExit("needs Chromium: --chromium PATH")

    import page_runs
    from playwright.sync_api import sync_playwright

    from farm.database import RunDatabase
    from farm.page.write import write_pages

    print(machine_name())
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        folder = Path(scratch)
        run = page_runs.make_run(
            folder / "run", candidates=given.candidates, code=page_runs.long_code(given.lines), detailed=[0],
            parameters=("BM", "BN", "BK", "TM", "TN", "STAGES"),
        )  # fmt: skip
        started = time.perf_counter()
        write_pages(RunDatabase(run), folder / "out", [("sgemm", 0)])
        print(f"writing both pages: {time.perf_counter() - started:.1f} s")
        browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
        print(f"Chromium {browser.version}, headless")
        for name, file, selector, step, rows in (
            ("SASS", "sgemm-0.html", ".sass", 60, given.lines),
            ("index", "index.html", ".candidates", 80, given.candidates),
        ):
            path = folder / "out" / file
            opened, gaps, work = [], [], []
            for _ in range(given.repeat):
                page = browser.new_page(viewport={"width": 1500, "height": 1000})
                begin = time.perf_counter()
                page.goto(path.as_uri())
                page.wait_for_selector(f"{selector} .vrow")
                page.evaluate("() => new Promise((d) => requestAnimationFrame(() => requestAnimationFrame(d)))")
                opened.append(1e3 * (time.perf_counter() - begin))
                page.locator(selector).scroll_into_view_if_needed()
                found = page.evaluate(SCROLL, [selector, step, 200])
                assert not found["empty"]
                gaps += found["gaps"]
                work += found["work"]
                page.close()
            slow = sorted(gaps)[int(0.99 * len(gaps))]
            print(f"{name}: {rows} rows, {path.stat().st_size / 1e6:.1f} MB")
            print(f"  open to drawn {statistics.median(opened):.0f} ms, worst {max(opened):.0f} ms")
            print(f"  a frame while scrolling {statistics.median(gaps):.1f} ms, 99 % of them {slow:.1f} ms at most")
            print(f"  of it script and layout {statistics.median(work):.1f} ms")
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.goto((folder / "out" / "index.html").as_uri())
        page.wait_for_selector(".candidates .vrow")
        times = page.evaluate(
            """async () => {
              const timed = async (f) => { const t = performance.now(); f(); await new Promise((d) => requestAnimationFrame(() => setTimeout(d))); return performance.now() - t; };
              const filter = document.querySelector(".filter");
              const type = (text) => { filter.value = text; filter.dispatchEvent(new Event("input")); };
              const click = (id) => document.querySelector(`[data-column="${id}"]`).click();
              return { sort: await timed(() => click("regs")), filter: await timed(() => type("regs<64 bm>=8")), clear: await timed(() => type("")) };
            }"""  # noqa: E501
        )
        print("index: " + ", ".join(f"{what} {ms:.0f} ms" for what, ms in times.items()))
        page.goto((folder / "out" / "sgemm-0.html").as_uri())
        page.wait_for_selector(".sass .vrow")
        jump = page.evaluate(
            """async () => {
              const found = [];
              for (let k = 0; k < 20; k++) {
                const t = performance.now();
                document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "n", bubbles: true }));
                await new Promise((d) => requestAnimationFrame(() => setTimeout(d)));
                found.push(performance.now() - t);
              }
              return found;
            }"""
        )
        print(f"SASS: select the next costly line {statistics.median(jump):.0f} ms")
        browser.close()


if __name__ == "__main__":
    main()
