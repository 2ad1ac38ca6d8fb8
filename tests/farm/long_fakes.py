"""An evaluator whose items take as long as they are left to, and say how far they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import farm_fakes

from jobs.work import VariantResult, WorkItem

_tell: Callable[[float], None] = lambda share: None  # noqa: E731


def report_progress_to(receiver: Callable[[float], None]) -> None:
    global _tell
    _tell = receiver


def evaluate(items: list[WorkItem]) -> Iterator[tuple[str, int, VariantResult | None]]:
    """Each says that a quarter is done, and is done when the file `go` lies in its cache folder."""
    for index, item in enumerate(items):
        yield "begin", index, None
        _tell(0.25)
        while not Path(item.cache, "go").exists():
            time.sleep(0.02)
        yield "done", index, farm_fakes.result_of(item)
