"""Compiling the timing engine ahead of its first use: once a version and machine, then it is read from the cache."""

from __future__ import annotations

import time
from pathlib import Path

import numba
import numpy as np

from interpreter.trace import EVENT
from timing import sm_parameters as sp
from timing.sm_engine import run_sm
from timing.sm_rows import ACTION_EXIT, ROW
from timing.stalls import N_STALLS


def is_compiled() -> bool:
    """Whether the cache already holds the engine (numba then loads it in well under a second)."""
    directory = Path(str(numba.config.CACHE_DIR))  # type: ignore[attr-defined]
    return any(directory.rglob("sm_engine.advance-*.nbc"))


def compile_engine() -> float:
    """Compile or load the SM engine by timing one warp that only exits; returns the seconds it took."""
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
        np.zeros((0, 3)),
        1 << 60,
        np.zeros((1, N_STALLS)),
        np.zeros(1),
        np.zeros(1, np.int64),
    )
    return time.perf_counter() - started
