"""An evaluator that sleeps FARM_SLEEP seconds an item: what remains of a task's time is what the farm costs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from jobs.work import VariantResult, WorkItem


def evaluate(items: list[WorkItem]) -> Iterator[tuple[str, int, VariantResult | None]]:
    for index, item in enumerate(items):
        yield "begin", index, None
        time.sleep(float(os.environ["FARM_SLEEP"]))
        yield "done", index, VariantResult(item.family, item.variant)
