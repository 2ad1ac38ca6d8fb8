"""Stall reasons: what a warp-cycle on an SM is spent on, with the names Nsight Compute uses.

The one place where a reason is defined: tables, pages and the engine take their columns from here.
"""

from __future__ import annotations

from enum import IntEnum


class Stall(IntEnum):
    """Reason of one warp-cycle. `SELECTED` is the cycle in which the warp issued; all others are stalls."""

    SELECTED = 0  # issued an instruction
    NOT_SELECTED = 1  # eligible, another warp of the sub-core was chosen
    WAIT = 2  # fixed stall count of the previous instruction
    NO_INSTRUCTION = 3  # instruction cache miss or jump
    BRANCH_RESOLVING = 4  # branch target not known yet
    DISPATCH_STALL = 5  # register read ports
    MATH_PIPE_THROTTLE = 6  # pipe still busy with an earlier instruction
    MIO_THROTTLE = 7  # queue to shared memory, special functions, ... is full
    LG_THROTTLE = 8  # queue to local and global memory is full
    SHORT_SCOREBOARD = 9  # result of shared memory, special function, shuffle, ...
    LONG_SCOREBOARD = 10  # result of local or global memory
    BARRIER = 11
    MEMBAR = 12
    IMC_MISS = 13  # constant cache miss
    DRAIN = 14  # exiting, stores not yet accepted
    SLEEPING = 15
    TEX_THROTTLE = 16
    MISC = 17


STALLS: tuple[Stall, ...] = tuple(Stall)
N_STALLS = len(STALLS)

# Nsight's short column names of the source page (`stall_<short>`), for reading and writing its CSV.
NSIGHT_SHORT: dict[Stall, str] = {
    Stall.SELECTED: "selected",
    Stall.NOT_SELECTED: "not_selected",
    Stall.WAIT: "wait",
    Stall.NO_INSTRUCTION: "no_inst",
    Stall.BRANCH_RESOLVING: "branch_resolving",
    Stall.DISPATCH_STALL: "dispatch",
    Stall.MATH_PIPE_THROTTLE: "math",
    Stall.MIO_THROTTLE: "mio",
    Stall.LG_THROTTLE: "lg",
    Stall.SHORT_SCOREBOARD: "short_sb",
    Stall.LONG_SCOREBOARD: "long_sb",
    Stall.BARRIER: "barrier",
    Stall.MEMBAR: "membar",
    Stall.IMC_MISS: "imc",
    Stall.DRAIN: "drain",
    Stall.SLEEPING: "sleep",
    Stall.TEX_THROTTLE: "tex",
    Stall.MISC: "misc",
}


def stall_name(stall: Stall) -> str:
    """Nsight's long name, e.g. "long_scoreboard"."""
    return stall.name.lower()
