"""The memory side of one SM: L1 tags and sectors, and its share of L2 and DRAM, as numba functions.

Bandwidths are modelled as servers that are free from some cycle on (first come, first served, in issue order);
latencies are added to the service time. The state of all servers is one float64 array, indices below; parameters are
another (see `timing.sm_parameters`). All times are SM cycles.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from interpreter.trace import LOCAL_LINE
from timing.jit import njit
from timing.sm_parameters import (
    ATOMIC_CHIP_CYCLES,
    ATOMIC_LANE_CYCLES,
    ATOMIC_LATENCY,
    ATOMIC_SAME_CYCLES,
    ATOMIC_SECTOR_CYCLES,
    DRAM_CYCLES_PER_SECTOR,
    DRAM_LATENCY,
    DRAM_LOADED_CYCLES,
    DRAM_LOADED_WRITE_CYCLES,
    DRAM_MIX_COST,
    DRAM_QUEUE_CYCLES,
    DRAM_QUEUE_WRITE_CYCLES,
    DRAM_SPREAD,
    HOT_REQUEST_CYCLES,
    HOT_SAME_CYCLES,
    HOT_SAME_FLOAT_CYCLES,
    L1_HIT_LATENCY,
    L1_SECTORS,
    L1_WAYS,
    L2_CYCLES_PER_SECTOR,
    L2_LATENCY,
    L2_LEAST_SECTORS,
    L2_REUSE_SECTORS,
    L2_SPREAD,
    L2_WRITE_CYCLES_PER_SECTOR,
    L2_WRITE_WEIGHT,
    LOCAL_DRAM_SHARE,
    PARTIAL_WRITE_FACTOR,
    READ_PORT_CYCLES,
    SHARE_CREDIT,
    SM_DRIFT,
    WRITE_BACK_CYCLES,
    WRITE_PORT_CYCLES,
)

# Servers
LSU_FREE = 0  # the SM's shared load/store data stage
L2_FREE = 1  # SM to L2 and back: read sectors
L2_WRITE_FREE = 2
DRAM_FREE = 3
ATOMIC_FREE = 4
LAST_STORE = 5  # when the last store so far is accepted by L2
ATOMIC_CHIP_FREE = 6  # this SM's share of the slices' atomic units
BARRIER_FREE = 7
READ_PORT_FREE = 8
WRITE_PORT_FREE = 9
DRAM_USED = 10  # recent use of the share of DRAM, 0 to 1
DRAM_USED_AT = 11
DRAM_WRITTEN = 12  # the part of it that were writes
HOT_FREE = 14  # lines that all SMs send atomics to
LG_FREE = 13  # the load/store stage for global and local memory: held up when stores or atomics back up
DRAM_TOTAL = 15  # cycles of DRAM taken since the start, and those by writes
DRAM_TOTAL_WRITTEN = 16
LSU_GLOBAL = 17  # 1: the last access in the load/store stage was global or local, 0: shared
N_SERVERS = 18

LOG_ROW_LINES = 3  # lines whose fate is the same where CTAs share data, as a power of two: a row of a tile, about

# An entry of a trace's lines: marks, line, sector mask (interpreter.trace has no marks)
MARK_SHIFT = 56
MARKS_AT = np.uint64(MARK_SHIFT)
LINE_BITS = np.uint64((1 << (MARK_SHIFT - 4)) - 1)

# Columns of `shares`, one row a region (allocation): shares of sectors that go to DRAM, of reads (those that the last
# launch has not left in L2) and of writes; contention of its atomics; what a scattered DRAM read costs more, in
# sectors; shares of reads by whether another CTA reads the same before (`timing.sharing`): not, or so
S_READ, S_WRITE, S_CONTENTION, S_SCATTER, S_FIRST, S_GIVEN = range(6)
N_SHARES = 6

DRAM_WINDOW = 2000.0  # cycles over which its use is averaged: a few DRAM round trips

# Traffic counters
C_L1_SECTORS = 0
C_L1_HITS = 1
C_L2_READ_SECTORS = 2
C_L2_WRITE_SECTORS = 3
C_DRAM_READ_SECTORS = 4
C_DRAM_WRITE_SECTORS = 5
C_ATOMICS = 6
N_TRAFFIC = 7

SEEN_SLOTS = 1 << 18  # direct-mapped memory of the lines this SM has asked L2 for


@njit(inline="always")
def _hash01(line: np.uint64) -> float:
    """A fixed pseudo-random number in [0, 1) for a line: which lines miss in L2 is the same in every run."""
    h = line * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(29)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(32)
    return float(h & np.uint64(0xFFFFFF)) / 16777216.0


# quantiles of the normal distribution at (i + 1/2) / 64
_NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 64) for i in range(64)])


@njit()
def dram_luck(line, mix, p):
    """What the latency of a DRAM read of `line` is multiplied by: log-normal, 1 on average. `mix` as of `dram_mix`.

    DRAM serves reads and writes in batches: a read that comes while writes are served waits for their end.
    """
    z = _NORMAL[int(_hash01(np.uint64(line) ^ np.uint64(0x3333)) * 64.0)]
    deviation = p[DRAM_SPREAD] * (1.0 + 2.0 * mix) / 3.0
    return np.exp(deviation * (z - 0.5 * deviation))


@njit(inline="always")
def l2_distance(line, p):
    """Cycles by which the L2 slice of `line` is nearer or farther than the mean."""
    return (2.0 * _hash01(np.uint64(line) ^ np.uint64(0x7777)) - 1.0) * p[L2_SPREAD]


@njit(inline="always")
def entry_of(entry):
    """Line, sector mask and mark (`timing.sharing`, a sector mask too) of an entry of a trace's `lines`."""
    return np.int64((entry >> np.uint64(4)) & LINE_BITS), np.int64(entry & np.uint64(15)), np.int64(entry >> MARKS_AT)


@njit(inline="always")
def popcount4(mask: int) -> int:
    return (mask & 1) + ((mask >> 1) & 1) + ((mask >> 2) & 1) + ((mask >> 3) & 1)


@njit()
def region_of(line, regions):
    """Index of the region that a line is in, or -1. Regions: [first line, last line], sorted."""
    lo = 0
    hi = regions.shape[0]
    while lo < hi:
        mid = (lo + hi) >> 1
        if regions[mid, 1] < line:
            lo = mid + 1
        else:
            hi = mid
    if lo < regions.shape[0] and regions[lo, 0] <= line:
        return lo
    return -1


@njit()
def from_dram(line, mask, marks, shares, region, traffic, p, seen_line, seen_mask, seen_at):
    """How many of a line's sectors a read finds neither in L2 nor on the way: those come from DRAM.

    Sectors this SM asks for the first time are in L2 if the last launch left them there; otherwise it depends on the
    other CTAs that read them (`marks`, `shares`: see `timing.sharing`). Where CTAs share data they share rows of a
    tile: neighbouring lines have the same fate. Sectors asked for before have been pushed out when, since then, all
    SMs together moved more through L2 than it holds.
    """
    slot = int((line ^ (line >> 18)) % SEEN_SLOTS)
    position = traffic[C_L2_READ_SECTORS] + traffic[C_L2_WRITE_SECTORS]
    known = 0
    if seen_line[slot] == line:
        known = seen_mask[slot] & mask
    else:
        seen_line[slot] = line
        seen_mask[slot] = 0
        seen_at[slot] = position
    fresh = mask & ~known
    sectors = 0
    if fresh != 0 and region >= 0 and _hash01(np.uint64(line)) < shares[region, S_READ]:
        luck = _hash01(np.uint64(line >> LOG_ROW_LINES) ^ np.uint64(0x1111))
        if luck < shares[region, S_FIRST]:
            sectors += popcount4(fresh & ~marks)
        if luck < shares[region, S_GIVEN]:
            sectors += popcount4(fresh & marks)
    if known != 0 and position - seen_at[slot] > p[L2_REUSE_SECTORS]:
        sectors += popcount4(known)
    seen_mask[slot] |= mask
    if known != 0 or fresh == mask:
        seen_at[slot] = position
    return sectors


@njit()
def dram_mix(servers):
    """How mixed DRAM's traffic is: 0 reads or writes alone, 1 as many of each.

    Over the whole launch: this SM reads and writes in turns, but all SMs together do both at any time.
    """
    w = servers[DRAM_TOTAL_WRITTEN] / max(servers[DRAM_TOTAL], 1e-9)
    return 4.0 * w * (1.0 - w)


@njit()
def note_dram_use(t, cycles, written, servers):
    """Enter `cycles` of DRAM time at `t` into the running means of its use, and of its use by writes."""
    if t > servers[DRAM_USED_AT]:
        fade = np.exp((servers[DRAM_USED_AT] - t) / DRAM_WINDOW)
        servers[DRAM_USED] *= fade
        servers[DRAM_WRITTEN] *= fade
        servers[DRAM_USED_AT] = t
    servers[DRAM_USED] += cycles / DRAM_WINDOW
    servers[DRAM_TOTAL] += cycles
    if written:
        servers[DRAM_TOTAL_WRITTEN] += cycles
        servers[DRAM_WRITTEN] += cycles / DRAM_WINDOW


@njit()
def dram_latency(servers, p):
    """Latency of a DRAM read now: grows with the recent use of DRAM, and more so when writes are among it."""
    u = min(servers[DRAM_USED], 0.9)  # beyond, the requests queue for their share anyway
    w = servers[DRAM_WRITTEN] / max(servers[DRAM_USED], 1e-9)
    return (
        p[DRAM_LATENCY]
        + (p[DRAM_LOADED_CYCLES] + w * p[DRAM_LOADED_WRITE_CYCLES]) * u
        + (p[DRAM_QUEUE_CYCLES] + w * p[DRAM_QUEUE_WRITE_CYCLES]) * u / (1.0 - u)
    )


@njit()
def shared_slot(server, t, cycles, servers, p):
    """Take `cycles` of this SM's share of a chip-wide resource at `t` or later; returns the start.

    An SM that has used less than its share may run ahead of it by a bounded credit (see SHARE_CREDIT).
    """
    free = max(servers[server], t - min(p[SHARE_CREDIT], p[SM_DRIFT] * t))
    servers[server] = free + cycles
    return max(t, free)


@njit()
def l2_read(line, mask, marks, t, servers, traffic, p, regions, shares, seen_line, seen_mask, seen_at):
    """A read of the sectors `mask` of a line leaves the SM at `t`; returns when its data is at L1.

    Requests leave in order: a read waits for the data of the stores before it.
    """
    sectors = popcount4(mask)
    start = max(t, servers[READ_PORT_FREE], servers[WRITE_PORT_FREE])
    servers[READ_PORT_FREE] = start + sectors * p[READ_PORT_CYCLES]
    start = shared_slot(L2_FREE, start, max(float(sectors), p[L2_LEAST_SECTORS]) * p[L2_CYCLES_PER_SECTOR], servers, p)
    traffic[C_L2_READ_SECTORS] += sectors
    done = start + p[L2_LATENCY] + l2_distance(line, p)
    scattered = 0.0
    if line >= LOCAL_LINE:
        missing = sectors if _hash01(np.uint64(line)) < p[LOCAL_DRAM_SHARE] else 0
    else:
        region = region_of(line, regions)
        missing = from_dram(line, mask, marks, shares, region, traffic, p, seen_line, seen_mask, seen_at)
        if missing > 0 and region >= 0:
            scattered = shares[region, S_SCATTER]
    if missing > 0:
        mix = dram_mix(servers)
        cycles = float(missing)
        if scattered > 0.0:  # another row of a bank is opened, and 64 bytes are read at least
            cycles = max(missing, 2) + scattered
        cycles *= p[DRAM_CYCLES_PER_SECTOR] * (1.0 + mix * p[DRAM_MIX_COST])
        begin = shared_slot(DRAM_FREE, start, cycles, servers, p)
        traffic[C_DRAM_READ_SECTORS] += missing
        done = begin + dram_latency(servers, p) * dram_luck(line, mix, p)
        note_dram_use(start, cycles, False, servers)
    return done


@njit()
def l1_load(
    line,
    mask,
    marks,
    t,
    use_l1,
    servers,
    traffic,
    p,
    tags,
    valid,
    ready,
    used,
    regions,
    shares,
    seen_line,
    seen_mask,
    seen_at,
):
    """A load touches sectors `mask` of `line` at `t` (tag stage); returns when the data can be written back."""
    sectors = popcount4(mask)
    traffic[C_L1_SECTORS] += sectors
    if not use_l1:
        return l2_read(line, mask, marks, t, servers, traffic, p, regions, shares, seen_line, seen_mask, seen_at)
    ways = int(p[L1_WAYS])
    sets = int(p[L1_SECTORS]) // (4 * ways)
    if sets < 1:
        sets = 1
    # line bits are folded so that power-of-two strides spread over the sets
    s = int((line ^ (line >> 7) ^ (line >> 15)) % sets)
    base = s * ways
    victim = base
    oldest = used[base]
    for w in range(base, base + ways):
        if tags[w] == line:
            used[w] = t
            missing = mask & ~valid[w]
            if missing == 0:
                traffic[C_L1_HITS] += sectors
                done = t + p[L1_HIT_LATENCY]
                return max(done, ready[w])
            n = popcount4(missing)
            traffic[C_L1_HITS] += sectors - n
            done = l2_read(line, missing, marks, t, servers, traffic, p, regions, shares, seen_line, seen_mask, seen_at)
            valid[w] |= missing
            ready[w] = max(ready[w], done)
            return done
        if used[w] < oldest:
            oldest = used[w]
            victim = w
    done = l2_read(line, mask, marks, t, servers, traffic, p, regions, shares, seen_line, seen_mask, seen_at)
    tags[victim] = line
    valid[victim] = mask
    ready[victim] = done
    used[victim] = t
    return done


@njit()
def in_l1(lines, first, count, t, p, tags, valid, ready):
    """Whether all `count` line entries of a load from `first` on are in L1 at `t`, no longer on their way."""
    ways = int(p[L1_WAYS])
    sets = max(int(p[L1_SECTORS]) // (4 * ways), 1)
    for k in range(first, first + count):
        line, mask, _ = entry_of(lines[k])
        base = int((line ^ (line >> 7) ^ (line >> 15)) % sets) * ways
        found = False
        for w in range(base, base + ways):
            if tags[w] == line and mask & ~valid[w] == 0 and ready[w] <= t:
                found = True
        if not found:
            return False
    return True


@njit()
def store(line, mask, partial, t, servers, traffic, p, regions, shares):
    """A write-through store of a line's sectors; returns when L2 has accepted it.

    `partial`: the instruction writes only a part of each sector. L2 then takes its time for the request, less for the
    sectors in it (H200: 22 to 34 such requests a cycle of 1 to 4 sectors, 16 of whole lines).
    """
    sectors = popcount4(mask)
    start = max(t, servers[WRITE_PORT_FREE])
    servers[WRITE_PORT_FREE] = start + sectors * p[WRITE_PORT_CYCLES]
    cycles = sectors * p[L2_WRITE_CYCLES_PER_SECTOR]
    if partial:
        cycles = (p[PARTIAL_WRITE_FACTOR] + 0.25 * (sectors - 1)) * p[L2_WRITE_CYCLES_PER_SECTOR]
    shared_slot(
        L2_FREE, start, sectors * p[L2_WRITE_WEIGHT] * p[L2_CYCLES_PER_SECTOR], servers, p
    )  # reads and writes share L2's data paths
    start = shared_slot(L2_WRITE_FREE, start, cycles, servers, p)
    traffic[C_L2_WRITE_SECTORS] += sectors
    if line >= LOCAL_LINE:
        share = p[LOCAL_DRAM_SHARE]
    else:
        region = region_of(line, regions)
        share = shares[region, S_WRITE] if region >= 0 else 0.0
    if share > 0.0 and _hash01(np.uint64(line) ^ np.uint64(0x5555)) < share:
        # written back later: takes DRAM time from the reads, but nobody waits for it until L2 is full of such sectors
        cycles = sectors * p[DRAM_CYCLES_PER_SECTOR] * (1.0 + dram_mix(servers) * p[DRAM_MIX_COST])
        begin = shared_slot(DRAM_FREE, start, cycles, servers, p) - p[WRITE_BACK_CYCLES]
        note_dram_use(start, cycles, True, servers)
        traffic[C_DRAM_WRITE_SECTORS] += sectors
        if begin > start:
            servers[L2_WRITE_FREE] = max(servers[L2_WRITE_FREE], begin)
            start = begin
    if start > servers[LAST_STORE]:
        servers[LAST_STORE] = start
    return start


@njit()
def atomic(line, mask, lanes, multiplicity, contention, floating, t, servers, traffic, p):
    """A global atomic's part on one line; returns when it is done. At most `multiplicity` of its `lanes` share a word.

    The SM hands atomics to L2 by lanes and sectors. L2 works on the half of a line that many CTAs share one request
    after the other, for all SMs together. `contention` is the share of such requests that its busiest slice gets: 1
    when all go to one line, 0 when the line is not shared and only the slices' total rate counts.
    """
    sectors = popcount4(mask)
    traffic[C_ATOMICS] += lanes
    start = max(t, servers[ATOMIC_FREE])
    servers[ATOMIC_FREE] = start + max(
        lanes * p[ATOMIC_LANE_CYCLES] + sectors * p[ATOMIC_SECTOR_CYCLES], multiplicity * p[ATOMIC_SAME_CYCLES]
    )
    if contention > 0.0:
        same_word = p[HOT_SAME_FLOAT_CYCLES] if floating else p[HOT_SAME_CYCLES]
        halves = (1 if mask & 3 else 0) + (1 if mask & 12 else 0)
        service = contention * max(halves * p[HOT_REQUEST_CYCLES], multiplicity * same_word)
        start = shared_slot(HOT_FREE, start, service, servers, p)
    else:
        start = max(start, servers[ATOMIC_CHIP_FREE])
        servers[ATOMIC_CHIP_FREE] = start + sectors * p[ATOMIC_CHIP_CYCLES]
    if start > servers[LAST_STORE]:
        servers[LAST_STORE] = start
    return start + p[ATOMIC_LATENCY]
