"""Parses the text of one SASS operand into an `Operand`.

Forms are those nvdisasm 13 prints, surveyed over some thousands of kernels for sm_80 to sm_120:

    R4  R4.64  R4.reuse  -R4  |R4|  -|R4|.H0_H0  ~R4  R4.H0_NH1  R4.B1  RZ            registers
    UR4  -UR4  |UR4|  UR4.H0_H0  URZ                                                  uniform registers
    P0  !P0  PT  UP3  !UPT                                                            predicates
    0x1f  -0x8  1.5  -1e-20  +INF  -INF  +QNAN                                        immediates
    c[0x0][0x210]  c[0x3][R4+0x10]  c[0x3][UR4+-0x8]  -c[0x0][0x8]  c[0x0] [0x10].H0_H0  cx[UR4][0x10]
    [R2]  [R2+0x10]  [R2+-0x10]  [R2.64+UR4+0x10]  [R8.X4+UR5]  [UR4]  [0x8000]  desc[UR6][R2.64+0x10]
    gdesc[UR8].tnspB  tmem[UR4+0x20]  idesc[UR6]  desc[UR6]                           descriptors of asynchronous units
    B0  SB0  SR_TID.X  SRZ  PR  UPR  Rpc.LO  gsb0  2D  ARRAY_2D  {4,3,2,1}

Branch targets are resolved by `interpreter.decode`, which knows the opcode, as are the exact bits of immediates.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from functools import lru_cache

from interpreter.program import PT, RZ, URZ, Operand, OperandKind

_MASK32 = 0xFFFFFFFF

_REGISTER = re.compile(
    r"(?P<sign>-)?(?P<invert>[~!])?(?P<bar>\|)?(?P<file>UR|UP|R|P)(?P<number>\d+|Z|T)(?P<inner>(?:\.\w+)*)"
    r"(?(bar)\|)(?P<outer>(?:\.\w+)*)"
)
_HEX = re.compile(r"(-)?0x([0-9a-f]+)")
_FLOAT = re.compile(r"[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+|INF|QNAN|SNAN|NAN)")
_CONSTANT = re.compile(
    r"(?P<sign>-)?(?P<invert>~)?(?P<bar>\|)?c(?P<bindless>x)?\[(?P<bank>[^\]]+)\] ?\[(?P<inside>[^\]]+)\]"
    r"(?P<inner>(?:\.\w+)*)(?(bar)\|)(?P<outer>(?:\.\w+)*)"
)
_MEMORY = re.compile(r"(?:desc\[(?P<descriptor>UR\w+)\])?\[(?P<inside>[^\]]*)\](?P<suffix>(?:\.\w+)*)")
_UNIT = re.compile(r"(?P<unit>desc|gdesc|idesc|tmem)\[(?P<inside>[^\]]*)\](?P<suffix>(?:\.\w+)*)")
_TERM = re.compile(r"(?P<file>UR|R)(?P<number>\d+|Z)(?P<suffix>(?:\.\w+)*)|(?P<offset>-?0x[0-9a-f]+)")
_BARRIER = re.compile(r"B(\d+)")
_SCOREBOARD = re.compile(r"SB(\d+)")
_SPECIAL = re.compile(r"SR_?\w+(?:\.\w+)?")
_SCOREBOARD_LIST = re.compile(r"\{\d+(?:,\d+)*\}")
_OTHER = re.compile(
    r"PR|UPR|Rpc\.(?:LO|HI)|gsb\d+|(?:ARRAY_|SHADOW_)*(?:1D|2D|3D|CUBE|2DMS)(?:_\w+)?|TEX_[A-Z_]+|(?:[A-Z]+_)*BARRIER_\w+"
)

_REGISTER_KINDS = {
    "R": OperandKind.REGISTER,
    "UR": OperandKind.UNIFORM,
    "P": OperandKind.PREDICATE,
    "UP": OperandKind.UNIFORM_PREDICATE,
}
_SPECIAL_VALUES = {"INF": 0x7F800000, "QNAN": 0x7FFFFFFF, "SNAN": 0x7FBFFFFF, "NAN": 0x7FFFFFFF}


class OperandError(ValueError):
    """The text is no operand form known here. `interpreter.decode` adds the kernel and address."""


@lru_cache(maxsize=1 << 16)
def parse_operand(text: str) -> Operand:
    """Parse one operand. Float immediates get the IEEE binary32 bits of the printed number. Raises OperandError."""
    first = text[:1]
    match = _REGISTER.fullmatch(text)
    if match:
        return _register(match, text)
    match = _HEX.fullmatch(text)
    if match:
        value = int(match[2], 16)
        if match[1]:
            value = -value & (_MASK32 if value <= 1 << 31 else (1 << 64) - 1)
        return Operand(OperandKind.IMMEDIATE, value=value, text=text)
    if _FLOAT.fullmatch(text):
        return Operand(OperandKind.IMMEDIATE, value=float32_bits(text), text=text)
    match = _CONSTANT.fullmatch(text)
    if match:
        return _constant(match, text)
    match = _MEMORY.fullmatch(text)
    if match:
        return _memory(match, text)
    match = _UNIT.fullmatch(text)
    if match:
        return _unit(match, text)
    match = _BARRIER.fullmatch(text)
    if match:
        return Operand(OperandKind.BARRIER, index=int(match[1]), text=text)
    match = _SCOREBOARD.fullmatch(text)
    if match:
        return Operand(OperandKind.SCOREBOARD, index=int(match[1]), text=text)
    if first == "S" and _SPECIAL.fullmatch(text):
        return Operand(OperandKind.SPECIAL, name=text, text=text)
    if first == "{" and _SCOREBOARD_LIST.fullmatch(text):
        numbers = [int(number) for number in text[1:-1].split(",")]
        return Operand(OperandKind.OTHER, value=sum({1 << number for number in numbers}), name="scoreboards", text=text)
    if _OTHER.fullmatch(text):
        return Operand(OperandKind.OTHER, name=text, text=text)
    raise OperandError(f"operand {text!r} has no known form")


def float32_bits(text: str) -> int:
    """IEEE binary32 bits of a printed number, nearest even; INF and NaN as printed (payloads are not)."""
    body = text.lstrip("+-")
    if body in _SPECIAL_VALUES:
        return _SPECIAL_VALUES[body] | (0x80000000 if text[0] == "-" else 0)
    try:
        return int(struct.unpack("<I", struct.pack("<f", float(text)))[0])
    except OverflowError:  # a double's value, beyond binary32
        return 0x7F800000 | (0x80000000 if text[0] == "-" else 0)


def is_float_text(text: str) -> bool:
    """Whether an immediate is printed as a decimal number (nvdisasm prints every integer in hexadecimal)."""
    return _FLOAT.fullmatch(text) is not None


@lru_cache(maxsize=1 << 14)
def with_value(operand: Operand, value: int, modifier: str | None = None) -> Operand:
    """The operand with another `value` and perhaps one more modifier (cached: immediates repeat)."""
    return replace(operand, value=value, modifiers=operand.modifiers + ((modifier,) if modifier else ()))


def _suffixes(text: str) -> tuple[tuple[str, ...], bool]:
    """(modifiers, reuse) of ".reuse.H0_H0"."""
    if not text:
        return (), False
    names = text[1:].split(".")
    return tuple(name for name in names if name != "reuse"), "reuse" in names


def _number(text: str, file: str) -> int:
    if text == "Z":
        if file in ("P", "UP"):
            raise OperandError(f"operand {file}Z does not exist")
        return URZ if file == "UR" else RZ
    if text == "T":
        if file in ("R", "UR"):
            raise OperandError(f"operand {file}T does not exist")
        return PT
    number = int(text)
    limit = 6 if file in ("P", "UP") else 254
    if number > limit:
        raise OperandError(f"operand {file}{number}: the highest number is {limit}")
    return number


def _register(match: re.Match[str], text: str) -> Operand:
    file = match["file"]
    modifiers, reuse = _suffixes(match["inner"] + match["outer"])
    return Operand(
        _REGISTER_KINDS[file],
        index=_number(match["number"], file),
        negate=match["sign"] is not None,
        absolute=match["bar"] is not None,
        invert=match["invert"] is not None,
        reuse=reuse,
        modifiers=modifiers,
        wide="64" in modifiers,
        text=text,
    )


def _terms(inside: str, text: str) -> tuple[int, int, int, int, bool, tuple[str, ...]]:
    """(register, uniform register, offset, scale, wide, other suffixes) of "R8.X4+UR5+-0x10"."""
    register, uniform, offset, scale, wide = RZ, URZ, 0, 1, False
    others: list[str] = []
    if not inside:
        raise OperandError(f"operand {text!r} has an empty address")
    for part in inside.split("+"):
        match = _TERM.fullmatch(part)
        if match is None:
            raise OperandError(f"operand {text!r}: {part!r} is no register, uniform register or offset")
        if match["offset"]:
            offset = int(match["offset"], 16)
            continue
        number = _number(match["number"], match["file"])
        for suffix in _suffixes(match["suffix"])[0]:
            if suffix == "64":
                wide = True
            elif suffix in ("X4", "X8", "X16"):
                scale = int(suffix[1:])
            else:
                others.append(suffix)
        if match["file"] == "UR":
            uniform = number
        else:
            register = number
    return register, uniform, offset, scale, wide, tuple(others)


def _constant(match: re.Match[str], text: str) -> Operand:
    register, uniform, offset, _, _, others = _terms(match["inside"].replace("+-", "+-"), text)
    modifiers, reuse = _suffixes(match["inner"] + match["outer"])
    bank, descriptor = 0, URZ
    if match["bindless"]:  # cx[UR4][...]: the bank is a 64-bit handle in a uniform register pair
        handle = _TERM.fullmatch(match["bank"])
        if handle is None or handle["file"] != "UR":
            raise OperandError(f"operand {text!r}: the handle of a bindless constant is a uniform register")
        descriptor = _number(handle["number"], "UR")
    else:
        try:
            bank = int(match["bank"], 16)
        except ValueError:
            raise OperandError(f"operand {text!r}: bank {match['bank']!r} is no number") from None
    return Operand(
        OperandKind.CONSTANT,
        index=register,
        value=offset,
        negate=match["sign"] is not None,
        absolute=match["bar"] is not None,
        invert=match["invert"] is not None,
        reuse=reuse,
        modifiers=modifiers + others,
        name="cx" if match["bindless"] else "",
        bank=bank,
        uniform=uniform,
        descriptor=descriptor,
        text=text,
    )


def _memory(match: re.Match[str], text: str) -> Operand:
    register, uniform, offset, scale, wide, others = _terms(match["inside"], text)
    modifiers, reuse = _suffixes(match["suffix"])
    return Operand(
        OperandKind.MEMORY,
        index=register,
        value=offset,
        reuse=reuse,
        modifiers=others + modifiers,
        uniform=uniform,
        descriptor=_number(match["descriptor"][2:], "UR") if match["descriptor"] else URZ,
        scale=scale,
        wide=wide,
        text=text,
    )


def _unit(match: re.Match[str], text: str) -> Operand:
    register, uniform, offset, _, _, others = _terms(match["inside"], text)
    modifiers, _ = _suffixes(match["suffix"])
    return Operand(
        OperandKind.OTHER,
        index=register,
        value=offset,
        modifiers=others + modifiers,
        name=match["unit"],
        uniform=uniform,
        text=text,
    )
