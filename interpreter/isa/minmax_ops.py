"""Integer minimum and maximum, and the fused and packed forms behind the DPX intrinsics (VIADD, VIMNMX, ...).

DPX semantics: CUDA C++ Programming Guide, "Dynamic Programming eXtension (DPX) Instructions". Additions wrap unless
.ISAT; packed forms work on each 16-bit or 8-bit field.
"""

from __future__ import annotations

from collections.abc import Callable

from interpreter.isa.integer_ops import field_of
from interpreter.isa.parts import alu_latency, alu_pipe, is_min, parts, uniform, wanted
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import I32, I64, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand

_PACKED = {"S16x2": (16, True), "U16x2": (16, False), "16x2": (16, True), "S8x4": (8, True), "U8x4": (8, False)}
_TYPES = ("S32", "U32", *_PACKED)


def _signed(i: Instruction) -> bool:
    return not (i.has("U32") or i.has("U64") or i.has("U16x2") or i.has("U8x4"))


def _packed(i: Instruction) -> tuple[int, bool] | None:
    return next((_PACKED[m] for m in i.modifiers if m in _PACKED), None)


def _fields(e: Emitter, op: Operand, width: int, signed: bool) -> list[Value]:
    if op.modifiers or op.invert or op.absolute:
        raise Unsupported("operand modifiers on a packed integer")
    word = e.bits(op)
    values = [field_of(e, word, k, width, signed) for k in range(32 // width)]
    return [e.neg(v) for v in values] if op.negate else values


def _join(e: Emitter, values: list[Value], width: int) -> Value:
    mask = (1 << width) - 1
    total = values[0] & mask
    for k, v in enumerate(values[1:], start=1):
        total = total | e.shl(v & mask, k * width)
    return total


def _wrap(e: Emitter, v: Value, width: int, signed: bool) -> Value:
    """A field's sum brought back to its width."""
    return field_of(e, v, 0, width, signed)


def _selected(e: Emitter, smaller: Value | None, a: Value, b: Value, signed: bool) -> Value:
    low = e.min(a, b, signed)
    return low if smaller is None else e.select(smaller, low, e.max(a, b, signed))


def _minmax_pipe(i: Instruction, sm: int) -> Pipe:
    if uniform(i):
        return Pipe.UNIFORM
    # 128 results a clock a SM on sm_120, 64 elsewhere (CUDA C++ Programming Guide); the wide pipe there is FMA
    return Pipe.FMA if sm >= 120 and not i.opcode.startswith("IMNMX") else Pipe.ALU


@opcode("IMNMX", "UIMNMX", modifiers=("S32", "U32", "S64", "U64"), pipe=alu_pipe, latency=alu_latency, operands=(4, 7))
def imnmx(e: Emitter, i: Instruction) -> None:
    p = parts(i, 2)
    wide = i.has("S64") or i.has("U64")
    if wanted(e, p.outs):
        raise Unsupported("IMNMX with a predicate result")
    if len(p.ins) == 2 and not e.is_false(p.ins[1]):
        raise Unsupported("IMNMX with a second predicate source")
    smaller = is_min(e, p.ins[0])
    read = e.i64 if wide else e.i32
    a, b = (read(op) for op in p.sources)
    e.write(p.d, _selected(e, smaller, a, b, _signed(i)))


@opcode("VIMNMX", "UVIMNMX", modifiers=(*_TYPES, "RELU"), pipe=_minmax_pipe, latency=alu_latency, operands=(4, 7))
def vimnmx(e: Emitter, i: Instruction) -> None:
    """min or max of two; .RELU: then max with 0. Packed: the predicates say where a was taken (low field, high
    field)."""
    p = parts(i, 2)
    smaller = is_min(e, p.ins[0])
    signed, packed = _signed(i), _packed(i)
    if packed is None:
        a, b = (e.i32(op) for op in p.sources)
        result = _selected(e, smaller, a, b, signed)
        taken = e.eq(result, a)
        e.write(p.d, e.max(result, 0) if i.has("RELU") else result)
        for out in p.outs[:1]:
            e.write_pred(out, taken)
        if wanted(e, p.outs[1:]):
            raise Unsupported("32-bit VIMNMX with a second predicate result")
        return
    left, right = (_fields(e, op, *packed) for op in p.sources)
    results, chosen = [], []
    for a, b in zip(left, right):
        result = _selected(e, smaller, a, b, signed)
        chosen.append(e.eq(result, a))
        results.append(e.max(result, 0) if i.has("RELU") else result)
    if wanted(e, p.outs) and packed[0] != 16:
        raise Unsupported("VIMNMX of bytes with predicate results")
    e.write(p.d, _join(e, results, packed[0]))
    for out, taken in zip(p.outs, chosen):
        e.write_pred(out, taken)


@opcode("VIMNMX3", modifiers=(*_TYPES, "RELU"), pipe=Pipe.ALU, latency="alu", operands=(5, 5))
def vimnmx3(e: Emitter, i: Instruction) -> None:
    p = parts(i, 3)
    smaller = is_min(e, p.ins[0])
    _map3(e, i, p.d, p.sources, lambda a, b, c, s: _selected(e, smaller, _selected(e, smaller, a, b, s), c, s), False)


@opcode("VIADDMNMX", modifiers=(*_TYPES, "RELU"), pipe=Pipe.ALU, latency="alu", operands=(5, 5))
def viaddmnmx(e: Emitter, i: Instruction) -> None:
    """min or max of a + b and c."""
    p = parts(i, 3)
    smaller = is_min(e, p.ins[0])
    _map3(e, i, p.d, p.sources, lambda a, b, c, s: _selected(e, smaller, a, c, s), True)


def _map3(
    e: Emitter, i: Instruction, d: Operand, sources: list[Operand], f: Callable[..., Value], add_first: bool
) -> None:
    """Apply f(a, b, c, signed) to 32-bit values or packed fields; with `add_first` its a is a + b, wrapped."""
    signed, packed = _signed(i), _packed(i)
    relu = i.has("RELU")
    if packed is None:
        a, b, c = (e.i32(op) for op in sources)
        result = f(a + b if add_first else a, b, c, signed)
        e.write(d, e.max(result, 0) if relu else result)
        return
    width = packed[0]
    results = []
    for a, b, c in zip(*(_fields(e, op, *packed) for op in sources)):
        result = f(_wrap(e, a + b, width, signed) if add_first else a, b, c, signed)
        results.append(e.max(result, 0) if relu else result)
    e.write(d, _join(e, results, width))


def _viadd_pipe(i: Instruction, sm: int) -> Pipe:
    return Pipe.ALU


@opcode("VIADD", modifiers=(*_TYPES, "ISAT"), pipe=_viadd_pipe, latency="alu", operands=(3, 3))
def viadd(e: Emitter, i: Instruction) -> None:
    d, a, b = i.operands
    packed = _packed(i)
    if packed is not None:
        if i.has("ISAT"):
            raise Unsupported("saturating packed VIADD")
        width = packed[0]
        e.write(d, _join(e, [x + y for x, y in zip(_fields(e, a, *packed), _fields(e, b, *packed))], width))
        return
    x, y = e.i32(a), e.i32(b)
    if not i.has("ISAT"):
        e.write(d, x + y)
        return
    if not _signed(i):
        raise Unsupported("unsigned saturating VIADD")
    total = e.sext(x) + e.sext(y)
    e.write(d, e.lo32(e.max(e.min(total, 0x7FFFFFFF), e.const(I64, -0x80000000))))


def clamp_signed(e: Emitter, v: Value, width: int) -> Value:
    """I32 limited to a signed field of `width` bits."""
    return e.max(e.min(v, (1 << (width - 1)) - 1), e.const(I32, -(1 << (width - 1))))


def clamp_unsigned(e: Emitter, v: Value, width: int, from_signed: bool = True) -> Value:
    """I32 limited to an unsigned field of `width` bits."""
    top = (1 << width) - 1
    return e.max(e.min(v, top), 0) if from_signed else e.min(v, top, signed=False)
