"""What one warp takes when only its own dependences hold it up: one pass over the code with its control bits."""

from __future__ import annotations

import numpy as np

from interpreter.isa.pipes import MemoryKind, Pipe
from interpreter.program import OperandKind, Program
from timing.jit import njit_entry
from timing.target import Target

_PLAIN, _COMMIT, _GROUP_WAIT, _BLOCKING = range(4)
_MAX_GROUPS = 64
_SPECIAL_ACTIONS = {"LDGDEPBAR": _COMMIT, "DEPBAR": _GROUP_WAIT, "BAR": _BLOCKING, "MEMBAR": _BLOCKING}
_BRANCHES = ("BRA",)


def serial_cycles(
    program: Program, target: Target, rows: np.ndarray, issued: np.ndarray, global_latency: float
) -> float:
    """Cycles an average warp takes alone on its sub-core.

    `rows` is row_timing's array, `issued` how often an average warp issues each row (shape (instructions,)),
    `global_latency` the cycles of a load that leaves the SM. A loop body's cost is that of its second time round, so
    that what is carried from one trip to the next is waited for.
    """
    n = len(rows)
    latency = rows["latency"].astype(np.float64)
    memory = rows["memory"]
    leaves = np.isin(
        memory,
        (MemoryKind.LOAD_GLOBAL, MemoryKind.COPY_ASYNC, MemoryKind.ATOMIC_GLOBAL),
    )
    latency[leaves] = np.maximum(latency[leaves], global_latency)
    latency[memory == MemoryKind.ATOMIC_GLOBAL] += target.l2.atomic_extra_cycles
    action = np.zeros(n, np.int64)
    argument = np.zeros(n, np.int64)
    back = np.full(n, -1, np.int64)
    for row, instruction in enumerate(program.instructions):
        opcode = instruction.opcode
        if opcode in _SPECIAL_ACTIONS:
            action[row] = _SPECIAL_ACTIONS[opcode]
            for operand in instruction.operands:
                if opcode == "DEPBAR" and operand.kind == OperandKind.IMMEDIATE:
                    argument[row] = operand.value
        elif opcode in _BRANCHES:
            for operand in instruction.operands:
                if operand.kind == OperandKind.TARGET and operand.value < row:
                    back[row] = operand.value  # a self-branch (the padding after EXIT) is no loop
    cost = _row_costs(
        issued > 0,
        rows["pipe"].astype(np.int64),
        rows["interval"].astype(np.float64),
        latency,
        rows["release"].astype(np.float64),
        program.control["stall"].astype(np.int64),
        program.control["wait_mask"].astype(np.int64),
        program.control["write_barrier"].astype(np.int64),
        program.control["read_barrier"].astype(np.int64),
        memory == MemoryKind.COPY_ASYNC,
        action,
        argument,
        back,
        target.issue.branch_redirect_cycles,
        len(Pipe),
    )
    return float(cost @ issued)


@njit_entry()
def _row_costs(
    executed: np.ndarray,
    pipe: np.ndarray,
    interval: np.ndarray,
    latency: np.ndarray,
    release: np.ndarray,
    stall: np.ndarray,
    wait_mask: np.ndarray,
    write_barrier: np.ndarray,
    read_barrier: np.ndarray,
    is_copy: np.ndarray,
    action: np.ndarray,
    argument: np.ndarray,
    back: np.ndarray,
    redirect: float,
    pipes: int,
) -> np.ndarray:
    """Cycles from the previous row's issue to each row's own issue, the last time the pass met it."""
    n = len(pipe)
    cost = np.zeros(n, np.float64)
    ready = np.zeros(6, np.float64)  # when each scoreboard is clear
    pipe_free = np.zeros(pipes, np.float64)
    groups = np.zeros(_MAX_GROUPS, np.float64)
    committed = 0
    copies_done = 0.0
    taken = np.zeros(n, np.bool_)
    now = 0.0
    earliest = 0.0
    row = 0
    while row < n:
        if not executed[row]:
            row += 1
            continue
        at = max(earliest, now + 1.0) if now > 0.0 else earliest
        for board in range(6):
            if wait_mask[row] >> board & 1:
                at = max(at, ready[board])
        at = max(at, pipe_free[pipe[row]])
        if action[row] == _GROUP_WAIT:
            last = committed - argument[row]  # groups before this one must be complete
            if last > 0:
                at = max(at, groups[(last - 1) % _MAX_GROUPS])
        cost[row] = at - now
        now = at
        pipe_free[pipe[row]] = at + interval[row]
        if write_barrier[row] < 6:
            ready[write_barrier[row]] = max(ready[write_barrier[row]], at + latency[row])
        if read_barrier[row] < 6:
            ready[read_barrier[row]] = max(ready[read_barrier[row]], at + max(release[row], 2.0))
        if is_copy[row]:
            copies_done = max(copies_done, at + latency[row])
        if action[row] == _COMMIT:
            groups[committed % _MAX_GROUPS] = copies_done
            committed += 1
        earliest = at + max(stall[row], 1)
        if action[row] == _BLOCKING:
            earliest = max(earliest, at + latency[row])
        if back[row] >= 0:
            earliest = max(earliest, at + redirect)
            if not taken[row]:
                taken[row] = True
                for inner in range(back[row], row):
                    taken[inner] = False
                row = back[row]
                continue
        row += 1
    return cost
