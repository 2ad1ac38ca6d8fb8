"""Compiled kernels give the bytes that an H200 gave, and the numbers that NumPy gives.

tests/data/hardware/outputs.json holds SHA-256 of the outputs of three variants of each of twelve families at reduced
sizes, each from one launch on an H200 (tests/hardware_record.py). All 36 fix the order of their operations: the only
atomics across CTAs are those of histogram and of reduce's ticket counter, which are integers, and reduce adds its
partial sums in CTA order in the CTA that finishes last (FINISH=1; a float atomic per CTA, FINISH=0, would not be
reproducible and is not recorded). So every output must agree bit for bit, and besides lie within the error bound of
`hardware_references` around a float64 (or exact integer) result.
"""

from __future__ import annotations

import hashlib

import hardware_cases as cases
import numpy as np
import pytest
from hardware_references import excess, reference

CASES = cases.read_cases(cases.DATA / "outputs.json")

pytestmark = cases.needs_compiler()


def test_every_family_is_there() -> None:
    families = [case["family"] for case in CASES]
    assert {family: families.count(family) for family in families} == dict.fromkeys(cases.FAMILIES, 3)


@pytest.mark.parametrize("case", CASES, ids=cases.label)
def test_output(case: dict) -> None:
    (compiled,), (program,) = cases.compile_cases([case], "sm_90a")
    assert compiled.sha == case["cubin_sha"], "not the cubin that was measured"
    ready = cases.prepare(case, program)
    expected = reference(case, ready.inputs, ready.scalars)
    assert set(ready.outputs) == set(case["results"]) == set(expected)

    assert ready.machine.run().warp_instructions > 0
    for name, found in ready.outputs.items():
        wanted, allowed = expected[name]
        assert excess(found, wanted, allowed) <= 1, f"{name} is off the NumPy result"
        recorded = case["results"][name]
        first = np.array(recorded["first"], found.dtype)
        assert hashlib.sha256(found.tobytes()).hexdigest() == recorded["sha256"], (
            f"{name} differs from the recorded bytes; it begins {found.ravel()[:4]}, an H200's {first}"
        )


def test_the_references_are_strict() -> None:
    """One wrong element of the order of a result's own size exceeds every family's allowance."""
    seen = set()
    for case in CASES:
        if case["family"] in seen:
            continue
        seen.add(case["family"])
        inputs, scalars = {}, {}
        for a in case["arguments"]:
            if "value" in a:
                scalars[a["name"]] = np.dtype(a["dtype"]).type(a["value"])
            elif not a.get("output"):
                inputs[a["name"]] = cases.hardware_inputs.fill(a["name"], a["dtype"], tuple(a["shape"]), a["fill"])
        for name, (wanted, allowed) in reference(case, inputs, scalars).items():
            wrong = wanted.astype(np.float64)
            place = np.unravel_index(np.argmax(np.abs(wrong)), wrong.shape)
            wrong[place] = wrong[place] * (1 + 1e-3) + (wanted.dtype.kind == "u")
            assert excess(wanted, wanted, allowed) == 0
            assert excess(wrong, wanted, allowed) > 1, f"{case['family']}.{name}"
