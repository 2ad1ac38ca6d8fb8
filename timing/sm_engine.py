"""The SM pipeline: replays traced CTAs on one SM, cycle by cycle, and attributes every warp-cycle to a stall reason.

What is modelled, per sub-core: one issue a cycle from the warp that issued last while it stays eligible, else from the
oldest CTA's youngest eligible one, or its longest waiting where pipes or queues hold warps up; stall counts, wait masks
and dependence counters from the control bits; execution-pipe intervals; register read ports; the MIO and LG queues in
front of the SM's shared load/store unit; an L0 instruction cache with a stream prefetcher. Per SM: the L1 instruction
cache, the load/store data stage, L1/L2/DRAM (`timing.memory_path`), barriers, CTA slots. Times of results are known
when an instruction issues, so idle stretches are skipped.
"""

from __future__ import annotations

import numpy as np

from interpreter.isa.pipes import MemoryKind, Pipe
from interpreter.trace import LOCAL_LINE
from timing import sm_parameters as sp
from timing.instruction_fetch import LINE_ROWS, SUB_CORES, fetch_stream
from timing.jit import njit_entry
from timing.l2_view import LOG_ROOM, LOG_STEP, atomic_at_l2, load_at_l2, no_chip, store_at_l2
from timing.memory_path import (
    BARRIER_FREE,
    C_L2_READ_SECTORS,
    DRAM_FREE,
    LAST_STORE,
    LG_FREE,
    LSU_FREE,
    LSU_GLOBAL,
    S_CONTENTION,
    SEEN_SLOTS,
    atomic,
    entry_of,
    in_l1,
    l1_load,
    popcount4,
    region_of,
    store,
)
from timing.sm_rows import (
    ACTION_ARRIVE,
    ACTION_BARRIER,
    ACTION_BRANCH,
    ACTION_COMMIT,
    ACTION_DEPBAR,
    ACTION_EXIT,
    ACTION_MEMBAR,
    ACTION_SLEEP,
)
from timing.sm_state import (
    AGE_COUNTER,
    COMPLETED,
    END_TIME,
    INFINITE,
    ISSUED,
    N_EMPTY,
    NEXT_CTA,
    NOW,
    RING,
    SB_HISTORY,
    one_state,
)
from timing.sm_steps import account, enter_tail, local_store, release_barrier
from timing.stalls import Stall
from timing.timeline import Recorder, note_issue, note_throttle

LITE = len(Pipe)  # second half of the FMA pipe, used by FMA instructions only

# plain integers for numba
_LOAD_GLOBAL, _STORE_GLOBAL = int(MemoryKind.LOAD_GLOBAL), int(MemoryKind.STORE_GLOBAL)
_LOAD_SHARED, _STORE_SHARED = int(MemoryKind.LOAD_SHARED), int(MemoryKind.STORE_SHARED)
_LOAD_LOCAL, _STORE_LOCAL = int(MemoryKind.LOAD_LOCAL), int(MemoryKind.STORE_LOCAL)
_ATOMIC_GLOBAL, _REDUCE_GLOBAL = int(MemoryKind.ATOMIC_GLOBAL), int(MemoryKind.REDUCE_GLOBAL)
_ATOMIC_SHARED, _COPY_ASYNC = int(MemoryKind.ATOMIC_SHARED), int(MemoryKind.COPY_ASYNC)
_SHUFFLE = int(MemoryKind.SHUFFLE)
_FMA, _FMA_HEAVY, _LSU, _XU = int(Pipe.FMA), int(Pipe.FMA_HEAVY), int(Pipe.LSU), int(Pipe.XU)
_SPECIAL, _ASYNC = int(Pipe.SPECIAL), int(Pipe.ASYNC)
_SELECTED, _NOT_SELECTED, _WAIT = int(Stall.SELECTED), int(Stall.NOT_SELECTED), int(Stall.WAIT)
_NO_INSTRUCTION, _BRANCH = int(Stall.NO_INSTRUCTION), int(Stall.BRANCH_RESOLVING)
_DISPATCH, _MATH, _MIO, _LG = (
    int(Stall.DISPATCH_STALL),
    int(Stall.MATH_PIPE_THROTTLE),
    int(Stall.MIO_THROTTLE),
    int(Stall.LG_THROTTLE),
)
_SHORT, _LONG = int(Stall.SHORT_SCOREBOARD), int(Stall.LONG_SCOREBOARD)
_BARRIER, _MEMBAR, _SLEEP, _DRAIN = int(Stall.BARRIER), int(Stall.MEMBAR), int(Stall.SLEEPING), int(Stall.DRAIN)


def run_sm(
    rows,
    events,
    warp_start,
    lines,
    line_start,
    warps_per_cta,
    order,  # trace CTA indices in the order this SM receives them
    resident,  # CTAs at once
    p,  # parameters, see timing.sm_parameters
    regions,  # int64[n, 2]: first and last line of each allocation, sorted
    shares,  # float64[n, memory_path.N_SHARES]
    budget,  # stop launching CTAs after this many issued instructions
    stalls,  # float64[n_rows, N_STALLS], warp-cycles, added to
    cta_done,  # float64[len(order)], completion time of each CTA, -1 when not run
    issued_at,  # int64[len(order)], instructions issued when the CTA was completed
    timeline: Recorder | None = None,
):
    """One SM from its first CTA to the last, with its share of L2 and DRAM.

    Returns (cycles, instructions issued, CTAs completed, traffic counters, busy cycles per pipe).
    """
    state = one_state(p, resident)
    seen = np.full(SEEN_SLOTS, -1, np.int64), np.zeros(SEEN_SLOTS, np.int64), np.zeros(SEEN_SLOTS)
    advance(
        state,
        no_chip(),
        INFINITE,
        rows,
        events,
        warp_start,
        warp_start[1:],
        lines,
        line_start,
        warps_per_cta,
        order,
        p.copy(),  # the shares of L2 and DRAM change when other SMs run dry
        regions,
        shares,
        *seen,
        budget,
        stalls,
        cta_done,
        issued_at,
        timeline,
    )
    done = state.scalars
    return int(done[END_TIME]), int(done[ISSUED]), int(done[COMPLETED]), state.traffic, state.pipe_busy


@njit_entry()
def advance(
    state,  # timing.sm_state.SmState, changed
    view,  # timing.l2_view.L2View
    until,  # stop before the first cycle from here on in which something issues
    rows,
    events,
    warp_start,  # int64[CTA places * warps_per_cta], first event of each warp
    warp_end,  # and the one after its last
    lines,
    line_start,
    warps_per_cta,
    order,
    p,
    regions,
    shares,
    seen_line,  # lines asked of L2: which sectors, and how much traffic ago
    seen_mask,
    seen_at,
    budget,
    stalls,
    cta_done,
    issued_at,
    timeline,  # timing.timeline.Recorder, or None: then it is compiled without
):
    """Simulate one SM from where its state is to cycle `until`, or to where its log of requests to L2 is full."""
    n_code_lines = (rows.shape[0] + LINE_ROWS - 1) // LINE_ROWS
    tail_after = int(p[sp.TAIL_AFTER])
    mio_depth = int(p[sp.MIO_QUEUE])
    lg_depth = int(p[sp.LG_QUEUE])
    cta_slots = state.slot_empty.shape[0]
    on_chip = view.tags.shape[0] > 0
    servers = state.servers
    traffic = state.traffic
    tags = state.tags
    valid = state.valid
    ready_line = state.ready_line
    used = state.used
    pipe_free = state.pipe_free
    pipe_busy = state.pipe_busy
    shared_free = state.shared_free
    bank_free = state.bank_free
    mio_ring = state.mio_ring
    mio_head = state.mio_head
    lg_ring = state.lg_ring
    lg_head = state.lg_head
    pending = state.pending
    pending_head = state.pending_head
    most_pending = int(p[sp.PENDING_LOADS])
    agu_free = state.agu_free
    l0_tag = state.l0_tag
    l0_ready = state.l0_ready
    l1i_tag = state.l1i_tag
    l1i_ready = state.l1i_ready
    fetch_free = state.fetch_free
    live = state.live
    event = state.event
    event_end = state.event_end
    line_at = state.line_at
    ready_at = state.ready_at
    wait_until = state.wait_until
    reason = state.reason
    last_issue = state.last_issue
    issued_last = state.issued_last
    throttled = state.throttled
    age = state.age
    sub_core_of = state.sub_core_of
    cta_of = state.cta_of
    sb_time = state.sb_time
    sb_reason = state.sb_reason
    sb_history = state.sb_history
    sb_count = state.sb_count
    copy_group = state.copy_group
    local_base = state.local_base
    store_done = state.store_done
    waiting_at = state.waiting_at
    barrier_time = state.barrier_time
    cta_live = state.cta_live
    cta_index = state.cta_index
    age_of_cta = state.age_of_cta
    cta_drained = state.cta_drained
    cta_warps = state.cta_warps
    arrived = state.arrived
    barrier_need = state.barrier_need
    pending_slots = state.pending_slots
    slot_empty = state.slot_empty
    last_warp = state.last_warp
    last_yield = state.last_yield
    next_time = state.next_time
    block_until = state.block_until
    members = state.members
    n_members = state.n_members

    next_cta = state.scalars[NEXT_CTA]
    completed = state.scalars[COMPLETED]
    issued = state.scalars[ISSUED]
    now = state.scalars[NOW]
    end_time = state.scalars[END_TIME]
    age_counter = state.scalars[AGE_COUNTER]
    n_empty = state.scalars[N_EMPTY]
    launch_free = state.launch_free[0]

    while True:
        # ---- CTA launch ----
        if n_empty > 0 and next_cta < order.shape[0] and issued < budget:
            for c in range(cta_slots):
                if not slot_empty[c] or next_cta >= order.shape[0]:
                    continue
                start = max(pending_slots[c], launch_free)
                launch_free = start + p[sp.CTA_LAUNCH_INTERVAL]
                begin = int(start + p[sp.CTA_LAUNCH_LATENCY])
                slot_empty[c] = False
                n_empty -= 1
                cta_index[c] = next_cta
                cta_live[c] = warps_per_cta
                age_of_cta[c] = next_cta
                cta_drained[c] = 0.0
                for b in range(16):
                    arrived[c, b] = 0
                    barrier_need[c, b] = 0
                traced = order[next_cta]
                next_cta += 1
                # warps go round the sub-cores, starting where fewest live
                first = 0
                for s in range(1, SUB_CORES):
                    if n_members[s] < n_members[first]:
                        first = s
                for w in range(warps_per_cta):
                    slot = 0
                    while live[slot]:
                        slot += 1
                    k = traced * warps_per_cta + w
                    live[slot] = True
                    event[slot] = warp_start[k]
                    event_end[slot] = warp_end[k]
                    line_at[slot] = line_start[k]
                    s = (first + w) % SUB_CORES
                    sub_core_of[slot] = s
                    members[s, n_members[s]] = slot
                    n_members[s] += 1
                    cta_of[slot] = c
                    cta_warps[c, w] = slot
                    age[slot] = age_counter
                    local_base[slot] = age_counter << 24
                    age_counter += 1
                    for b in range(6):
                        sb_time[slot, b] = 0.0
                        sb_count[slot, b] = 0
                    copy_group[slot] = 0.0
                    store_done[slot] = 0.0
                    waiting_at[slot] = -1
                    barrier_time[slot] = 0
                    # warps of a CTA become ready one after another
                    at = begin + int(w * p[sp.WARP_LAUNCH_INTERVAL])
                    last_issue[slot] = at - 1
                    issued_last[slot] = -age_counter
                    wait_until[slot] = at
                    line = int(events[event[slot]]["row"]) // LINE_ROWS
                    got = fetch_stream(
                        line, float(at), s, n_code_lines, p, l0_tag, l0_ready, l1i_tag, l1i_ready, fetch_free
                    )
                    f = max(at, int(np.ceil(got)))
                    ready_at[slot] = f
                    reason[slot] = _NO_INSTRUCTION
                    if f < next_time[s]:
                        next_time[s] = f

        # ---- advance to the next cycle in which something may issue ----
        t_next = INFINITE
        for s in range(SUB_CORES):
            if next_time[s] < t_next:
                t_next = next_time[s]
        if t_next >= until or view.log_length[0] > LOG_ROOM - LOG_STEP:
            break
        now = t_next

        for s in range(SUB_CORES):
            if next_time[s] > now:
                continue
            if block_until[s] > now:
                next_time[s] = block_until[s]
                continue
            next_time[s] = INFINITE  # lowered below, and by barrier releases meanwhile
            # ---- choose a warp ----
            chosen = -1
            best_score = -INFINITE
            best_next = INFINITE
            # a warp that yields leaves the slot to another eligible one, if there is any
            greedy = last_warp[s]
            fair = greedy >= 0 and (last_yield[s] or throttled[greedy])
            for m in range(n_members[s]):
                slot = members[s, m]
                at = ready_at[slot]
                if at > now:
                    if at < best_next:
                        best_next = at
                    continue
                row = int(events[event[slot]]["row"])
                r = rows[row]
                pipe = int(r["pipe"])
                free = now
                why = _NOT_SELECTED
                if pipe == _FMA:
                    t = min(pipe_free[s, _FMA_HEAVY], pipe_free[s, LITE])
                    if t > now:
                        free = int(np.ceil(t))
                        why = _MATH
                elif pipe == _LSU or pipe == _XU or pipe == _SPECIAL or pipe == _ASYNC:
                    kind = int(r["memory"])
                    if (
                        kind == _LOAD_GLOBAL
                        or kind == _STORE_GLOBAL
                        or kind == _LOAD_LOCAL
                        or kind == _STORE_LOCAL
                        or kind == _ATOMIC_GLOBAL
                        or kind == _REDUCE_GLOBAL
                        or kind == _COPY_ASYNC
                    ):
                        t = lg_ring[s, (lg_head[s] - lg_depth) & (RING - 1)]
                        if lg_head[s] >= lg_depth and t > now:
                            free = int(np.ceil(t))
                            why = _LG
                    else:
                        t = mio_ring[s, (mio_head[s] - mio_depth) & (RING - 1)]
                        if mio_head[s] >= mio_depth and t > now:
                            free = int(np.ceil(t))
                            why = _MIO
                else:
                    t = pipe_free[s, pipe]
                    if t > now:
                        free = int(np.ceil(t))
                        why = _MATH
                if free > now:
                    throttled[slot] = True
                    # throttled: not a candidate before `free`; the time until then belongs to `why`
                    stalls[row, why] += free - now
                    # from its own ready time up to now it was eligible and others went first, or throttled already
                    wait_from = ready_at[slot]
                    account(stalls, row, last_issue[slot], wait_until[slot], wait_from, now, int(reason[slot]))
                    if timeline is not None:
                        note_throttle(
                            timeline, slot, why, free, last_issue[slot], wait_until[slot], wait_from, now, reason[slot]
                        )
                    last_issue[slot] = free - 1
                    wait_until[slot] = free
                    ready_at[slot] = free
                    if free < best_next:
                        best_next = free
                    continue
                # The warp that issued last goes on, unless it yields. Else warps of the oldest CTA go first (equal CTAs
                # on an H200's SM end one after the other); among those of one CTA the youngest, or, where a pipe or
                # queue held the last one up, the one that has waited longest (they end within 5 to 10 % of each other).
                if slot == greedy:
                    score = INFINITE if not last_yield[s] else -INFINITE
                elif fair:
                    score = -(age_of_cta[cta_of[slot]] << 40) - issued_last[slot]
                else:
                    score = -(age_of_cta[cta_of[slot]] << 40) + age[slot]
                if chosen < 0 or score > best_score:
                    if chosen >= 0:
                        best_next = now + 1
                    best_score = score
                    chosen = slot
                else:
                    best_next = now + 1
            if chosen < 0:
                next_time[s] = min(next_time[s], best_next)
                continue

            # ---- issue ----
            slot = chosen
            e = events[event[slot]]
            row = int(e["row"])
            r = rows[row]
            pipe = int(r["pipe"])
            kind = int(r["memory"])
            c = cta_of[slot]
            issued += 1
            # The registers are read after the warp was chosen: an instruction whose reads another's would lengthen
            # waits, and the sub-core with it. (H200: alternating EEZ and OOZ run at one a cycle, two EEZ in a row take
            # four, EEE and OOO alternating three for two, whatever the number of warps.)
            ti = now
            if r["variable"] == 0 and (r["reads_even"] > 0 or r["reads_odd"] > 0):
                duration = max(r["reads_even"], r["reads_odd"])
                over = 0.0
                if r["reads_even"] > 0:
                    over = max(bank_free[s, 0], float(now)) + r["reads_even"] - (now + duration)
                if r["reads_odd"] > 0:
                    over = max(over, max(bank_free[s, 1], float(now)) + r["reads_odd"] - (now + duration))
                if over > 0.0:
                    ti = now + int(over)
                    stalls[row, _DISPATCH] += ti - now
            block_until[s] = ti + 1
            account(stalls, row, last_issue[slot], wait_until[slot], ready_at[slot], now, int(reason[slot]))
            stalls[row, _SELECTED] += 1
            if timeline is not None:
                note_issue(
                    timeline, slot, row, s, cta_index[c], cta_warps[c], ti, last_issue[slot], wait_until[slot],
                    ready_at[slot], now, reason[slot],
                )  # fmt: skip
            last_issue[slot] = ti
            issued_last[slot] = ti
            throttled[slot] = False
            last_warp[s] = slot
            last_yield[s] = r["yields"] != 0
            interval = float(r["interval"])
            latency = float(r["latency"])
            done = ti + latency
            release = float(r["release"])
            read_done = ti + release
            why_sb = _SHORT
            lanes = int(e["lanes"])
            n = int(e["lines"])
            wavefronts = int(e["wavefronts"])

            if pipe == _FMA:
                if pipe_free[s, LITE] <= pipe_free[s, _FMA_HEAVY]:
                    pipe_free[s, LITE] = max(pipe_free[s, LITE], ti) + 2 * interval
                else:
                    pipe_free[s, _FMA_HEAVY] = max(pipe_free[s, _FMA_HEAVY], ti) + 2 * interval
                pipe_busy[_FMA] += interval
            elif pipe == _LSU:
                is_lg = not (
                    kind == _LOAD_SHARED or kind == _STORE_SHARED or kind == _ATOMIC_SHARED or kind == _SHUFFLE
                )
                # address unit of the sub-core, then the SM's data stage
                ready = max(ti + p[sp.MIO_LATENCY], agu_free[s])
                agu_free[s] = ready + interval
                if lanes == 0:
                    stage = ready
                    done = stage + 1
                    read_done = stage
                else:
                    stage = max(ready, servers[LSU_FREE])
                    loads = kind == _LOAD_GLOBAL or kind == _LOAD_LOCAL or kind == _COPY_ASYNC
                    if is_lg:
                        stage = max(stage, servers[LG_FREE])
                        if loads:  # L1 keeps track of so many lines that loads wait for
                            full_until = pending[(pending_head[0] + n - 1 - most_pending) & (sp.PENDING_ROOM - 1)]
                            if full_until > stage and not in_l1(
                                lines, line_at[slot], n, stage, p, tags, valid, ready_line
                            ):
                                stage = full_until
                    if kind == _SHUFFLE:
                        cost = p[sp.SHUFFLE_CYCLES]
                    elif kind == _LOAD_SHARED or kind == _STORE_SHARED:
                        cost = max(wavefronts * p[sp.WAVEFRONT_CYCLES], p[sp.LSU_MIN_CYCLES])
                    elif kind == _ATOMIC_SHARED:
                        cost = max(wavefronts * p[sp.ATOMS_CYCLES], p[sp.LSU_MIN_CYCLES])
                    else:
                        # tags: several lines a cycle; data: through the banks of shared memory
                        cost = max(
                            np.ceil(n * p[sp.TAG_CYCLES]), p[sp.LSU_MIN_CYCLES], wavefronts * p[sp.WAVEFRONT_CYCLES]
                        )
                    if servers[LSU_GLOBAL] != is_lg:
                        servers[LSU_GLOBAL] = is_lg
                        cost += p[sp.LSU_TURN_CYCLES]
                    servers[LSU_FREE] = stage + cost
                    pipe_busy[_LSU] += cost
                    read_done = stage + cost + max(release - p[sp.MIO_LATENCY], 0.0)
                    if kind == _LOAD_SHARED or kind == _SHUFFLE or kind == _ATOMIC_SHARED:
                        done = stage + cost - 1 + latency - p[sp.MIO_LATENCY]
                    elif kind == _STORE_SHARED:
                        done = stage + cost
                    else:
                        why_sb = _LONG
                        done = stage + cost
                        at = line_at[slot]
                        step = cost / max(n, 1)
                        partial = False
                        if kind == _STORE_GLOBAL:
                            covered = 0
                            for k in range(n):
                                covered += popcount4(np.int64(lines[at + k] & np.uint64(15)))
                            partial = lanes * int(r["width"]) < 32 * covered
                        for k in range(n):
                            line, mask, marks = entry_of(lines[at + k])
                            if line >= LOCAL_LINE:
                                line += local_base[slot]
                            tt = stage + k * step
                            if kind == _LOAD_GLOBAL or kind == _COPY_ASYNC or kind == _LOAD_LOCAL:
                                use = r["strong"] == 0 and r["bypass_l1"] == 0
                                before = traffic[C_L2_READ_SECTORS]
                                got = l1_load(
                                    line,
                                    mask,
                                    marks,
                                    tt,
                                    use,
                                    servers,
                                    traffic,
                                    p,
                                    tags,
                                    valid,
                                    ready_line,
                                    used,
                                    regions,
                                    shares,
                                    seen_line,
                                    seen_mask,
                                    seen_at,
                                )
                                if on_chip and traffic[C_L2_READ_SECTORS] != before:
                                    got = load_at_l2(line, mask, got, use, servers, p, tags, ready_line, view)
                                done = max(done, got)
                            elif kind == _STORE_GLOBAL:
                                got = store(line, mask, partial, tt, servers, traffic, p, regions, shares)
                                if on_chip:
                                    got = store_at_l2(line, mask, partial, got, servers, p, view)
                                store_done[slot] = max(store_done[slot], got)
                                servers[LG_FREE] = max(servers[LG_FREE], got - p[sp.STORE_BUFFER_CYCLES])
                            elif kind == _STORE_LOCAL:
                                # kept in L1 without a fetch, and written through like any store (measured on an H200)
                                local_store(line, mask, tt, p, tags, valid, ready_line, used)
                                got = store(line, mask, partial, tt, servers, traffic, p, regions, shares)
                                if on_chip:
                                    got = store_at_l2(line, mask, partial, got, servers, p, view)
                                store_done[slot] = max(store_done[slot], got)
                                servers[LG_FREE] = max(servers[LG_FREE], got - p[sp.STORE_BUFFER_CYCLES])
                            else:
                                per_line = max(1, lanes // max(n, 1))
                                region = region_of(line, regions)
                                contention = shares[region, S_CONTENTION] if region >= 0 else 0.0
                                got = atomic(
                                    line,
                                    mask,
                                    per_line,
                                    wavefronts,
                                    contention,
                                    r["float_atomic"] != 0,
                                    tt,
                                    servers,
                                    traffic,
                                    p,
                                )
                                servers[LG_FREE] = max(
                                    servers[LG_FREE], got - p[sp.ATOMIC_LATENCY] - p[sp.STORE_BUFFER_CYCLES]
                                )
                                if on_chip:
                                    floating = r["float_atomic"] != 0
                                    got = atomic_at_l2(line, mask, wavefronts, floating, got, servers, p, view)
                                done = max(done, got)
                        if kind == _LOAD_GLOBAL or kind == _LOAD_LOCAL:
                            done += int(r["width"]) * p[sp.WIDTH_CYCLES]
                        line_at[slot] = at + n
                        if loads and done > stage + cost + p[sp.L1_HIT_LATENCY] + 1.0:
                            for _ in range(n):
                                pending[pending_head[0] & (sp.PENDING_ROOM - 1)] = done
                                pending_head[0] += 1
                        if kind == _COPY_ASYNC:
                            copy_group[slot] = max(copy_group[slot], done)
                dispatched = stage if lanes > 0 else ready
                if is_lg:
                    lg_ring[s, lg_head[s] & (RING - 1)] = dispatched
                    lg_head[s] += 1
                else:
                    mio_ring[s, mio_head[s] & (RING - 1)] = dispatched
                    mio_head[s] += 1
            elif pipe == _XU or pipe == _SPECIAL or pipe == _ASYNC:
                start = max(float(ti), pipe_free[s, pipe])
                pipe_free[s, pipe] = start + interval
                pipe_busy[pipe] += interval
                mio_ring[s, mio_head[s] & (RING - 1)] = start
                mio_head[s] += 1
                done = start + latency
                read_done = start + release
            elif r["per_sm"] != 0:
                # one unit for the SM: the sub-core's pipe latch holds the instruction until the unit takes it
                start = max(float(ti), shared_free[pipe])
                shared_free[pipe] = start + interval
                pipe_free[s, pipe] = start
                pipe_busy[pipe] += SUB_CORES * interval
                done = start + latency
            else:
                pipe_free[s, pipe] = max(pipe_free[s, pipe], ti) + interval
                pipe_busy[pipe] += interval
            if r["variable"] == 0:
                if r["reads_even"] > 0:
                    bank_free[s, 0] = max(bank_free[s, 0], float(ti)) + r["reads_even"]
                if r["reads_odd"] > 0:
                    bank_free[s, 1] = max(bank_free[s, 1], float(ti)) + r["reads_odd"]

            b = int(r["write_barrier"])
            if b < 6:
                if done > sb_time[slot, b]:
                    sb_time[slot, b] = done
                    sb_reason[slot, b] = why_sb
                sb_history[slot, b, sb_count[slot, b] % SB_HISTORY] = done
                sb_count[slot, b] += 1
            b = int(r["read_barrier"])
            if b < 6 and read_done > sb_time[slot, b]:
                sb_time[slot, b] = read_done
                sb_reason[slot, b] = why_sb

            # ---- what comes next for this warp ----
            action = int(r["action"])
            base = ti + max(int(r["stall"]), 1)
            if r["yields"] != 0 and base == ti + 1:
                base = ti + 2  # a yielding warp is never back the next cycle, alone or not (measured on an H200)
            event[slot] += 1
            finished = event[slot] >= event_end[slot]
            if action == ACTION_EXIT and finished:
                # a warp keeps its place until L2 has its stores (Nsight: drain, at the instruction after EXIT)
                drained = max(store_done[slot], float(ti))
                stalls[min(row + 1, rows.shape[0] - 1), _DRAIN] += drained - ti
                cta_drained[c] = max(cta_drained[c], drained)
                live[slot] = False
                for m in range(n_members[s]):
                    if members[s, m] == slot:
                        n_members[s] -= 1
                        members[s, m] = members[s, n_members[s]]
                        break
                cta_live[c] -= 1
                if cta_live[c] == 0:
                    free_at = cta_drained[c] + p[sp.EXIT_LATENCY]
                    k = cta_index[c]
                    cta_done[k] = free_at
                    issued_at[k] = issued
                    completed += 1
                    if completed == tail_after:
                        enter_tail(p)
                    if free_at > end_time:
                        end_time = int(free_at)
                    slot_empty[c] = True
                    n_empty += 1
                    pending_slots[c] = free_at
                else:
                    for bid in range(16):
                        if arrived[c, bid] > 0:
                            need = barrier_need[c, bid]
                            if need == 0 or need > cta_live[c]:
                                need = cta_live[c]
                            if arrived[c, bid] >= need:
                                release_barrier(
                                    c,
                                    bid,
                                    ti + p[sp.BARRIER_LATENCY],
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
                                )
                next_time[s] = min(next_time[s], best_next)
                continue
            if finished:
                raise ValueError("a warp's trace does not end with EXIT")

            nrow = int(events[event[slot]]["row"])
            nr = rows[nrow]
            at = base
            why = _WAIT
            if action == ACTION_BRANCH and nrow != row + 1:
                at = max(at, ti + int(p[sp.BRANCH_LATENCY]))
                why = _BRANCH
            # instruction fetch
            line = nrow // LINE_ROWS
            if line != row // LINE_ROWS:
                got = fetch_stream(
                    line, float(ti), s, n_code_lines, p, l0_tag, l0_ready, l1i_tag, l1i_ready, fetch_free
                )
                if got > at:
                    at = int(np.ceil(got))
                    why = _NO_INSTRUCTION
            mask = int(nr["wait_mask"])
            if mask != 0:
                for b in range(6):
                    if (mask >> b) & 1 and sb_time[slot, b] > at:
                        at = int(np.ceil(sb_time[slot, b]))
                        why = sb_reason[slot, b]
            if action == ACTION_COMMIT:
                b = int(r["write_barrier"])
                b = b if b < 6 else 0
                group = max(copy_group[slot], float(ti) + 1)
                copy_group[slot] = 0.0
                # groups complete in order
                if sb_count[slot, b] > 0:
                    group = max(group, sb_history[slot, b, (sb_count[slot, b] - 1) % SB_HISTORY])
                if int(r["write_barrier"]) < 6:
                    sb_count[slot, b] -= 1
                sb_history[slot, b, sb_count[slot, b] % SB_HISTORY] = group
                sb_count[slot, b] += 1
                sb_time[slot, b] = max(sb_time[slot, b], group)
                sb_reason[slot, b] = _LONG
            elif action == ACTION_DEPBAR:
                b = int(r["id"])
                k = sb_count[slot, b] - int(r["count"])
                if k > 0 and int(r["count"]) < SB_HISTORY:
                    t = sb_history[slot, b, (k - 1) % SB_HISTORY]
                    if t > at:
                        at = int(np.ceil(t))
                        why = sb_reason[slot, b]
            elif action == ACTION_MEMBAR:
                # the warp's stores are acknowledged first, then the fence itself makes a round trip
                t = max(float(ti), store_done[slot] + p[sp.STORE_ACK]) + latency
                if t > at:
                    at = int(np.ceil(t))
                    why = _MEMBAR
            elif action == ACTION_SLEEP:
                at = max(at, ti + int(p[sp.SLEEP_CYCLES]))
                why = _SLEEP
            wait_until[slot] = base
            if action == ACTION_BARRIER or action == ACTION_ARRIVE:
                bid = int(r["id"])
                need = int(r["count"]) // 32
                barrier_need[c, bid] = need
                if need == 0 or need > cta_live[c]:
                    need = cta_live[c]
                arrived[c, bid] += 1
                servers[BARRIER_FREE] = max(servers[BARRIER_FREE], float(ti)) + p[sp.BARRIER_ARRIVAL]
                if action == ACTION_BARRIER:
                    waiting_at[slot] = bid
            held = nr["held"] != 0 or (action == ACTION_BARRIER and r["deferred"] == 0)
            if held and waiting_at[slot] >= 0:
                barrier_time[slot] = at
                at = INFINITE
            elif held and barrier_time[slot] > at:
                at = barrier_time[slot]
                why = _BARRIER
            ready_at[slot] = at
            reason[slot] = why
            if (action == ACTION_BARRIER or action == ACTION_ARRIVE) and arrived[c, bid] >= need:
                release_barrier(
                    c,
                    bid,
                    servers[BARRIER_FREE] + p[sp.BARRIER_LATENCY],
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
                )
            if ready_at[slot] < best_next:
                best_next = ready_at[slot]
            if best_next <= ti:
                best_next = ti + 1
            next_time[s] = min(next_time[s], best_next)

    # a launch ends when its last store is acknowledged
    if servers[LAST_STORE] > 0.0 and servers[LAST_STORE] + p[sp.STORE_ACK] > end_time:
        end_time = int(servers[LAST_STORE] + p[sp.STORE_ACK])
    if p[sp.REPEATED] != 0.0 and servers[DRAM_FREE] > end_time:
        end_time = int(servers[DRAM_FREE])
    state.scalars[NEXT_CTA] = next_cta
    state.scalars[COMPLETED] = completed
    state.scalars[ISSUED] = issued
    state.scalars[NOW] = now
    state.scalars[END_TIME] = end_time
    state.scalars[AGE_COUNTER] = age_counter
    state.scalars[N_EMPTY] = n_empty
    state.launch_free[0] = launch_free
