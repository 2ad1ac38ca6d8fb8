"""Instruction fetch: an L0 cache per sub-core with a stream prefetcher, the SM's L1 instruction cache, L2 behind it."""

from __future__ import annotations

from timing import sm_parameters as sp
from timing.jit import njit

SUB_CORES = 4
LINE_ROWS = 8  # instructions in a 128-byte line
L1I_PORT = SUB_CORES  # indices into `free` behind the sub-cores' own fetch ports
L2I_PORT = SUB_CORES + 1
N_PORTS = SUB_CORES + 2


@njit()
def fetch_line(line, t, s, p, l0_tag, l0_ready, l1i_tag, l1i_ready, free):
    """Bring code line `line` to sub-core `s`, asked for at `t`; returns the cycle it can be decoded from."""
    i0 = line % l0_tag.shape[1]
    if l0_tag[s, i0] == line:
        return l0_ready[s, i0]
    begin = max(t, free[s])
    free[s] = begin + p[sp.L1I_INTERVAL]
    i1 = line % l1i_tag.shape[0]
    if l1i_tag[i1] == line:
        start = max(begin, free[L1I_PORT], l1i_ready[i1])
        free[L1I_PORT] = max(begin, free[L1I_PORT]) + p[sp.L1I_SHARED_INTERVAL]
        ready = start + p[sp.L1I_LATENCY]
    else:
        start = max(begin, free[L2I_PORT])
        free[L2I_PORT] = start + p[sp.L2I_INTERVAL]
        l1i_tag[i1] = line
        l1i_ready[i1] = start + p[sp.L2I_LATENCY]
        ready = l1i_ready[i1] + p[sp.L1I_LATENCY]
    l0_tag[s, i0] = line
    l0_ready[s, i0] = ready
    return ready


@njit()
def fetch_stream(line, t, s, n_lines, p, l0_tag, l0_ready, l1i_tag, l1i_ready, free):
    """Fetch `line` and keep the stream buffer ahead of it; returns when `line` can be decoded."""
    ready = fetch_line(line, t, s, p, l0_tag, l0_ready, l1i_tag, l1i_ready, free)
    for ahead in range(1, int(p[sp.STREAM_LINES]) + 1):
        following = line + ahead
        if following >= n_lines:
            break
        if l0_tag[s, following % l0_tag.shape[1]] != following:
            fetch_line(following, t, s, p, l0_tag, l0_ready, l1i_tag, l1i_ready, free)
    return ready
