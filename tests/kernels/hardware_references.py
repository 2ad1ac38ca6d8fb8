"""What each kernel family computes, in NumPy: float64 or exact integers, independent of tiles, blocks and order.

`reference(case, inputs, scalars)` gives, for every output, the expected array and the absolute error allowed for each
element. The allowances are error bounds of float32 arithmetic: a sum of n products may be off by n roundings of half
a unit (2**-24) of the sum of magnitudes, whatever the order (Higham, Accuracy and Stability of Numerical Algorithms,
section 3.1). Where an output is moved or counted rather than computed, the allowance is zero.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

HALF_UNIT = 2.0**-24  # relative error of one rounding to float32
Arrays = dict[str, np.ndarray]
Expected = dict[str, tuple[np.ndarray, np.ndarray | float]]


def reference(case: dict, inputs: Arrays, scalars: dict[str, np.generic]) -> Expected:
    """Output name -> (expected, allowed absolute error)."""
    wide = {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in inputs.items()}
    return REFERENCES[case["family"]](case["macros"], wide, scalars)


def excess(found: np.ndarray, expected: np.ndarray, allowed: np.ndarray | float) -> float:
    """Greatest error in units of what is allowed (0 where both are zero); infinite for NaN or a misshapen result."""
    if found.shape != expected.shape:
        return float("inf")
    error = np.abs(found.astype(np.float64) - expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        units = np.where(error == 0, 0.0, error / np.broadcast_to(np.asarray(allowed, np.float64), error.shape))
    return float("inf") if np.isnan(units).any() else float(units.max())


def _sgemm(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    a, b = inputs["a"], inputs["b"]
    return {"c": (a @ b, macros["SIZE_K"] * HALF_UNIT * (np.abs(a) @ np.abs(b)))}


def _hgemm_mma(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    """Products of float16 are exact; one matrix instruction cuts each of 16 products and the sum to 24 bits below the
    greatest of them, so up to two units a term instead of half of one."""
    a, b = inputs["a"], inputs["b"]
    return {"c": (a @ b, 4 * macros["SIZE_K"] * HALF_UNIT * (np.abs(a) @ np.abs(b)))}


def _reduce(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    """One thread adds ITEMS values, then the sums meet in trees of at most ten levels, twice, with a loop between.
    The last CTA sets `tickets` back to zero."""
    values = inputs["input"][: int(scalars["count"])]
    depth = macros["ITEMS"] + 20 + -(-macros["BLOCKS"] // macros["BLOCK"])
    total = np.array([values.sum()])
    return {
        "total": (total, depth * HALF_UNIT * np.array([np.abs(values).sum()])),
        "tickets": (np.zeros(1, np.uint32), 0.0),
    }


def _transpose(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    return {"output": (inputs["input"].T, 0.0)}


def _softmax(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    """__expf is 2**(x log2 e): the product's rounding grows with |x| (up to the row's range), MUFU.EX2 adds 2 units
    (CUDA programming guide, intrinsic functions). The denominator's error is that of its terms and of their sum; a
    running maximum rescales sums up to once a value, but a rescaled sum is never the larger part."""
    x = inputs["input"]
    shifted = x - x.max(axis=1, keepdims=True)
    e = np.exp(shifted)
    expected = e / e.sum(axis=1, keepdims=True)
    steps = macros["COLS"] / (macros["BLOCK"] if macros["BLOCK_PER_ROW"] else 32)
    roundings = 2 * (2 * np.abs(shifted) + 8) + 2 * steps + 10
    return {"output": (expected, roundings * HALF_UNIT * expected)}


def _stencil2d(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    """Weights 0.5 (middle), 0.1 (edges) and, with nine points, 0.025 (corners); values at the border repeat."""

    def apply(x: np.ndarray) -> np.ndarray:
        p = np.pad(x, 1, mode="edge")
        edges = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
        corners = p[:-2, :-2] + p[:-2, 2:] + p[2:, :-2] + p[2:, 2:]
        return 0.5 * x + 0.1 * edges + (0.025 * corners if macros["POINTS"] == 9 else 0.0)

    x = inputs["input"]
    return {"output": (apply(x), 2 * macros["POINTS"] * HALF_UNIT * apply(np.abs(x)))}


def _elementwise(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    """CHAIN = 0: the tanh form of GELU, where 1 + tanh cancels for negative x: the error is that of tanh (2 units,
    CUDA programming guide, mathematical functions) next to 1, times x. Otherwise CHAIN steps y = 0.75 y + x."""
    x = inputs["input"][: int(scalars["count"])]
    if macros["CHAIN"] == 0:
        inner = 0.7978845608 * (x + 0.044715 * x**3)
        return {"output": (0.5 * x * (1 + np.tanh(inner)), 8 * HALF_UNIT * np.abs(x))}
    y, most = x, np.abs(x)
    for _ in range(macros["CHAIN"]):
        y, most = 0.75 * y + x, 0.75 * most + np.abs(x)
    return {"output": (y, macros["CHAIN"] * HALF_UNIT * most)}


def _histogram(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    keys = inputs["keys"][: int(scalars["count"])] & np.uint32(macros["BINS"] - 1)
    return {"counts": (np.bincount(keys, minlength=macros["BINS"]).astype(np.uint32), 0.0)}


def _nbody(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    """Acceleration by sources of mass w, softened; a term has some 20 roundings (the cube triples those of the
    reciprocal square root, 2 units by itself), the sum one a source."""
    targets, sources = inputs["targets"], inputs["sources"]
    offset = sources[None, :, :3] - targets[:, None, :3]
    squared = (offset**2).sum(axis=2) + np.float64(np.float32(1e-3))
    terms = offset * (sources[None, :, 3] * squared**-1.5)[:, :, None]
    expected = np.zeros(targets.shape)
    expected[:, :3] = terms.sum(axis=1)
    allowed = np.zeros(targets.shape)
    allowed[:, :3] = (macros["SOURCES"] + 20) * HALF_UNIT * np.abs(terms).sum(axis=1)
    return {"accelerations": (expected, allowed)}


def _conv2d(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    """Coefficients 0, 1, 2, ... over the filter (constant memory holds the same), scaled by 1 / taps**2."""
    size = macros["FILTER"]
    taps = np.arange(size * size, dtype=np.float64).reshape(size, size)
    windows = np.lib.stride_tricks.sliding_window_view(inputs["image"], (size, size))
    scale = 1.0 / taps.size**2
    expected = scale * np.einsum("yxij,ij->yx", windows, taps)
    most = scale * np.einsum("yxij,ij->yx", np.abs(windows), taps)
    return {"output": (expected, (taps.size + 2) * HALF_UNIT * most)}


def _launch_bounds(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    """Each round moves a value by `rate` towards its neighbour (around a ring). A round is an average, so it passes
    earlier errors on without growing them and adds at most 1.5 units of the greatest value."""
    value, rate = inputs["input"], float(scalars["rate"])
    greatest = np.abs(value).max(axis=0)
    for _ in range(macros["ROUNDS"]):
        value = value + rate * (np.roll(value, -1, axis=0) - value)
    energy = (value**2).sum(axis=0)
    drift = 3 * macros["ROUNDS"] * HALF_UNIT * greatest
    allowed = 2 * drift * np.abs(value).sum(axis=0) + macros["VALUES"] * HALF_UNIT * energy
    return {"output": (energy, allowed)}


def _bankconflict(macros: dict, inputs: Arrays, scalars: dict) -> Expected:
    """PASSES times the sum of each CTA's tile: a chain of additions a thread and word, then words, lanes and warps."""
    words = macros["WIDTH"] // 4
    chain = macros["PASSES"] * macros["TILE"] // words // macros["BLOCK"]
    depth = chain + words + 5 + macros["BLOCK"] // 32
    sums = macros["PASSES"] * inputs["input"].sum(axis=1)
    return {"sums": (sums, depth * HALF_UNIT * macros["PASSES"] * np.abs(inputs["input"]).sum(axis=1))}


REFERENCES: dict[str, Callable[[dict, Arrays, dict], Expected]] = {
    "bankconflict": _bankconflict,
    "conv2d": _conv2d,
    "elementwise": _elementwise,
    "hgemm_mma": _hgemm_mma,
    "histogram": _histogram,
    "launch_bounds": _launch_bounds,
    "nbody": _nbody,
    "reduce": _reduce,
    "sgemm": _sgemm,
    "softmax": _softmax,
    "stencil2d": _stencil2d,
    "transpose": _transpose,
}
