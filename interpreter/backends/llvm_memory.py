"""Runtime functions for memory: checked loads, stores and atomics of 32 lanes.

Each takes (warp, row, pc, lanes) and returns 0, or 1 after recording a fault. Addresses are in the warp's `address`
scratch (u64), data in `data` (row r = word r of each lane), a second operand in `extra`.

Global addresses are checked against the allocation the instruction touched last (kept in its row); only when some lane
is outside it are the allocations searched. A run of lanes over consecutive addresses is one vector access.
"""

from __future__ import annotations

from functools import partial

import llvmlite.ir as ir

from interpreter.backends import layout
from interpreter.backends.layout import LANES, M, R, W
from interpreter.backends.llvm_code import (
    I1,
    I8,
    I16,
    INT32,
    INT64,
    PTR,
    V32,
    V64,
    Code,
    vec,
)
from interpreter.backends.llvm_control import GENERATORS, _fault, _lane, runtime

ACCESS = ir.FunctionType(INT32, [PTR, PTR, INT32, INT32])
WIDTHS = (1, 2, 4, 8, 16, 32)
SPACE_FAULT = {
    "global": layout.FAULT_GLOBAL,
    "shared": layout.FAULT_SHARED,
    "local": layout.FAULT_LOCAL,
    "constant": layout.FAULT_CONSTANT,
}
WINDOW_BYTES = 1 << 24  # of the shared and local windows in the generic address space


@runtime("rt_resolve")
def _resolve(module: ir.Module, name: str) -> set[str]:
    """(warp, row, pc, lanes, width) -> 0 or 1. Check every lane's global address against all allocations; remembers the
    last one found in the row."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, PTR, INT32, INT32, INT64]))
    b = c.b
    w, row, pc, bits, width = c.args
    machine = c.load(PTR, w, W["machine"])
    bases = c.load(PTR, machine, M["bases"])
    sizes = c.load(PTR, machine, M["sizes"])
    count = c.load(INT64, machine, M["allocations"])
    with c.lanes_of(bits) as lane:
        address = b.load(c.at(c.at(w, W["address"]), b.shl(b.zext(lane, INT64), c.i64(3))), typ=INT64)
        low = c.variable(c.i64(0))
        high = c.variable(count)  # the last base not above the address lies in [low, high)
        with c.loop(lambda: b.icmp_unsigned(">", b.sub(high.get(), low.get()), c.i64(1))):
            middle = b.lshr(b.add(low.get(), high.get()), c.i64(1))
            base = c.load(INT64, bases, b.shl(middle, c.i64(3)))
            below = b.icmp_unsigned("<=", base, address)
            low.set(b.select(below, middle, low.get()))
            high.set(b.select(below, high.get(), middle))
        none = b.icmp_unsigned("==", count, c.i64(0))
        with c.when(none):
            _fault(c, w, pc, layout.FAULT_GLOBAL, lane)
            b.ret(c.i32(1))
        at = b.shl(low.get(), c.i64(3))
        base = c.load(INT64, bases, at)
        size = c.load(INT64, sizes, at)
        offset = b.sub(address, base)
        inside = b.and_(
            b.icmp_unsigned("<=", offset, size), b.icmp_unsigned("<=", b.add(offset, width), size)
        )
        aligned = b.icmp_unsigned("==", b.and_(address, b.sub(width, c.i64(1))), c.i64(0))
        with c.when(b.not_(b.and_(inside, aligned))):
            _fault(c, w, pc, layout.FAULT_GLOBAL, lane)
            b.ret(c.i32(1))
        c.store(base, row, R["low"])
        c.store(b.sub(size, width), row, R["limit"])
    b.ret(c.i32(0))
    c.finish()
    return c.needs


def _check(c: Code, space: str, width: int, bank: int = 0) -> tuple[ir.Value, ir.Value]:
    """Emit the bounds and alignment check; gives (address vector i64, host address of byte 0 of the space)."""
    b = c.b
    w, row, pc, bits = c.args
    address = c.load(V64, w, W["address"], align=128)
    if space == "global":
        low, limit = c.splat(c.load(INT64, row, R["low"])), c.splat(c.load(INT64, row, R["limit"]))
        bad = b.icmp_unsigned(">", b.sub(address, low), limit)
    else:
        if space == "constant":
            machine = c.load(PTR, w, W["machine"])
            size = c.load(INT64, machine, M["bank_bytes"] + 8 * bank)
        else:
            size = b.zext(c.load(INT32, w, W[f"{space}_bytes"]), INT64)
        # the last good address; none when the space is smaller than the access
        limit = b.sub(size, c.i64(width))
        bad = b.icmp_signed(">", address, c.splat(limit))
    if width > 1:
        crooked = b.icmp_unsigned("!=", b.and_(address, c.splat(c.i64(width - 1))), c.splat(c.i64(0)))
        bad = b.or_(bad, crooked)
    wrong = b.and_(c.bits(bad), bits)
    with c.when(b.icmp_unsigned("!=", wrong, c.i32(0))):
        if space == "global":
            failed = c.call("rt_resolve", INT32, [w, row, pc, bits, c.i64(width)])
            c.return_if(b.icmp_unsigned("!=", failed, c.i32(0)), c.i32(1))
        else:
            _fault(c, w, pc, SPACE_FAULT[space], c.ctz(wrong))
            b.ret(c.i32(1))
    if space == "global":
        host = c.load(INT64, c.load(PTR, w, W["machine"]), M["delta"])
    elif space == "constant":
        host = c.load(INT64, c.load(PTR, w, W["machine"]), M["banks"] + 8 * bank)
    else:
        host = c.load(INT64, w, W[space])
    return address, host


def _first(c: Code, address: ir.Value, bits: ir.Value) -> ir.Value:
    """Address of the lowest lane in `bits`."""
    w = c.args[0]
    lane = c.b.zext(c.ctz(bits), INT64)
    return c.b.load(c.at(c.at(w, W["address"]), c.b.shl(lane, c.i64(3))), typ=INT64)


def _words(width: int) -> int:
    return max(1, width // 4)


def _deinterleave(c: Code, buffer: ir.Value, words: int, out: int, align: int) -> None:
    """Lane-major words at `buffer` to rows of the scratch at header offset `out`."""
    w = c.args[0]
    if words == 1:
        c.store(c.load(V32, buffer, 0, align=align), w, out, align=128)
        return
    total = c.load(vec(INT32, LANES * words), buffer, 0, align=align)
    for k in range(words):
        c.store(c.shuffle(total, total, [lane * words + k for lane in range(LANES)]), w, out + 128 * k, align=128)


def _interleaved(c: Code, words: int, area: int) -> ir.Value:
    """Rows of the scratch as one lane-major vector."""
    w = c.args[0]
    rows = [c.load(V32, w, area + 128 * k, align=128) for k in range(words)]
    while len(rows) > 1:
        half = len(rows) // 2
        # pair row k with row k + half, so that the words come out in order
        merged = []
        for k in range(half):
            a, bb = rows[k], rows[k + half]
            n = a.type.count
            merged.append(c.shuffle(a, bb, [x for j in range(n) for x in (j, n + j)]))
        rows = merged
    return rows[0]


def _load(module: ir.Module, name: str, space: str, width: int, signed: bool, bank: int = 0) -> set[str]:
    c = Code(module, name, ACCESS)
    b = c.b
    w, _, _, bits = c.args
    c.return_if(b.icmp_unsigned("==", bits, c.i32(0)), c.i32(0))
    address, host = _check(c, space, width, bank)
    first = _first(c, address, bits)
    if space == "local":
        _load_local(c, address, host, first, width, signed)
        c.finish()
        return c.needs
    words = _words(width)
    whole = b.icmp_unsigned("==", bits, c.i32(-1))
    run = b.icmp_unsigned("==", b.sub(address, c.splat(first)), c.iota(width))
    straight = b.and_(whole, b.icmp_unsigned("==", c.bits(run), c.i32(-1)))
    with c.when(straight):
        source = c.pointer(b.add(host, first))
        if width >= 4:
            _deinterleave(c, source, words, W["data"], align=4)
        else:
            element = I8 if width == 1 else I16
            narrow = c.load(vec(element), source, 0, align=1)
            c.store((b.sext if signed else b.zext)(narrow, V32), w, W["data"], align=128)
        b.ret(c.i32(0))
    # lanes that do not execute read where the first one does
    safe = b.select(c.mask(bits), address, c.splat(first))
    places = c.buffer(8 * LANES)
    c.store(b.add(safe, c.splat(host)), places, 0, align=64)
    if width >= 4:
        buffer = c.buffer(width * LANES)
        chunk = min(width, 16)
        element_type = {4: INT32, 8: INT64, 16: vec(INT32, 4)}[chunk]
        for lane in range(LANES):
            source = c.pointer(c.load(INT64, places, 8 * lane))
            for part in range(width // chunk):
                value = c.load(element_type, source, part * chunk, align=4)
                c.store(value, buffer, lane * width + part * chunk, align=4)
        _deinterleave(c, buffer, words, W["data"], align=64)
    else:
        element = I8 if width == 1 else I16
        for lane in range(LANES):
            value = c.load(element, c.pointer(c.load(INT64, places, 8 * lane)), 0)
            c.store((b.sext if signed else b.zext)(value, INT32), w, W["data"] + 4 * lane)
    b.ret(c.i32(0))
    c.finish()
    return c.needs


def _load_local(c: Code, address: ir.Value, host: ir.Value, first: ir.Value, width: int, signed: bool) -> None:
    """Local memory is kept word by word across the lanes: word o / 4 of all lanes is one row."""
    b = c.b
    w, _, _, bits = c.args
    same = b.icmp_unsigned("!=", address, c.splat(first))
    together = b.icmp_unsigned("==", b.and_(c.bits(same), bits), c.i32(0))
    base = c.pointer(host)
    if width >= 4:
        with c.when(together):
            at = b.shl(first, c.i64(5))
            for k in range(width // 4):
                value = c.load(V32, c.at(base, at), 128 * k, align=4)
                c.store(value, w, W["data"] + 128 * k, align=128)
            b.ret(c.i32(0))
    with c.lanes_of(bits) as lane:
        at, place = _local_place(c, lane)
        for k in range(_words(width)):
            out = _lane(c, w, W["data"] + 128 * k, lane)
            if width >= 4:
                b.store(c.load(INT32, c.at(base, at), 128 * k), out)
            else:
                value = c.load(I8 if width == 1 else I16, c.at(base, b.add(at, place)), 0)
                b.store((b.sext if signed else b.zext)(value, INT32), out)
    b.ret(c.i32(0))


def _local_place(c: Code, lane: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(byte offset of the lane's word, byte within it) of a lane's local address."""
    b = c.b
    w = c.args[0]
    lane64 = b.zext(lane, INT64)
    address = b.load(c.at(c.at(w, W["address"]), b.shl(lane64, c.i64(3))), typ=INT64)
    word = b.and_(address, c.i64(~3))
    return b.add(b.shl(word, c.i64(5)), b.shl(lane64, c.i64(2))), b.and_(address, c.i64(3))


def _store(module: ir.Module, name: str, space: str, width: int) -> set[str]:
    c = Code(module, name, ACCESS)
    b = c.b
    w, _, _, bits = c.args
    c.return_if(b.icmp_unsigned("==", bits, c.i32(0)), c.i32(0))
    address, host = _check(c, space, width)
    words = _words(width)
    if space == "local":
        _store_local(c, address, host, width)
        c.finish()
        return c.needs
    if width >= 4:
        first = _first(c, address, bits)
        whole = b.icmp_unsigned("==", bits, c.i32(-1))
        run = b.icmp_unsigned("==", b.sub(address, c.splat(first)), c.iota(width))
        with c.when(b.and_(whole, b.icmp_unsigned("==", c.bits(run), c.i32(-1)))):
            c.store(_interleaved(c, words, W["data"]), c.pointer(b.add(host, first)), 0, align=4)
            b.ret(c.i32(0))
        buffer = c.buffer(width * LANES)
        c.store(_interleaved(c, words, W["data"]), buffer, 0, align=64)
    chunk = min(width, 16)
    element = {1: I8, 2: I16, 4: INT32, 8: INT64, 16: vec(INT32, 4)}[chunk]
    with c.lanes_of(bits) as lane:
        lane64 = b.zext(lane, INT64)
        to = b.load(c.at(c.at(w, W["address"]), b.shl(lane64, c.i64(3))), typ=INT64)
        target = c.pointer(b.add(host, to))
        if width >= 4:
            source = c.at(buffer, b.mul(lane64, c.i64(width)))
            for part in range(width // chunk):
                c.store(c.load(element, source, part * chunk, align=4), target, part * chunk, align=4)
        else:
            value = b.load(_lane(c, w, W["data"], lane), typ=INT32)
            c.store(b.trunc(value, element), target, 0)
    b.ret(c.i32(0))
    c.finish()
    return c.needs


def _store_local(c: Code, address: ir.Value, host: ir.Value, width: int) -> None:
    b = c.b
    w, _, _, bits = c.args
    first = _first(c, address, bits)
    same = b.icmp_unsigned("!=", address, c.splat(first))
    together = b.icmp_unsigned("==", b.and_(c.bits(same), bits), c.i32(0))
    base = c.pointer(host)
    if width >= 4:
        with c.when(together):
            at = c.at(base, b.shl(first, c.i64(5)))
            for k in range(width // 4):
                old = c.load(V32, at, 128 * k, align=4)
                new = c.load(V32, w, W["data"] + 128 * k, align=128)
                c.store(b.select(c.mask(bits), new, old), at, 128 * k, align=4)
            b.ret(c.i32(0))
    with c.lanes_of(bits) as lane:
        at, place = _local_place(c, lane)
        for k in range(_words(width)):
            value = b.load(_lane(c, w, W["data"] + 128 * k, lane), typ=INT32)
            if width >= 4:
                c.store(value, c.at(base, at), 128 * k)
            else:
                c.store(b.trunc(value, I8 if width == 1 else I16), c.at(base, b.add(at, place)), 0)
    b.ret(c.i32(0))


def _generic(module: ir.Module, name: str, stem: str, local: bool = True) -> set[str]:
    """An access through generic addresses: lanes in the shared or local window go there, the others to global memory.
    `stem` is the function's name with %s for the space; partial results are kept by lane."""
    c = Code(module, name, ACCESS)
    b = c.b
    w, row, pc, bits = c.args
    machine = c.load(PTR, w, W["machine"])
    address = c.load(V64, w, W["address"], align=128)
    keep = c.buffer(8 * 128)  # the operands, as each part overwrites the data rows with its results
    result = c.buffer(8 * 128)
    for k in range(8):
        c.store(c.load(V32, w, W["data"] + 128 * k, align=128), keep, 128 * k, align=64)
        c.store(c.load(V32, w, W["data"] + 128 * k, align=128), result, 128 * k, align=64)
    left = bits
    parts: list[tuple[str, ir.Value, ir.Value]] = []
    for space in ("shared", "local") if local else ("shared",):  # without: local lanes fail as global ones
        window = c.load(INT64, machine, M[f"{space}_window"])
        inside = b.icmp_unsigned("<", b.sub(address, c.splat(window)), c.splat(c.i64(WINDOW_BYTES)))
        lanes = b.and_(c.bits(inside), left)
        left = b.and_(left, b.not_(lanes))
        parts.append((space, lanes, b.sub(address, c.splat(window))))
    parts.append(("global", left, address))
    for space, lanes, place in parts:
        with c.when(b.icmp_unsigned("!=", lanes, c.i32(0))):
            c.store(place, w, W["address"], align=128)
            for k in range(8):
                c.store(c.load(V32, keep, 128 * k, align=64), w, W["data"] + 128 * k, align=128)
            failed = c.call(stem % space, INT32, [w, row, pc, lanes])
            c.return_if(b.icmp_unsigned("!=", failed, c.i32(0)), c.i32(1))
            for k in range(8):
                mine = c.load(V32, w, W["data"] + 128 * k, align=128)
                others = c.load(V32, result, 128 * k, align=64)
                c.store(b.select(c.mask(lanes), mine, others), result, 128 * k, align=64)
    c.store(address, w, W["address"], align=128)
    for k in range(8):
        c.store(c.load(V32, result, 128 * k, align=64), w, W["data"] + 128 * k, align=128)
    b.ret(c.i32(0))
    c.finish()
    return c.needs


def _register() -> None:
    for space in ("global", "shared", "local"):
        for width in WIDTHS:
            GENERATORS[f"rt_load_{space}_{width}"] = partial(_load, space=space, width=width, signed=False)
            GENERATORS[f"rt_store_{space}_{width}"] = partial(_store, space=space, width=width)
            if width < 4:
                GENERATORS[f"rt_load_{space}_{width}s"] = partial(_load, space=space, width=width, signed=True)
    for bank in range(8):
        for width in WIDTHS:
            for signed in (False, True):
                name = f"rt_load_constant{bank}_{width}{'s' if signed else ''}"
                GENERATORS[name] = partial(_load, space="constant", width=width, signed=signed, bank=bank)
    for width in WIDTHS:
        GENERATORS[f"rt_load_generic_{width}"] = partial(_generic, stem=f"rt_load_%s_{width}")
        GENERATORS[f"rt_load_generic_{width}s"] = partial(_generic, stem=f"rt_load_%s_{width}s")
        GENERATORS[f"rt_store_generic_{width}"] = partial(_generic, stem=f"rt_store_%s_{width}")


_register()
__all__ = ["ACCESS", "I1"]
