"""FP32 arithmetic: add, multiply, fused multiply-add and their packed and mixed forms, min/max, compares, selects.

Rules of the hardware (CUDA C++ Programming Guide, "Floating-Point Standard"; PTX ISA): IEEE 754 with the rounding modes
named in the modifiers, denormals kept unless .FTZ (which flushes inputs and result to a zero of the same sign), every
NaN result is 0x7fffffff.
"""

from __future__ import annotations

from interpreter.isa.parts import (
    alu_latency,
    alu_pipe,
    fma_latency,
    fma_pipe,
    is_min,
    logic,
    parts,
    pick,
    predicate_latency,
    uniform,
    write_setp,
)
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import F32, F64, I32, MASK, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand, OperandKind

ROUNDINGS = ("RN", "RM", "RP", "RZ")
_SCALES = {"D2": 0.5, "D4": 0.25, "D8": 0.125, "M2": 2.0, "M4": 4.0, "M8": 8.0}


def rounding_of(i: Instruction) -> str:
    found = [m for m in i.modifiers if m in ROUNDINGS]
    return found[0] if found else "RN"


def source(e: Emitter, i: Instruction, op: Operand) -> Value:
    """An F32 operand, flushed under .FTZ."""
    if op.modifiers:
        raise Unsupported(f"{i.opcode} operand with .{'.'.join(op.modifiers)}")
    v = e.f32(op)
    return e.ftz(v) if i.has("FTZ") else v


def finish(e: Emitter, i: Instruction, v: Value) -> Value:
    """.FTZ and .SAT of a result."""
    if i.has("FTZ"):
        v = e.ftz(v)
    return e.saturate(v) if i.has("SAT") else v


_COMMON = ("FTZ", "SAT", *ROUNDINGS)


@opcode("FADD", "UFADD", modifiers=_COMMON, pipe=fma_pipe, latency=fma_latency, operands=(3, 3))
def fadd(e: Emitter, i: Instruction) -> None:
    d, a, b = i.operands
    e.write(d, finish(e, i, e.add(source(e, i, a), source(e, i, b), rounding_of(i))))


@opcode("FMUL", "UFMUL", modifiers=(*_COMMON, *_SCALES), pipe=fma_pipe, latency=fma_latency, operands=(3, 3))
def fmul(e: Emitter, i: Instruction) -> None:
    """a * b, times a power of two before the one rounding (.D2, .M4, ...)."""
    d, a, b = i.operands
    x, y = source(e, i, a), source(e, i, b)
    scales = [_SCALES[m] for m in i.modifiers if m in _SCALES]
    if scales:
        product = e.f32_of(e.widen(x) * e.widen(y) * scales[0], rounding_of(i))
    else:
        product = e.mul(x, y, rounding_of(i))
    e.write(d, finish(e, i, product))


@opcode("FFMA", "UFFMA", modifiers=_COMMON, pipe=fma_pipe, latency=fma_latency, operands=(4, 4))
def ffma(e: Emitter, i: Instruction) -> None:
    d, *sources = i.operands
    a, b, c = (source(e, i, op) for op in sources)
    e.write(d, finish(e, i, e.fma(a, b, c, rounding_of(i))))


# ------------------------------------------------------------------ packed and mixed forms of sm_100 and later


def _two_lanes(e: Emitter, i: Instruction, op: Operand) -> tuple[Value, Value]:
    """Low and high F32 of a packed operand: a register pair (.F32x2.HI_LO), or one float for both (.F32,
    immediates)."""
    if op.kind is OperandKind.IMMEDIATE or op.modifiers == ("F32",):
        words = [e.bits(op)] * 2
    elif op.modifiers == ("F32x2", "HI_LO"):
        words = e.rows(op, 2)
    else:
        raise Unsupported(f"{i.opcode} operand with modifiers {op.modifiers}")
    low, high = (_signs(e, op, w) for w in words)
    return (e.ftz(low), e.ftz(high)) if i.has("FTZ") else (low, high)


def _signs(e: Emitter, op: Operand, word: Value) -> Value:
    if op.absolute:
        word = word & 0x7FFFFFFF
    if op.negate:
        word = word ^ 0x80000000
    return e.bitcast(word, F32)


def canonical(e: Emitter, v: Value) -> Value:
    """F32 as I32, NaN as 0x7fffffff."""
    return e.select(e.is_nan(v), e.const(I32, 0x7FFFFFFF), e.bitcast(v, I32))


def _operation(e: Emitter, i: Instruction, x: list[Value], rounding: str) -> Value:
    """Sum, product or fused multiply-add, as the opcode's name says."""
    if i.opcode.endswith(("ADD", "ADD2")):
        return e.add(x[0], x[1], rounding)
    if i.opcode == "FMUL2":
        return e.mul(x[0], x[1], rounding)
    return e.fma(x[0], x[1], x[2], rounding)


@opcode("FADD2", "FMUL2", "FFMA2", modifiers=("FTZ", *ROUNDINGS), pipe=Pipe.FMA, latency="fma_packed", operands=(3, 4))
def packed_fma(e: Emitter, i: Instruction) -> None:
    """Two F32 operations on register pairs."""
    d, *sources = i.operands
    operands = [_two_lanes(e, i, op) for op in sources]
    mode = rounding_of(i)
    words = []
    for k in range(2):
        v = _operation(e, i, [op[k] for op in operands], mode)
        words.append(canonical(e, e.ftz(v) if i.has("FTZ") else v))
    e.write_rows(d, words)


@opcode("FHADD", "FHFMA", modifiers=("BF16", "SAT", "FTZ", *ROUNDINGS), pipe=Pipe.FMA, latency="fma", operands=(3, 4))
def mixed_fma(e: Emitter, i: Instruction) -> None:
    """F32 a + c or a * b + c where a and b are halves (PTX add and fma with .f32.f16 or .f32.bf16 operands)."""
    from interpreter.isa.half_ops import one_half

    d, *sources = i.operands
    *halves, last = sources
    values = [one_half(e, op, i.has("BF16")) for op in halves] + [source(e, i, last)]
    e.write(d, finish(e, i, _operation(e, i, values, rounding_of(i))))


# ------------------------------------------------------------------ minimum, maximum, select


def float_minmax(e: Emitter, a: Value, b: Value, smaller: Value | None, propagate_nan: bool) -> Value:
    """IEEE minNum/maxNum (the number wins over NaN, -0 < +0), or NaN when either is with `propagate_nan`."""
    result = e.min(a, b) if smaller is None else pick(e, smaller, e.min(a, b), e.max(a, b))
    if propagate_nan:
        result = e.select(e.is_nan(a) | e.is_nan(b), float("nan"), result)
    return result


def _minmax_pipe(i: Instruction, sm: int) -> Pipe:
    # 128 results a clock a SM on sm_100, 64 elsewhere (CUDA C++ Programming Guide): there it is as wide as the FMA pipe
    return Pipe.UNIFORM if uniform(i) else Pipe.FMA if 100 <= sm < 120 else Pipe.ALU


@opcode("FMNMX", "UFMNMX", modifiers=("FTZ", "NAN", "XORSIGN"), pipe=_minmax_pipe, latency=alu_latency, operands=(4, 4))
def fmnmx(e: Emitter, i: Instruction) -> None:
    d, x, y, selector = i.operands
    a, b = source(e, i, x), source(e, i, y)
    smaller = is_min(e, selector)
    if not i.has("XORSIGN"):
        e.write(d, float_minmax(e, a, b, smaller, i.has("NAN")))
        return
    # magnitude from |a|, |b| as printed, sign from the product of the original signs
    result = float_minmax(e, a, b, smaller, i.has("NAN"))
    sign = (e.bits(x) ^ e.bits(y)) & 0x80000000
    magnitude = e.bitcast(result, I32) & 0x7FFFFFFF
    e.write(d, e.bitcast(magnitude | sign, F32))


@opcode("FMNMX3", modifiers=("FTZ", "NAN"), pipe=_minmax_pipe, latency="alu", operands=(5, 5))
def fmnmx3(e: Emitter, i: Instruction) -> None:
    p = parts(i, 3)
    a, b, c = (source(e, i, op) for op in p.sources)
    smaller = is_min(e, p.ins[0])
    nan = i.has("NAN")
    e.write(p.d, float_minmax(e, float_minmax(e, a, b, smaller, nan), c, smaller, nan))


@opcode("FSEL", "UFSEL", modifiers=("FTZ",), pipe=alu_pipe, latency=alu_latency, operands=(4, 4))
def fsel(e: Emitter, i: Instruction) -> None:
    """a where the predicate is true, else b; bits move unchanged but for signs (and .FTZ)."""
    d, x, y, p = i.operands
    a, b = (e.bitcast(source(e, i, op), I32) for op in (x, y))
    e.write(d, e.select(e.pred(p), a, b))


# ------------------------------------------------------------------ compares

COMPARES = (
    *("F", "LT", "EQ", "LE", "GT", "NE", "GE", "NUM"),
    *("NAN", "LTU", "EQU", "LEU", "GTU", "NEU", "GEU", "T"),
)


def float_compare(e: Emitter, name: str, a: Value, b: Value) -> Value:
    """One of the sixteen comparisons: ordered ones are false, those ending in U true, when an operand is NaN."""
    if name in ("F", "T"):
        return e.const(MASK, int(name == "T"))
    if name in ("NUM", "NAN"):
        return e.compare("ord" if name == "NUM" else "uno", a, b)
    return e.compare(("u" if name.endswith("U") else "o") + name[:2].lower(), a, b)


def compare_name(i: Instruction) -> str:
    names = [m for m in i.modifiers if m in COMPARES]
    if len(names) != 1:
        raise Unsupported(f"{i.mnemonic}: needs one comparison")
    return names[0]


@opcode(
    "FSETP",
    "UFSETP",
    modifiers=(*COMPARES, "FTZ", "AND", "OR", "XOR"),
    pipe=alu_pipe,
    latency=predicate_latency,
    operands=(5, 5),
)
def fsetp(e: Emitter, i: Instruction) -> None:
    _, _, a, b, other = i.operands
    write_setp(e, i, float_compare(e, compare_name(i), source(e, i, a), source(e, i, b)), other)


@opcode(
    "FSET",
    "UFSET",
    modifiers=(*COMPARES, "BF", "FTZ", "AND", "OR", "XOR"),
    pipe=alu_pipe,
    latency=alu_latency,
    operands=(4, 4),
)
def fset(e: Emitter, i: Instruction) -> None:
    """All ones, or 1.0 with .BF, where the comparison (combined with a predicate) holds; else 0."""
    d, a, b, other = i.operands
    result = float_compare(e, compare_name(i), source(e, i, a), source(e, i, b))
    result = logic(e, i, result, e.pred(other))
    e.write(d, e.select(result, e.const(I32, 0x3F800000 if i.has("BF") else -1), 0))


@opcode("FCHK", modifiers=("DIVIDE",), pipe=Pipe.XU, latency="xu_conv", variable=True, operands=(3, 3))
def fchk(e: Emitter, i: Instruction) -> None:
    """True when the quotient a / b may not be computed by the short Newton sequence, by exponents alone.

    The rule, measured on an H200 for all pairs of exponents: a divisor below 2**-125 or from 2**125 on, a dividend
    below 2**-102, an infinity or NaN, or exponents 127 or more apart upward, 125 or more downward.
    """
    p, x, y = i.operands
    ea, eb = ((e.bits(op) >> 23) & 0xFF for op in (x, y))
    difference = ea - eb
    divisor = e.le(eb, 1) | e.ge(eb, 252)
    dividend = e.lt(ea, 25) | e.eq(ea, 255)
    e.write_pred(p, divisor | dividend | e.ge(difference, 127) | e.lt(difference, -124))


__all__ = [
    "COMPARES",
    "F64",
    "canonical",
    "compare_name",
    "finish",
    "float_compare",
    "float_minmax",
    "rounding_of",
    "source",
]
