"""How the operand lists of arithmetic instructions are laid out, and the pipe choices many of them share.

nvdisasm prints, for most arithmetic: the destination register and, before or after it, predicate destinations; then
the sources; then predicate sources. Optional predicate destinations are left out of the text when they are PT on sm_80
to sm_90 and printed from sm_100 on, so operands are told apart by kind, not by position.

Latency classes of arithmetic (the targets give each its numbers): alu, alu_predicate (a predicate result), iadd
(sm_120), fma, fma_packed (FFMA2), imad, imad_wide, imad_hi, half, half_mma (HFMA2.MMA), fp64, xu (MUFU), xu_conv and
xu_conv64 (F2I, I2F, F2F, FRND; with a 64-bit side), xu_popc (POPC, FLO, BREV), uniform, vote, redux, match, shuffle,
movm, and for matrices hmma_, imma_, qmma_ and dmma_ with the shape, gmma_n with N.
"""

from __future__ import annotations

from dataclasses import dataclass

from interpreter.isa.pipes import Pipe
from interpreter.isa.value import I32, MASK, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand, OperandKind

PREDICATES = (OperandKind.PREDICATE, OperandKind.UNIFORM_PREDICATE)


@dataclass(frozen=True, slots=True)
class Parts:
    """Destination register, predicate destinations, data sources, predicate sources; each in printed order."""

    d: Operand
    outs: list[Operand]
    sources: list[Operand]
    ins: list[Operand]


def is_predicate(op: Operand) -> bool:
    return op.kind in PREDICATES


def parts(i: Instruction, sources: int) -> Parts:
    """Split the operands of an instruction that writes a register and reads `sources` data operands."""
    ops = list(i.operands)
    outs: list[Operand] = []
    k = 0
    while k < len(ops) and is_predicate(ops[k]):
        outs.append(ops[k])
        k += 1
    if k == len(ops):
        raise Unsupported(f"{i.mnemonic} without a destination register")
    d = ops[k]
    k += 1
    while k < len(ops) and is_predicate(ops[k]):
        outs.append(ops[k])
        k += 1
    data = ops[k : k + sources]
    ins = ops[k + sources :]
    if len(data) != sources or any(map(is_predicate, data)) or not all(map(is_predicate, ins)):
        raise Unsupported(f"{i.mnemonic} needs {sources} sources followed by predicates only")
    return Parts(d, outs, data, ins)


def wanted(e: Emitter, outs: list[Operand]) -> bool:
    """True when some predicate destination is kept (not PT)."""
    return any(not e.is_true(o) for o in outs)


def logic(e: Emitter, i: Instruction, result: Value, other: Value) -> Value:
    """The .AND, .OR or .XOR of a SETP, on masks."""
    if i.has("OR"):
        return result | other
    if i.has("XOR"):
        return result ^ other
    if i.has("AND"):
        return result & other
    raise Unsupported(f"{i.mnemonic} without AND, OR or XOR")


def write_setp(e: Emitter, i: Instruction, result: Value, other: Operand) -> None:
    """Pu = result op Pc and Pv = !result op Pc, the two destinations of every SETP."""
    pu, pv = i.operands[:2]
    c = e.pred(other)
    first = logic(e, i, result, c)
    second = logic(e, i, ~result, c) if not e.is_true(pv) else None
    e.write_pred(pu, first)
    if second is not None:
        e.write_pred(pv, second)


def is_min(e: Emitter, selector: Operand) -> Value | None:
    """What an MNMX selector predicate says: PT is min, !PT is max; the mask of lanes that take min, None for all."""
    if e.is_true(selector):
        return None
    return e.pred(selector)


def pick(e: Emitter, smaller: Value | None, low: Value, high: Value) -> Value:
    """`low` where the selector of `is_min` says min, else `high`."""
    if smaller is None:
        return low
    return e.select(smaller, low, high)


def flag(e: Emitter, mask: Value) -> Value:
    """MASK to I32 0 or 1."""
    return e.zext(mask, I32)


def false(e: Emitter) -> Value:
    return e.const(MASK, 0)


# ---- pipes: (instruction, sm) -> Pipe. Sources: NVIDIA's Nsight Compute pipe descriptions, the throughput table of the
# CUDA C++ Programming Guide (results a clock a SM), and the dependent gaps that ptxas keeps between producers and
# consumers (4 cycles inside a pipe, 5 across).


def uniform(i: Instruction) -> bool:
    """True for the uniform-datapath twin of a vector opcode."""
    return i.opcode.startswith("U")


def alu_pipe(i: Instruction, sm: int) -> Pipe:
    return Pipe.UNIFORM if uniform(i) else Pipe.ALU


def alu_latency(i: Instruction, sm: int) -> str:
    return "uniform" if uniform(i) else "alu"


def predicate_latency(i: Instruction, sm: int) -> str:
    """Of an ALU result that is a predicate."""
    return "uniform" if uniform(i) else "alu_predicate"


def fma_pipe(i: Instruction, sm: int) -> Pipe:
    return Pipe.UNIFORM if uniform(i) else Pipe.FMA


def fma_latency(i: Instruction, sm: int) -> str:
    return "uniform" if uniform(i) else "fma"


def xu_pipe(i: Instruction, sm: int) -> Pipe:
    return Pipe.UNIFORM if uniform(i) else Pipe.XU


def not_uniform(i: Instruction, sm: int) -> bool:
    """Variable latency of the vector form; the uniform twin has a fixed one."""
    return not uniform(i)
