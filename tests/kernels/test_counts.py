"""Counters of every SASS line equal Nsight Compute's of an H200, exactly.

tests/data/hardware/counts holds, for one to three measured variants of each of twelve families at their full sizes,
nine columns of Nsight's source page (rows of zeros left out): warps and threads that executed a line, threads with a
true guard, divergent branches, L1 tag requests, L2 sectors and their ideal, shared-memory wavefronts and their ideal.
The same source, compiled, gives the measured cubin byte for byte; the whole grid runs in mode "count".

Columns that depend on data, since the inputs of the measured runs were other random numbers of the same distribution:

- elementwise (GELU): "predicated-on threads" of the instruction that only small arguments of tanh need.
- softmax with ONLINE=1: the same column where a running maximum changes (not those chosen here).
- histogram: keys decide which lanes meet in a bin, so shared wavefronts of the atomics on shared counters, tag requests
  and L2 sectors of those on global ones; with many bins also which are empty, so thread counts and sectors of the last
  loop (not those chosen here).
- reduce with FINISH=1: the ticket counter decides whether a CTA is the last. In the measured runs none was, as when the
  counter starts at the number of CTAs or above; so it starts there, and then all rows are equal.

The rows of the first and third (`data_dependent` in the index) are compared within 1 %; every other row, and every
other column of those rows, exactly.
"""

from __future__ import annotations

import csv
import gzip
import io

import hardware_cases as cases
import numpy as np
import pytest

from interpreter.trace import COUNTERS

FOLDER = cases.DATA / "counts"
CASES = cases.read_cases(FOLDER / "index.json")
SAME_DISTRIBUTION = 0.01  # relative difference allowed where data decide; the greatest seen is 0.2 %
SLOW = {("conv2d", 19), ("hgemm_mma", 30), ("nbody", 46)}  # 50 to 207 million warp instructions, or matrix ones

pytestmark = cases.needs_compiler()


def name(case: dict) -> str:
    return f"{case['family']}.{case['variant']}"


def recorded(case: dict, rows: int) -> dict[str, np.ndarray]:
    """Counter -> int64[rows] of the measured variant."""
    text = gzip.decompress((FOLDER / f"{name(case)}.csv.gz").read_bytes()).decode()
    table = {counter: np.zeros(rows, np.int64) for counter in COUNTERS}
    reader = csv.DictReader(io.StringIO(text))
    assert reader.fieldnames is not None and set(reader.fieldnames) == {"row", *COUNTERS}
    for line in reader:
        for counter in COUNTERS:
            table[counter][int(line["row"])] = int(line[counter] or 0)
    return table


def test_every_family_is_there() -> None:
    assert {case["family"] for case in CASES} == set(cases.FAMILIES)
    dependent = {case["family"] for case in CASES if "data_dependent" in case}
    assert dependent <= {"elementwise", "histogram"}
    for case in CASES:
        for counter in case.get("data_dependent", {}):
            assert counter in COUNTERS and counter != "instructions_executed"


def parameters() -> list:
    slow = pytest.mark.slow
    return [
        pytest.param(case, id=name(case), marks=[slow] if (case["family"], case["variant"]) in SLOW else [])
        for case in CASES
    ]


@pytest.mark.parametrize("case", parameters())
def test_counts(case: dict) -> None:
    (compiled,), (program,) = cases.compile_cases([case], "sm_90a")
    assert compiled.sha == case["cubin_sha"], "not the cubin that was measured"
    wanted = recorded(case, len(program.instructions))
    assert wanted["instructions_executed"].sum() > 1e6

    ready = cases.prepare(case, program, recorded_inputs=False)
    with ready.memory:
        result = ready.machine.run(mode="count")
    assert result.counts is not None
    assert result.warp_instructions == result.counts["instructions_executed"].sum()
    wrong = []
    for counter in COUNTERS:
        found = result.counts[counter].astype(np.int64)
        allowed = np.zeros(len(found))
        dependent = case.get("data_dependent", {}).get(counter, [])
        allowed[dependent] = SAME_DISTRIBUTION * wanted[counter][dependent]
        for row in np.flatnonzero(np.abs(found - wanted[counter]) > allowed):
            line = f"{counter}, row {row}, {program.instructions[row].text}"
            wrong.append(f"{line}: {found[row]}, an H200 counted {wanted[counter][row]}")
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong[:20])
