"""Chromium for the page's tests, and a page that notes whatever goes wrong in it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import page_runs
import pytest

from farm.database import RunDatabase
from farm.page.write import write_pages


def chromium() -> str | None:
    """Path of a Chromium or Chrome; FARM_CHROMIUM wins."""
    named = os.environ.get("FARM_CHROMIUM")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return named or next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = chromium()
    if path is None:
        text = "needs Chromium (Debian: apt-get install chromium; or FARM_CHROMIUM=/path)"
        if os.environ.get("FARM_REQUIRE_BROWSER"):
            pytest.fail(text)
        pytest.skip(text)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield found
        found.close()


class Visit:
    """A page of the browser at an address, with what it logged and asked for."""

    def __init__(self, browser: Any, url: str, width: int = 1500, height: int = 1000, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: m.type in ("error", "warning") and self.problems.append(m.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.problems.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)
        self.page.wait_for_selector("main")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def texts(self, selector: str) -> list[str]:
        return list(self.page.locator(selector).all_inner_texts())

    def until(self, expression: str, seconds: float = 10.0) -> None:
        """Wait until an expression is true (the page's policy forbids Playwright's own way, which needs eval)."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Opens a file; afterwards nothing may have been logged, and nothing but that file asked for."""
    visits: list[Visit] = []

    def go(path: Path | str, fragment: str = "", **options: Any) -> Visit:
        url = (path.as_uri() if isinstance(path, Path) else path) + fragment
        visits.append(Visit(browser, url, **options))
        return visits[-1]

    yield go
    for seen in visits:
        assert seen.problems == []
        assert [url for url in seen.requests if not url.startswith(("file://", "data:"))] == []
        seen.context.close()


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return page_runs.make_run(tmp_path_factory.mktemp("store") / "demo")


@pytest.fixture(scope="session")
def pages(run_folder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the pages of `run_folder`: the index, and variants 0, 1 and 2."""
    folder = tmp_path_factory.mktemp("pages")
    write_pages(RunDatabase(run_folder), folder, [("sgemm", n) for n in range(3)])
    return folder
