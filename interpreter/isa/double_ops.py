"""FP64 arithmetic: add, multiply, fused multiply-add and compares.

IEEE 754 with denormals, rounding modes in the modifiers. Unlike FP32, NaN payloads pass through.
"""

from __future__ import annotations

from interpreter.isa.float_ops import COMPARES, ROUNDINGS, compare_name, float_compare, rounding_of
from interpreter.isa.parts import logic, write_setp
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import I64, Emitter, Value
from interpreter.program import Instruction, Operand


def _write(e: Emitter, d: Operand, result: Value, *sources: Value) -> None:
    """Store a result; a NaN source is passed on, quieted: the second before the third before the first (as an H200
    does), and an invalid operation gives 0xfff8000000000000."""
    bits = e.select(e.is_nan(result), 0xFFF8000000000000, e.bitcast(result, I64))
    for v in (sources[0], *reversed(sources[1:])):
        bits = e.select(e.is_nan(v), e.bitcast(v, I64) | 0x8000000000000, bits)
    e.write(d, bits)


def variable(i: Instruction, sm: int) -> bool:
    """FP64 results are scoreboarded except where the unit is full-width and fixed: sm_90 and sm_100."""
    return sm not in (90, 100)


@opcode("DADD", modifiers=ROUNDINGS, pipe=Pipe.FP64, latency="fp64", variable=variable, operands=(3, 3))
def dadd(e: Emitter, i: Instruction) -> None:
    d, a, b = i.operands
    x, y = e.f64(a), e.f64(b)
    _write(e, d, e.add(x, y, rounding_of(i)), x, y)


@opcode("DMUL", modifiers=ROUNDINGS, pipe=Pipe.FP64, latency="fp64", variable=variable, operands=(3, 3))
def dmul(e: Emitter, i: Instruction) -> None:
    d, a, b = i.operands
    x, y = e.f64(a), e.f64(b)
    _write(e, d, e.mul(x, y, rounding_of(i)), x, y)


@opcode("DFMA", modifiers=ROUNDINGS, pipe=Pipe.FP64, latency="fp64", variable=variable, operands=(4, 4))
def dfma(e: Emitter, i: Instruction) -> None:
    d, a, b, c = i.operands
    x, y, z = e.f64(a), e.f64(b), e.f64(c)
    _write(e, d, e.fma(x, y, z, rounding_of(i)), x, y, z)


def total_less(e: Emitter, a: Value, b: Value) -> Value:
    """a < b with -0 below +0; false when either is NaN."""
    both_zero = e.eq(a, 0.0) & e.eq(b, 0.0)
    return e.select(both_zero, e.lt(e.bitcast(a, I64), e.bitcast(b, I64)), e.lt(a, b))


@opcode(
    "DSETP",
    modifiers=(*COMPARES, "MIN", "MAX", "AND", "OR", "XOR"),
    pipe=Pipe.FP64,
    latency="fp64",
    variable=variable,
    operands=(5, 5),
)
def dsetp(e: Emitter, i: Instruction) -> None:
    """Compares; .MIN and .MAX instead say whether a is the result (Pu) and whether both are NaN (Pv), for the selects
    that follow in compiled fmin and fmax."""
    pu, pv, x, y, other = i.operands
    a, b = e.f64(x), e.f64(y)
    if not (i.has("MIN") or i.has("MAX")):
        write_setp(e, i, float_compare(e, compare_name(i), a, b), other)
        return
    wins = total_less(e, a, b) if i.has("MIN") else total_less(e, b, a)
    nan_a, nan_b = e.is_nan(a), e.is_nan(b)
    c = e.pred(other)
    first = logic(e, i, (wins | nan_b) & ~nan_a, c)
    second = logic(e, i, nan_a & nan_b, c)
    e.write_pred(pu, first)
    e.write_pred(pv, second)
