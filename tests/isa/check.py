"""Runs one SASS line on generated operands, on every back end, against an oracle that works element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import columns
from sass import BACKENDS, Bench, Instruction

# few examples a line, 32 elements each: the lines are many
RUNS = settings(max_examples=4, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))


@cache
def bench(line: str | Instruction, inputs: tuple[str, ...], outputs: tuple[str, ...], backend: str) -> Bench:
    return Bench([line], inputs, outputs, backend)


def split(values: Sequence[int], register: int, wide: bool) -> dict[str, np.ndarray]:
    whole = np.array(values, np.uint64)
    found = {f"R{register}": (whole & np.uint64(0xFFFFFFFF)).astype(np.uint32)}
    if wide:
        found[f"R{register + 1}"] = (whole >> np.uint64(32)).astype(np.uint32)
    return found


def check(
    line: str | Instruction,
    operands: str,
    expected: Callable[..., int | tuple[int, ...]],
    strategies: dict[str, st.SearchStrategy[int]],
    outputs: Sequence[str] = ("R0",),
    predicates: Sequence[str] = (),
) -> None:
    """`operands`: one letter a source R4, R6, R8, ..., naming its strategy; capitals are register pairs. `predicates`
    are inputs (0 or 1) after them. `expected(*sources, *predicates)` gives one number an output; "R0:64" is a pair."""
    names = [f"R{4 + 2 * k}" for k in range(len(operands))]
    flat_in: list[str] = []
    for letter, name in zip(operands, names):
        flat_in += [name, f"R{int(name[1:]) + 1}"] if letter.isupper() else [name]
    flat_out: list[str] = []
    for name in outputs:
        flat_out += [name[:-3], f"R{int(name[1:-3]) + 1}"] if name.endswith(":64") else [name]
    data = st.tuples(
        *(columns(strategies[letter], 1).map(lambda c: c[0]) for letter in operands),
        *(columns(st.integers(0, 1), 1).map(lambda c: c[0]) for _ in predicates),
    )

    @RUNS
    @given(data)
    def run(values: tuple[list[int], ...]) -> None:
        inputs: dict[str, np.ndarray] = {}
        for k, letter in enumerate(operands):
            inputs |= split(values[k], 4 + 2 * k, letter.isupper())
        for k, name in enumerate(predicates):
            inputs[name] = np.array(values[len(operands) + k], np.uint32)
        want = [expected(*element) for element in zip(*values)]
        want = [w if isinstance(w, tuple) else (w,) for w in want]
        for backend in BACKENDS:
            b = bench(line, tuple(flat_in) + tuple(predicates), tuple(flat_out), backend)
            found = b.run(inputs)
            for k, name in enumerate(outputs):
                if name.endswith(":64"):
                    low, high = found[name[:-3]], found[f"R{int(name[1:-3]) + 1}"]
                    got = (low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)).tolist()
                else:
                    got = found[name].tolist()
                for element, (g, w) in enumerate(zip(got, want)):
                    arguments = ", ".join(hex(v[element]) for v in values)
                    assert g == w[k], f"{backend}: {line}: {name} of ({arguments}) is {g:#x}, not {w[k]:#x}"

    run()
