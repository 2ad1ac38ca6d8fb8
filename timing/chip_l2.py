"""The chip's L2 and DRAM between two stretches of simulation: what all SMs asked for takes effect, in SM order.

L2 is one set-associative cache with sectors, least recently used first out, written back on replacement. Bandwidths
are work that queues: each resource is free from some cycle on, and every SM starts the next stretch behind that queue.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from timing import sm_parameters as sp
from timing.jit import njit, njit_entry
from timing.l2_view import (
    ATOMIC,
    KIND_SHIFT,
    L2_WAYS,
    LOG_ROOM,
    PARTIAL_WRITE,
    READ,
    L2View,
    find,
    l2_set,
    slice_of,
)
from timing.memory_path import (
    ATOMIC_CHIP_FREE,
    C_DRAM_READ_SECTORS,
    C_DRAM_WRITE_SECTORS,
    C_L2_READ_SECTORS,
    C_L2_WRITE_SECTORS,
    DRAM_FREE,
    DRAM_TOTAL,
    DRAM_TOTAL_WRITTEN,
    DRAM_USED,
    DRAM_USED_AT,
    DRAM_WINDOW,
    DRAM_WRITTEN,
    L2_FREE,
    L2_WRITE_FREE,
    N_TRAFFIC,
    popcount4,
)

LINE_BYTES = 128

# Resources of the chip
R_READ, R_WRITE, R_DRAM, R_ATOMIC = range(4)
N_RESOURCES = 4

# What L2 and DRAM did in all
T_DRAM_READS, T_WRITE_BACKS, T_L2_HITS, T_READS, T_LOCAL_READS, T_LOCAL_WRITES = range(6)
N_TOTALS = 6

DEMAND_FADE = 0.5  # weight of older stretches in an SM's mean demand


class ChipL2(NamedTuple):
    """State behind the views. `rates` are the whole chip's parameters: one SM's share times the number of SMs."""

    front: L2View  # what SMs see; logs with the SM as leading dimension
    dirty: np.ndarray  # int64[lines], sectors to be written back
    used: np.ndarray  # int64[lines], larger is more recent
    clock: np.ndarray  # int64[1], for `used`
    free: np.ndarray  # float64[N_RESOURCES], when each resource has done what was asked so far
    demand: np.ndarray  # float64[SMs, N_RESOURCES], share of each resource an SM used lately
    load: np.ndarray  # float64[2]: recent use of DRAM, and by writes (memory_path.DRAM_USED)
    work: np.ndarray  # float64[N_RESOURCES], busy cycles so far
    totals: np.ndarray  # float64[N_TOTALS], sectors
    seen_traffic: np.ndarray  # float64[SMs, N_TRAFFIC], counters at the last settlement
    rates: np.ndarray  # float64[N_PARAMETERS]


def chip_l2(size: float, sms: int, p: np.ndarray) -> ChipL2:
    """An L2 of `size` bytes, empty, for `sms` SMs whose parameter vector with fair shares is `p`."""
    lines = max(int(size) // (LINE_BYTES * L2_WAYS), 1) * L2_WAYS
    front = L2View(
        tags=np.full(lines, -1, np.int64),
        valid=np.zeros(lines, np.int64),
        ready=np.zeros(lines),
        atomic_free=np.zeros(lines),
        slice_free=np.zeros(int(p[sp.SLICES])),
        log_line=np.zeros((sms, LOG_ROOM), np.int64),
        log_what=np.zeros((sms, LOG_ROOM), np.int64),
        log_at=np.zeros((sms, LOG_ROOM)),
        log_service=np.zeros((sms, LOG_ROOM)),
        log_length=np.zeros((sms, 1), np.int64),
    )
    rates = p.copy()
    for index in _SHARED:
        rates[index] /= sms
    return ChipL2(
        front=front,
        dirty=np.zeros(lines, np.int64),
        used=np.zeros(lines, np.int64),
        clock=np.full(1, 2, np.int64),
        free=np.zeros(N_RESOURCES),
        demand=np.full((sms, N_RESOURCES), 1.0 / sms),  # in step at the launch: each has its fair share
        load=np.zeros(2),
        work=np.zeros(N_RESOURCES),
        totals=np.zeros(N_TOTALS),
        seen_traffic=np.zeros((sms, N_TRAFFIC)),
        rates=rates,
    )


_SHARED = (
    sp.L2_CYCLES_PER_SECTOR,
    sp.L2_WRITE_CYCLES_PER_SECTOR,
    sp.DRAM_CYCLES_PER_SECTOR,
    sp.DRAM_MIX_COST,
    sp.L2_WRITE_WEIGHT,
    sp.ATOMIC_CHIP_CYCLES,
    sp.HOT_REQUEST_CYCLES,
    sp.HOT_SAME_CYCLES,
    sp.HOT_SAME_FLOAT_CYCLES,
)


@njit_entry()
def fill(ranges, present, written, l2):
    """What earlier launches left: of the lines in `ranges` (int64[n, 2], first and last) the share `present`.

    The other ways hold data of no interest, the share `written` of them to be written back when they go: a launch
    writes back what the one before it left, as the next does with its own.
    """
    tags = l2.front.tags
    sets = tags.shape[0] // L2_WAYS
    room = np.zeros(sets, np.int64)
    taken = 0.0
    for i in range(ranges.shape[0]):
        for line in range(ranges[i, 0], ranges[i, 1] + 1):
            taken += present
            if taken < 1.0:
                continue
            taken -= 1.0
            base = l2_set(line, sets)
            s = base // L2_WAYS
            if room[s] < L2_WAYS:
                w = base + room[s]
                room[s] += 1
                tags[w] = line
                l2.front.valid[w] = 15
                l2.used[w] = 1
    owed = 0.0
    for s in range(sets):
        for w in range(s * L2_WAYS + room[s], (s + 1) * L2_WAYS):
            owed += written
            if owed >= 1.0:
                owed -= 1.0
                l2.dirty[w] = 15


@njit()
def _place(line, l2, sm, work):
    """A way for a line that is not in L2; what it held is written back."""
    base = l2_set(line, l2.front.tags.shape[0] // L2_WAYS)
    victim = base
    for w in range(base + 1, base + L2_WAYS):
        if l2.used[w] < l2.used[victim]:
            victim = w
    back = popcount4(l2.dirty[victim])
    work[sm, R_DRAM] += back * l2.rates[sp.DRAM_CYCLES_PER_SECTOR]
    work[sm, N_RESOURCES] += back * l2.rates[sp.DRAM_CYCLES_PER_SECTOR]
    l2.totals[T_WRITE_BACKS] += back
    l2.front.tags[victim] = line
    l2.front.valid[victim] = 0
    l2.front.ready[victim] = 0.0
    l2.front.atomic_free[victim] = 0.0
    l2.dirty[victim] = 0
    return victim


@njit_entry()
def settle(begin, until, l2, servers, traffic, p):
    """Let the requests that the SMs logged in the cycles from `begin` to `until` take effect; empty the logs.

    `servers`, `traffic` and `p` are all SMs' arrays; queues and shares for the next stretch are entered in them.
    """
    sms = servers.shape[0]
    rates = l2.rates
    work = np.zeros((sms, N_RESOURCES + 1))  # the last: DRAM work that is writes
    front = l2.front
    for i in range(sms):
        written = 0
        for k in range(front.log_length[i, 0]):
            line = front.log_line[i, k]
            mask = front.log_what[i, k] & 15
            kind = front.log_what[i, k] >> KIND_SHIFT
            sectors = popcount4(mask)
            w = find(line, front)
            if w < 0:
                w = _place(line, l2, i, work)
            missing = popcount4(mask & ~front.valid[w])
            l2.clock[0] += 1
            l2.used[w] = l2.clock[0]
            front.valid[w] |= mask
            if kind == READ:
                s = slice_of(line, front)
                front.slice_free[s] = max(front.slice_free[s], begin) + rates[sp.SLICE_CYCLES]
            if kind == READ or kind == ATOMIC:
                if missing > 0:
                    work[i, R_DRAM] += missing * rates[sp.DRAM_CYCLES_PER_SECTOR]
                    l2.totals[T_DRAM_READS] += missing
                    front.ready[w] = max(front.ready[w], front.log_at[i, k])
                l2.totals[T_READS] += sectors
                l2.totals[T_L2_HITS] += sectors - missing
            if kind != READ:
                l2.dirty[w] |= mask
            if kind == ATOMIC:
                lanes = front.log_service[i, k]
                same = -lanes * rates[sp.HOT_SAME_FLOAT_CYCLES] if lanes < 0 else lanes * rates[sp.HOT_SAME_CYCLES]
                halves = (1 if mask & 3 else 0) + (1 if mask & 12 else 0)
                service = max(halves * rates[sp.HOT_REQUEST_CYCLES], same)
                front.atomic_free[w] = max(front.atomic_free[w], begin) + service
                work[i, R_ATOMIC] += sectors * rates[sp.ATOMIC_CHIP_CYCLES]
            elif kind != READ:
                written += sectors
                work[i, R_READ] += (
                    sectors * rates[sp.L2_WRITE_WEIGHT] * rates[sp.L2_CYCLES_PER_SECTOR]
                )  # shared data paths
                cost = sectors * rates[sp.L2_WRITE_CYCLES_PER_SECTOR]
                work[i, R_WRITE] += cost * rates[sp.PARTIAL_WRITE_FACTOR] if kind == PARTIAL_WRITE else cost
        front.log_length[i, 0] = 0
        # local memory is not in the tags: the SM has decided what of it goes to DRAM (memory_path)
        reads = traffic[i, C_L2_READ_SECTORS] - l2.seen_traffic[i, C_L2_READ_SECTORS]
        writes = traffic[i, C_L2_WRITE_SECTORS] - l2.seen_traffic[i, C_L2_WRITE_SECTORS]
        local_reads = traffic[i, C_DRAM_READ_SECTORS] - l2.seen_traffic[i, C_DRAM_READ_SECTORS]
        local_writes = traffic[i, C_DRAM_WRITE_SECTORS] - l2.seen_traffic[i, C_DRAM_WRITE_SECTORS]
        l2.seen_traffic[i] = traffic[i]
        work[i, R_READ] += reads * rates[sp.L2_CYCLES_PER_SECTOR]
        work[i, R_WRITE] += max(writes - written, 0.0) * rates[sp.L2_WRITE_CYCLES_PER_SECTOR]
        work[i, R_READ] += max(writes - written, 0.0) * rates[sp.L2_WRITE_WEIGHT] * rates[sp.L2_CYCLES_PER_SECTOR]
        local = local_writes * rates[sp.DRAM_CYCLES_PER_SECTOR]
        work[i, R_DRAM] += local_reads * rates[sp.DRAM_CYCLES_PER_SECTOR] + local
        work[i, N_RESOURCES] += local
        l2.totals[T_LOCAL_READS] += local_reads
        l2.totals[T_LOCAL_WRITES] += local_writes
    _share_out(begin, until, l2, work, servers, p)


@njit()
def _share_out(begin, until, l2, work, servers, p):
    """Queue the work of one stretch on each resource and tell the SMs what they will find."""
    sms = servers.shape[0]
    rates = l2.rates
    span = until - begin
    fair = 1.0 / sms
    w = l2.load[1] / max(l2.load[0], 1e-9)
    turning = 1.0 + 4.0 * w * (1.0 - w) * rates[sp.DRAM_MIX_COST]
    for i in range(sms):  # DRAM turns between reads and writes
        work[i, R_DRAM] *= turning
        work[i, N_RESOURCES] *= turning
    for k in range(N_RESOURCES):
        total = 0.0
        for i in range(sms):
            total += work[i, k]
        started = l2.work[k] > 0.0
        l2.work[k] += total
        l2.free[k] = max(l2.free[k], begin) + total
        if started or total > 0.0:  # until the first use all SMs are in step
            for i in range(sms):
                l2.demand[i, k] = DEMAND_FADE * l2.demand[i, k] + (1.0 - DEMAND_FADE) * work[i, k] / span
    fade = np.exp(-span / DRAM_WINDOW)
    dram = 0.0
    writes = 0.0
    for i in range(sms):
        dram += work[i, R_DRAM]
        writes += work[i, N_RESOURCES]
    l2.load[0] = l2.load[0] * fade + dram / DRAM_WINDOW
    l2.load[1] = l2.load[1] * fade + writes / DRAM_WINDOW
    busy = np.zeros(N_RESOURCES)
    for i in range(sms):
        for k in range(N_RESOURCES):
            busy[k] += l2.demand[i, k]
    # While an SM runs alone to the next settlement, the others go on as they did: what they leave is the SM's, and
    # never less than its fair share.
    left = np.zeros(N_RESOURCES)
    for i in range(sms):
        for k in range(N_RESOURCES):
            left[k] = max(1.0 - (busy[k] - l2.demand[i, k]), fair)
        p[i, sp.L2_CYCLES_PER_SECTOR] = rates[sp.L2_CYCLES_PER_SECTOR] / left[R_READ]
        p[i, sp.L2_WRITE_CYCLES_PER_SECTOR] = rates[sp.L2_WRITE_CYCLES_PER_SECTOR] / left[R_WRITE]
        p[i, sp.DRAM_CYCLES_PER_SECTOR] = rates[sp.DRAM_CYCLES_PER_SECTOR] / left[R_DRAM]
        p[i, sp.ATOMIC_CHIP_CYCLES] = rates[sp.ATOMIC_CHIP_CYCLES] / left[R_ATOMIC]
        servers[i, L2_FREE] = l2.free[R_READ]
        servers[i, L2_WRITE_FREE] = l2.free[R_WRITE]
        servers[i, DRAM_FREE] = l2.free[R_DRAM]
        servers[i, ATOMIC_CHIP_FREE] = l2.free[R_ATOMIC]
        servers[i, DRAM_USED] = l2.load[0]
        servers[i, DRAM_WRITTEN] = l2.load[1]
        servers[i, DRAM_TOTAL] = l2.load[0]
        servers[i, DRAM_TOTAL_WRITTEN] = l2.load[1]
        servers[i, DRAM_USED_AT] = until
