"""What an SM of the engine remembers between cycles, as arrays: the engine can stop at any cycle and go on later.

All arrays of `SmState` have one SM's shape; `blank_states` makes them for many SMs with the SM as leading dimension, so
that a chip's state is a few large arrays and one SM's is a view of each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from interpreter.isa.pipes import Pipe
from timing import sm_parameters as sp
from timing.instruction_fetch import N_PORTS, SUB_CORES
from timing.jit import njit
from timing.memory_path import N_SERVERS, N_TRAFFIC

INFINITE = 1 << 60
MAX_SLOTS = 64
N_PIPES = len(Pipe) + 1
RING = 32  # power of two, at least the deepest queue
SB_HISTORY = 8  # completions kept per scoreboard for DEPBAR.LE n

# Indices into SmState.scalars
NEXT_CTA = 0  # position in the order of CTAs of the next one to launch
COMPLETED = 1
ISSUED = 2
NOW = 3
END_TIME = 4
AGE_COUNTER = 5  # warps launched so far
N_EMPTY = 6  # empty CTA slots
N_SCALARS = 7


class SmState(NamedTuple):
    """One SM. Times are SM cycles; a slot is a resident warp's place."""

    scalars: np.ndarray  # int64[N_SCALARS]
    launch_free: np.ndarray  # float64[1], when the next CTA may be launched
    servers: np.ndarray  # float64[N_SERVERS], see timing.memory_path
    traffic: np.ndarray  # float64[N_TRAFFIC]
    tags: np.ndarray  # L1: line of each way, -1 empty
    valid: np.ndarray  # sectors of it
    ready_line: np.ndarray  # when its last sector has arrived
    used: np.ndarray
    pipe_free: np.ndarray
    pipe_busy: np.ndarray
    shared_free: np.ndarray  # pipes one unit of which serves the whole SM
    bank_free: np.ndarray
    mio_ring: np.ndarray
    mio_head: np.ndarray
    lg_ring: np.ndarray
    lg_head: np.ndarray
    pending: np.ndarray  # when the last loads from global memory are done, round
    pending_head: np.ndarray
    agu_free: np.ndarray
    l0_tag: np.ndarray
    l0_ready: np.ndarray
    l1i_tag: np.ndarray
    l1i_ready: np.ndarray
    fetch_free: np.ndarray
    live: np.ndarray
    event: np.ndarray  # next event of a slot's warp
    event_end: np.ndarray
    line_at: np.ndarray
    ready_at: np.ndarray
    wait_until: np.ndarray  # end of the fixed stall
    reason: np.ndarray
    last_issue: np.ndarray
    issued_last: np.ndarray  # when a slot's warp really issued last, throttled or not; before its first, minus its age
    throttled: np.ndarray  # held up by a pipe or queue since it last issued
    age: np.ndarray
    sub_core_of: np.ndarray
    cta_of: np.ndarray
    sb_time: np.ndarray
    sb_reason: np.ndarray
    sb_history: np.ndarray
    sb_count: np.ndarray
    copy_group: np.ndarray  # completion of the asynchronous copies since the last commit
    local_base: np.ndarray
    store_done: np.ndarray
    waiting_at: np.ndarray  # barrier id a warp has arrived at and that is not complete, -1 none
    barrier_time: np.ndarray  # when the last barrier lets a warp go; while held: when it could go but for it
    cta_live: np.ndarray  # warps still running
    cta_index: np.ndarray
    age_of_cta: np.ndarray  # launch number of the CTA in a place: smaller is older
    cta_drained: np.ndarray  # when L2 has accepted the stores of its exited warps
    cta_warps: np.ndarray
    arrived: np.ndarray
    barrier_need: np.ndarray
    pending_slots: np.ndarray  # time a CTA slot becomes free
    slot_empty: np.ndarray
    last_warp: np.ndarray
    last_yield: np.ndarray
    next_time: np.ndarray  # a sub-core has nothing to do before this cycle
    block_until: np.ndarray  # no issue before: an instruction still waits for register ports
    members: np.ndarray
    n_members: np.ndarray


def blank_states(sms: int, p: np.ndarray, resident: int) -> SmState:
    """Idle SMs that take `resident` CTAs at once; cache sizes are those of the parameter vector `p`."""
    ways = int(p[sp.L1_WAYS])
    n_lines = max(int(p[sp.L1_SECTORS]) // 4, ways)
    ctas = max(resident, 1)

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros((sms, *shape))

    def whole(value: int, *shape: int) -> np.ndarray:
        return np.full((sms, *shape), value, np.int64)

    scalars = whole(0, N_SCALARS)
    scalars[:, N_EMPTY] = ctas
    return SmState(
        scalars=scalars,
        launch_free=zeros(1),
        servers=zeros(N_SERVERS),
        traffic=zeros(N_TRAFFIC),
        tags=whole(-1, n_lines),
        valid=whole(0, n_lines),
        ready_line=zeros(n_lines),
        used=np.full((sms, n_lines), -1.0),
        pipe_free=zeros(SUB_CORES, N_PIPES),
        pipe_busy=zeros(N_PIPES),
        shared_free=zeros(N_PIPES),
        bank_free=zeros(SUB_CORES, 2),
        mio_ring=zeros(SUB_CORES, RING),
        mio_head=whole(0, SUB_CORES),
        lg_ring=zeros(SUB_CORES, RING),
        lg_head=whole(0, SUB_CORES),
        pending=zeros(sp.PENDING_ROOM),
        pending_head=whole(0, 1),
        agu_free=zeros(SUB_CORES),
        l0_tag=whole(-1, SUB_CORES, int(p[sp.L0_LINES])),
        l0_ready=zeros(SUB_CORES, int(p[sp.L0_LINES])),
        l1i_tag=whole(-1, int(p[sp.L1I_LINES])),
        l1i_ready=zeros(int(p[sp.L1I_LINES])),
        fetch_free=zeros(N_PORTS),
        live=np.zeros((sms, MAX_SLOTS), np.bool_),
        event=whole(0, MAX_SLOTS),
        event_end=whole(0, MAX_SLOTS),
        line_at=whole(0, MAX_SLOTS),
        ready_at=whole(INFINITE, MAX_SLOTS),
        wait_until=whole(0, MAX_SLOTS),
        reason=whole(0, MAX_SLOTS),
        last_issue=whole(0, MAX_SLOTS),
        issued_last=whole(0, MAX_SLOTS),
        throttled=np.zeros((sms, MAX_SLOTS), np.bool_),
        age=whole(0, MAX_SLOTS),
        sub_core_of=whole(0, MAX_SLOTS),
        cta_of=whole(0, MAX_SLOTS),
        sb_time=zeros(MAX_SLOTS, 6),
        sb_reason=whole(0, MAX_SLOTS, 6),
        sb_history=zeros(MAX_SLOTS, 6, SB_HISTORY),
        sb_count=whole(0, MAX_SLOTS, 6),
        copy_group=zeros(MAX_SLOTS),
        local_base=whole(0, MAX_SLOTS),
        store_done=zeros(MAX_SLOTS),
        waiting_at=whole(-1, MAX_SLOTS),
        barrier_time=whole(0, MAX_SLOTS),
        cta_live=whole(0, ctas),
        cta_index=whole(-1, ctas),
        age_of_cta=whole(0, ctas),
        cta_drained=zeros(ctas),
        cta_warps=whole(-1, ctas, MAX_SLOTS),
        arrived=whole(0, ctas, 16),
        barrier_need=whole(0, ctas, 16),
        pending_slots=zeros(ctas),
        slot_empty=np.ones((sms, ctas), np.bool_),
        last_warp=whole(-1, SUB_CORES),
        last_yield=np.zeros((sms, SUB_CORES), np.bool_),
        next_time=whole(INFINITE, SUB_CORES),
        block_until=whole(0, SUB_CORES),
        members=whole(-1, SUB_CORES, MAX_SLOTS),
        n_members=whole(0, SUB_CORES),
    )


def one_state(p: np.ndarray, resident: int) -> SmState:
    """A single idle SM."""
    return SmState(*(array[0] for array in blank_states(1, p, resident)))


@njit()
def state_of(chip: SmState, i: int) -> SmState:
    """SM `i` of the arrays that `blank_states` made, as views; the order is that of SmState's fields."""
    return SmState(
        chip.scalars[i],
        chip.launch_free[i],
        chip.servers[i],
        chip.traffic[i],
        chip.tags[i],
        chip.valid[i],
        chip.ready_line[i],
        chip.used[i],
        chip.pipe_free[i],
        chip.pipe_busy[i],
        chip.shared_free[i],
        chip.bank_free[i],
        chip.mio_ring[i],
        chip.mio_head[i],
        chip.lg_ring[i],
        chip.lg_head[i],
        chip.pending[i],
        chip.pending_head[i],
        chip.agu_free[i],
        chip.l0_tag[i],
        chip.l0_ready[i],
        chip.l1i_tag[i],
        chip.l1i_ready[i],
        chip.fetch_free[i],
        chip.live[i],
        chip.event[i],
        chip.event_end[i],
        chip.line_at[i],
        chip.ready_at[i],
        chip.wait_until[i],
        chip.reason[i],
        chip.last_issue[i],
        chip.issued_last[i],
        chip.throttled[i],
        chip.age[i],
        chip.sub_core_of[i],
        chip.cta_of[i],
        chip.sb_time[i],
        chip.sb_reason[i],
        chip.sb_history[i],
        chip.sb_count[i],
        chip.copy_group[i],
        chip.local_base[i],
        chip.store_done[i],
        chip.waiting_at[i],
        chip.barrier_time[i],
        chip.cta_live[i],
        chip.cta_index[i],
        chip.age_of_cta[i],
        chip.cta_drained[i],
        chip.cta_warps[i],
        chip.arrived[i],
        chip.barrier_need[i],
        chip.pending_slots[i],
        chip.slot_empty[i],
        chip.last_warp[i],
        chip.last_yield[i],
        chip.next_time[i],
        chip.block_until[i],
        chip.members[i],
        chip.n_members[i],
    )
