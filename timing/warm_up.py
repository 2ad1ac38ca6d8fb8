"""Compiling the timing engine ahead of its first use: once a version and machine, then it is read from the cache."""

from __future__ import annotations

import time
from pathlib import Path

import numba
import numpy as np

from interpreter.trace import EVENT, Trace
from timing import sm_parameters as sp
from timing.chip_engine import Chip
from timing.chip_l2 import chip_l2, fill
from timing.sm_engine import run_sm
from timing.sm_rows import ACTION_EXIT, ROW
from timing.stalls import N_STALLS
from timing.timeline import ChipTimeline, recorder
from timing.trace_pool import TracePool


def is_compiled(chip: bool = False) -> bool:
    """Whether the cache already holds the engine (numba then loads it in well under a second).

    `chip`: and what the cycle tier needs besides.
    """
    directory = Path(str(numba.config.CACHE_DIR))  # type: ignore[attr-defined]
    wanted = ("sm_engine.advance", "chip_engine.advance_some") if chip else ("sm_engine.advance",)
    return all(any(directory.rglob(f"{name}-*.nbc")) for name in wanted)


def compile_engine(chip: bool = False, records: bool = False) -> float:
    """Compile or load the engine by timing one warp that only exits; returns the seconds it took.

    `records`: the engine that records timelines.
    """
    started = time.perf_counter()
    rows = np.zeros(1, ROW)
    rows["action"], rows["write_barrier"], rows["read_barrier"] = ACTION_EXIT, 7, 7
    parameters = sp.blank()
    parameters[[sp.L1_SECTORS, sp.L1_WAYS, sp.L0_LINES, sp.L1I_LINES]] = (64, 4, 4, 4)
    run_sm(
        rows,
        np.zeros(1, EVENT),
        np.array([0, 1], np.int64),
        np.zeros(1, np.uint64),
        np.zeros(2, np.int64),
        1,
        np.zeros(1, np.int64),
        1,
        parameters,
        np.zeros((0, 2), np.int64),
        np.zeros((0, 4)),
        1 << 60,
        np.zeros((1, N_STALLS)),
        np.zeros(1),
        np.zeros(1, np.int64),
        recorder(1) if records else None,
    )
    if chip:
        _run_chip(rows, parameters, records)
    return time.perf_counter() - started


def _run_chip(rows: np.ndarray, parameters: np.ndarray, records: bool) -> None:
    """One warp that only exits, on a chip of one SM."""
    start = np.array([0, 1], np.int64)
    pool = TracePool(1)
    places = pool.add(Trace([0], 1, np.zeros(1, EVENT), start, np.zeros(0, np.uint64), np.zeros(2, np.int64)))
    l2 = chip_l2(1 << 20, 1, parameters)
    fill(np.zeros((0, 2), np.int64), 0.0, 0.0, l2)
    chip = Chip(rows, parameters, l2, pool, sms=1, resident=1, grid=1, warps=1, launch_cycles=1.0,
                 timeline=ChipTimeline(1, int(records)))  # fmt: skip
    chip.take(places)
    chip.run(lambda _count: None)
