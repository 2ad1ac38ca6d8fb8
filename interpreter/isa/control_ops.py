"""Branches, convergence barriers, CTA barriers and exit.

Divergence follows the hardware: BSSY names the lanes that will meet, BSYNC is where they meet, BREAK leaves; groups of
lanes at different places take turns (independent thread scheduling).
"""

from __future__ import annotations

from interpreter.isa.memory_ops import _machine
from interpreter.isa.pipes import Pipe
from interpreter.isa.registry import opcode
from interpreter.isa.value import I32, Emitter, Unsupported, Value
from interpreter.program import Instruction, Operand, OperandKind

PREDICATES = (OperandKind.PREDICATE, OperandKind.UNIFORM_PREDICATE)


def _condition(e: Emitter, i: Instruction) -> Value:
    """Active lanes whose predicate operands (BRA P0, target; EXIT P0; BRA.U UP0) are all true."""
    mask = e.active
    for op in i.operands:
        if op.kind in PREDICATES:
            mask = mask & e.pred(op)
    return mask


def _target(i: Instruction) -> Operand:
    found = [op for op in i.operands if op.kind is OperandKind.TARGET]
    if len(found) != 1:
        raise Unsupported(f"{i.mnemonic} without a target")
    return found[0]


@opcode("BRA", modifiers=("U", "DIV", "CONV"), pipe=Pipe.BRANCH, latency="branch", operands=(1, 3))
def bra(e: Emitter, i: Instruction) -> None:
    """Branch of the active lanes. .DIV UR: taken when the running lanes are not all of UR's; .CONV: when they are.

    `~URZ` names all 32 lanes.
    """
    e = _machine(e)
    mask = _condition(e, i)
    if i.has("DIV") or i.has("CONV"):
        members = next(op for op in i.operands if op.kind is OperandKind.UNIFORM)
        together = e.eq(e.ballot(e.converged), e.i32(members))
        mask = mask & (together if i.has("CONV") else ~together)
    e.branch(_target(i), mask)


@opcode("BRX", pipe=Pipe.BRANCH, latency="branch", operands=(2, 3))
def brx(e: Emitter, i: Instruction) -> None:
    """To the address behind this instruction + R + displacement."""
    e = _machine(e)
    registers = [op for op in i.operands if op.kind is OperandKind.REGISTER]
    numbers = [op for op in i.operands if op.kind is OperandKind.IMMEDIATE]
    address = e.instruction_address() + 16 + e.i32(registers[0])
    if numbers:
        address = address + e.i32(numbers[0])
    e.branch_to(address, _condition(e, i))


@opcode("CALL", modifiers=("REL", "NOINC"), pipe=Pipe.BRANCH, latency="branch", operands=(1, 2))
def call(e: Emitter, i: Instruction) -> None:
    """A jump: the caller has put the return address in registers."""
    e = _machine(e)
    if not i.has("REL"):
        raise Unsupported("calls to absolute addresses")
    registers = [op for op in i.operands if op.kind is OperandKind.REGISTER]
    if registers:
        e.branch_to(e.i32(registers[0]) + e.target_address(_target(i)), e.active)
    else:
        e.branch(_target(i), e.active)


@opcode("RET", modifiers=("REL", "NODEC"), pipe=Pipe.BRANCH, latency="branch", operands=(1, 2))
def ret(e: Emitter, i: Instruction) -> None:
    """To the target (the kernel's start) + R."""
    e = _machine(e)
    if not i.has("REL"):
        raise Unsupported("returns to absolute addresses")
    registers = [op for op in i.operands if op.kind is OperandKind.REGISTER]
    e.branch_to(e.i32(registers[0]) + e.target_address(_target(i)), e.active)


@opcode("EXIT", pipe=Pipe.BRANCH, latency="branch", operands=(0, 1))
def exit_(e: Emitter, i: Instruction) -> None:
    _machine(e).exit(_condition(e, i))


@opcode("KILL", pipe=Pipe.BRANCH, latency="branch", operands=(0, 0))
def kill(e: Emitter, i: Instruction) -> None:
    _machine(e).exit(e.active)


@opcode("BPT", modifiers=("TRAP",), pipe=Pipe.BRANCH, latency="branch", operands=(0, 1))
def bpt(e: Emitter, i: Instruction) -> None:
    """__trap(), failed assertions: stops the kernel with an error."""
    if not i.has("TRAP"):
        raise Unsupported("breakpoints")
    _machine(e).trap(e.active)


@opcode("NOP", pipe=Pipe.NONE, latency="none")
def nop(e: Emitter, i: Instruction) -> None:
    """Takes an issue slot."""


@opcode("ACQBULK", "PREEXIT", pipe=Pipe.BARRIER, latency="none", operands=(0, 0))
def dependent_launch(e: Emitter, i: Instruction) -> None:
    """griddepcontrol.wait and .launch_dependents: a launch here has no neighbours to wait for or to let start."""


# ------------------------------------------------------------------ convergence


def _barrier(i: Instruction) -> Operand:
    return next(op for op in i.operands if op.kind is OperandKind.BARRIER)


def _no_predicate(i: Instruction) -> str | None:
    if any(op.kind in PREDICATES and op.index != 7 for op in i.operands):
        return "a predicate operand is not modelled"
    return None


@opcode("BSSY", modifiers=("RECONVERGENT", "RELIABLE"), pipe=Pipe.BRANCH, latency="branch", operands=(2, 3),
        accepts=_no_predicate)  # fmt: skip
def bssy(e: Emitter, i: Instruction) -> None:
    """The active lanes will meet at the BSYNC of this barrier (its target is the instruction behind that BSYNC)."""
    _machine(e).converge_set(_barrier(i))


@opcode("BSYNC", modifiers=("RECONVERGENT", "RELIABLE"), pipe=Pipe.BRANCH, latency="branch", operands=(1, 2),
        accepts=_no_predicate)  # fmt: skip
def bsync(e: Emitter, i: Instruction) -> None:
    _machine(e).converge_wait(_barrier(i))


@opcode("BREAK", modifiers=("RECONVERGENT", "RELIABLE"), pipe=Pipe.BRANCH, latency="branch", operands=(1, 2))
def break_(e: Emitter, i: Instruction) -> None:
    _machine(e).converge_leave(_barrier(i), _condition(e, i))


@opcode("BMOV", modifiers=("32", "CLEAR"), pipe=Pipe.BRANCH, latency="branch", operands=(2, 2))
def bmov(e: Emitter, i: Instruction) -> None:
    """Between a barrier register and a register, immediate or other barrier register; .CLEAR empties the source."""
    e = _machine(e)
    d, source = i.operands
    if OperandKind.OTHER in (d.kind, source.kind):
        raise Unsupported("convergence state other than B0..B15")
    from_barrier = source.kind is OperandKind.BARRIER
    value = e.read_barrier(source) if from_barrier else e.i32(source)
    if d.kind is OperandKind.BARRIER:
        e.write_barrier(d, value)
    else:
        e.write(d, value)
    if i.has("CLEAR"):
        if not from_barrier:
            raise Unsupported(".CLEAR of something else than a barrier register")
        e.write_barrier(source, e.const(I32, 0))


@opcode("WARPSYNC", modifiers=("ALL", "COLLECTIVE", "EXCLUSIVE"), pipe=Pipe.BRANCH, latency="branch", operands=(0, 2))
def warpsync(e: Emitter, i: Instruction) -> None:
    """The named lanes meet. .ALL names all. .COLLECTIVE R, target: a lane of the members runs up to the target's
    ENDCOLLECTIVE for the others too."""
    e = _machine(e)
    if i.has("EXCLUSIVE"):
        raise Unsupported("WARPSYNC.EXCLUSIVE")
    if i.has("COLLECTIVE"):
        # The lanes of R meet here, run the instructions up to the target together, and each then goes on behind it.
        e.converge_lanes(e.i32(i.operands[0]))
        return
    members = e.const(I32, -1) if i.has("ALL") else e.i32(i.operands[0])
    e.converge_lanes(members)


@opcode("ENDCOLLECTIVE", pipe=Pipe.BRANCH, latency="branch", operands=(0, 0))
def endcollective(e: Emitter, i: Instruction) -> None:
    """End of what WARPSYNC.COLLECTIVE began: the lanes go on as one group."""


@opcode("YIELD", pipe=Pipe.BRANCH, latency="branch", operands=(0, 1))
def yield_(e: Emitter, i: Instruction) -> None:
    """Other groups of a diverged warp may run now."""
    _machine(e).yield_turn()


@opcode("NANOSLEEP", modifiers=("SYNCS", "WARP"), pipe=Pipe.BARRIER, latency="nanosleep", operands=(0, 3))
def nanosleep(e: Emitter, i: Instruction) -> None:
    """No time passes here: other groups and warps get a turn."""
    if i.modifiers:
        raise Unsupported(f"{i.mnemonic}")
    _machine(e).sleep()


# ------------------------------------------------------------------ CTA barriers


@opcode("BAR", modifiers=("SYNC", "ARV", "RED", "POPC", "AND", "OR", "DEFER_BLOCKING"), pipe=Pipe.BARRIER,
        latency="barrier", variable=True, operands=(1, 3))  # fmt: skip
def bar(e: Emitter, i: Instruction) -> None:
    """BAR.SYNC id[, threads]; BAR.ARV id, threads; BAR.RED.op id[, threads], P.

    When both are registers they are one word: id in bits 3:0, threads in bits 27:16 (as ptxas packs them).
    """
    e = _machine(e)
    data = [op for op in i.operands if op.kind not in PREDICATES]
    predicates = [op for op in i.operands if op.kind in PREDICATES]
    operation = "arv" if i.has("ARV") else "sync"
    if i.has("RED"):
        which = [m for m in ("POPC", "AND", "OR") if i.has(m)]
        if len(which) != 1 or len(predicates) != 1:
            raise Unsupported(f"{i.mnemonic}: one reduction and one predicate are needed")
        operation = "red." + which[0].lower()
    elif not (i.has("SYNC") or i.has("ARV")):
        raise Unsupported(i.mnemonic)
    count = e.i32(data[1]) if len(data) > 1 else None
    if count is not None and OperandKind.IMMEDIATE not in (data[0].kind, data[1].kind):
        count = (count >> 16) & 0xFFF
    if operation == "arv" and count is None:
        raise Unsupported("BAR.ARV without a thread count")
    e.cta_barrier(operation, e.i32(data[0]), count, e.pred(predicates[0]) if predicates else None)


@opcode("B2R", modifiers=("RESULT",), pipe=Pipe.SPECIAL, latency="s2r", variable=True, operands=(1, 2))
def b2r(e: Emitter, i: Instruction) -> None:
    """Result of the last BAR.RED: the popcount in a register, AND or OR in a predicate."""
    e = _machine(e)
    if not i.has("RESULT"):
        raise Unsupported("barrier state")
    result = e.barrier_result()
    e.write(i.operands[0], result)
    if len(i.operands) == 2:
        e.write_pred(i.operands[1], e.ne(result, 0))
