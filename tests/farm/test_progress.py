"""Progress lines when nobody watches a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import farm.progress
from farm.progress import Reporter


def test_plain_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(farm.progress.time, "monotonic", lambda: clock[0])
    text = io.StringIO()
    with Reporter(Console(file=text, width=200), "toy", 10).running() as reporter:
        for n in range(10):
            clock[0] += 60.0 if n == 0 else 4.0  # the first takes long: workers start
            reporter.advance(failed=n == 1)
    lines = text.getvalue().splitlines()
    assert lines[0] == "toy: 1 of 10"
    assert lines[1] == "toy: 4 of 10, 1 failed, 15.0/min, about 24 s left"
    assert len(lines) == 3  # every ten seconds, and not the last


def test_a_bar_on_a_terminal() -> None:
    text = io.StringIO()
    with Reporter(Console(file=text, width=100, force_terminal=True), "toy", 2).running() as reporter:
        reporter.advance(failed=False)
        reporter.advance(failed=False)
    assert "2/2" in text.getvalue()
