"""Execution pipes and memory kinds: what the timing model needs to know of an opcode besides its operands.

Each opcode's entry in the registry names its pipe; how wide and how slow a pipe is on a given GPU is data of
`timing/targets`, never of the instruction set.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Pipe(IntEnum):
    """Where an instruction executes. Names follow Nsight Compute's pipe names where it has one."""

    NONE = 0  # NOP and others that only take an issue slot
    ALU = 1  # integer add, logic, shift, compare, min/max, select, PRMT, FP compare and min/max
    FMA = 2  # FFMA, FMUL, FADD: either half of the FMA pipe
    FMA_HEAVY = 3  # IMAD, IDP and others only the heavy half has
    FP16 = 4  # HFMA2, HADD2, HMUL2
    FP64 = 5
    XU = 6  # MUFU, conversions, POPC, FLO, BREV: quarter-rate or slower
    UNIFORM = 7  # uniform datapath
    TENSOR = 8  # HMMA, IMMA, DMMA
    LSU = 9  # loads, stores, atomics, SHFL, LDSM: through the MIO queue
    CONSTANT = 10  # LDC, LDCU: indexed or scoreboarded constant loads
    BRANCH = 11  # BRA, BSSY, BSYNC, EXIT, CALL, RET
    BARRIER = 12  # BAR, MEMBAR, DEPBAR and other synchronisation
    SPECIAL = 13  # S2R, S2UR, B2R: special registers, variable latency
    ASYNC = 14  # TMA and mbarrier (SYNCS, UTMALDG, ...)


class MemoryKind(IntEnum):
    """What a memory instruction does, as far as caches and queues care."""

    NONE = 0
    LOAD_GLOBAL = 1
    STORE_GLOBAL = 2
    LOAD_SHARED = 3  # LDS, LDSM
    STORE_SHARED = 4  # STS, STSM
    LOAD_LOCAL = 5
    STORE_LOCAL = 6
    ATOMIC_GLOBAL = 7  # returns a value
    REDUCE_GLOBAL = 8  # RED, REDG: no result
    ATOMIC_SHARED = 9
    COPY_ASYNC = 10  # LDGSTS
    CONSTANT = 11
    SHUFFLE = 12  # SHFL: uses the shared-memory crossbar


@dataclass(frozen=True, slots=True)
class Timing:
    """Timing-relevant facts of one instruction form.

    `latency` names a class in the target's latency table (e.g. "alu", "fma", "imad_wide", "hmma_16816_f32",
    "mufu", "fp64", "shuffle", "lds", "ldg"). `variable` is True when its result is guarded by a scoreboard.
    `width` is bytes accessed per lane for memory instructions (4 for LDG.E, 16 for .128), else 0.
    """

    pipe: Pipe
    latency: str
    variable: bool = False
    memory: MemoryKind = MemoryKind.NONE
    width: int = 0
