"""What a traced run leaves for the timing model: one event an issued warp instruction, in issue order.

A trace holds whole CTAs. For warp w of CTA c (both counted within the trace) the events are
`events[warp_start[k]:warp_start[k + 1]]` with k = c * warps_per_cta + w, and its memory entries, in the same order,
`lines[line_start[k]:line_start[k + 1]]`; an event with `lines` = n consumes the next n of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EVENT = np.dtype(
    [
        ("row", "<u4"),  # instruction, index into Program.instructions
        ("lanes", "u1"),  # lanes that executed it: active and guard true (0: predicated off everywhere)
        # passes of shared accesses and global loads through the banks; global atomics: most lanes on one address
        ("wavefronts", "u1"),
        ("lines", "<u2"),  # entries this event has in `lines`
    ]
)

# An entry of `lines`: (128-byte line number << 4) | mask of the 32-byte sectors touched in it.
# Global lines are guest address >> 7. Local memory uses line number LOCAL_LINE + thread-interleaved line of the warp:
# the word at byte offset o of a thread's local memory lies in line o // 4 of its warp, so a 32-bit access by all lanes
# is one line; the timing model adds the warp's place.
LOCAL_LINE = 1 << 50

# Columns of Counts, one row an instruction; names are those of Nsight Compute's source page.
COUNTERS = (
    "instructions_executed",  # warps that issued it
    "thread_instructions_executed",  # lanes active, guard true or not
    "predicated_on_thread_instructions_executed",  # lanes active with guard true
    "divergent_branches",
    "l1_tag_requests_global",
    "l1_wavefronts_shared",
    "l1_wavefronts_shared_ideal",
    "l2_theoretical_sectors_global",
    "l2_theoretical_sectors_global_ideal",
)
COUNTS = np.dtype([(name, "<u8") for name in COUNTERS])


@dataclass(slots=True)
class Trace:
    """Events of `ctas` (linear CTA numbers, x fastest), each with `warps_per_cta` warps."""

    ctas: list[int]
    warps_per_cta: int
    events: np.ndarray  # EVENT
    warp_start: np.ndarray  # int64, len(ctas) * warps_per_cta + 1
    lines: np.ndarray  # uint64
    line_start: np.ndarray  # int64, len(ctas) * warps_per_cta + 1


@dataclass(slots=True)
class RunResult:
    """What `Machine.run` returns. `counts` (dtype COUNTS, one row an instruction) in modes "count" and "trace"."""

    warp_instructions: int
    counts: np.ndarray | None = None
    trace: Trace | None = None
