"""Tracers: called by the counting and tracing loops behind a memory instruction, with the addresses it left in scratch.

They count what Nsight Compute's source page counts and, in traces, list the lines and sectors touched. Rules, each
checked against profiles of an H200 (column names are Nsight's):

- "L1 Tag Requests Global": distinct 128-byte lines of the instruction. "L2 Theoretical Sectors Global": distinct
  32-byte sectors; the ideal is what the lanes' bytes would fill if packed, at most that.
- "L1 Wavefronts Shared": the lanes are taken in groups, and a group needs as many passes as the most distinct words it
  touches in one of the 32 banks. A group is the warp for up to 32 bits, a half-warp for 64, a quarter-warp for 128
  bits. Loads of 64 bits need one group for the warp, and of 128 bits one for a half-warp, when lanes i and i ^ 1 (or
  i and i ^ 2) of it all read the same address. The ideal is one pass a group.
"""

from __future__ import annotations

from functools import partial

import llvmlite.ir as ir

from interpreter.backends.layout import LANES, PATTERN, M, P, R, W
from interpreter.backends.llvm_code import INT32, INT64, PTR, V32, V64, VOID, Code, Variable
from interpreter.backends.llvm_control import GENERATORS
from interpreter.backends.llvm_memory import WINDOW_BYTES
from interpreter.backends.llvm_scheduler import TRACER, _count
from interpreter.isa import registry
from interpreter.isa.pipes import MemoryKind
from interpreter.program import Instruction
from interpreter.trace import COUNTS, LOCAL_LINE

KINDS = {
    MemoryKind.LOAD_GLOBAL: "global_load",
    MemoryKind.STORE_GLOBAL: "global",
    MemoryKind.ATOMIC_GLOBAL: "atomic",
    MemoryKind.REDUCE_GLOBAL: "atomic",
    MemoryKind.LOAD_SHARED: "shared_load",
    MemoryKind.STORE_SHARED: "shared_store",
    MemoryKind.ATOMIC_SHARED: "shared_atomic",
    MemoryKind.LOAD_LOCAL: "local",
    MemoryKind.STORE_LOCAL: "local",
    MemoryKind.COPY_ASYNC: "copy",
}


def tracer_of(i: Instruction, sm: int) -> tuple[str, int] | None:
    """(runtime function, bytes a lane) that traces an instruction, or None."""
    timing = registry.timing_of(i, sm)
    if timing.memory not in KINDS:
        return None
    kind = KINDS[timing.memory]
    if i.opcode in ("LDSM", "STSM"):
        return "rt_trace_matrix", timing.width
    if i.opcode in ("LD", "ST", "ATOM"):
        return f"rt_trace_generic_{kind}", timing.width
    return f"rt_trace_{kind}", timing.width


def _width(c: Code) -> ir.Value:
    return c.load(INT32, c.args[1], R["width"])


def _pattern(c: Code, which: int) -> ir.Value:
    """The row's PATTERN record: 0 for its global side, 1 for its shared side."""
    machine = c.load(PTR, c.args[0], W["machine"])
    base = c.load(PTR, machine, M["patterns"])
    row = c.b.zext(c.args[2], INT64)
    return c.at(base, c.b.add(c.b.mul(row, c.i64(2 * PATTERN.itemsize)), c.i64(which * PATTERN.itemsize)))


def _counts(c: Code) -> ir.Value:
    machine = c.load(PTR, c.args[0], W["machine"])
    base = c.load(PTR, machine, M["counts"])
    return c.at(base, c.b.mul(c.b.zext(c.args[2], INT64), c.i64(COUNTS.itemsize)))


def _add_aux(c: Code, bits: ir.Value) -> None:
    w = c.args[0]
    c.store(c.b.add(c.load(INT32, w, W["aux"]), bits), w, W["aux"])


def _first_address(c: Code, area: int, bits: ir.Value) -> ir.Value:
    lane = c.b.zext(c.ctz(bits), INT64)
    return c.b.load(c.at(c.at(c.args[0], area), c.b.shl(lane, c.i64(3))), typ=INT64)


def _same_pattern(c: Code, pattern: ir.Value, relative: ir.Value, bits: ir.Value) -> ir.Value:
    known = c.load(V32, pattern, P["relative"], align=64)
    differs = c.b.and_(c.bits(c.b.icmp_unsigned("!=", known, relative)), bits)
    return c.b.and_(
        c.b.icmp_unsigned("==", differs, c.i32(0)),
        c.b.icmp_unsigned("==", c.load(INT32, pattern, P["lanes"]), bits),
    )


def _append_line(c: Code, at: Variable, entry: ir.Value) -> None:
    c.b.store(entry, c.pointer(at.get()), align=8)
    at.set(c.b.add(at.get(), c.i64(8)))


def _global_side(c: Code, bits: ir.Value, area: int, kind: str = "") -> None:
    """Lines and sectors of the lanes in `bits`, addresses in `area`, and as the instruction's wavefronts, for the kinds
    "load" the passes through L1's banks, for "atomic" the most lanes on one address.
    """
    b = c.b
    w = c.args[0]
    address = c.load(V64, w, area, align=128)
    width = _width(c)
    first = b.and_(_first_address(c, area, bits), c.i64(~127))
    far = b.sub(address, c.splat(first))
    relative = b.trunc(far, V32)
    pattern = _pattern(c, 0)
    near = b.icmp_unsigned("==", b.sext(relative, V64), far)
    fits = b.icmp_unsigned("==", b.and_(c.bits(b.not_(near)), bits), c.i32(0))
    hit = b.and_(_same_pattern(c, pattern, relative, bits), fits)
    with c.when(b.not_(hit)):
        c.store(b.select(fits, bits, c.i32(0)), pattern, P["lanes"])
        c.store(relative, pattern, P["relative"], align=64)
        _find_lines(c, bits, area, first, width, pattern)
        if kind == "atomic":
            _find_most(c, bits, pattern)
        elif kind == "load":
            # the banks are those of shared memory, but lanes that read in pairs save nothing
            c.store(_passes(c, bits, "global")[0].get(), pattern, P["wavefronts"])
    count = c.load(INT32, pattern, P["count"])
    counts = _counts(c)
    _count(c, counts, "l1_tag_requests_global", b.zext(count, INT64))
    _count(c, counts, "l2_theoretical_sectors_global", b.zext(c.load(INT32, pattern, P["sectors"]), INT64))
    _count(c, counts, "l2_theoretical_sectors_global_ideal", b.zext(c.load(INT32, pattern, P["ideal"]), INT64))
    lines = c.load(INT64, w, W["lines"])
    with c.when(b.icmp_unsigned("!=", lines, c.i64(0))):
        at = c.variable(lines)
        k = c.variable(c.i64(0))
        base = b.lshr(first, c.i64(3))  # (line number << 4)
        total = b.zext(count, INT64)
        with c.loop(lambda: b.icmp_unsigned("<", k.get(), total)):
            entry = c.load(INT64, c.at(pattern, P["entries"]), b.shl(k.get(), c.i64(3)))
            k.set(b.add(k.get(), c.i64(1)))
            _append_line(c, at, b.add(entry, base))
        c.store(at.get(), w, W["lines"])
        _add_aux(c, b.shl(count, c.i32(16)))
    if kind:
        _add_aux(c, b.shl(c.load(INT32, pattern, P["wavefronts"]), c.i32(8)))


def _find_lines(
    c: Code, bits: ir.Value, area: int, first: ir.Value, width: ir.Value, pattern: ir.Value
) -> None:
    """Work out a pattern: distinct lines in the order met, with their sector masks."""
    b = c.b
    w = c.args[0]
    entries = c.at(pattern, P["entries"])
    count = c.variable(c.i64(0))
    with c.lanes_of(bits) as lane:
        address = b.load(c.at(c.at(w, area), b.shl(b.zext(lane, INT64), c.i64(3))), typ=INT64)
        offset = b.sub(address, first)
        line = b.ashr(offset, c.i64(7))
        # sectors from the first to the last byte
        low = b.and_(b.lshr(address, c.i64(5)), c.i64(3))
        last = b.add(address, b.zext(b.sub(width, c.i32(1)), INT64))
        high = b.and_(b.lshr(last, c.i64(5)), c.i64(3))
        mask = b.sub(b.shl(c.i64(2), high), b.shl(c.i64(1), low))
        k = c.variable(count.get())
        found = c.variable(c.i64(-1))
        with c.loop(
            lambda: b.and_(
                b.icmp_unsigned("!=", k.get(), c.i64(0)), b.icmp_unsigned("==", found.get(), c.i64(-1))
            )
        ):
            k.set(b.sub(k.get(), c.i64(1)))
            known = b.ashr(c.load(INT64, entries, b.shl(k.get(), c.i64(3))), c.i64(4))
            found.set(b.select(b.icmp_unsigned("==", known, line), k.get(), c.i64(-1)))
        fresh = b.icmp_unsigned("==", found.get(), c.i64(-1))
        place = b.shl(b.select(fresh, count.get(), found.get()), c.i64(3))
        old = b.select(fresh, b.shl(line, c.i64(4)), c.load(INT64, entries, place))
        c.store(b.or_(old, mask), entries, place)
        count.set(b.add(count.get(), b.zext(fresh, INT64)))
    sectors = c.variable(c.i32(0))
    k = c.variable(c.i64(0))
    with c.loop(lambda: b.icmp_unsigned("<", k.get(), count.get())):
        entry = c.load(INT64, entries, b.shl(k.get(), c.i64(3)))
        sectors.set(b.add(sectors.get(), b.trunc(c.popcount(b.and_(entry, c.i64(15))), INT32)))
        k.set(b.add(k.get(), c.i64(1)))
    packed = b.lshr(b.add(b.mul(c.popcount(bits), width), c.i32(31)), c.i32(5))
    touched = sectors.get()
    c.store(b.trunc(count.get(), INT32), pattern, P["count"])
    c.store(touched, pattern, P["sectors"])
    c.store(b.select(b.icmp_unsigned("<", packed, touched), packed, touched), pattern, P["ideal"])


def _tracer(name: str, module: ir.Module) -> Code:
    c = Code(module, name, TRACER)
    with c.when(c.b.icmp_unsigned("==", c.args[3], c.i32(0))):
        c.b.ret_void()
    return c


def _end(c: Code) -> set[str]:
    c.b.ret_void()
    c.finish()
    return c.needs


def _trace_global(module: ir.Module, name: str, kind: str = "") -> set[str]:
    c = _tracer(name, module)
    _global_side(c, c.args[3], W["address"], kind)
    return _end(c)


def _trace_atomic(module: ir.Module, name: str) -> set[str]:
    """As a global access; wavefronts = the most lanes on one address."""
    c = _tracer(name, module)
    bits = c.args[3]
    _global_side(c, bits, W["address"], "atomic")
    return _end(c)


def _find_most(c: Code, bits: ir.Value, pattern: ir.Value) -> None:
    b = c.b
    address = c.load(V64, c.args[0], W["address"], align=128)
    left = c.variable(bits)
    most = c.variable(c.i32(0))
    with c.loop(lambda: b.icmp_unsigned("!=", left.get(), c.i32(0))):
        one = _first_address(c, W["address"], left.get())
        same = b.and_(c.bits(b.icmp_unsigned("==", address, c.splat(one))), bits)
        left.set(b.and_(left.get(), b.not_(same)))
        lanes = c.popcount(same)
        most.set(b.select(b.icmp_unsigned(">", lanes, most.get()), lanes, most.get()))
    c.store(most.get(), pattern, P["wavefronts"])


# ------------------------------------------------------------------ shared memory


def _group_passes(module: ir.Module, name: str) -> set[str]:
    """(warp, lanes, words) -> passes of one group: the most distinct words in one bank. Addresses in `address`."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, INT32, INT32]))
    b = c.b
    w, bits, words = c.args
    with c.when(b.icmp_unsigned("==", bits, c.i32(0))):
        b.ret(c.i32(0))
    counts = c.buffer(4 * 32)
    seen = c.buffer(4 * 32 * LANES)
    for k in range(2):
        c.store(ir.Constant(ir.VectorType(INT32, 16), None), counts, 64 * k, align=64)
    most = c.variable(c.i32(1))
    previous = c.variable(c.i64(-1))
    with c.lanes_of(bits) as lane:
        address = b.load(c.at(c.at(w, W["address"]), b.shl(b.zext(lane, INT64), c.i64(3))), typ=INT64)
        with c.when(b.icmp_unsigned("!=", address, previous.get())):
            previous.set(address)
            start = b.trunc(b.lshr(address, c.i64(2)), INT32)
            n = c.variable(c.i32(0))
            with c.loop(lambda: b.icmp_unsigned("<", n.get(), words)):
                word = b.add(start, n.get())
                n.set(b.add(n.get(), c.i32(1)))
                bank = b.zext(b.and_(word, c.i32(31)), INT64)
                count = c.load(INT32, counts, b.shl(bank, c.i64(2)))
                row = b.shl(bank, c.i64(7))
                place = c.variable(c.i32(0))
                with c.loop(partial(_another, c, place, count, c.at(seen, row), word)):
                    place.set(b.add(place.get(), c.i32(1)))
                with c.when(b.icmp_unsigned("==", place.get(), count)):
                    c.store(word, seen, b.add(row, b.shl(b.zext(count, INT64), c.i64(2))))
                    more = b.add(count, c.i32(1))
                    c.store(more, counts, b.shl(bank, c.i64(2)))
                    most.set(b.select(b.icmp_unsigned(">", more, most.get()), more, most.get()))
    b.ret(most.get())
    c.finish()
    return c.needs


def _below(c: Code, n: Variable, end: ir.Value) -> ir.Value:
    return c.b.icmp_unsigned("<", n.get(), end)


def _another(c: Code, place: Variable, count: ir.Value, words: ir.Value, word: ir.Value) -> ir.Value:
    """True while `place` is one of `count` words and that one is not `word`."""
    known = c.load(INT32, words, c.b.shl(c.b.zext(place.get(), INT64), c.i64(2)))
    return c.b.and_(_below(c, place, count), c.b.icmp_unsigned("!=", known, word))


def _paired(c: Code, address: ir.Value, bits: ir.Value) -> ir.Value:
    """True when all lanes of `bits` read where lane i ^ 1 does, or all where i ^ 2 does (inactive lanes agree)."""
    b = c.b
    result: ir.Value | None = None
    for step in (1, 2):
        other = c.shuffle(address, address, [lane ^ step for lane in range(LANES)])
        both = _swap_bits(c, bits, step)
        differ = b.and_(b.and_(c.bits(b.icmp_unsigned("!=", address, other)), bits), both)
        good = b.icmp_unsigned("==", differ, c.i32(0))
        result = good if result is None else b.or_(result, good)
    assert result is not None
    return result


def _swap_bits(c: Code, bits: ir.Value, step: int) -> ir.Value:
    """Bit l of the result is bit l ^ step of `bits`."""
    even = sum(1 << lane for lane in range(LANES) if not lane & step)
    low = c.b.shl(c.b.and_(bits, c.i32(even)), c.i32(step))
    return c.b.or_(low, c.b.and_(c.b.lshr(bits, c.i32(step)), c.i32(even)))


def _shared_side(c: Code, bits: ir.Value, kind: str) -> None:
    """Passes of a shared access by the lanes in `bits`. `kind`: load, store, atomic or matrix."""
    b = c.b
    w = c.args[0]
    address = c.load(V64, w, W["address"], align=128)
    first = _first_address(c, W["address"], bits)
    relative = b.trunc(b.sub(address, c.splat(first)), V32)
    pattern = _pattern(c, 1)
    hit = _same_pattern(c, pattern, relative, bits)
    with c.when(b.not_(hit)):
        c.store(bits, pattern, P["lanes"])
        c.store(relative, pattern, P["relative"], align=64)
        passes, groups = _passes(c, bits, kind)
        c.store(passes.get(), pattern, P["count"])
        c.store(groups.get(), pattern, P["ideal"])
    counts = _counts(c)
    count = c.load(INT32, pattern, P["count"])
    _count(c, counts, "l1_wavefronts_shared", b.zext(count, INT64))
    _count(c, counts, "l1_wavefronts_shared_ideal", b.zext(c.load(INT32, pattern, P["ideal"]), INT64))
    _add_aux(c, b.shl(count, c.i32(8)))


def _passes(c: Code, bits: ir.Value, kind: str) -> tuple[Variable, Variable]:
    """Passes of the lanes in `bits` through the banks, and the groups they are split into. Addresses in `address`."""
    b = c.b
    w = c.args[0]
    address = c.load(V64, w, W["address"], align=128)
    passes = c.variable(c.i32(0))
    groups = c.variable(c.i32(0))

    def group(lanes: int, words: int, within: ir.Value = bits) -> None:
        part = b.and_(within, c.i32(lanes))
        n = c.call("rt_group_passes", INT32, [w, part, c.i32(words)])
        passes.set(b.add(passes.get(), n))
        groups.set(b.add(groups.get(), b.zext(b.icmp_unsigned("!=", part, c.i32(0)), INT32)))

    if kind == "matrix":  # each matrix is a quarter-warp of 16-byte rows
        for k in range(4):
            group(0xFF << 8 * k, 4)
    else:
        width = _width(c)
        with b.if_else(b.icmp_unsigned("<=", width, c.i32(4))) as (narrow, wide):
            with narrow:
                group(0xFFFFFFFF, 1)
            with wide, b.if_else(b.icmp_unsigned("==", width, c.i32(8))) as (eight, sixteen):
                with eight:
                    _two_or_one(c, address, bits, kind, 0xFFFF, 0xFFFF0000, 2, group)
                with sixteen:
                    for half in (0, 16):
                        _two_or_one(c, address, bits, kind, 0xFF << half, 0xFF00 << half, 4, group)
    return passes, groups


def _two_or_one(c: Code, address: ir.Value, bits: ir.Value, kind: str, low: int, high: int, words: int, group) -> None:  # type: ignore[no-untyped-def]
    """Two groups of lanes, or for loads one if their lanes read in pairs."""
    if kind != "load":
        group(low, words)
        group(high, words)
        return
    with c.b.if_else(_paired(c, address, c.b.and_(bits, c.i32(low | high)))) as (one, two):
        with one:
            group(low | high, words)
        with two:
            group(low, words)
            group(high, words)


def _trace_shared(module: ir.Module, name: str, kind: str) -> set[str]:
    c = _tracer(name, module)
    _shared_side(c, c.args[3], kind)
    return _end(c)


def _trace_matrix(module: ir.Module, name: str) -> set[str]:
    """LDSM and STSM: lanes 0 .. 8 * matrices - 1 give addresses, whoever is active."""
    c = _tracer(name, module)
    givers = c.b.sub(c.b.shl(c.i64(1), c.b.zext(c.b.shl(_width(c), c.i32(1)), INT64)), c.i64(1))
    _shared_side(c, c.b.trunc(givers, INT32), "matrix")
    return _end(c)


def _trace_copy(module: ir.Module, name: str) -> set[str]:
    """LDGSTS: `copy_lanes` read the global addresses in `extra`, `copy_stores` wrote the shared ones in `address`."""
    c = _tracer(name, module)
    b = c.b
    w = c.args[0]
    readers = c.load(INT32, w, W["copy_lanes"])
    with c.when(b.icmp_unsigned("!=", readers, c.i32(0))):
        _global_side(c, readers, W["extra"])
    writers = c.load(INT32, w, W["copy_stores"])
    with c.when(b.icmp_unsigned("!=", writers, c.i32(0))):
        _shared_side(c, writers, "store")
    return _end(c)


# ------------------------------------------------------------------ local and generic


def _trace_local(module: ir.Module, name: str) -> set[str]:
    """Word o / 4 of all lanes is one line of the warp; a lane's word lies in sector lane / 8."""
    c = _tracer(name, module)
    b = c.b
    w = c.args[0]
    bits = c.args[3]
    lines = c.load(INT64, w, W["lines"])
    with c.when(b.icmp_unsigned("==", lines, c.i64(0))):
        b.ret_void()
    words = b.lshr(b.add(_width(c), c.i32(3)), c.i32(2))
    at = c.variable(lines)
    address = c.load(V64, w, W["address"], align=128)
    word_of = b.lshr(address, c.splat(c.i64(2)))
    left = c.variable(bits)
    with c.loop(lambda: b.icmp_unsigned("!=", left.get(), c.i32(0))):
        word = b.lshr(_first_address(c, W["address"], left.get()), c.i64(2))
        same = b.and_(c.bits(b.icmp_unsigned("==", word_of, c.splat(word))), left.get())
        left.set(b.and_(left.get(), b.not_(same)))
        mask = c.i64(0)
        for sector in range(4):
            some = b.icmp_unsigned("!=", b.and_(same, c.i32(0xFF << 8 * sector)), c.i32(0))
            mask = b.or_(mask, b.select(some, c.i64(1 << sector), c.i64(0)))
        n = c.variable(c.i32(0))
        with c.loop(partial(_below, c, n, words)):
            line = b.add(word, b.zext(n.get(), INT64))
            entry = b.or_(b.shl(b.add(line, c.i64(LOCAL_LINE)), c.i64(4)), mask)
            _append_line(c, at, entry)
            n.set(b.add(n.get(), c.i32(1)))
    c.store(at.get(), w, W["lines"])
    added = b.trunc(b.lshr(b.sub(at.get(), lines), c.i64(3)), INT32)
    _add_aux(c, b.shl(added, c.i32(16)))
    return _end(c)


def _trace_generic(module: ir.Module, name: str, kind: str) -> set[str]:
    """Lanes in the shared or local window count there, the others as `kind`."""
    c = _tracer(name, module)
    b = c.b
    w, row, pc, bits = c.args
    machine = c.load(PTR, w, W["machine"])
    address = c.load(V64, w, W["address"], align=128)
    left = bits
    for space, function in (("shared", "rt_trace_shared_store"), ("local", "rt_trace_local")):
        window = c.splat(c.load(INT64, machine, M[f"{space}_window"]))
        inside = b.icmp_unsigned("<", b.sub(address, window), c.splat(c.i64(WINDOW_BYTES)))
        lanes = b.and_(c.bits(inside), left)
        left = b.and_(left, b.not_(lanes))
        with c.when(b.icmp_unsigned("!=", lanes, c.i32(0))):
            c.store(b.sub(address, window), w, W["address"], align=128)
            c.call(function, VOID, [w, row, pc, lanes])
            c.store(address, w, W["address"], align=128)
    c.call(f"rt_trace_{kind}", VOID, [w, row, pc, left])
    return _end(c)


GENERATORS["rt_group_passes"] = _group_passes
GENERATORS["rt_trace_global"] = _trace_global
GENERATORS["rt_trace_global_load"] = partial(_trace_global, kind="load")
GENERATORS["rt_trace_atomic"] = _trace_atomic
GENERATORS["rt_trace_matrix"] = _trace_matrix
GENERATORS["rt_trace_copy"] = _trace_copy
GENERATORS["rt_trace_local"] = _trace_local
for _kind in ("load", "store", "atomic"):
    GENERATORS[f"rt_trace_shared_{_kind}"] = partial(_trace_shared, kind=_kind)
for _kind in ("global", "global_load", "atomic"):
    GENERATORS[f"rt_trace_generic_{_kind}"] = partial(_trace_generic, kind=_kind)
