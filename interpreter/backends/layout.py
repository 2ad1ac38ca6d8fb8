"""Byte layout of the structures shared by Python and compiled handlers: warp, CTA, machine and decoded row.

A warp is one block of memory: a header with predicates, masks and scratch, then the register file, uint32[rows, 32].
All numbers are bytes unless said.
"""

from __future__ import annotations

import numpy as np

LANES = 32
ROW_BYTES = LANES * 4

# ------------------------------------------------------------------ warp header
_warp_fields: list[tuple[str, str, int] | tuple[str, str]] = [
    ("preds", "<u4", 8),  # P0..P6 lane masks; slot 7 is PT, all ones
    ("upreds", "<u4", 8),  # UP0..UP6, each all ones or zero; slot 7 is UPT
    ("pred_sink", "<u4"),  # where writes to PT go
    ("active", "<u4"),  # lanes of the running group
    ("live", "<u4"),  # lanes that have not exited
    ("blocked", "<u4"),  # lanes waiting at a convergence point or CTA barrier (see `wait`)
    ("pc", "<i4"),  # row to resume at
    ("aux", "<u4"),  # trace: wavefronts << 8 | lines << 16 of the instruction just executed
    ("status", "<u4"),  # one of READY, AT_BARRIER, DONE
    ("barrier", "<u4"),  # named barrier waited for
    ("expected", "<u4"),  # threads that barrier needs; 0: all of the CTA
    ("barrier_pc", "<i4"),  # row of the last BAR, for messages
    ("barrier_op", "<u4"),  # 0 SYNC, 1 ARV, 2 RED.POPC, 3 RED.AND, 4 RED.OR
    ("barrier_bits", "<u4"),  # lanes whose predicate was true at BAR.RED
    ("barrier_result", "<u4"),  # what B2R.RESULT reads
    ("arrivals", "<u4"),  # lanes waiting at the barrier (for BAR.RED.AND)
    ("leader", "<u4"),  # lowest lane of the running group: groups take turns from there
    ("diverged", "<u4"),  # divergent branches taken, for the counter of the row that took them
    ("fault_lane", "<i4"),
    ("fault_space", "<u4"),  # FAULT_* below
    ("shared", "<u8"),  # host address of shared memory byte 0
    ("local", "<u8"),  # host address of this warp's local memory, uint32[words, 32]
    ("machine", "<u8"),  # host address of the machine structure
    ("issued", "<u8"),  # warp instructions issued so far
    ("turn_end", "<u8"),  # value of `issued` at which the warp's turn ends; 0 between turns
    ("events", "<u8"),  # next trace event; host address
    ("events_end", "<u8"),
    ("lines", "<u8"),  # next trace line; host address
    ("lines_end", "<u8"),
    ("shared_bytes", "<u4"),
    ("local_bytes", "<u4"),  # per thread
    ("warp", "<u4"),  # number within the CTA
    ("copy_lanes", "<u4"),  # lanes whose asynchronous copy read global memory (addresses are in `extra`)
    ("copy_stores", "<u4"),  # lanes that wrote its destination
    ("yielded", "<u4"),  # lanes that executed YIELD since they last met others
]
_offset = 0
_names: list[str] = []
_formats: list[object] = []
_offsets: list[int] = []
for _name, _type, *_more in _warp_fields:
    _count = _more[0] if _more else 1
    _align = int(_type[2])
    _offset = -(-_offset // _align) * _align
    _names.append(_name)
    _formats.append((_type, (_count,)) if _more else _type)
    _offsets.append(_offset)
    _offset += _align * _count
assert _offset <= 384
for _name, _format, _at in (
    ("pcs", ("<i4", (LANES,)), 384),  # row each lane stands at; valid for lanes outside the running group
    ("wait", ("<i4", (LANES,)), 512),  # of blocked lanes: byte offset of the mask row waited on, or -1 - barrier
    ("address", ("<u8", (LANES,)), 640),  # scratch: addresses of the memory instruction being executed
    ("data", ("<u4", (8, LANES)), 896),  # scratch: data in or out, row r = word r of each lane
    ("extra", ("<u4", (8, LANES)), 1920),  # scratch: second operand (CAS), or copied-in bytes
):
    _names.append(_name)
    _formats.append(_format)
    _offsets.append(_at)
WARP_HEADER = 2944 + 128  # a multiple of 128: rows are aligned to their size
WARP = np.dtype({"names": _names, "formats": _formats, "offsets": _offsets, "itemsize": WARP_HEADER})
W = {name: WARP.fields[name][1] for name in _names}  # type: ignore[index]

READY, AT_BARRIER, DONE = 0, 1, 2
FAULT_GLOBAL, FAULT_SHARED, FAULT_LOCAL, FAULT_CONSTANT, FAULT_TRAP, FAULT_BARRIER, FAULT_TARGET = 1, 2, 3, 4, 5, 6, 7

# ------------------------------------------------------------------ machine
MACHINE = np.dtype(
    [
        ("delta", "<u8"),  # host address of a global byte = guest address + delta
        ("bases", "<u8"),  # uint64[allocations], ascending guest addresses
        ("sizes", "<u8"),  # uint64[allocations], bytes
        ("allocations", "<u8"),  # count
        ("counts", "<u8"),  # COUNTS rows, or 0
        ("shared_window", "<u8"),  # generic address of shared byte 0
        ("local_window", "<u8"),  # generic address of local byte 0
        ("banks", "<u8", (8,)),  # host address of constant bank n
        ("bank_bytes", "<u8", (8,)),
        ("rows", "<u8"),  # decoded rows
        ("row_count", "<u8"),
        ("patterns", "<u8"),  # PATTERN records, two a row
        ("quantum", "<i8"),  # instructions a warp may issue before others get a turn
        ("budget", "<i8"),  # instructions a warp may issue in all
    ]
)
M = {name: MACHINE.fields[name][1] for name in MACHINE.names}  # type: ignore[index,union-attr]

# ------------------------------------------------------------------ CTA
CTA = np.dtype(
    [
        ("warps", "<u8"),  # host address of warp 0
        ("stride", "<u8"),  # bytes from one warp to the next
        ("count", "<u4"),
        ("done", "<u4"),  # warps that have exited
        ("warp", "<u4"),  # warp the last event is about
        ("resume", "<u4"),  # warp whose turn was interrupted by a full trace buffer
        ("arrived", "<u4", (16,)),  # threads arrived at each named barrier
        ("expected", "<u4", (16,)),  # threads it needs, 0: all
        ("popc", "<u4", (16,)),
        ("all", "<u4", (16,)),  # 0 when some arriving thread's predicate was false
    ]
)
C = {name: CTA.fields[name][1] for name in CTA.names}  # type: ignore[index,union-attr]

# ------------------------------------------------------------------ decoded row
FIELDS = 20
ROW = np.dtype(
    [
        ("handler", "<u8"),
        ("tracer", "<u8"),  # called after the handler in traced loops, or 0
        ("low", "<u8"),  # guest address of the allocation this row touched last
        ("limit", "<u8"),  # its size less the access width; addresses up to low + limit are good
        ("guard", "<i4"),  # byte offset of the guard predicate in the warp
        ("guard_invert", "<u4"),  # all ones for @!P
        ("fields", "<i4", (FIELDS,)),  # operand fields, as the form's recipes fill them
        ("width", "<u4"),  # of a memory instruction, bytes a lane, for the tracer
        ("pad", "<u4"),
    ]
)
assert ROW.itemsize == 128, ROW.itemsize
R = {name: ROW.fields[name][1] for name in ROW.names}  # type: ignore[index,union-attr]

# What a traced memory instruction did last time, so that the same pattern of addresses need not be worked out again.
# Global: relative to the first lane's line. Shared: relative to the first lane's address, since bank conflicts do not
# change when all addresses move by the same number of words.
PATTERN = np.dtype(
    [
        ("relative", "<i4", (LANES,)),
        ("lanes", "<u4"),  # 0: nothing yet
        ("count", "<u4"),  # lines, or shared passes
        ("sectors", "<u4"),
        ("ideal", "<u4"),  # sectors, or passes
        ("entries", "<i8", (LANES,)),  # line relative to the first lane's << 4 | sector mask
        ("wavefronts", "<u4"),  # global atomics: most lanes on one address; loads: passes through L1's banks
        ("pad", "<u4", (27,)),
    ]
)
assert PATTERN.itemsize == 512, PATTERN.itemsize
P = {name: PATTERN.fields[name][1] for name in PATTERN.names}  # type: ignore[index,union-attr]

# What a handler returns instead of the next row: an event that ends the warp's turn.
EVENT_EXIT = -1  # all lanes have exited
EVENT_BARRIER = -2  # no lane can go on before a CTA barrier completes
EVENT_FAULT = -3
EVENT_YIELD = -4  # give others a turn; resume at warp.pc
EVENT_DEADLOCK = -5  # lanes wait for each other
EVENT_ARRIVE = -6  # BAR.ARV: counted, then the warp goes on
EVENT_FULL = -7  # trace buffer full; resume at warp.pc
EVENT_BUDGET = -8
EVENT_QUANTUM = -9
CTA_DONE = 1
CTA_STUCK = 2
