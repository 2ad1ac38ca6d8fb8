"""Operand texts: every form, and a round trip over generated ones."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter.operands import OperandError, float32_bits, is_float_text, parse_operand
from interpreter.program import PT, RZ, URZ, Operand, OperandKind

K = OperandKind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("R4", Operand(K.REGISTER, 4)),
        ("RZ", Operand(K.REGISTER, RZ)),
        ("-R4.reuse", Operand(K.REGISTER, 4, negate=True, reuse=True)),
        ("|R4|", Operand(K.REGISTER, 4, absolute=True)),
        ("|R3|.reuse", Operand(K.REGISTER, 3, absolute=True, reuse=True)),
        ("-|R4|.H0_H0", Operand(K.REGISTER, 4, negate=True, absolute=True, modifiers=("H0_H0",))),
        ("~R4", Operand(K.REGISTER, 4, invert=True)),
        ("R4.H0_NH1", Operand(K.REGISTER, 4, modifiers=("H0_NH1",))),
        ("R25.reuse.H1_H1", Operand(K.REGISTER, 25, reuse=True, modifiers=("H1_H1",))),
        ("-R8.F32x2.HI_LO", Operand(K.REGISTER, 8, negate=True, modifiers=("F32x2", "HI_LO"))),
        ("R4.64", Operand(K.REGISTER, 4, modifiers=("64",), wide=True)),
        ("UR63", Operand(K.UNIFORM, 63)),
        ("URZ", Operand(K.UNIFORM, URZ)),
        ("-|UR7|", Operand(K.UNIFORM, 7, negate=True, absolute=True)),
        ("~UR7", Operand(K.UNIFORM, 7, invert=True)),
        ("!P6", Operand(K.PREDICATE, 6, invert=True)),
        ("PT", Operand(K.PREDICATE, PT)),
        ("!UPT", Operand(K.UNIFORM_PREDICATE, PT, invert=True)),
        ("0x1f", Operand(K.IMMEDIATE, value=0x1F)),
        ("-0x1", Operand(K.IMMEDIATE, value=0xFFFFFFFF)),
        ("-0x80000000", Operand(K.IMMEDIATE, value=0x80000000)),
        ("1", Operand(K.IMMEDIATE, value=0x3F800000)),
        ("-0.10000000149011611938", Operand(K.IMMEDIATE, value=0xBDCCCCCD)),
        ("1.4012984643248170709e-45", Operand(K.IMMEDIATE, value=1)),
        ("+INF", Operand(K.IMMEDIATE, value=0x7F800000)),
        ("-INF", Operand(K.IMMEDIATE, value=0xFF800000)),
        ("c[0x0][0x210]", Operand(K.CONSTANT, bank=0, value=0x210)),
        ("-|c[0x3][0x10]|", Operand(K.CONSTANT, bank=3, value=0x10, negate=True, absolute=True)),
        ("~c[0x0][0x10]", Operand(K.CONSTANT, value=0x10, invert=True)),
        ("c[0x3][R4+-0x10]", Operand(K.CONSTANT, 4, bank=3, value=-0x10)),
        ("c[0x3][UR4]", Operand(K.CONSTANT, bank=3, uniform=4)),
        ("c[0x0] [0x160].H1_H1", Operand(K.CONSTANT, value=0x160, modifiers=("H1_H1",))),
        ("cx[UR4][0x10]", Operand(K.CONSTANT, value=0x10, name="cx", descriptor=4)),
        ("[R2]", Operand(K.MEMORY, 2)),
        ("[RZ]", Operand(K.MEMORY, RZ)),
        ("[0x8000]", Operand(K.MEMORY, value=0x8000)),
        ("[UR4+0x8]", Operand(K.MEMORY, uniform=4, value=8)),
        ("[R2.64+UR4+-0x10]", Operand(K.MEMORY, 2, uniform=4, value=-0x10, wide=True)),
        ("[R8.X16+UR5+0x10]", Operand(K.MEMORY, 8, uniform=5, value=0x10, scale=16)),
        ("[R8.U32+UR4]", Operand(K.MEMORY, 8, uniform=4, modifiers=("U32",))),
        ("[R4+URZ]", Operand(K.MEMORY, 4)),
        ("desc[UR6][R2.64+0x10]", Operand(K.MEMORY, 2, descriptor=6, value=0x10, wide=True)),
        ("desc[UR6]", Operand(K.OTHER, name="desc", uniform=6)),
        ("gdesc[UR8].tnspA.tnspB", Operand(K.OTHER, name="gdesc", uniform=8, modifiers=("tnspA", "tnspB"))),
        ("tmem[UR4+0x20]", Operand(K.OTHER, name="tmem", uniform=4, value=0x20)),
        ("B6", Operand(K.BARRIER, 6)),
        ("SB0", Operand(K.SCOREBOARD, 0)),
        ("SR_CTAID.X", Operand(K.SPECIAL, name="SR_CTAID.X")),
        ("SRZ", Operand(K.SPECIAL, name="SRZ")),
        ("{5,3,0}", Operand(K.OTHER, value=0b101001, name="scoreboards")),
        ("PR", Operand(K.OTHER, name="PR")),
        ("gsb0", Operand(K.OTHER, name="gsb0")),
        ("ARRAY_2D", Operand(K.OTHER, name="ARRAY_2D")),
        ("Rpc.LO", Operand(K.OTHER, name="Rpc.LO")),
    ],
)
def test_forms(text: str, expected: Operand) -> None:
    parsed = parse_operand(text)
    assert parsed.text == text
    assert {name: getattr(parsed, name) for name in Operand.__slots__ if name != "text"} == {
        name: getattr(expected, name) for name in Operand.__slots__ if name != "text"
    }


@pytest.mark.parametrize(
    "text",
    ["", "R255", "R", "P7", "UP7", "PZ", "RT", "|R4", "R4|", "[R2", "[]", "[P2]", "[R2+R]", "c[0x0]", "c[zz][0x0]",
     "cx[R4][0x0]", "0xg", "Q4", "desc[R4][R2]", "bogus", "R4..H0", "--R4", "{}", "{1,}"],
)  # fmt: skip
def test_unknown_forms_are_errors(text: str) -> None:
    with pytest.raises(OperandError):
        parse_operand(text)


@st.composite
def register_texts(draw: st.DrawFn) -> tuple[str, dict[str, object]]:
    uniform = draw(st.booleans())
    index = draw(st.integers(0, 254))
    negate, absolute, reuse = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    modifiers = draw(st.lists(st.sampled_from(["H0_H0", "H1_H1", "F32", "B0", "64"]), max_size=2, unique=True))
    name = ("UR" if uniform else "R") + str(index)
    text = f"|{name}|" if absolute else name
    text = ("-" if negate else "") + text + (".reuse" if reuse else "") + "".join(f".{m}" for m in modifiers)
    kind = K.UNIFORM if uniform else K.REGISTER
    fields = {"kind": kind, "index": index, "negate": negate, "absolute": absolute, "reuse": reuse}
    return text, fields | {"modifiers": tuple(modifiers)}


@given(register_texts())
def test_registers_round_trip(case: tuple[str, dict[str, object]]) -> None:
    text, fields = case
    parsed = parse_operand(text)
    assert {name: getattr(parsed, name) for name in fields} == fields


@given(
    base=st.one_of(st.none(), st.integers(0, 254)),
    wide=st.booleans(),
    scale=st.sampled_from([1, 4, 8, 16]),
    uniform=st.one_of(st.none(), st.integers(0, 62)),
    offset=st.integers(-(1 << 23), (1 << 23) - 1),
    descriptor=st.one_of(st.none(), st.integers(0, 62)),
)
def test_memory_round_trips(
    base: int | None, wide: bool, scale: int, uniform: int | None, offset: int, descriptor: int | None
) -> None:
    parts = []
    if base is not None:
        parts.append(f"R{base}" + (".64" if wide else f".X{scale}" if scale > 1 else ""))
    if uniform is not None:
        parts.append(f"UR{uniform}")
    if offset or not parts:
        parts.append(f"{'-' if offset < 0 else ''}{abs(offset):#x}")
    text = (f"desc[UR{descriptor}]" if descriptor is not None else "") + "[" + "+".join(parts) + "]"
    parsed = parse_operand(text)
    assert parsed.kind == K.MEMORY
    assert parsed.index == (RZ if base is None else base)
    assert parsed.uniform == (URZ if uniform is None else uniform)
    assert parsed.descriptor == (URZ if descriptor is None else descriptor)
    assert parsed.value == offset
    assert parsed.wide == (base is not None and wide)
    assert parsed.scale == (scale if base is not None and not wide else 1)


@given(st.integers(0, 0xFFFFFFFF))
def test_integers_are_exact(value: int) -> None:
    assert parse_operand(f"{value:#x}").value == value
    signed = value - (1 << 32) if value >> 31 else value
    if signed < 0:
        assert parse_operand(f"-{-signed:#x}").value == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_floats_are_exact_when_printed_with_enough_digits(value: float) -> None:
    text = f"{value:.20g}"
    assert is_float_text(text)
    assert float32_bits(text) == struct.unpack("<I", struct.pack("<f", value))[0]


@given(st.text(max_size=12))
def test_no_other_exception(text: str) -> None:
    with contextlib.suppress(OperandError):
        parse_operand(text)
