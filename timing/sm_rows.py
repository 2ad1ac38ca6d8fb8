"""Per-instruction timing facts of one program on one target, as one array the SM engine reads.

Everything that depends only on the instruction (pipe, intervals, control bits, register-port demand) is worked out
here once, so that the engine's loop has no per-opcode branches.
"""

from __future__ import annotations

import numpy as np

from interpreter.isa.pipes import Pipe
from interpreter.program import RZ, URZ, Instruction, Operand, OperandKind, Program
from timing.target import Target, row_timing

# What the engine does with a row beyond issuing it.
ACTION_NONE = 0
ACTION_EXIT = 1
ACTION_BARRIER = 2  # BAR.SYNC, BAR.RED: waits for the CTA
ACTION_ARRIVE = 3  # BAR.ARV
ACTION_BRANCH = 4
ACTION_COMMIT = 5  # LDGDEPBAR: closes a group of asynchronous copies
ACTION_DEPBAR = 6  # DEPBAR.LE SBx, n
ACTION_MEMBAR = 7
ACTION_SLEEP = 8

_CONSTANT_LOADS = ("LDC", "LDCU", "ULDC")

ROW = np.dtype(
    [
        ("pipe", "u1"),
        ("memory", "u1"),  # MemoryKind
        ("action", "u1"),
        ("stall", "u1"),
        ("yields", "u1"),
        ("write_barrier", "u1"),
        ("read_barrier", "u1"),
        ("wait_mask", "u1"),
        ("width", "u1"),  # bytes a lane
        ("reads_even", "u1"),  # register-file reads from bank 0 after operand-cache hits
        ("reads_odd", "u1"),
        ("id", "u1"),  # barrier id (ACTION_BARRIER, ACTION_ARRIVE) or scoreboard (ACTION_DEPBAR)
        ("count", "<u2"),  # threads of a partial barrier, or n of DEPBAR.LE; 0 = whole CTA
        ("held", "u1"),  # not issued while the warp waits at a barrier
        ("deferred", "u1"),  # BAR that lets instructions pass that are not `held`
        ("variable", "u1"),  # result guarded by a scoreboard
        ("strong", "u1"),  # load that must not hit L1 (.STRONG.GPU, .SYS, .MMIO)
        ("float_atomic", "u1"),  # atomic on a floating-point number
        ("bypass_l1", "u1"),  # LDGSTS.BYPASS
        ("per_sm", "u1"),  # one unit serves the whole SM
        ("interval", "<f4"),  # cycles the pipe of a sub-core (or the SM when shared) is taken
        ("latency", "<f4"),  # issue to result, cycles, for variable-latency rows
        ("release", "<f4"),  # issue to sources read
    ]
)


def build_rows(program: Program, target: Target) -> np.ndarray:
    """One ROW per instruction of `program` on `target`."""
    facts = row_timing(program, target)
    rows = np.zeros(len(program.instructions), ROW)
    control = program.control
    for name in ("stall", "write_barrier", "read_barrier", "wait_mask"):
        rows[name] = control[name]
    rows["yields"] = control["yield_"]
    for name in ("pipe", "memory", "width", "interval", "latency", "variable", "release"):
        rows[name] = facts[name]
    rows["per_sm"] = facts["shared_per_sm"]
    if _constant_bytes(program, target.constant.line_bytes) > target.constant.l0_bytes:
        # what is swept in turn is gone from the first level when its turn comes again
        loads = [i for i, instruction in enumerate(program.instructions) if instruction.opcode in _CONSTANT_LOADS]
        rows["latency"][loads] += target.constant.l0_miss_cycles
    previous: Instruction | None = None
    for i, instruction in enumerate(program.instructions):
        even, odd = _register_reads(instruction, previous)
        rows["reads_even"][i], rows["reads_odd"][i] = even, odd
        _set_action(rows, i, instruction)
        rows["deferred"][i] = instruction.opcode == "BAR" and instruction.has("DEFER_BLOCKING")
        previous = instruction
    # Behind BAR.DEFER_BLOCKING a warp goes on up to its next instruction outside the fixed-latency vector pipes. On an
    # H200, in Nsight's samples of 60 barriers, ISETP, MOV, IMAD, LEA, SHF, FADD, HFMA2, CS2R and P2R never wait there;
    # S2R, LDS, STS, LDC, ULDC, UMOV, BRA, BSSY and EXIT do.
    rows["held"] = (rows["variable"] != 0) | ~np.isin(rows["pipe"], _PASS_BARRIERS)
    return rows


def _set_action(rows: np.ndarray, i: int, instruction: Instruction) -> None:
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode == "EXIT":
        rows["action"][i] = ACTION_EXIT
    elif opcode == "BAR":
        rows["action"][i] = ACTION_ARRIVE if instruction.has("ARV") else ACTION_BARRIER
        immediates = [o.value for o in instruction.operands if o.kind == OperandKind.IMMEDIATE]
        rows["id"][i] = (immediates[0] if immediates else 0) & 15
        rows["count"][i] = immediates[1] & 0xFFFF if len(immediates) > 1 else 0
    elif opcode in ("BRA", "BRX", "CALL", "RET", "BRXU", "JMP", "JMX"):
        rows["action"][i] = ACTION_BRANCH
    elif opcode == "LDGDEPBAR":
        rows["action"][i] = ACTION_COMMIT
    elif opcode == "DEPBAR":
        rows["action"][i] = ACTION_DEPBAR
        for o in instruction.operands:
            if o.kind == OperandKind.SCOREBOARD:
                rows["id"][i] = o.index
            elif o.kind == OperandKind.IMMEDIATE:
                rows["count"][i] = o.value
    elif opcode == "MEMBAR":
        rows["action"][i] = ACTION_MEMBAR
    elif opcode == "NANOSLEEP":
        rows["action"][i] = ACTION_SLEEP
    if opcode in ("LDG", "LD") and ("STRONG" in instruction.modifiers or "MMIO" in instruction.modifiers):
        # .STRONG.SM may hit L1; wider scopes may not (PTX memory model)
        rows["strong"][i] = 0 if instruction.has("SM") or instruction.has("CTA") else 1
    floating = any(m.startswith(("F32", "F64", "F16", "BF16")) for m in modifiers)
    if opcode in ("RED", "REDG", "ATOM", "ATOMG") and floating:
        rows["float_atomic"][i] = 1
    if opcode == "LDGSTS" and instruction.has("BYPASS"):
        rows["bypass_l1"][i] = 1


def _constant_bytes(program: Program, line: int) -> int:
    """Bytes of the constant lines that the code names; a whole bank from the offset on where it is indexed."""
    lines: set[tuple[int, int]] = set()
    for instruction in program.instructions:
        for o in instruction.operands:
            if o.kind != OperandKind.CONSTANT:
                continue
            end = o.value + 1
            if o.index != RZ or o.uniform != URZ:
                end = max(len(program.constants.get(o.bank, b"")), end)
            lines.update((o.bank, number) for number in range(max(o.value, 0) // line, (end - 1) // line + 1))
    return len(lines) * line


def _register_reads(instruction: Instruction, previous: Instruction | None) -> tuple[int, int]:
    """Reads from the even and odd register bank, after hits in the operand cache.

    Two banks a sub-core (register number mod 2), one warp-wide read port each; an operand whose slot held the same
    register with .reuse in the warp's previous instruction is not read again (MICRO'25 core model, confirmed on
    A100 by others). Only fixed-latency instructions reserve ports this way. On an H200, HMMA with its ten source
    registers next to FFMA shows the port limit: one HMMA and eight FFMA take 15.8 cycles.
    """
    held: dict[int, int] = {}
    if previous is not None:
        for slot, operand in _sources(previous):
            if operand.reuse:
                held[slot] = operand.index
    banks = [0, 0]
    seen: set[int] = set()
    for slot, operand in _sources(instruction):
        if held.get(slot) == operand.index:
            continue
        for register in range(operand.index, operand.index + _registers(instruction, slot)):
            if register not in seen:
                seen.add(register)
                banks[register & 1] += 1
    return banks[0], banks[1]


def _sources(instruction: Instruction) -> list[tuple[int, Operand]]:
    """(operand slot, register operand) of the sources: slot 0 is A, 1 is B, 2 is C."""
    operands = [o for o in instruction.operands if o.kind not in _PREDICATES]
    if instruction.opcode not in _NO_RESULT:
        operands = operands[1:]  # the first is the result
    return [(slot, o) for slot, o in enumerate(operands) if o.kind == OperandKind.REGISTER and o.index != RZ]


def _registers(instruction: Instruction, slot: int) -> int:
    """Consecutive registers that the operand in a slot stands for."""
    opcode = instruction.opcode
    if opcode in ("HMMA", "IMMA", "QMMA", "BMMA"):
        a, b = _MATRIX_REGISTERS.get(instruction.modifiers[0] if instruction.modifiers else "", (2, 1))
        half = opcode == "HMMA" and "F32" not in instruction.modifiers
        return (a, b, 2 if half else 4)[min(slot, 2)]
    if opcode in ("DADD", "DMUL", "DFMA", "DSETP", "DMMA", "FFMA2", "FADD2", "FMUL2"):
        return 2
    if opcode == "IMAD" and ("WIDE" in instruction.modifiers or "HI" in instruction.modifiers):
        return 2 if slot == 2 else 1
    return 2 if "64" in instruction.modifiers else 1


_PREDICATES = (OperandKind.PREDICATE, OperandKind.UNIFORM_PREDICATE)
# registers of A and B by shape (PTX ISA, matrix fragments)
_MATRIX_REGISTERS = {"16816": (4, 2), "1688": (2, 1), "1684": (2, 1), "16832": (4, 2), "8816": (1, 1), "16864": (4, 2)}
_PASS_BARRIERS = (Pipe.ALU, Pipe.FMA, Pipe.FMA_HEAVY, Pipe.FP16)
_NO_RESULT = frozenset(("ISETP", "FSETP", "DSETP", "HSETP2", "PLOP3", "R2P"))
