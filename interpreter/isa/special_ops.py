"""Special registers and moves between the vector and uniform datapaths.

Which special registers exist, and what they hold: `interpreter.launch.special_values`.
"""

from __future__ import annotations

from interpreter.isa.memory_ops import _machine
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import I32, Emitter, Unsupported
from interpreter.program import Instruction, OperandKind


@opcode("S2R", "S2UR", pipe=Pipe.SPECIAL, latency="s2r", variable=True, operands=(2, 2))
def s2r(e: Emitter, i: Instruction) -> None:
    """Rd = SR; S2UR takes the first active lane's."""
    e = _machine(e)
    d, source = i.operands
    value = e.special(source)
    e.write(d, e.first(value) if i.opcode == "S2UR" else value)


@opcode("CS2R", modifiers=("32", "64"), pipe=Pipe.ALU, latency="cs2r", operands=(2, 2))
@opcode("CS2UR", modifiers=("32", "64"), pipe=Pipe.UNIFORM, latency="uniform", operands=(2, 2))
def cs2r(e: Emitter, i: Instruction) -> None:
    """64 bits unless .32: SRZ, or a clock (its high half follows)."""
    e = _machine(e)
    d, source = i.operands
    if source.kind is not OperandKind.SPECIAL:
        raise Unsupported(f"{i.mnemonic} from something else than a special register")
    low = e.special(source)
    if i.has("32"):
        e.write(d, low)
    else:
        e.write_rows(d, [low, e.special_high(source)])


@opcode("R2UR", modifiers=("OR",), pipe=Pipe.UNIFORM, latency="r2ur", operands=(2, 3))
def r2ur(e: Emitter, i: Instruction) -> None:
    """URd = Ra of the first active lane. The predicate form also says whether the active lanes differ."""
    if i.has("OR"):
        raise Unsupported("R2UR.OR")
    source = i.operands[-1]
    d = i.operands[-2]
    value = e.bits(source)
    first = e.first(value)
    if len(i.operands) == 3 and not e.is_true(i.operands[0]):
        raise Unsupported("R2UR with a predicate destination")
    e.write(d, first)


@opcode("ELECT", pipe=Pipe.UNIFORM, latency="elect", operands=(3, 3))
def elect(e: Emitter, i: Instruction) -> None:
    """P is true in the lowest active lane only; URd gets its number (elect.sync)."""
    p, d, member = i.operands
    able = e.active & e.pred(member)
    leader = e.ctz(e.ballot(able))
    e.write(d, leader)
    e.write_pred(p, e.eq(e.lane_id, leader))


@opcode("LEPC", pipe=Pipe.ALU, latency="alu", operands=(1, 2))
def lepc(e: Emitter, i: Instruction) -> None:
    """Rd = 64-bit address of the target (of this instruction when none is named), from the kernel's start."""
    e = _machine(e)
    targets = [op for op in i.operands if op.kind is OperandKind.TARGET]
    address = e.target_address(targets[0]) if targets else e.instruction_address()
    e.write_rows(i.operands[0], [address, e.const(I32, 0)])
