"""MUFU against results recorded on an H200 (tests/data/hardware/mufu.npz)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from sass import BACKENDS, Bench

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
import hardware_inputs as inputs  # noqa: E402

RECORDED = np.load(ROOT / "data" / "hardware" / "mufu.npz")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", inputs.MUFU_FUNCTIONS)
def test_mufu(function: str, backend: str) -> None:
    words, expected = inputs.mufu_inputs(function), RECORDED[function]
    if backend == "numpy":
        words, expected = words[::3], expected[::3]
    bench = Bench([f"MUFU.{function} R0, R4"], ["R4"], ["R0"], backend)
    found = np.concatenate([bench.run({"R4": words[k : k + 1024]})["R0"] for k in range(0, len(words), 1024)])
    wrong = np.flatnonzero(found != expected)
    assert not len(wrong), (
        f"{len(wrong)} of {len(expected)} differ, first {words[wrong[0]]:#x}: "
        f"{found[wrong[0]]:#x}, the GPU gave {expected[wrong[0]]:#x}"
    )
