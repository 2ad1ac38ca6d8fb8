"""Half-precision arithmetic on pairs: FP16 and BF16 add, multiply, fused multiply-add, min/max, compares.

A register holds two halves, element 0 in its low bits. Operands pick halves: as stored (H1_H0), or one for both (H0_H0,
H1_H1). Each result is rounded once to nearest even; denormals are kept unless .FTZ; NaN results are 0x7fff
(CUDA C++ Programming Guide, "Half Arithmetic Functions"; PTX ISA, half precision instructions).
"""

from __future__ import annotations

from collections.abc import Callable

from interpreter.isa.float_ops import COMPARES, compare_name, float_compare, float_minmax
from interpreter.isa.parts import is_min, logic
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import F32, F64, I32, I64, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand, OperandKind

Pair = tuple[Value, Value]

_HALVES = {(): (0, 1), ("H1_H0",): (0, 1), ("H0_H0",): (0, 0), ("H1_H1",): (1, 1), ("H0",): (0, 0), ("H1",): (1, 1)}


def widen_half(e: Emitter, bits: Value, bf16: bool) -> Value:
    """A half in the low 16 bits of an I32 (upper bits ignored) as F32, exact."""
    return e.bitcast(e.shl(bits, 16), F32) if bf16 else e.half_to_f32(bits & 0xFFFF)


def round_half(e: Emitter, v: Value, bf16: bool, rounding: str = "RN") -> Value:
    """F32 to a half in the low 16 bits, upper bits 0; RN or RZ; NaN is 0x7fff."""
    if not bf16:
        return e.select(e.is_nan(v), 0x7FFF, e.f32_to_half(v, rounding))
    bits = e.bitcast(v, I32)
    if rounding == "RN":
        bits = bits + 0x7FFF + (e.lshr(bits, 16) & 1)
    elif rounding != "RZ":
        raise Unsupported(f"bfloat16 with rounding mode {rounding}")
    return e.select(e.is_nan(v), 0x7FFF, e.lshr(bits, 16))


def to_odd(e: Emitter, v: Value) -> Value:
    """F64 to F32 by rounding to odd, for values inside F32's normal range (so that a second rounding is safe)."""
    bits = e.bitcast(v, I64)
    lost = bits & 0x1FFFFFFF
    kept = bits & ~0x1FFFFFFF
    odd = e.select(e.ne(lost, 0), kept | 0x20000000, kept)
    return e.convert("fptrunc", e.bitcast(odd, F64), F32)


def odd_sum(e: Emitter, a: Value, b: Value) -> Value:
    """a + b of F32 rounded to odd, for sums far from overflow whose rounding error FP32 can hold."""
    s = a + b
    other = s - a
    lost = (a - (s - other)) + (b - other)
    bits, lost_bits = e.bitcast(s, I32), e.bitcast(lost, I32)
    # an error of the other sign: the sum was rounded away from zero
    toward = e.select(e.lt(bits ^ lost_bits, 0), bits - 1, bits) | 1
    return e.bitcast(e.select(e.eq(lost, 0.0) | e.is_nan(lost), bits, toward), F32)


def _picked(e: Emitter, op: Operand) -> Pair:
    """The two 16-bit patterns an operand offers, in low bits (bits above may be set), prefixes not applied."""
    word = e.bits(op)
    if op.modifiers == ("PACKED",):
        return word, e.lshr(word, 16)
    choice = _HALVES.get(op.modifiers)
    if choice is None:
        raise Unsupported(f"half operand with .{'.'.join(op.modifiers)}")
    halves = (word, e.lshr(word, 16))
    return halves[choice[0]], halves[choice[1]]


def _signed(e: Emitter, op: Operand, bits: Value) -> Value:
    if op.absolute:
        bits = bits & 0x7FFF
    return bits ^ 0x8000 if op.negate else bits


def pair(e: Emitter, i: Instruction, op: Operand, bf16: bool) -> Pair:
    """An operand as two F32; .F32 operands widen nothing and give the same value twice."""
    if op.modifiers == ("F32",):
        v = e.f32(op)
        return v, v
    low, high = (widen_half(e, _signed(e, op, bits), bf16) for bits in _picked(e, op))
    if i.has("FTZ"):
        low, high = _flush(e, low, bf16), _flush(e, high, bf16)
    return low, high


def _flush(e: Emitter, v: Value, bf16: bool) -> Value:
    """Flush what is denormal in the half type."""
    if bf16:
        return e.ftz(v)
    return e.select(e.lt(e.abs(v), 2.0**-14), e.bitcast(e.bitcast(v, I32) & 0x80000000, F32), v)


def one_half(e: Emitter, op: Operand, bf16: bool) -> Value:
    """A single half operand (.H0 by default) as F32."""
    if op.kind is OperandKind.IMMEDIATE:
        raise Unsupported("immediate half operand")
    return widen_half(e, _signed(e, op, _picked(e, op)[0]), bf16)


def _operands(i: Instruction, count: int) -> tuple[list[Operand], list[Operand]]:
    """The `count` half operands after the destinations, an immediate pair counted once, and what follows them."""
    ops = list(i.operands)
    start = 2 if i.opcode == "HSETP2" else 1
    found: list[Operand] = []
    k = start
    while len(found) < count and k < len(ops):
        found.append(ops[k])
        k += 2 if ops[k].modifiers == ("PACKED",) else 1
    if len(found) < count:
        raise Unsupported(f"{i.mnemonic} with {len(ops)} operands")
    return found, ops[k:]


def join(e: Emitter, low: Value, high: Value) -> Value:
    """Two 16-bit patterns (upper bits 0) as one word."""
    return low | e.shl(high, 16)


def _finish(e: Emitter, i: Instruction, v: Value, bf16: bool) -> Value:
    """.SAT or .RELU on the unrounded result, then rounding (both commute with it), then .FTZ."""
    if i.has("SAT"):
        v = e.saturate(v)
    if i.has("RELU"):
        v = e.select(e.is_nan(v), v, e.select(e.gt(v, 0.0), v, 0.0))
    bits = round_half(e, v, bf16)
    if i.has("FTZ"):
        tiny = e.eq(bits & (0x7F80 if bf16 else 0x7C00), 0)
        bits = e.select(tiny, bits & 0x8000, bits)
    return bits


def half_pipe(i: Instruction, sm: int) -> Pipe:
    return Pipe.FP16


def half_latency(i: Instruction, sm: int) -> str:
    return "half_mma" if i.has("MMA") else "half"


def _apply(e: Emitter, i: Instruction, f: Callable[..., Value], count: int) -> None:
    bf16 = i.has("BF16_V2")
    operands, rest = _operands(i, count)
    if rest:
        raise Unsupported(f"{i.mnemonic} with {len(i.operands)} operands")
    lanes = list(zip(*(pair(e, i, op, bf16) for op in operands)))
    low, high = (_finish(e, i, f(*values), bf16) for values in lanes)
    e.write(i.operands[0], join(e, low, high))


_COMMON = ("BF16_V2", "FTZ", "SAT", "RELU", "MMA")


@opcode("HADD2", modifiers=(*_COMMON, "F32"), pipe=half_pipe, latency=half_latency, operands=(3, 4))
def hadd2(e: Emitter, i: Instruction) -> None:
    """Pairwise sum; .F32 gives the sum of the low elements as FP32 (how halves are widened)."""
    if i.has("F32"):
        operands, _ = _operands(i, 2)
        a, b = (pair(e, i, op, i.has("BF16_V2"))[0] for op in operands)
        e.write(i.operands[0], a + b)
        return
    # an F32 sum of two halves rounds harmlessly: 24 >= 2 * 11 + 2 bits, and tiny sums are exact
    _apply(e, i, lambda a, b: a + b, 2)


@opcode("HMUL2", modifiers=_COMMON, pipe=half_pipe, latency=half_latency, operands=(3, 4))
def hmul2(e: Emitter, i: Instruction) -> None:
    if i.has("BF16_V2"):
        # the exact product may be denormal in F32
        _apply(e, i, lambda a, b: e.f32_of(e.widen(a) * e.widen(b), "RO"), 2)
    else:
        _apply(e, i, lambda a, b: a * b, 2)


@opcode("HFMA2", modifiers=_COMMON, pipe=half_pipe, latency=half_latency, operands=(4, 6))
def hfma2(e: Emitter, i: Instruction) -> None:
    """Pairwise a * b + c with one rounding. `HFMA2 R, -RZ, RZ, hi, lo` is how 32-bit constants are made."""
    operands, rest = _operands(i, 3)
    if rest:
        raise Unsupported(f"{i.mnemonic} with {len(i.operands)} operands")
    a, b, c = operands
    if e.is_zero(a) and e.is_zero(b) and c.modifiers == ("PACKED",) and not _changes(i):
        _constant(e, i, a, b, c)
        return
    if i.has("BF16_V2"):
        _apply(e, i, lambda x, y, z: e.fma(x, y, z, "RO"), 3)
    else:
        # the product is exact
        _apply(e, i, lambda x, y, z: odd_sum(e, x * y, z), 3)


def _changes(i: Instruction) -> bool:
    return i.has("SAT") or i.has("RELU") or i.has("FTZ")


def _constant(e: Emitter, i: Instruction, a: Operand, b: Operand, c: Operand) -> None:
    """(+-0 * 0) + c: c itself, except that +0 + -0 is +0 and NaNs become canonical."""
    word = e.bits(c)
    positive = a.negate == b.negate
    infinity = 0x7F80 if i.has("BF16_V2") else 0x7C00
    halves = []
    for bits in (word & 0xFFFF, e.lshr(word, 16)):
        if positive:
            bits = e.select(e.eq(bits, 0x8000), 0, bits)
        halves.append(e.select(e.gt(bits & 0x7FFF, infinity), 0x7FFF, bits))
    e.write(i.operands[0], join(e, *halves))


@opcode("HMNMX2", modifiers=(*_COMMON, "NAN", "XORSIGN"), pipe=Pipe.ALU, latency="alu", operands=(4, 5))
def hmnmx2(e: Emitter, i: Instruction) -> None:
    """Pairwise minNum or maxNum (.NAN: NaN when either is)."""
    operands, rest = _operands(i, 2)
    if len(rest) != 1:
        raise Unsupported(f"{i.mnemonic} with {len(i.operands)} operands")
    smaller = is_min(e, rest[0])
    bf16 = i.has("BF16_V2")
    lanes = zip(*(pair(e, i, op, bf16) for op in operands))
    low, high = (_finish(e, i, float_minmax(e, a, b, smaller, i.has("NAN")), bf16) for a, b in lanes)
    word = join(e, low, high)
    if i.has("XORSIGN"):
        # the sign is the product of the operands' signs, before |x|; NaN stays as it is
        word = word ^ (_sign_product(e, operands) & _where_number(e, word, bf16))
    e.write(i.operands[0], word)


def _sign_product(e: Emitter, operands: list[Operand]) -> Value:
    """Sign bits of the products of elements, ignoring prefixes."""
    words = [join(e, *(half & 0xFFFF for half in _picked(e, op))) for op in operands]
    return (words[0] ^ words[1]) & 0x80008000


def _where_number(e: Emitter, word: Value, bf16: bool) -> Value:
    """All ones in halves that are no NaN."""
    infinity = 0x7F80 if bf16 else 0x7C00
    masks = [e.select(e.gt(half & 0x7FFF, infinity), 0, e.const(I32, 0xFFFF)) for half in (word, word >> 16)]
    return join(e, *masks)


@opcode("VHMNMX", modifiers=("BF16_V2", "NAN"), pipe=Pipe.ALU, latency="alu", operands=(5, 5))
def vhmnmx(e: Emitter, i: Instruction) -> None:
    """Three-source HMNMX2 (sm_90 and later)."""
    operands, rest = _operands(i, 3)
    if len(rest) != 1:
        raise Unsupported(f"{i.mnemonic} with {len(i.operands)} operands")
    smaller = is_min(e, rest[0])
    bf16, nan = i.has("BF16_V2"), i.has("NAN")
    results = []
    for a, b, c in zip(*(pair(e, i, op, bf16) for op in operands)):
        v = float_minmax(e, float_minmax(e, a, b, smaller, nan), c, smaller, nan)
        results.append(_finish(e, i, v, bf16))
    e.write(i.operands[0], join(e, *results))


def _comparison(e: Emitter, i: Instruction) -> tuple[list[Value], Operand]:
    """Results for the low and high elements, and the predicate source."""
    operands, rest = _operands(i, 2)
    if len(rest) != 1:
        raise Unsupported(f"{i.mnemonic} with {len(i.operands)} operands")
    name = compare_name(i)
    lanes = zip(*(pair(e, i, op, i.has("BF16_V2")) for op in operands))
    return [float_compare(e, name, a, b) for a, b in lanes], rest[0]


@opcode(
    "HSETP2",
    modifiers=(*COMPARES, "BF16_V2", "FTZ", "AND", "OR", "XOR", "H_AND"),
    pipe=Pipe.ALU,
    latency="alu_predicate",
    operands=(5, 6),
)
def hsetp2(e: Emitter, i: Instruction) -> None:
    """Pu from the low elements, Pv from the high ones; .H_AND: Pu when both hold, Pv when not both."""
    results, other = _comparison(e, i)
    low, high = results
    if i.has("H_AND"):
        low, high = low & high, ~(low & high)
    c = e.pred(other)
    first, second = logic(e, i, low, c), logic(e, i, high, c)
    pu, pv = i.operands[:2]
    e.write_pred(pu, first)
    e.write_pred(pv, second)


@opcode(
    "HSET2",
    modifiers=(*COMPARES, "BF", "BF16_V2", "FTZ", "AND", "OR", "XOR"),
    pipe=Pipe.ALU,
    latency="alu",
    operands=(4, 5),
)
def hset2(e: Emitter, i: Instruction) -> None:
    """Per element 0xffff, or 1.0 with .BF, where the comparison holds; else 0."""
    results, other = _comparison(e, i)
    c = e.pred(other)
    true = (0x3F80 if i.has("BF16_V2") else 0x3C00) if i.has("BF") else 0xFFFF
    low, high = (e.select(logic(e, i, r, c), e.const(I32, true), 0) for r in results)
    e.write(i.operands[0], join(e, low, high))
