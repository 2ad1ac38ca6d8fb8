"""Integer arithmetic: adds with carries, multiply-add, LEA, and the 64-bit forms of sm_100 and sm_120.

A uniform twin (UIADD3, ULEA, ...) shares the vector opcode's meaning. Carries live in predicates; a negated source
counts as its complement plus one in the carry, so that a - 0 carries out (no borrow).
"""

from __future__ import annotations

from interpreter.isa.parts import Parts, alu_latency, alu_pipe, flag, parts, uniform, wanted
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import I32, I64, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand, OperandKind


def _unsigned_term(e: Emitter, op: Operand) -> Value:
    """The operand as an unsigned 32-bit number in I64, where -x is ~x + 1 and may reach 2**32."""
    bits = e.bits(op)
    if op.negate:
        return e.zext(~bits) + 1
    return e.zext(~bits if op.invert else bits)


def _write_carries(e: Emitter, outs: list[Operand], carry: Value) -> None:
    """Carry of a sum as an I64 or I32 count: the first predicate is "at least 1", the second "2"."""
    for threshold, out in enumerate(outs, start=1):
        e.write_pred(out, e.ge(carry, threshold, signed=False))


def _sum32(e: Emitter, p: Parts) -> None:
    """d = sum of the sources plus one for each carry-in that is true; carries out where wanted."""
    # `-RZ` still carries (complement plus one), so only a plain zero is left out
    terms = [op for op in p.sources if not (e.is_zero(op) and not op.negate and not op.invert)]
    if not wanted(e, p.outs):
        total = e.const(I32, 0)
        for op in terms:
            total = total + e.i32(op)
        for op in p.ins:
            total = total + flag(e, e.pred(op))
        e.write(p.d, total)
        return
    plain = [op for op in terms if not op.negate]
    if len(terms) <= 2 and not p.ins and plain and len(p.outs) <= 2:
        a = e.i32(plain[0])
        if len(terms) == 1:
            result, carry = a, e.lt(a, a)
        else:
            other = terms[1] if terms[0] is plain[0] else terms[0]
            b = e.i32(other)
            result = a + b
            # a - b carries when it does not borrow
            carry = e.ge(a, e.neg(b), signed=False) if other.negate else e.lt(result, a, signed=False)
        e.write(p.d, result)
        e.write_pred(p.outs[0], carry)
        if len(p.outs) == 2:
            e.write_pred(p.outs[1], e.lt(a, a))
        return
    wide = e.const(I64, 0)
    for op in terms:
        wide = wide + _unsigned_term(e, op)
    for op in p.ins:
        wide = wide + e.zext(e.pred(op), I64)
    e.write(p.d, e.lo32(wide))
    _write_carries(e, p.outs, wide >> 32)


def _sum64(e: Emitter, p: Parts) -> None:
    """The 64-bit add: two or three pairs; a carry-out only for two of them."""
    if p.ins:
        raise Unsupported("64-bit add with a carry-in")
    terms = [op for op in p.sources if not (e.is_zero(op) and not op.negate and not op.invert)]
    values = [e.i64(op) for op in terms]
    total = e.const(I64, 0)
    for v in values:
        total = total + v
    carry = None
    if wanted(e, p.outs):
        if len(values) > 2 or all(op.negate for op in terms):
            raise Unsupported("carry of a 64-bit add of three terms")
        if len(values) == 2:
            first = 1 if terms[0].negate else 0
            a, b = values[first], values[1 - first]
            carry = e.ge(a, e.neg(b), signed=False) if terms[1 - first].negate else e.lt(total, a, signed=False)
        else:
            carry = e.lt(total, total)
    e.write(p.d, total)
    if carry is not None:
        e.write_pred(p.outs[0], carry)
        for out in p.outs[1:]:
            e.write_pred(out, e.lt(total, total))


@opcode("IADD3", "UIADD3", modifiers=("X", "64"), pipe=alu_pipe, latency=alu_latency, operands=(4, 8))
def iadd3(e: Emitter, i: Instruction) -> None:
    p = parts(i, 3)
    if i.has("64"):
        _sum64(e, p)
    else:
        _sum32(e, p)


def _iadd_pipe(i: Instruction, sm: int) -> Pipe:
    # sm_120 adds integers at 128 results a clock a SM (CUDA C++ Programming Guide), the width of its FMA pipe
    return Pipe.UNIFORM if uniform(i) else Pipe.FMA


def _iadd_latency(i: Instruction, sm: int) -> str:
    return "uniform" if uniform(i) else "iadd"


@opcode("IADD", "UIADD", modifiers=("X", "64"), pipe=_iadd_pipe, latency=_iadd_latency, operands=(3, 7))
def iadd(e: Emitter, i: Instruction) -> None:
    """sm_120's two-source add."""
    p = parts(i, 2)
    if i.has("64"):
        _sum64(e, p)
    else:
        _sum32(e, p)


# ------------------------------------------------------------------ multiply-add


def imad_latency(i: Instruction, sm: int) -> str:
    if uniform(i):
        return "uniform"
    return "imad_wide" if i.has("WIDE") else "imad_hi" if i.has("HI") else "imad"


def _imad_pipe(i: Instruction, sm: int) -> Pipe:
    return Pipe.UNIFORM if uniform(i) else Pipe.FMA_HEAVY


@opcode(
    "IMAD",
    "UIMAD",
    modifiers=("U32", "S32", "MOV", "SHL", "IADD", "X", "WIDE", "HI"),
    pipe=_imad_pipe,
    latency=imad_latency,
    operands=(4, 8),
)
def imad(e: Emitter, i: Instruction) -> None:
    """d = a * b + c: low word, or both (.WIDE), or the high word (.HI) with c a 64-bit pair."""
    p = parts(i, 3)
    a, b, c = p.sources
    if len(p.ins) != (1 if i.has("X") else 0):
        raise Unsupported(f"{i.mnemonic} with {len(p.ins)} predicate sources")
    if not (i.has("WIDE") or i.has("HI")):
        if wanted(e, p.outs):
            raise Unsupported("carry of a 32-bit IMAD")
        total = e.i32(c)
        if not (e.is_zero(a) or e.is_zero(b)):
            product = e.i32(a) if i.has("IADD") else e.i32(a) * e.i32(b)
            total = product + total
        for op in p.ins:
            total = total + flag(e, e.pred(op))
        e.write(p.d, total)
        return
    product = e.mul_wide(e.i32(a), e.i32(b), signed=not i.has("U32"))
    addend = e.i64(c, signed=not i.has("U32"))
    total = product + addend
    carry = e.lt(total, product, signed=False)
    if p.ins:
        carry_in = e.zext(e.pred(p.ins[0]), I64)
        again = total + carry_in
        carry = carry | e.lt(again, total, signed=False)
        total = again
    keep = wanted(e, p.outs)
    if keep and c.negate:
        raise Unsupported("carry of a multiply-subtract")
    e.write(p.d, total if i.has("WIDE") else e.hi32(total))
    if keep:
        e.write_pred(p.outs[0], carry)


# ------------------------------------------------------------------ LEA


@opcode("LEA", "ULEA", modifiers=("HI", "X", "SX32"), pipe=alu_pipe, latency=alu_latency, operands=(4, 8))
def lea(e: Emitter, i: Instruction) -> None:
    """d = (a << n) + b, or with .HI the high word of {c, a} << n, plus b; .SX32 takes c from the sign of a."""
    high = i.has("HI")
    three = high and not i.has("SX32")
    p = parts(i, 4 if three else 3)
    a, b = p.sources[:2]
    shift = p.sources[-1]
    if shift.kind is not OperandKind.IMMEDIATE:
        raise Unsupported("LEA with a shift that is not an immediate")
    n = e.bits(shift)
    if i.has("X") != bool(p.ins):
        raise Unsupported(f"{i.mnemonic} with {len(p.ins)} predicate sources")
    low = e.bits(a)
    if not high:
        moved = e.shl(low, n)
        complement_a, plus = ~moved, 1 if a.negate else 0
    else:
        if a.negate or a.invert:
            raise Unsupported("LEA.HI with a negated index")
        above = e.i32(p.sources[2]) if three else e.ashr(low, 31)
        # the high word of a 64-bit shift by n < 32
        moved = e.shl(above, n) | e.lshr(low, e.const(I32, 32) - n)
        complement_a, plus = moved, 0
    first = complement_a if a.negate else ~moved if a.invert else moved
    if not wanted(e, p.outs):
        total = first + e.i32(b) + plus
        for op in p.ins:
            total = total + flag(e, e.pred(op))
        e.write(p.d, total)
        return
    wide = e.zext(first) + plus + _unsigned_term(e, b)
    for op in p.ins:
        wide = wide + e.zext(e.pred(op), I64)
    e.write(p.d, e.lo32(wide))
    _write_carries(e, p.outs, wide >> 32)


# ------------------------------------------------------------------ one-source


@opcode("IABS", "UIABS", pipe=alu_pipe, latency=alu_latency, operands=(2, 2))
def iabs(e: Emitter, i: Instruction) -> None:
    d, a = i.operands
    e.write(d, e.abs(e.i32(a)))


# ------------------------------------------------------------------ dot products

_DOT_TYPES = {"S8": (8, True), "U8": (8, False), "S16": (16, True), "U16": (16, False)}


def field_of(e: Emitter, v: Value, number: int, width: int, signed: bool) -> Value:
    """Bits [number * width, (number + 1) * width) of an I32, extended to 32 bits."""
    top = v if (number + 1) * width == 32 else e.shl(v, 32 - (number + 1) * width)
    return e.ashr(top, 32 - width) if signed else e.lshr(top, 32 - width)


@opcode(
    "IDP",
    modifiers=("4A", "2A", "LO", "HI", *_DOT_TYPES),
    pipe=Pipe.FMA_HEAVY,
    latency="imad",
    operands=(4, 4),
)
def idp(e: Emitter, i: Instruction) -> None:
    """4A: four bytes by four bytes; 2A: two halves of a by the low or high two bytes of b; added to c."""
    d, a, b, c = i.operands
    types = [_DOT_TYPES[m] for m in i.modifiers if m in _DOT_TYPES]
    if len(types) != 2:
        raise Unsupported(f"{i.mnemonic} without two element types")
    va, vb, total = e.bits(a), e.bits(b), e.i32(c)
    count = 4 if i.has("4A") else 2
    first = 2 if count == 2 and i.has("HI") else 0
    for k in range(count):
        total = total + field_of(e, va, k, *types[0]) * field_of(e, vb, first + k, *types[1])
    e.write(d, total)


# ------------------------------------------------------------------ absolute differences


@opcode("VABSDIFF", modifiers=("U32",), pipe=Pipe.ALU, latency="alu", operands=(4, 4))
def vabsdiff(e: Emitter, i: Instruction) -> None:
    """|a - b| + c, the difference taken without overflow."""
    d, a, b, c = i.operands
    signed = not i.has("U32")
    x, y = e.i32(a), e.i32(b)
    e.write(d, e.max(x, y, signed) - e.min(x, y, signed) + e.i32(c))


@opcode("VABSDIFF4", modifiers=("U8", "S8", "ACC"), pipe=Pipe.ALU, latency="alu", operands=(4, 4))
def vabsdiff4(e: Emitter, i: Instruction) -> None:
    """Four byte differences: packed (c is not used), or with .ACC summed and added to c."""
    d, a, b, c = i.operands
    signed = i.has("S8")
    va, vb = e.bits(a), e.bits(b)
    total = e.i32(c) if i.has("ACC") else e.const(I32, 0)
    for k in range(4):
        x, y = field_of(e, va, k, 8, signed), field_of(e, vb, k, 8, signed)
        difference = e.max(x, y) - e.min(x, y)
        total = total + difference if i.has("ACC") else total | e.shl(difference, 8 * k)
    e.write(d, total)
