"""L2 as the SMs see it while they run: unchanged until the chip settles what they asked of it.

An SM that runs on its own (`timing.sampled`) has an empty view: its L2 is the probabilities of `timing.memory_path`.
On a whole chip (`timing.chip_engine`) L2 is real: tags by sector, shared by all SMs. Between two settlements every SM
reads the same frozen tags and writes down its requests, so that SMs can be simulated in parallel and in any order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from interpreter.trace import LOCAL_LINE
from timing.jit import njit
from timing.memory_path import (
    DRAM_FREE,
    LAST_STORE,
    LG_FREE,
    dram_latency,
    dram_luck,
    dram_mix,
    l2_distance,
    popcount4,
    shared_slot,
)
from timing.sm_parameters import (
    ATOMIC_LATENCY,
    DRAM_CYCLES_PER_SECTOR,
    DRAM_LATENCY,
    L1_SECTORS,
    L1_WAYS,
    L2_LATENCY,
    WRITE_BACK_CYCLES,
)

L2_WAYS = 16
LOG_ROOM = 4096  # requests an SM may make between two settlements; at the limit it waits for the next
LOG_STEP = 256  # at most so many in one cycle: four sub-cores, 32 lines each, and some room

# A line's queue may be this long before the SM's load/store stage waits with it: an SM has several atomics on the way.
# As much as an SM that is simulated alone may run ahead of its share (timing.target_parameters.SHARE_CREDIT).
ATOMIC_QUEUE_CYCLES = 4000.0

# What a request was, in `log_what`: the sector mask in the low four bits, then the kind, then words for the kind.
READ, WRITE, PARTIAL_WRITE, ATOMIC = range(4)
KIND_SHIFT = 4


class L2View(NamedTuple):
    """Tags are in sets of L2_WAYS; the log is this SM's. Arrays of length 0: no chip around the SM."""

    tags: np.ndarray  # int64[lines], -1 empty
    valid: np.ndarray  # int64[lines], sectors present or on their way
    ready: np.ndarray  # float64[lines], when they are there
    atomic_free: np.ndarray  # float64[lines], when the atomic unit has done what was sent to the line
    slice_free: np.ndarray  # float64[slices], when a slice has served what was asked of it
    log_line: np.ndarray  # int64[LOG_ROOM]
    log_what: np.ndarray  # int64[LOG_ROOM]
    log_at: np.ndarray  # float64[LOG_ROOM], reads: data at the SM; atomics: arrival at L2
    log_service: np.ndarray  # float64[LOG_ROOM], atomics: requests and same-word lanes, see `timing.chip_engine`
    log_length: np.ndarray  # int64[1]


def no_chip() -> L2View:
    """The view of an SM that is simulated alone."""
    whole, real = np.zeros(0, np.int64), np.zeros(0)
    return L2View(whole, whole, real, real, real, whole, whole, real, real, np.zeros(1, np.int64))


@njit(inline="always")
def l2_set(line, sets):
    """First way of a line's set; neighbouring lines lie in different sets, and so do power-of-two strides."""
    return int((line ^ (line >> 11) ^ (line >> 19)) % sets) * L2_WAYS


@njit(inline="always")
def slice_of(line, view):
    """Index of the slice that a line lies in; the hash is ours, the real one spreads lines as evenly."""
    h = np.uint64(line) * np.uint64(0x9E3779B97F4A7C15)
    return int((h >> np.uint64(32)) % np.uint64(view.slice_free.shape[0]))


@njit()
def find(line, view):
    """Index of a line in L2, or -1."""
    base = l2_set(line, view.tags.shape[0] // L2_WAYS)
    for w in range(base, base + L2_WAYS):
        if view.tags[w] == line:
            return w
    return -1


@njit(inline="always")
def _note(line, mask, kind, at, service, view):
    n = view.log_length[0]
    view.log_line[n] = line
    view.log_what[n] = mask | (kind << KIND_SHIFT)
    view.log_at[n] = at
    view.log_service[n] = service
    view.log_length[0] = n + 1


@njit()
def load_at_l2(line, mask, hit, use_l1, servers, p, tags, ready, view):
    """After `memory_path.l1_load` has asked L2, which would answer at `hit`: returns when the chip's L2 answers."""
    if line >= LOCAL_LINE:
        return hit
    w = find(line, view)
    missing = mask if w < 0 else mask & ~view.valid[w]
    start = hit - p[L2_LATENCY] - l2_distance(line, p)
    # lines that all SMs ask for at once are served one request after the other
    hit += max(view.slice_free[slice_of(line, view)] - start, 0.0)
    done = hit
    if missing != 0:
        begin = shared_slot(DRAM_FREE, start, popcount4(missing) * p[DRAM_CYCLES_PER_SECTOR], servers, p)
        done = max(hit, _dram_answer(line, start, begin, servers, p))
    elif view.ready[w] > hit:
        done = view.ready[w]  # another SM has asked for it, and it is on its way
    if done > hit and use_l1:
        _arrives(line, done, p, tags, ready)
    _note(line, mask, READ, done, 0.0, view)
    return done


@njit(inline="always")
def _dram_answer(line, start, begin, servers, p):
    """When a read that reaches L2 at `start`, and whose turn at DRAM comes at `begin`, has its data at the SM.

    The latency of a loaded DRAM holds the mean wait in its queues already, so that only a longer one counts besides.
    """
    luck = dram_luck(line, dram_mix(servers), p)
    return max(start + dram_latency(servers, p) * luck, begin + p[DRAM_LATENCY] * luck)


@njit()
def _arrives(line, done, p, tags, ready):
    """The L1 line is not there before `done`."""
    ways = int(p[L1_WAYS])
    sets = max(int(p[L1_SECTORS]) // (4 * ways), 1)
    base = int((line ^ (line >> 7) ^ (line >> 15)) % sets) * ways
    for w in range(base, base + ways):
        if tags[w] == line:
            ready[w] = max(ready[w], done)
            return


@njit()
def store_at_l2(line, mask, partial, start, servers, p, view):
    """After `memory_path.store`, accepted at `start` if L2 has room: returns when the chip's L2 accepts it."""
    if line >= LOCAL_LINE:
        return start
    # L2 holds so many sectors that wait to be written back; beyond, stores wait for DRAM
    late = servers[DRAM_FREE] - p[WRITE_BACK_CYCLES]
    if late > start:
        w = find(line, view)
        if w < 0 or mask & ~view.valid[w] != 0:
            start = late
            servers[LAST_STORE] = max(servers[LAST_STORE], start)
    _note(line, mask, PARTIAL_WRITE if partial else WRITE, start, 0.0, view)
    return start


@njit()
def atomic_at_l2(line, mask, multiplicity, floating, done, servers, p, view):
    """After `memory_path.atomic` for a line nobody else uses, done at `done`: returns when it is really done.

    All SMs' requests to one line wait for each other; at most `multiplicity` lanes of this one share a word.
    """
    arrival = done - p[ATOMIC_LATENCY]
    w = find(line, view)
    if w >= 0 and view.atomic_free[w] > arrival:
        done += view.atomic_free[w] - arrival
        servers[LG_FREE] = max(servers[LG_FREE], view.atomic_free[w] - ATOMIC_QUEUE_CYCLES)
    if w < 0 or mask & ~view.valid[w] != 0:
        begin = shared_slot(DRAM_FREE, arrival, popcount4(mask) * p[DRAM_CYCLES_PER_SECTOR], servers, p)
        done = max(done, _dram_answer(line, arrival, begin, servers, p) + p[ATOMIC_LATENCY] - p[L2_LATENCY])
    _note(line, mask, ATOMIC, arrival, -float(multiplicity) if floating else float(multiplicity), view)
    return done
