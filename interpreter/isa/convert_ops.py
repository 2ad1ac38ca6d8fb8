"""Conversions between integers and floats of all widths, and packed narrow formats.

Float to integer saturates; NaN gives 0 with .NTZ, else the most negative (signed) pattern. Names read destination
first: F2I.S64.F32 is float to 64-bit integer, F2F.F16.F32 float to half. The default type is S32 or F32.
"""

from __future__ import annotations

from interpreter.isa.float_ops import ROUNDINGS
from interpreter.isa.half_ops import round_half, widen_half
from interpreter.isa.integer_ops import field_of
from interpreter.isa.minifloat import FORMATS, encode, encode_scale, half_table
from interpreter.isa.minmax_ops import clamp_signed, clamp_unsigned
from interpreter.isa.parts import alu_pipe, not_uniform, uniform, xu_pipe
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import F32, F64, I32, I64, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand, OperandKind

INTEGERS = {f"{s}{w}": (w, s == "S") for s in "SU" for w in (8, 16, 32, 64)}
FLOATS = ("F16", "BF16", "F32", "F64")
_DIRECTIONS = {"FLOOR": "RM", "CEIL": "RP", "TRUNC": "RZ", **{r: r for r in ROUNDINGS}}


def _direction(i: Instruction) -> str:
    found = [_DIRECTIONS[m] for m in i.modifiers if m in _DIRECTIONS]
    return found[0] if found else "RN"


def _xu_latency(i: Instruction, sm: int) -> str:
    if uniform(i):
        return "uniform"
    return "xu_conv64" if any(m in ("F64", "S64", "U64") for m in i.modifiers) else "xu_conv"


def _half_bits(e: Emitter, op: Operand) -> Value:
    """The 16 bits of a half operand (.H0 unless .H1) with prefixes applied."""
    bits = e.bits(op)
    if op.modifiers in (("H1",), ("H1_H1",)):
        bits = e.lshr(bits, 16)
    elif op.modifiers not in ((), ("H0",), ("H0_H0",)):
        raise Unsupported(f"half operand with .{'.'.join(op.modifiers)}")
    bits = bits & (0x7FFF if op.absolute else 0xFFFF)
    return bits ^ 0x8000 if op.negate else bits


def _float_source(e: Emitter, i: Instruction, op: Operand, kind: str) -> Value:
    """A float operand of type `kind`: F64 stays, others become F32."""
    if kind == "F64":
        return e.f64(op)
    if kind in ("F16", "BF16"):
        return widen_half(e, _half_bits(e, op), kind == "BF16")
    if op.modifiers:
        raise Unsupported(f"{i.opcode} operand with .{'.'.join(op.modifiers)}")
    v = e.f32(op)
    return e.ftz(v) if i.has("FTZ") else v


def _integer_source(e: Emitter, op: Operand, width: int, signed: bool) -> Value:
    """An integer operand: I64 for 64 bits, else I32, fields picked by .B1, .H1 and so on."""
    if width == 64:
        return e.i64(op, signed)
    part = 0
    for m in op.modifiers:
        if m[0] not in "BH" or not m[1:].isdigit():
            raise Unsupported(f"integer operand with .{m}")
        part = int(m[1:])
    if width == 32:
        if op.modifiers:
            raise Unsupported(f"32-bit integer operand with .{op.modifiers[0]}")
        return e.i32(op)
    v = field_of(e, e.bits(op), part, width, signed)
    return e.neg(v) if op.negate else v


# ------------------------------------------------------------------ float to integer


@opcode(
    "F2I",
    "UF2I",
    modifiers=("FTZ", "NTZ", *INTEGERS, *FLOATS, "FLOOR", "CEIL", "TRUNC"),
    pipe=xu_pipe,
    latency=_xu_latency,
    variable=not_uniform,
    operands=(2, 2),
)
def f2i(e: Emitter, i: Instruction) -> None:
    d, a = i.operands
    width, signed = next((INTEGERS[m] for m in i.modifiers if m in INTEGERS), (32, True))
    kind = next((m for m in i.modifiers if m in FLOATS), "F32")
    v = _float_source(e, i, a, kind)
    result = float_to_int(e, v, width, signed, _direction(i))
    if not i.has("NTZ"):
        result = e.select(e.is_nan(v), 1 << (result.kind.bits - 1), result)
    e.write(d, result)


def float_to_int(e: Emitter, v: Value, width: int, signed: bool, rounding: str) -> Value:
    """Rounded and saturated to `width` bits (I64 for 64, else I32 sign- or zero-extended); NaN gives 0."""
    if width >= 32:
        return e.float_to_int(v, I64 if width == 64 else I32, signed, rounding)
    wide = e.float_to_int(v, I32, True, rounding)
    return clamp_signed(e, wide, width) if signed else clamp_unsigned(e, wide, width)


@opcode(
    "F2IP",
    modifiers=("U8", "S8", "F32", "NTZ", "FTZ", "TRUNC", "FLOOR", "CEIL"),
    pipe=Pipe.ALU,
    latency="alu",
    operands=(4, 4),
)
def f2ip(e: Emitter, i: Instruction) -> None:
    """Two floats to saturated bytes, b in the low one; c moves up by 16 bits."""
    d, a, b, c = i.operands
    signed = i.has("S8")
    high, low = (float_to_int(e, _float_source(e, i, op, "F32"), 8, signed, _direction(i)) & 0xFF for op in (a, b))
    e.write(d, low | e.shl(high, 8) | e.shl(e.bits(c), 16))


# ------------------------------------------------------------------ integer to float


def _int_to_float(e: Emitter, v: Value, kind: str, signed: bool, rounding: str) -> Value:
    """Integer to F64, F32, or a half's bits in an I32."""
    if kind in ("F64", "F32"):
        return e.int_to_float(v, F64 if kind == "F64" else F32, signed, rounding)
    exact = e.int_to_float(v, F32, signed, "RO")
    return to_half(e, exact, kind == "BF16", rounding)


@opcode(
    "I2F",
    "UI2F",
    modifiers=(*INTEGERS, *FLOATS, *ROUNDINGS),
    pipe=xu_pipe,
    latency=_xu_latency,
    variable=not_uniform,
    operands=(2, 2),
)
def i2f(e: Emitter, i: Instruction) -> None:
    d, a = i.operands
    width, signed = next((INTEGERS[m] for m in i.modifiers if m in INTEGERS), (32, True))
    kind = next((m for m in i.modifiers if m in FLOATS), "F32")
    e.write(d, _int_to_float(e, _integer_source(e, a, width, signed), kind, signed, _direction(i)))


def _i2fp_latency(i: Instruction, sm: int) -> str:
    return "uniform" if uniform(i) else "alu"


@opcode(
    "I2FP", "UI2FP", modifiers=("F32", "S32", "U32", *ROUNDINGS), pipe=alu_pipe, latency=_i2fp_latency, operands=(2, 2)
)
def i2fp(e: Emitter, i: Instruction) -> None:
    d, a = i.operands
    e.write(d, _int_to_float(e, e.i32(a), "F32", not i.has("U32"), _direction(i)))


# ------------------------------------------------------------------ float to float


def _directed_half(e: Emitter, v: Value, bf16: bool, rounding: str) -> Value:
    """F32 to a half, upward or downward: the half toward zero, then one step where that lost something."""
    toward = round_half(e, v, bf16, "RZ")
    back = widen_half(e, toward, bf16)
    negative = e.lt(e.bitcast(v, I32), 0)
    away = e.ne(back, v) & ~e.is_nan(v) & (negative if rounding == "RM" else ~negative)
    return e.select(away, toward + 1, toward)


def to_half(e: Emitter, v: Value, bf16: bool, rounding: str) -> Value:
    return round_half(e, v, bf16, rounding) if rounding in ("RN", "RZ") else _directed_half(e, v, bf16, rounding)


@opcode(
    "F2F", modifiers=(*FLOATS, "FTZ", *ROUNDINGS), pipe=Pipe.XU, latency=_xu_latency, variable=True, operands=(2, 2)
)
def f2f(e: Emitter, i: Instruction) -> None:
    d, a = i.operands
    kinds = [m for m in i.modifiers if m in FLOATS]
    if len(kinds) != 2:
        raise Unsupported(f"{i.mnemonic}: needs a destination and a source type")
    to, source = kinds
    v = _float_source(e, i, a, source)
    rounding = _direction(i)
    if to == "F64":
        e.write(d, v if source == "F64" else e.widen(v))
    elif to == "F32":
        result = e.f32_of(v, rounding) if source == "F64" else v
        result = e.ftz(result) if i.has("FTZ") else result
        # a double's NaN keeps the top of its payload
        e.write(d, e.bitcast(result, I32) if source == "F64" else result)
    else:
        narrow = e.f32_of(v, "RO") if source == "F64" else v
        bits = to_half(e, narrow, to == "BF16", rounding)
        if source == "F64":
            word = e.bitcast(narrow, I32)
            payload = (word >> 16) & 0x8000 | (0x7F80 if to == "BF16" else 0x7C00)
            payload = payload | ((word >> 16) & 0x7F if to == "BF16" else (word >> 13) & 0x3FF)
            bits = e.select(e.is_nan(v), payload, bits)
        e.write(d, bits)


@opcode(
    "FRND",
    "UFRND",
    modifiers=(*FLOATS, "FTZ", "FLOOR", "CEIL", "TRUNC"),
    pipe=xu_pipe,
    latency=_xu_latency,
    variable=not_uniform,
    operands=(2, 2),
)
def frnd(e: Emitter, i: Instruction) -> None:
    """Round to an integral value of the same type."""
    d, a = i.operands
    kind = next((m for m in i.modifiers if m in FLOATS), "F32")
    result = e.round_integral(_float_source(e, i, a, kind), _direction(i))
    e.write(d, round_half(e, result, kind == "BF16") if kind in ("F16", "BF16") else result)


# ------------------------------------------------------------------ packed floats


def _pack_shift(name: str) -> int:
    """How far c moves up when two codes of a format are packed under it: FP6 codes take a byte each, FP4 a nibble."""
    return 8 if name == "E2M1" else 16


@opcode(
    "F2FP",
    modifiers=(
        *FLOATS,
        *FORMATS,
        "E8",
        "TF32",
        "PACK_AB",
        "PACK_B",
        "PACK_AB_MERGE_C",
        "UNPACK_B",
        "UNPACK_B_MERGE_C",
        "SATFINITE",
        "RELU",
        "RN",
        "RZ",
        "RP",
    ),
    pipe=Pipe.ALU,
    latency="alu",
    operands=(2, 4),
)
def f2fp(e: Emitter, i: Instruction) -> None:
    """Convert and pack: two F32 to two halves or narrow codes (b low), or two codes to two halves.

    The first type is the destination; sm_80's spelling leaves F16 and F32 out.
    """
    types = [m for m in i.modifiers if m in FLOATS or m in FORMATS or m in ("E8", "TF32")]
    to = types[0] if types else "F16"
    source = types[1] if len(types) > 1 else "F32"
    rounding = _direction(i)
    d, *sources = i.operands
    if i.has("UNPACK_B"):
        _unpack(e, i, to, source, d, sources)
        return
    if to == "TF32":
        _to_tf32(e, i, d, sources)
        return
    if i.has("UNPACK_B_MERGE_C"):
        if len(sources) != 2 or source not in ("F16", "BF16"):
            raise Unsupported(f"{i.mnemonic} with {len(sources)} sources")
        word = e.bits(sources[0])
        low, high = (widen_half(e, w, source == "BF16") for w in (word, e.lshr(word, 16)))
        merge: Operand | None = sources[1]
    else:
        if source != "F32" or not (i.has("PACK_AB") or i.has("PACK_AB_MERGE_C")):
            raise Unsupported(f"{i.mnemonic} from {source}")
        merge = sources[2] if i.has("PACK_AB_MERGE_C") else None
        if len(sources) != (3 if merge is not None else 2):
            raise Unsupported(f"{i.mnemonic} with {len(sources)} sources")
        high, low = (e.f32(op) for op in sources[:2])
    if i.has("RELU"):
        low, high = (e.select(e.is_nan(v), v, e.select(e.gt(v, 0.0), v, 0.0)) for v in (low, high))
    if to in ("F16", "BF16"):
        if i.has("SATFINITE") or merge is not None:
            raise Unsupported(f"{i.mnemonic}: saturating or merging halves")
        e.write(d, to_half(e, low, to == "BF16", rounding) | e.shl(to_half(e, high, to == "BF16", rounding), 16))
        return
    if merge is None:
        raise Unsupported(f"{i.mnemonic} without MERGE_C")
    if to == "E8":
        codes = [encode_scale(e, v, rounding) for v in (low, high)]
        width = 8
    elif i.has("SATFINITE") and rounding == "RN":
        codes = [encode(e, v, FORMATS[to]) for v in (low, high)]
        width = 4 if to == "E2M1" else 8
    else:
        raise Unsupported(f"{i.mnemonic}: narrow formats are nearest even and saturating")
    e.write(d, codes[0] | e.shl(codes[1], width) | e.shl(e.bits(merge), _pack_shift(to)))


def _unpack(e: Emitter, i: Instruction, to: str, source: str, d: Operand, sources: list[Operand]) -> None:
    """Two narrow codes in the low (or .H1: high) part of the source to two halves."""
    if len(sources) != 1:
        raise Unsupported(f"{i.mnemonic} with {len(sources)} sources")
    op = sources[0]
    word = e.bits(op)
    width = 4 if source == "E2M1" else 8
    for m in op.modifiers:
        if m[0] not in "BH" or not m[1:].isdigit():
            raise Unsupported(f"{i.mnemonic} operand with .{m}")
        word = e.lshr(word, int(m[1:]) * (8 if m[0] == "B" else 16))
    codes = [word & ((1 << width) - 1), e.lshr(word, width) & ((1 << width) - 1)]
    if source == "E8" and to == "BF16":
        # 2**(code - 127): the code is bfloat16's exponent; 0 is its denormal 2**-127, 255 NaN
        halves = [e.select(e.eq(c, 255), 0x7FFF, e.select(e.eq(c, 0), 0x0040, e.shl(c, 7))) for c in codes]
    elif source in FORMATS and to == "F16":
        table = half_table(FORMATS[source])
        halves = [e.lookup(table, c) for c in codes]
    else:
        raise Unsupported(f"{i.mnemonic} from {source} to {to}")
    e.write(d, halves[0] | e.shl(halves[1], 16))


def _to_tf32(e: Emitter, i: Instruction, d: Operand, sources: list[Operand]) -> None:
    """F32 to TF32 (10 explicit mantissa bits), nearest even; the low 13 bits become zero."""
    if len(sources) != 1 or sources[0].kind is not OperandKind.REGISTER or not i.has("PACK_B"):
        raise Unsupported(f"{i.mnemonic} with {len(sources)} sources")
    v = e.f32(sources[0])
    bits = e.bitcast(v, I32)
    if _direction(i) == "RN":
        bits = bits + 0xFFF + (e.lshr(bits, 13) & 1)
    elif _direction(i) != "RZ":
        raise Unsupported(i.mnemonic)
    e.write(d, e.select(e.is_nan(v), 0x7FFFE000, bits & ~0x1FFF))


# ------------------------------------------------------------------ integer to integer


@opcode("I2I", modifiers=(*INTEGERS, "SAT"), pipe=Pipe.XU, latency="xu_conv", variable=True, operands=(2, 2))
def i2i(e: Emitter, i: Instruction) -> None:
    """Saturating narrowing of a 32-bit integer."""
    d, a = i.operands
    v, to = _saturated(e, i, [a])
    e.write(d, v[0] & ((1 << to) - 1) if to < 32 else v[0])


def _saturated(e: Emitter, i: Instruction, sources: list[Operand]) -> tuple[list[Value], int]:
    types = [INTEGERS[m] for m in i.modifiers if m in INTEGERS]
    if len(types) != 2 or types[1][0] != 32 or types[0][0] >= 32 or not i.has("SAT"):
        raise Unsupported(f"{i.mnemonic}: only saturating from 32 bits")
    (width, signed), (_, from_signed) = types
    values = []
    for op in sources:
        v = e.i32(op)
        if signed and from_signed:
            values.append(clamp_signed(e, v, width))
        elif signed:
            values.append(e.min(v, (1 << (width - 1)) - 1, signed=False))
        else:
            values.append(clamp_unsigned(e, v, width, from_signed))
    return values, width


@opcode("I2IP", modifiers=(*INTEGERS, "SAT"), pipe=Pipe.ALU, latency="alu", operands=(4, 4))
def i2ip(e: Emitter, i: Instruction) -> None:
    """Two saturated integers packed (PTX cvt.pack): b low, a above it, c above both."""
    d, a, b, c = i.operands
    values, width = _saturated(e, i, [a, b])
    high, low = (v & ((1 << width) - 1) for v in values)
    word = low | e.shl(high, width)
    e.write(d, word if width == 16 else word | e.shl(e.bits(c), 2 * width))
