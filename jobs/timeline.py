"""Timelines on their way to the table `timeline`: encoded where they are made, a bounded number of rows at a time.

Encoded, a row takes a byte or two instead of forty. So what a worker sends, and what waits to be written, stays small,
and the driver writes the bytes as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from interpreter.program import Program
from jobs.parts import Encoded, encode
from jobs.tables import SCHEMAS
from jobs.work import WorkItem
from timing.estimate import Estimate
from timing.stalls import STALLS, stall_name

PART_ROWS = 512 * 1024  # rows of one part, at most
BYTES_A_ROW = 2.0  # in a part, rather more than less: 1.5 over examples, 1 to 2.5 each (benchmarks/encodings.py)

_REASONS = pa.array([stall_name(stall) for stall in STALLS])


def encoded_timeline(item: WorkItem, estimate: Estimate, program: Program) -> Iterator[Encoded]:
    """The rows of an estimate's timeline, as parts."""
    assert estimate.timeline is not None
    for first in range(0, len(estimate.timeline.records), PART_ROWS):
        yield encode("timeline", _table(item, estimate, program, first))


def recording_row(item: WorkItem, estimate: Estimate) -> dict[str, Any]:
    """The row of `recordings` of an estimate's timeline."""
    timeline = estimate.timeline
    assert timeline is not None
    return {
        "family": item.family,
        "variant": item.variant,
        "target": estimate.target,
        "tier": estimate.tier,
        "sms": timeline.sms,
        "records": len(timeline.records),
        "issued": timeline.issued,
        "until_cycle": timeline.until,
    }


def _table(item: WorkItem, estimate: Estimate, program: Program, first: int) -> pa.Table:
    """Rows from the `first` on, as many as a part takes."""
    assert estimate.timeline is not None
    records = estimate.timeline.records[first : first + PART_ROWS]
    addresses = np.array([instruction.address for instruction in program.instructions], np.int32)
    waited = records["stalled"] > 0
    columns = {
        "family": _same(item.family, len(records)),
        "variant": np.full(len(records), item.variant, np.int32),
        "target": _same(estimate.target, len(records)),
        "tier": _same(estimate.tier, len(records)),
        "sm": estimate.timeline.sm[first : first + PART_ROWS],
        "sub_core": records["sub_core"].astype(np.int8),
        "cta": records["cta"],
        "warp": records["warp"],
        "cycle": records["cycle"],
        "pc": addresses[records["row"]],
        "stalled": records["stalled"],
        "reason": pa.DictionaryArray.from_arrays(pa.array(records["reason"].astype(np.int32), mask=~waited), _REASONS),
    }
    schema = SCHEMAS["timeline"]
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def _same(value: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))
