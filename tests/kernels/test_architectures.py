"""One source, eight architectures: where the compilers order floating-point operations alike, the bytes are the same.

One variant of each family runs on code compiled for every architecture; its outputs must be the bytes that an H200 gave
for sm_90a (tests/data/hardware/outputs.json) unless the pair is listed in DIFFERENT with its reason, and must always lie
within the error bound of the NumPy reference. A listed pair that agrees after all is an error too.
"""

from __future__ import annotations

import hashlib

import hardware_cases as cases
import pytest
from hardware_references import excess, reference

ARCHITECTURES = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_110a", "sm_120a")
# of a family's three variants, the one with most of its machinery (shared memory, wide accesses, unrolling)
CHOSEN = {family: 1 for family in cases.FAMILIES}

DIFFERENT: dict[tuple[str, str], str] = {}

ALL = cases.read_cases(cases.DATA / "outputs.json")
CASES = [[c for c in ALL if c["family"] == family][which] for family, which in CHOSEN.items()]

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
        same = True
        for name, found in ready.outputs.items():
            units = excess(found, *expected[name])
            if units > 1:
                wrong.append(f"{case['family']}.{name}: {units:.3g} times the allowed error")
            same &= hashlib.sha256(found.tobytes()).hexdigest() == case["results"][name]["sha256"]
        listed = (case["family"], arch) in DIFFERENT
        if same == listed:
            wrong.append(f"{case['family']}: {'the same bytes though listed' if same else 'other bytes than sm_90a'}")
    assert not wrong, f"{arch}:\n" + "\n".join(wrong)
