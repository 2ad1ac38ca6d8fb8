"""Pieces of the SM engine that stand apart from its loop: accounting of stalls, barriers, spills, the grid's tail."""

from __future__ import annotations

from timing import sm_parameters as sp
from timing.jit import njit
from timing.sm_state import INFINITE
from timing.stalls import Stall

WAIT, NOT_SELECTED, BARRIER = int(Stall.WAIT), int(Stall.NOT_SELECTED), int(Stall.BARRIER)


@njit()
def enter_tail(p):
    """Only the SMs with one CTA more than the others still run: each gets a larger share of L2 and DRAM."""
    p[sp.L2_CYCLES_PER_SECTOR] = p[sp.TAIL_L2_CYCLES]
    p[sp.L2_WRITE_CYCLES_PER_SECTOR] = p[sp.TAIL_L2_WRITE_CYCLES]
    p[sp.DRAM_CYCLES_PER_SECTOR] = p[sp.TAIL_DRAM_CYCLES]


@njit(inline="always")
def account(stalls, row, last_issue, wait_until, ready_at, now, reason):
    """Warp-cycles between the last issue and now: fixed wait, then `reason`, then not selected."""
    begin = last_issue + 1
    until = min(wait_until, now)
    if until > begin:
        stalls[row, WAIT] += until - begin
        begin = until
    until = min(ready_at, now)
    if until > begin:
        stalls[row, reason] += until - begin
        begin = until
    if now > begin:
        stalls[row, NOT_SELECTED] += now - begin


@njit()
def local_store(line, mask, t, p, tags, valid, ready, used):
    ways = int(p[sp.L1_WAYS])
    sets = max(int(p[sp.L1_SECTORS]) // (4 * ways), 1)
    base = int((line ^ (line >> 7) ^ (line >> 15)) % sets) * ways
    victim = base
    for w in range(base, base + ways):
        if tags[w] == line:
            valid[w] |= mask
            used[w] = t
            return
        if used[w] < used[victim]:
            victim = w
    tags[victim] = line
    valid[victim] = mask
    ready[victim] = t
    used[victim] = t


@njit()
def release_barrier(
    c,
    bid,
    at,
    arrived,
    cta_warps,
    warps_per_cta,
    waiting_at,
    barrier_time,
    ready_at,
    reason,
    live,
    next_time,
    sub_core_of,
):
    """All expected warps have arrived: those held by the barrier go on at `at`, the others are not held before."""
    arrived[c, bid] = 0
    t = int(at)
    for w in range(warps_per_cta):
        slot = cta_warps[c, w]
        if slot >= 0 and live[slot] and waiting_at[slot] == bid:
            waiting_at[slot] = -1
            if ready_at[slot] == INFINITE:
                ready_at[slot] = max(t, barrier_time[slot])
                if t >= barrier_time[slot]:
                    reason[slot] = BARRIER
                s = sub_core_of[slot]
                if ready_at[slot] < next_time[s]:
                    next_time[s] = ready_at[slot]
            barrier_time[slot] = t
