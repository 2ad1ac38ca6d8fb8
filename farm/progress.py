"""Progress on stderr: a bar on a terminal, a plain line now and then otherwise."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

PLAIN_SECONDS = 10.0


class Reporter:
    """Counts finished work items and says so. `failed` of them gave no estimate."""

    def __init__(self, console: Console, label: str, total: int) -> None:
        self._console = console
        self._label = label
        self.total = total  # an expectation: funnels decide as they go
        self._done = 0
        self._failed = 0
        self._said = time.monotonic()
        self._first = 0.0  # when the first item finished: before that, workers start and compile their own code
        self._bar: Progress | None = None
        self._task = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task(label, total=total, rate="")

    @contextlib.contextmanager
    def running(self) -> Iterator[Reporter]:
        if self._bar is None:
            yield self
            return
        with self._bar:
            yield self

    def advance(self, failed: bool) -> None:
        """One more item is finished."""
        self._done += 1
        self._failed += failed
        now = time.monotonic()
        self._first = self._first or now
        rate = (self._done - 1) / max(now - self._first, 1e-3)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, total=self.total, rate=_rate(rate))
        elif now - self._said >= PLAIN_SECONDS and self._done < self.total:
            self._said = now
            text = f"{self._label}: {self._done} of {self.total}"
            if self._failed:
                text += f", {self._failed} failed"
            if self._done > 1:
                text += f", {_rate(rate)}, about {(self.total - self._done) / rate:.0f} s left"
            self._console.print(text, highlight=False)

    def say(self, text: str) -> None:
        """Something the user should know."""
        console = self._console if self._bar is None else self._bar.console
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    def under_way(self, items: list[tuple[str, float]]) -> None:
        """How far long evaluations have come: (label, share done)."""
        if not items:
            return
        text = ", ".join(f"{label} {share:.0%}" for label, share in items)
        now = time.monotonic()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=f"{self._label}: {text}")
        elif now - self._said >= PLAIN_SECONDS:
            self._said = now
            self._console.print(f"{self._label}: {text}", highlight=False)


def _rate(rate: float) -> str:
    return f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"
