"""Uniform twins give what their vector opcodes give."""

from __future__ import annotations

import numpy as np
import pytest
from sass import BACKENDS, Bench

RNG = np.random.Generator(np.random.PCG64(11))
# one value a warp
VALUES = [
    np.repeat(RNG.integers(0, 1 << 32, 32, np.uint64) >> RNG.integers(0, 32, 32).astype(np.uint64), 32).astype(
        np.uint32
    )
    for _ in range(4)
]
FLOATS = [
    np.repeat(RNG.integers(120, 134, 32) << 23 | RNG.integers(0, 1 << 23, 32), 32).astype(np.uint32) for _ in range(4)
]

# vector form: sources R4, R5 (or pairs R4:R5 and R6:R7), R6; result R0 (and R1)
PAIRS = [
    ("IADD3 R0, R4, -R5, R6", "UIADD3 UR8, UR12, -UR13, UR14"),
    ("IADD3 R0, R4, 0x200, RZ", "UIADD3 UR8, UR12, 0x200, URZ"),
    ("IMAD R0, R4, R5, R6", "UIMAD UR8, UR12, UR13, UR14"),
    ("IMAD.WIDE.U32 R0, R4, R5, R6", "UIMAD.WIDE.U32 UR8, UR12, UR13, UR14"),
    ("IMAD.HI.U32 R0, R4, R5, RZ", "UIMAD.HI.U32 UR8, UR12, UR13, URZ"),
    ("LEA R0, R4, R5, 0x4", "ULEA UR8, UR12, UR13, 0x4"),
    ("LEA.HI R0, R4, R5, R6, 0x1d", "ULEA.HI UR8, UR12, UR13, UR14, 0x1d"),
    ("LOP3.LUT R0, R4, R5, R6, 0x96, !PT", "ULOP3.LUT UR8, UR12, UR13, UR14, 0x96, !UPT"),
    ("SHF.L.U32 R0, R4, 0xc, RZ", "USHF.L.U32 UR8, UR12, 0xc, URZ"),
    ("SHF.R.S32.HI R0, RZ, R6, R5", "USHF.R.S32.HI UR8, URZ, UR14, UR13"),
    ("SHF.R.U64 R0, R4, 0x11, R5", "USHF.R.U64 UR8, UR12, 0x11, UR13"),
    ("PRMT R0, R4, 0x5410, R5", "UPRMT UR8, UR12, 0x5410, UR13"),
    ("SGXT.U32 R0, R4, 0xd", "USGXT.U32 UR8, UR12, 0xd"),
    ("BMSK R0, R4, R5", "UBMSK UR8, UR12, UR13"),
    ("POPC R0, R4", "UPOPC UR8, UR12"),
    ("BREV R0, R4", "UBREV UR8, UR12"),
    ("FLO.U32 R0, R4", "UFLO.U32 UR8, UR12"),
    ("MOV R0, R4", "UMOV UR8, UR12"),
    ("MOV.64 R0, R4", "UMOV.64 UR8, UR12"),
    ("IADD.64 R0, R4, R6", "UIADD3.64 UR8, UPT, UPT, UR12, UR14, URZ"),
    ("VIMNMX.U32 R0, R4, R5, PT", "UVIMNMX.U32 UR8, UR12, UR13, UPT"),
    ("IMNMX.S64 PT, PT, R0, R4, R6, PT, !PT", "UIMNMX.S64 UPT, UPT, UR8, UR12, UR14, UPT, !UPT"),
    ("I2FP.F32.U32 R0, R4", "UI2FP.F32.U32 UR8, UR12"),
    ("I2F.U32.RP R0, R4", "UI2F.U32.RP UR8, UR12"),
]  # fmt: skip
FLOAT_PAIRS = [
    ("FADD R0, R4, -R5", "UFADD UR8, UR12, -UR13"),
    ("FMUL.FTZ R0, R4, 1.5", "UFMUL.FTZ UR8, UR12, 1.5"),
    ("FFMA R0, R4, R5, R6", "UFFMA UR8, UR12, UR13, UR14"),
    ("F2I.TRUNC.NTZ R0, R4", "UF2I.TRUNC.NTZ UR8, UR12"),
    ("FRND.CEIL R0, R4", "UFRND.CEIL UR8, UR12"),
]


def outcome(lines: list[str], inputs: dict[str, np.ndarray], backend: str) -> np.ndarray:
    found = Bench(lines, list(inputs), ["R0", "R1"], backend).run(inputs)
    return np.stack([found["R0"], found["R1"]])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("vector", "uniform"), PAIRS + FLOAT_PAIRS)
def test_twin(vector: str, uniform: str, backend: str) -> None:
    values = FLOATS if (vector, uniform) in FLOAT_PAIRS else VALUES
    inputs = {f"R{4 + k}": values[k] for k in range(4)} | {"R1": np.zeros(1024, np.uint32)}
    expected = outcome([vector], inputs, backend)
    load = [f"R2UR UR{12 + k}, R{4 + k}" for k in range(4)] + ["UMOV UR9, URZ"]
    found = outcome([*load, uniform, "MOV R0, UR8", "MOV R1, UR9"], inputs, backend)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("vector", "uniform"),
    [
        ("ISETP.GE.U32.AND P0, P1, R4, R5, PT", "UISETP.GE.U32.AND UP0, UP1, UR12, UR13, UPT"),
        ("ISETP.NE.S64.AND P0, P1, R4, R6, PT", "UISETP.NE.S64.AND UP0, UP1, UR12, UR14, UPT"),
        ("FSETP.GT.FTZ.AND P0, P1, R4, R5, PT", "UFSETP.GT.FTZ.AND UP0, UP1, UR12, UR13, UPT"),
    ],
)
def test_uniform_predicates(vector: str, uniform: str, backend: str) -> None:
    inputs = {f"R{4 + k}": (FLOATS if "F" in vector[:5] else VALUES)[k] for k in range(4)}
    load = [f"R2UR UR{12 + k}, R{4 + k}" for k in range(4)]
    expected = Bench([vector], list(inputs), ["P0", "P1"], backend).run(inputs)
    lines = [*load, uniform, "UP2UR UR8, UPR, URZ, 0x3", "USEL UR9, UR12, UR13, UP0", "MOV R0, UR8", "MOV R1, UR9"]
    found = Bench(lines, list(inputs), ["R0", "R1"], backend).run(inputs)
    np.testing.assert_array_equal(found["R0"], expected["P0"] | expected["P1"] << 1)
    np.testing.assert_array_equal(found["R1"], np.where(expected["P0"], inputs["R4"], inputs["R5"]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_uniform_carry(backend: str) -> None:
    inputs = {f"R{4 + k}": VALUES[k] for k in range(4)}
    load = [f"R2UR UR{12 + k}, R{4 + k}" for k in range(4)]
    lines = [
        *load,
        "UIADD3 UR8, UP0, UR12, UR14, URZ",
        "UIADD3.X UR9, UR13, UR15, URZ, UP0, !UPT",
        "MOV R0, UR8",
        "MOV R1, UR9",
    ]
    found = outcome(lines, inputs, backend)
    wide = [v.astype(np.uint64) for v in VALUES]
    total = (wide[0] | wide[1] << np.uint64(32)) + (wide[2] | wide[3] << np.uint64(32))
    np.testing.assert_array_equal(found[0] | found[1].astype(np.uint64) << np.uint64(32), total)


@pytest.mark.parametrize("backend", BACKENDS)
def test_uniform_plop3(backend: str) -> None:
    lines = ["R2UR UR12, R4", "UISETP.NE.AND UP1, UPT, UR12, URZ, UPT", "UPLOP3.LUT UP0, UP2, UP1, UPT, UPT, 0x80, 0x8",
             "UP2UR UR8, UPR, URZ, 0x5", "MOV R0, UR8"]  # fmt: skip
    flag = np.repeat([0, 1] * 16, 32).astype(np.uint32)
    found = Bench(lines, ["R4"], ["R0"], backend).run({"R4": flag})["R0"]
    np.testing.assert_array_equal(found, np.where(flag, 1, 4))
