"""Bitwise logic, shifts, byte permutes, selects and moves, bit counts, with their uniform twins."""

from __future__ import annotations

from interpreter.isa.parts import alu_latency, alu_pipe, not_uniform, parts, uniform, wanted, xu_pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import I32, Emitter, Unsupported, Value
from interpreter.program import Instruction, OperandKind

IMMEDIATE = OperandKind.IMMEDIATE

# ------------------------------------------------------------------ LOP3


def lut2(table: int, b: Value, c: Value, false: Value, true: Value) -> Value:
    """Bitwise function of b and c whose value at (b, c) is bit 2b + c of `table`."""
    table &= 15
    if table in (0, 15):
        return true if table else false
    simple = {
        0b1100: lambda: b,
        0b1010: lambda: c,
        0b0011: lambda: ~b,
        0b0101: lambda: ~c,
        0b1000: lambda: b & c,
        0b1110: lambda: b | c,
        0b0110: lambda: b ^ c,
        0b1001: lambda: ~(b ^ c),
        0b0111: lambda: ~(b & c),
        0b0001: lambda: ~(b | c),
        0b0100: lambda: b & ~c,
        0b0010: lambda: c & ~b,
        0b1101: lambda: b | ~c,
        0b1011: lambda: c | ~b,
    }
    return simple[table]()


def lut3(table: int, a: Value, b: Value, c: Value, false: Value, true: Value) -> Value:
    """Bitwise function of three values: bit 4a + 2b + c of `table` (a = 0xf0, b = 0xcc, c = 0xaa)."""
    without, with_a = table & 15, (table >> 4) & 15
    if without == with_a:
        return lut2(without, b, c, false, true)
    if without == 0:
        return a & lut2(with_a, b, c, false, true) if with_a != 15 else a
    if with_a == 0:
        return ~a & lut2(without, b, c, false, true) if without != 15 else ~a
    if with_a == 15:
        return a | lut2(without, b, c, false, true)
    if without == 15:
        return ~a | lut2(with_a, b, c, false, true)
    if without ^ with_a == 15:
        return a ^ lut2(without, b, c, false, true)
    return (a & lut2(without ^ with_a, b, c, false, true)) ^ lut2(without, b, c, false, true)


@opcode("LOP3", "ULOP3", modifiers=("LUT", "PAND"), pipe=alu_pipe, latency=alu_latency, operands=(5, 8))
def lop3(e: Emitter, i: Instruction) -> None:
    """d = lut(a, b, c); the predicate is (d != 0) or-ed (.PAND: and-ed) with the predicate source."""
    p = parts(i, 4)
    a, b, c, table = p.sources
    if table.kind is not IMMEDIATE:
        raise Unsupported("LOP3 whose table is not an immediate")
    false, true = e.const(I32, 0), e.const(I32, -1)
    result = lut3(e.literal(table), e.i32(a), e.i32(b), e.i32(c), false, true)
    predicate = None
    if wanted(e, p.outs):
        predicate = e.ne(result, 0)
        if p.ins:
            other = e.pred(p.ins[0])
            predicate = predicate & other if i.has("PAND") else predicate | other
    e.write(p.d, result)
    if predicate is not None:
        e.write_pred(p.outs[0], predicate)


# ------------------------------------------------------------------ shifts

_SHIFT_TYPES = ("U32", "S32", "U64", "S64")


@opcode(
    "SHF", "USHF", modifiers=("L", "R", "W", "HI", *_SHIFT_TYPES), pipe=alu_pipe, latency=alu_latency, operands=(4, 4)
)
def shf(e: Emitter, i: Instruction) -> None:
    """Funnel shift of {c, a}: the low word of the result, or the high one with .HI.

    Counts clamp to the width of the type (.W: wrap), as PTX's shf and shifts do.
    """
    d, a, b, c = i.operands
    types = [m for m in i.modifiers if m in _SHIFT_TYPES]
    if len(types) != 1 or i.has("L") == i.has("R"):
        raise Unsupported(f"{i.mnemonic}: needs one direction and one type")
    width = int(types[0][1:])
    signed = types[0][0] == "S"
    left, high = i.has("L"), i.has("HI")
    n = e.i32(b)
    if i.has("W"):
        n = n & (width - 1)
    if left and not high:
        # 32-bit types clamp at 32, 64-bit ones at 64: the low word is zero either way
        e.write(d, e.shl(e.i32(a), n))
        return
    if not left and high:
        e.write(d, (e.ashr if signed else e.lshr)(e.i32(c), n))
        return
    if width == 32 and not i.has("W"):
        n = e.min(n, 32, signed=False)
    if e.is_zero(c) and left and high and not signed and width == 32:
        # high word of {0, a} << n
        e.write(d, e.lshr(e.i32(a), e.const(I32, 32) - n))
        return
    whole = e.pack64(e.i32(a), e.i32(c))
    if left:
        e.write(d, e.hi32(e.shl(whole, n)))
    else:
        e.write(d, e.lo32((e.ashr if signed and width == 64 else e.lshr)(whole, n)))


@opcode("BMSK", "UBMSK", modifiers=("C", "W"), pipe=alu_pipe, latency=alu_latency, operands=(3, 3))
def bmsk(e: Emitter, i: Instruction) -> None:
    """Mask of b ones from bit a up (PTX bmsk): numbers above 32 clamp, or wrap with .W."""
    d, a, b = i.operands
    position, count = e.i32(a), e.i32(b)
    if i.has("W"):
        position, count = position & 31, count & 31
    e.write(d, e.shl(e.shl(e.const(I32, 1), count) - 1, position))


@opcode("SGXT", "USGXT", modifiers=("U32", "S32", "W"), pipe=alu_pipe, latency=alu_latency, operands=(3, 3))
def sgxt(e: Emitter, i: Instruction) -> None:
    """Keep the low b bits of a and extend them by their sign, or by zeros with .U32 (PTX szext)."""
    d, a, b = i.operands
    v, n = e.i32(a), e.i32(b)
    n = n & 31 if i.has("W") else e.min(n, 32, signed=False)
    away = e.const(I32, 32) - n
    up = e.shl(v, away)
    # n = 0 keeps nothing: the left shift by 32 has already cleared it
    e.write(d, e.lshr(up, away) if i.has("U32") else e.ashr(up, away))


# ------------------------------------------------------------------ PRMT


def _bytes_of(e: Emitter, a: Value, c: Value, numbers: list[int]) -> Value:
    """Word made of bytes `numbers` (0..3 of a, 4..7 of c; bit 3 of a number repeats the byte's sign bit)."""
    total: Value | None = None
    for k, number in enumerate(numbers):
        source = c if number & 4 else a
        byte = number & 3
        if number & 8:
            part = e.ashr(e.shl(source, 24 - 8 * byte), 31) & (0xFF << (8 * k))
        else:
            moved = (
                e.shl(source, 8 * (k - byte)) if k > byte else e.lshr(source, 8 * (byte - k)) if byte > k else source
            )
            part = moved & (0xFF << (8 * k))
        total = part if total is None else total | part
    assert total is not None
    return total


def _prmt_literal(e: Emitter, selector: int, a: Value, c: Value) -> Value:
    numbers = [(selector >> (4 * k)) & 15 for k in range(4)]
    if numbers == [0, 1, 2, 3]:
        return a
    if numbers == [4, 5, 6, 7]:
        return c
    return _bytes_of(e, a, c, numbers)


def _prmt_dynamic(e: Emitter, selector: Value, a: Value, c: Value) -> Value:
    whole = e.pack64(a, c)
    total = e.const(I32, 0)
    for k in range(4):
        number = e.lshr(selector, 4 * k)
        byte = e.lo32(e.lshr(whole, e.shl(number & 7, 3))) & 0xFF
        sign = e.select(e.ne(byte & 0x80, 0), 0xFF, e.const(I32, 0))
        total = total | e.shl(e.select(e.ne(number & 8, 0), sign, byte), 8 * k)
    return total


# For the six special modes of PTX's prmt: the bytes picked for each value of the selector's low two bits.
_MODES = {
    "F4E": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
    "B4E": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
    "RC8": [[0, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]],
    "ECL": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
    "ECR": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
    "RC16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
}


@opcode("PRMT", "UPRMT", modifiers=tuple(_MODES), pipe=alu_pipe, latency=alu_latency, operands=(4, 4))
def prmt(e: Emitter, i: Instruction) -> None:
    """Each byte of the result is a byte of {c, a} picked by a nibble of b."""
    d, a, b, c = i.operands
    va, vc = e.i32(a), e.i32(c)
    if i.modifiers:
        n = e.i32(b) & 3
        choices = [_bytes_of(e, va, vc, numbers) for numbers in _MODES[i.modifiers[0]]]
        result = choices[3]
        for k in range(3):
            result = e.select(e.eq(n, k), choices[k], result)
        e.write(d, result)
    elif b.kind is IMMEDIATE:
        e.write(d, _prmt_literal(e, e.literal(b) & 0xFFFF, va, vc))
    else:
        e.write(d, _prmt_dynamic(e, e.i32(b), va, vc))


# ------------------------------------------------------------------ moves and selects


@opcode("MOV", "UMOV", modifiers=("64", "SPILL", "U32"), pipe=alu_pipe, latency=alu_latency, operands=(2, 2))
def mov(e: Emitter, i: Instruction) -> None:
    d, a = i.operands
    e.write(d, e.i64(a, signed=False) if i.has("64") else e.i32(a))


@opcode("SEL", "USEL", modifiers=("64",), pipe=alu_pipe, latency=alu_latency, operands=(4, 4))
def sel(e: Emitter, i: Instruction) -> None:
    """a where the predicate is true, else b."""
    d, a, b, p = i.operands
    read = e.i64 if i.has("64") else e.i32
    e.write(d, e.select(e.pred(p), read(a), read(b)))


# ------------------------------------------------------------------ bit counts


def _count_latency(i: Instruction, sm: int) -> str:
    return "uniform" if uniform(i) else "xu_popc"


@opcode("POPC", "UPOPC", pipe=xu_pipe, latency=_count_latency, variable=not_uniform, operands=(2, 2))
def popc(e: Emitter, i: Instruction) -> None:
    d, a = i.operands
    e.write(d, e.popc(e.i32(a)))


@opcode("BREV", "UBREV", pipe=xu_pipe, latency=_count_latency, variable=not_uniform, operands=(2, 2))
def brev(e: Emitter, i: Instruction) -> None:
    d, a = i.operands
    e.write(d, e.brev(e.i32(a)))


@opcode(
    "FLO",
    "UFLO",
    modifiers=("U32", "S32", "SH"),
    pipe=xu_pipe,
    latency=_count_latency,
    variable=not_uniform,
    operands=(2, 3),
)
def flo(e: Emitter, i: Instruction) -> None:
    """Index of the leading one (signed: of the leading bit that differs from the sign), -1 when there is none.

    .SH gives the shift that brings it to bit 31. The optional predicate destination says that there was one.
    """
    p = parts(i, 1)
    v = e.i32(p.sources[0])
    if not i.has("U32"):
        v = v ^ e.ashr(v, 31)
    none = e.eq(v, 0)
    leading = e.clz(v)
    result = leading if i.has("SH") else e.const(I32, 31) - leading
    e.write(p.d, e.select(none, -1, result))
    if wanted(e, p.outs):
        e.write_pred(p.outs[0], ~none)
