"""Integer compares, and logic and moves of predicates, with their uniform twins."""

from __future__ import annotations

from interpreter.isa.logic_ops import lut3
from interpreter.isa.parts import alu_latency, alu_pipe, is_predicate, predicate_latency, write_setp
from interpreter.isa.registry import opcode
from interpreter.isa.value import I32, MASK, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand, OperandKind

_COMPARES = ("F", "LT", "EQ", "LE", "GT", "NE", "GE", "T")


def integer_compare(e: Emitter, name: str, a: Value, b: Value, signed: bool) -> Value:
    """a `name` b as MASK, for the eight integer comparisons."""
    if name == "EQ":
        return e.eq(a, b)
    if name == "NE":
        return e.ne(a, b)
    if name in ("F", "T"):
        return e.const(MASK, int(name == "T"))
    return {"LT": e.lt, "LE": e.le, "GT": e.gt, "GE": e.ge}[name](a, b, signed=signed)


@opcode(
    "ISETP",
    "UISETP",
    modifiers=(*_COMPARES, "U32", "S32", "U64", "S64", "AND", "OR", "XOR", "EX"),
    pipe=alu_pipe,
    latency=predicate_latency,
    operands=(5, 6),
)
def isetp(e: Emitter, i: Instruction) -> None:
    """Pu = (a cmp b) op Pc, Pv = !(a cmp b) op Pc.

    .EX compares high words; its last predicate is the low words' result, which decides where the high words are equal.
    """
    _, _, a, b, other = i.operands[:5]
    names = [m for m in i.modifiers if m in _COMPARES]
    if len(names) != 1 or i.has("EX") != (len(i.operands) == 6):
        raise Unsupported(f"{i.mnemonic} with {len(i.operands)} operands")
    name = names[0]
    signed = not (i.has("U32") or i.has("U64"))
    if i.has("U64") or i.has("S64"):
        if i.has("EX"):
            raise Unsupported("64-bit compare with .EX")
        result = integer_compare(e, name, e.i64(a, signed=True), e.i64(b, signed=True), signed)
    else:
        x, y = e.i32(a), e.i32(b)
        result = integer_compare(e, name, x, y, signed)
        if i.has("EX"):
            low = e.pred(i.operands[5])
            if name == "EQ":
                result = result & low
            elif name == "NE":
                result = result | low
            elif name not in ("F", "T"):
                strict = {"LE": "LT", "GE": "GT"}.get(name, name)
                result = integer_compare(e, strict, x, y, signed) | (e.eq(x, y) & low)
    write_setp(e, i, result, other)


def _sign(e: Emitter, op: Operand) -> Value:
    """A PLOP3 input: a predicate, or the sign bit of a register."""
    if is_predicate(op):
        return e.pred(op)
    if op.modifiers != ("SIGN",):
        raise Unsupported("PLOP3 source that is neither a predicate nor R.SIGN")
    negative = e.lt(e.bits(op), 0)
    return ~negative if op.invert else negative


@opcode("PLOP3", "UPLOP3", modifiers=("LUT",), pipe=alu_pipe, latency=predicate_latency, operands=(7, 7))
def plop3(e: Emitter, i: Instruction) -> None:
    """Two functions of three predicates, one table a destination; tables as LOP3's."""
    pu, pv, a, b, c, table_u, table_v = i.operands
    x, y, z = (_sign(e, op) for op in (a, b, c))
    false, true = e.const(MASK, 0), e.const(MASK, 1)
    first = lut3(e.literal(table_u), x, y, z, false, true)
    second = lut3(e.literal(table_v), x, y, z, false, true)
    e.write_pred(pu, first)
    e.write_pred(pv, second)


# ------------------------------------------------------------------ predicate file to register and back


def _byte(op: Operand) -> int:
    for m in op.modifiers:
        if m in ("B0", "B1", "B2", "B3"):
            return int(m[1])
        raise Unsupported(f"operand modifier .{m} on a predicate move")
    return 0


def _mask_of(e: Emitter, op: Operand) -> int:
    if op.kind is not OperandKind.IMMEDIATE:
        raise Unsupported("predicate move whose mask is not an immediate")
    mask = e.literal(op)
    if mask > 0x7F:
        raise Unsupported(f"predicate move with mask {mask:#x}: only P0..P6 exist")
    return mask


@opcode("P2R", "UP2UR", modifiers=("B1", "B2", "B3"), pipe=alu_pipe, latency=alu_latency, operands=(4, 4))
def p2r(e: Emitter, i: Instruction) -> None:
    """d = a with the predicates named in the mask put in its bits 0..6 (of byte .Bn)."""
    d, _, a, mask_op = i.operands
    mask = _mask_of(e, mask_op)
    shift = 8 * max([int(m[1]) for m in i.modifiers] + [_byte(d)])
    unif = i.opcode.startswith("U")
    total = e.i32(a) & ~(mask << shift)
    for k in range(7):
        if mask >> k & 1:
            bit = e.select(e.pred_number(k, unif), 1 << (k + shift), e.const(I32, 0))
            total = total | bit
    e.write(d, total)


@opcode("R2P", modifiers=("B1", "B2", "B3"), pipe=alu_pipe, latency=predicate_latency, operands=(3, 3))
def r2p(e: Emitter, i: Instruction) -> None:
    """Set the predicates named in the mask from bits 0..6 of a register (of its byte .Bn)."""
    _, a, mask_op = i.operands
    mask = _mask_of(e, mask_op)
    v = e.bits(a)
    shift = 8 * max([int(m[1]) for m in i.modifiers] + [_byte(a)])
    for k in range(7):
        if mask >> k & 1:
            e.write_pred_number(k, e.ne(v & (1 << (k + shift)), 0))
