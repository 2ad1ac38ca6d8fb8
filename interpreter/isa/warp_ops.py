"""Operations across the lanes of a warp: SHFL, VOTE, MATCH, REDUX and MOVM.

Semantics: PTX ISA, shfl.sync, vote.sync, match.sync, redux.sync, movmatrix. The lanes that take part are those that
execute the instruction.
"""

from __future__ import annotations

from collections.abc import Callable

from interpreter.isa.float_ops import float_minmax
from interpreter.isa.parts import is_predicate
from interpreter.isa.pipes import MemoryKind, Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import F32, I32, LANES, MASK, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand


@opcode(
    "SHFL",
    modifiers=("IDX", "UP", "DOWN", "BFLY"),
    pipe=Pipe.LSU,
    latency="shuffle",
    variable=True,
    memory=MemoryKind.SHUFFLE,
    width=4,
    operands=(5, 5),
)
def shfl(e: Emitter, i: Instruction) -> None:
    """Each lane reads a of another; out of range it keeps its own and Pu is false.

    c: bits 4:0 the clamp, bits 12:8 the segment mask. A lane that does not execute is read as its register stands
    (undefined on hardware).
    """
    pu, d, a, b_op, c_op = i.operands
    lane = e.lane_id
    value, b, c = e.bits(a), e.i32(b_op) & 31, e.i32(c_op)
    segment = e.lshr(c, 8) & 31
    clamp = c & 31
    low = lane & segment  # first lane of the segment
    limit = low | (clamp & ~segment)
    if i.has("IDX"):
        source = low | (b & ~segment)
        inside = e.le(source, limit)
    elif i.has("UP"):
        source = lane - b
        inside = e.ge(source, limit)
    elif i.has("DOWN"):
        source = lane + b
        inside = e.le(source, limit)
    elif i.has("BFLY"):
        source = lane ^ b
        inside = e.le(source, limit)
    else:
        raise Unsupported("SHFL without a mode")
    e.write(d, e.shuffle(value, e.select(inside, source, lane)))
    e.write_pred(pu, inside)


def _vote_pipe(i: Instruction, sm: int) -> Pipe:
    return Pipe.UNIFORM if i.opcode == "VOTEU" else Pipe.ALU


@opcode("VOTE", "VOTEU", modifiers=("ALL", "ANY", "EQ"), pipe=_vote_pipe, latency="vote", operands=(2, 3))
def vote(e: Emitter, i: Instruction) -> None:
    """Ballot of a predicate to a register, and whether all, any, or all-or-none of the lanes have it to a predicate."""
    *outs, source = i.operands
    if not is_predicate(source):
        raise Unsupported("VOTE whose last operand is no predicate")
    active = e.active
    set_lanes = e.pred(source) & active
    ballot = e.ballot(set_lanes)
    everyone = e.ballot(active)
    all_set = e.eq(ballot, everyone)
    if i.has("ALL"):
        result = all_set
    elif i.has("ANY"):
        result = e.ne(ballot, 0)
    elif i.has("EQ"):
        result = all_set | e.eq(ballot, 0)
    else:
        raise Unsupported("VOTE without a mode")
    for out in outs:
        if is_predicate(out):
            e.write_pred(out, result)
        else:
            e.write(out, ballot)


@opcode("MATCH", modifiers=("ANY", "ALL", "U64"), pipe=Pipe.XU, latency="match", variable=True, operands=(2, 3))
def match(e: Emitter, i: Instruction) -> None:
    """Mask of the executing lanes that hold the same value; .ALL: the executing lanes if all agree, else 0."""
    *outs, d, a = i.operands
    v = e.pair(a) if i.has("U64") else e.bits(a)
    active = e.active
    if i.has("ALL"):
        agree = e.all(e.eq(v, e.first(v)))
        e.write(d, e.select(agree, e.ballot(active), 0))
        for out in outs:
            e.write_pred(out, agree)
        return
    if not i.has("ANY") or outs:
        raise Unsupported(f"{i.mnemonic} with {len(i.operands)} operands")
    mask = e.const(I32, 0)
    for lane in range(LANES):
        mask = mask | e.select(e.eq(v, e.broadcast(v, lane)), 1 << lane, e.const(I32, 0))
    e.write(d, mask & e.ballot(active))


_REDUCTIONS: dict[str, tuple[Callable[[Emitter, bool], Callable[[Value, Value], Value]], Callable[[bool], int]]] = {
    "AND": (lambda e, s: lambda a, b: a & b, lambda s: -1),
    "OR": (lambda e, s: lambda a, b: a | b, lambda s: 0),
    "XOR": (lambda e, s: lambda a, b: a ^ b, lambda s: 0),
    "SUM": (lambda e, s: lambda a, b: a + b, lambda s: 0),
    "MIN": (lambda e, s: lambda a, b: e.min(a, b, s), lambda s: 0x7FFFFFFF if s else -1),
    "MAX": (lambda e, s: lambda a, b: e.max(a, b, s), lambda s: -0x80000000 if s else 0),
}


@opcode(
    "REDUX",
    "CREDUX",
    modifiers=(*_REDUCTIONS, "S32", "U32", "F32", "NAN", "ABS"),
    pipe=Pipe.XU,
    latency="redux",
    variable=True,
    operands=(2, 2),
)
def redux(e: Emitter, i: Instruction) -> None:
    """Reduction over the executing lanes to a uniform register; AND when no operation is named."""
    d, a = i.operands
    name = next((m for m in i.modifiers if m in _REDUCTIONS), "AND")
    if i.has("F32"):
        _redux_float(e, i, name, d, a)
        return
    if i.has("NAN") or i.has("ABS"):
        raise Unsupported(i.mnemonic)
    combine, identity = _REDUCTIONS[name]
    signed = i.has("S32")
    e.write(d, e.reduce(combine(e, signed), e.bits(a), identity(signed)))


def _redux_float(e: Emitter, i: Instruction, name: str, d: Operand, a: Operand) -> None:
    if name not in ("MIN", "MAX"):
        raise Unsupported(i.mnemonic)
    v = e.f32(a)
    if i.has("ABS"):
        v = e.abs(v)
    smaller = None if name == "MIN" else e.const(MASK, 0)
    # NaN loses against any number, and a lane that takes no part counts as NaN
    missing = e.bitcast(e.const(I32, 0x7FFFFFFF), F32)
    if i.has("NAN"):
        nan = e.any(e.is_nan(v) & e.active)
    v = e.select(e.active, v, missing)
    for step in (16, 8, 4, 2, 1):
        v = float_minmax(e, v, e.permute(v, [lane ^ step for lane in range(LANES)]), smaller, False)
    e.write(d, e.select(nan, missing, v) if i.has("NAN") else v)


@opcode("MOVM", modifiers=("16", "MT88"), pipe=Pipe.LSU, latency="movm", variable=True, operands=(2, 2))
def movm(e: Emitter, i: Instruction) -> None:
    """Transpose of an 8 x 8 matrix of halves: lane 4r + p holds elements 2p and 2p + 1 of row r."""
    if i.modifiers != ("16", "MT88"):
        raise Unsupported(i.mnemonic)
    d, a = i.operands
    v = e.bits(a)
    rows = [lane >> 2 for lane in range(LANES)]
    odd = e.ne(e.lanes(rows) & 1, 0)
    halves = []
    for element in range(2):
        # result row r, column 2p + element is the source's row 2p + element, column r
        word = e.permute(v, [4 * (2 * (lane & 3) + element) + (rows[lane] >> 1) for lane in range(LANES)])
        halves.append(e.select(odd, e.lshr(word, 16), word & 0xFFFF))
    e.write(d, halves[0] | e.shl(halves[1], 16))
