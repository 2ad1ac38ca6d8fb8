"""One source, eight architectures: the same bytes.

The second variant of each family (shared memory, wide accesses, unrolling) is compiled for every architecture; its
outputs must be the bytes that an H200 gave for sm_90a (tests/data/hardware/outputs.json) and lie within the error bound
of the NumPy reference. No pair of family and architecture is excepted: the sources spell out their fused
multiply-adds or leave contraction to the front end, which decides before the architecture matters, and ptxas keeps the
order of operations; all three variants of all families were seen to agree on all eight.

What this cannot show: matrix instructions use the arithmetic recorded on an H200 whatever the architecture, so a real
GPU of another generation may round hgemm_mma's sums otherwise.
"""

from __future__ import annotations

import hashlib

import hardware_cases as cases
import pytest
from hardware_references import excess, reference

ARCHITECTURES = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_110a", "sm_120a")
ALL = cases.read_cases(cases.DATA / "outputs.json")
CASES = [[case for case in ALL if case["family"] == family][1] for family in cases.FAMILIES]

pytestmark = cases.needs_compiler()


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_architecture(arch: str) -> None:
    _, programs = cases.compile_cases(CASES, arch)
    wrong = []
    for case, program in zip(CASES, programs):
        assert program.sm == int("".join(filter(str.isdigit, arch)))
        ready = cases.prepare(case, program)
        expected = reference(case, ready.inputs, ready.scalars)
        ready.machine.run()
        for name, found in ready.outputs.items():
            units = excess(found, *expected[name])
            if units > 1:
                wrong.append(f"{case['family']}.{name}: {units:.3g} times the allowed error around NumPy's result")
            if hashlib.sha256(found.tobytes()).hexdigest() != case["results"][name]["sha256"]:
                wrong.append(
                    f"{case['family']}.{name}: other bytes than sm_90a gives ({units:.3g} of the allowed error)"
                )
    assert not wrong, f"{arch}:\n" + "\n".join(wrong)
