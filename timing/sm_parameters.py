"""The numbers the SM engine needs, as one float64 vector with named indices, taken from a Target."""

from __future__ import annotations

from itertools import count

import numpy as np

PENDING_ROOM = 1024  # power of two, the most loads under way that an SM can be given

_next = count()
L1_SECTORS = next(_next)  # data sectors L1 can hold (unified size less the shared carve-out)
L1_WAYS = next(_next)
L1_HIT_LATENCY = next(_next)  # tag stage to result
L2_LATENCY = next(_next)  # tag stage to result on an L2 hit
DRAM_LATENCY = next(_next)  # L2 service to result when it comes from DRAM
L2_SPREAD = next(_next)  # lines lie up to this many cycles nearer or farther
DRAM_SPREAD = next(_next)  # deviation of the logarithm of DRAM reads' latencies, half the traffic being writes
READ_PORT_CYCLES = next(_next)  # the SM's own port to L2, cycles a sector
WRITE_PORT_CYCLES = next(_next)
SHARE_CREDIT = next(_next)  # cycles by which an SM that was idle may later exceed its share of L2 and DRAM
SM_DRIFT = next(_next)  # how fast that credit grows with the time since the launch: SMs get out of step
LOCAL_DRAM_SHARE = next(_next)  # of local memory's L2 accesses, when all resident threads' stacks exceed L2
DRAM_LOADED_CYCLES = next(_next)  # added to the latency times the use of DRAM, and
DRAM_QUEUE_CYCLES = next(_next)  # times use / (1 - use)
DRAM_LOADED_WRITE_CYCLES = next(_next)  # both grow by these times the share of writes
DRAM_QUEUE_WRITE_CYCLES = next(_next)
REPEATED = next(_next)  # 1: the launch is one of many, and pays for what it leaves L2 to write back
WRITE_BACK_CYCLES = next(_next)  # DRAM time that L2 holds in sectors waiting to be written back
STORE_BUFFER_CYCLES = next(_next)  # stores and atomics may wait this long for L2 before the load/store stage does
L2_REUSE_SECTORS = next(_next)  # sectors this SM moves while all together fill L2 once
PARTIAL_WRITE_FACTOR = next(_next)  # cost of writing a part of a sector to L2, in whole sectors
L2_CYCLES_PER_SECTOR = next(_next)  # this SM's share of L2 read bandwidth
SLICES = next(_next)  # of L2, that a line may lie in; each half has as many
SLICE_CYCLES = next(_next)  # both slices that have a line take for a read of it
L2_LEAST_SECTORS = next(_next)  # what a request for a part of a line costs L2 at least, in sectors
L2_WRITE_CYCLES_PER_SECTOR = next(_next)
L2_WRITE_WEIGHT = next(_next)  # what a written sector takes of L2's data paths, in read sectors
DRAM_CYCLES_PER_SECTOR = next(_next)  # this SM's share of DRAM bandwidth
DRAM_MIX_COST = next(_next)  # by how much half writes lengthen DRAM's time for a sector
ATOMIC_LATENCY = next(_next)
ATOMIC_LANE_CYCLES = next(_next)  # SM side: cycles a lane, a sector, a lane on the same word as another
ATOMIC_SECTOR_CYCLES = next(_next)
ATOMIC_SAME_CYCLES = next(_next)
ATOMIC_CHIP_CYCLES = next(_next)  # this SM's share of the slices' rate, cycles a sector
HOT_REQUEST_CYCLES = next(_next)  # a line that all SMs use: cycles a request, or a lane on one word, as one SM sees it
HOT_SAME_CYCLES = next(_next)
HOT_SAME_FLOAT_CYCLES = next(_next)
MIO_LATENCY = next(_next)  # issue to the SM's load/store stage
MIO_QUEUE = next(_next)  # instructions a sub-core may have waiting for it
LG_QUEUE = next(_next)
PENDING_LOADS = next(_next)  # loads from global and local memory that an SM has under way at most
LSU_MIN_CYCLES = next(_next)  # the data stage takes at least this long an instruction
LSU_TURN_CYCLES = next(_next)  # it turns from shared to global or local accesses, or back
TAG_CYCLES = next(_next)  # a 128-byte line of a global access
WAVEFRONT_CYCLES = next(_next)  # one shared-memory wavefront
ATOMS_CYCLES = next(_next)
SHUFFLE_CYCLES = next(_next)
WIDTH_CYCLES = next(_next)  # later result per byte a lane loads
L0_LINES = next(_next)
L1I_LINES = next(_next)
STREAM_LINES = next(_next)
L1I_LATENCY = next(_next)
L1I_INTERVAL = next(_next)  # a sub-core's fetch port, cycles a line
L1I_SHARED_INTERVAL = next(_next)  # the L1 instruction cache's port, cycles a line
L2I_LATENCY = next(_next)
L2I_INTERVAL = next(_next)
BRANCH_LATENCY = next(_next)  # taken branch to next issue, at least
BARRIER_LATENCY = next(_next)  # last arrival to next issue
BARRIER_ARRIVAL = next(_next)  # cycles the SM's barrier unit takes a warp
STORE_ACK = next(_next)  # a store is accepted by L2 until the warp knows
SLEEP_CYCLES = next(_next)
CTA_LAUNCH_INTERVAL = next(_next)  # between two CTAs this SM receives
CTA_LAUNCH_LATENCY = next(_next)
WARP_LAUNCH_INTERVAL = next(_next)
EXIT_LATENCY = next(_next)  # last EXIT to the slot being free
TAIL_AFTER = next(_next)  # CTAs completed on this SM after which only the most loaded SMs run; 0 = never
TAIL_L2_CYCLES = next(_next)  # shares from then on, cycles a sector
TAIL_L2_WRITE_CYCLES = next(_next)
TAIL_DRAM_CYCLES = next(_next)
N_PARAMETERS = next(_next)


def blank() -> np.ndarray:
    """A vector of zeros of the right length."""
    return np.zeros(N_PARAMETERS, np.float64)
