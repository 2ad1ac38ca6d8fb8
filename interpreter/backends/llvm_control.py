"""Runtime functions for control flow: groups of lanes, convergence, exit.

Independent thread scheduling: each lane has a place (`pcs`), valid while it is outside the running group. A group is
the ready lanes at one place; when the running group blocks or ends, `rt_schedule` takes the next one.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir

from interpreter.backends import layout
from interpreter.backends.layout import M, W
from interpreter.backends.llvm_code import INT32, INT64, PTR, V32, VOID, Code

Generator = Callable[[ir.Module, str], set[str]]
GENERATORS: dict[str, Generator] = {}


def runtime(name: str) -> Callable[[Generator], Generator]:
    def register(generator: Generator) -> Generator:
        GENERATORS[name] = generator
        return generator

    return register


def _set_lanes(c: Code, w: ir.Value, offset: int, bits: ir.Value, value: ir.Value) -> None:
    """Store an i32 to the lanes in `bits` of a 32-lane header field."""
    old = c.load(V32, w, offset, align=128)
    c.store(c.b.select(c.mask(bits), c.splat(value), old), w, offset, align=128)


def _lane(c: Code, base: ir.Value, offset: int | ir.Value, lane: ir.Value) -> ir.Value:
    """Pointer to a lane's word of a row."""
    return c.at(c.at(base, offset), c.b.shl(c.b.zext(lane, INT64), c.i64(2)))


def _not(c: Code, x: ir.Value) -> ir.Value:
    return c.b.not_(x)


@runtime("rt_schedule")
def _schedule(module: ir.Module, name: str) -> set[str]:
    """(warp, avoid) -> row or event. Lets go the lanes whose convergence point is complete, then picks the next group:
    the first ready lane after the last leader, not in `avoid` if others are ready."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, INT32]))
    b = c.b
    w, avoid = c.args
    live = c.load(INT32, w, W["live"])
    blocked = c.load(INT32, w, W["blocked"])
    with c.lanes_of(b.and_(blocked, live)) as lane:
        still = c.load(INT32, w, W["blocked"])
        bit = b.shl(c.i32(1), lane)
        wait = b.load(_lane(c, w, W["wait"], lane), typ=INT32)
        waiting = b.and_(b.icmp_unsigned("!=", b.and_(still, bit), c.i32(0)), b.icmp_signed(">=", wait, c.i32(0)))
        with c.when(waiting):
            members = b.and_(b.load(_lane(c, w, wait, lane), typ=INT32), live)
            here = _here(c, w, wait, still)
            complete = b.icmp_unsigned("==", b.and_(members, _not(c, here)), c.i32(0))
            with c.when(complete):
                # a lane that has left its own barrier's mask waits for nobody but itself
                _release(c, w, b.or_(b.and_(members, here), bit))
    blocked = c.load(INT32, w, W["blocked"])
    ready = b.and_(live, _not(c, blocked))
    with c.when(b.icmp_unsigned("==", ready, c.i32(0))):
        c.store(c.i32(0), w, W["active"])
        c.return_if(b.icmp_unsigned("==", live, c.i32(0)), c.i32(layout.EVENT_EXIT))
        at_barrier = b.icmp_unsigned("!=", c.load(INT32, w, W["arrivals"]), c.i32(0))
        b.ret(b.select(at_barrier, c.i32(layout.EVENT_BARRIER), c.i32(layout.EVENT_DEADLOCK)))
    others = b.and_(ready, _not(c, avoid))
    ready_now = b.select(b.icmp_unsigned("!=", others, c.i32(0)), others, ready)
    leader = c.load(INT32, w, W["leader"])
    upto = b.sub(b.shl(c.i32(2), leader), c.i32(1))
    after = b.and_(ready_now, _not(c, upto))
    pick = c.ctz(b.select(b.icmp_unsigned("!=", after, c.i32(0)), after, ready_now))
    c.store(pick, w, W["leader"])
    place = b.load(_lane(c, w, W["pcs"], pick), typ=INT32)
    same = b.icmp_unsigned("==", c.load(V32, w, W["pcs"], align=128), c.splat(place))
    c.store(b.and_(c.bits(same), ready), w, W["active"])
    b.ret(place)
    c.finish()
    return c.needs


def _here(c: Code, w: ir.Value, wait: ir.Value, blocked: ir.Value) -> ir.Value:
    """Blocked lanes that wait on the same mask row, at whatever instruction: each goes on behind its own."""
    same_wait = c.b.icmp_unsigned("==", c.load(V32, w, W["wait"], align=128), c.splat(wait))
    return c.b.and_(c.bits(same_wait), blocked)


def _release(c: Code, w: ir.Value, bits: ir.Value) -> None:
    """Lanes waiting at a convergence point become ready at the next instruction."""
    c.store(c.b.and_(c.load(INT32, w, W["blocked"]), c.b.not_(bits)), w, W["blocked"])
    pcs = c.load(V32, w, W["pcs"], align=128)
    c.store(c.b.select(c.mask(bits), c.b.add(pcs, c.splat(c.i32(1))), pcs), w, W["pcs"], align=128)


@runtime("rt_split")
def _split(module: ir.Module, name: str) -> set[str]:
    """(warp, pc, taken, target) -> row. A divergent branch: lanes that fall through go on, the others are ready."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, INT32, INT32, INT32]))
    b = c.b
    w, pc, taken, to = c.args
    rest = b.and_(c.load(INT32, w, W["active"]), _not(c, taken))
    _set_lanes(c, w, W["pcs"], taken, to)
    c.store(rest, w, W["active"])
    c.store(c.ctz(rest), w, W["leader"])
    c.store(b.add(c.load(INT32, w, W["diverged"]), c.i32(1)), w, W["diverged"])
    b.ret(b.add(pc, c.i32(1)))
    c.finish()
    return c.needs


@runtime("rt_branch_to")
def _branch_to(module: ir.Module, name: str) -> set[str]:
    """(warp, pc, lanes) -> row. Lanes go to the byte addresses in `data`, the others on. Bad addresses are faults."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, INT32, INT32]))
    b = c.b
    w, pc, bits = c.args
    following = b.add(pc, c.i32(1))
    c.return_if(b.icmp_unsigned("==", bits, c.i32(0)), following)
    address = c.load(V32, w, W["data"], align=128)
    rows = b.lshr(address, c.splat(c.i32(4)))
    machine = c.load(PTR, w, W["machine"])
    limit = b.trunc(c.load(INT64, machine, M["row_count"]), INT32)
    bad = b.or_(
        b.icmp_unsigned(">=", rows, c.splat(limit)),
        b.icmp_unsigned("!=", b.and_(address, c.splat(c.i32(15))), c.splat(c.i32(0))),
    )
    wrong = b.and_(c.bits(bad), bits)
    with c.when(b.icmp_unsigned("!=", wrong, c.i32(0))):
        _fault(c, w, pc, layout.FAULT_TARGET, c.ctz(wrong))
        lane = c.ctz(wrong)
        value = b.zext(b.load(_lane(c, w, W["data"], lane), typ=INT32), INT64)
        b.store(value, c.at(c.at(w, W["address"]), b.shl(b.zext(lane, INT64), c.i64(3))))
        b.ret(c.i32(layout.EVENT_FAULT))
    group = c.load(INT32, w, W["active"])
    first = b.extract_element(rows, c.ctz(bits))
    alike = b.and_(c.bits(b.icmp_unsigned("!=", rows, c.splat(first))), bits)
    whole = b.and_(b.icmp_unsigned("==", alike, c.i32(0)), b.icmp_unsigned("==", bits, group))
    c.return_if(whole, first)
    pcs = b.select(c.mask(bits), rows, c.splat(following))
    old = c.load(V32, w, W["pcs"], align=128)
    c.store(b.select(c.mask(group), pcs, old), w, W["pcs"], align=128)
    c.store(b.add(c.load(INT32, w, W["diverged"]), c.i32(1)), w, W["diverged"])
    b.ret(c.call("rt_schedule", INT32, [w, c.i32(0)]))
    c.finish()
    return c.needs


def _fault(c: Code, w: ir.Value, pc: ir.Value, space: int, lane: ir.Value) -> None:
    c.store(pc, w, W["pc"])
    c.store(c.i32(space), w, W["fault_space"])
    c.store(lane, w, W["fault_lane"])


@runtime("rt_exit")
def _exit(module: ir.Module, name: str) -> set[str]:
    """(warp, pc, lanes) -> row or event."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, INT32, INT32]))
    b = c.b
    w, pc, bits = c.args
    c.store(b.and_(c.load(INT32, w, W["live"]), _not(c, bits)), w, W["live"])
    rest = b.and_(c.load(INT32, w, W["active"]), _not(c, bits))
    with c.when(b.icmp_unsigned("!=", rest, c.i32(0))):
        c.store(rest, w, W["active"])
        b.ret(b.add(pc, c.i32(1)))
    b.ret(c.call("rt_schedule", INT32, [w, c.i32(0)]))
    c.finish()
    return c.needs


def _wait_here(c: Code, w: ir.Value, pc: ir.Value, row: ir.Value, bits: ir.Value) -> None:
    """Block `bits` at `pc` on a mask row; the rest of the running group goes on behind."""
    b = c.b
    group = c.load(INT32, w, W["active"])
    rest = b.and_(group, _not(c, bits))
    _set_lanes(c, w, W["pcs"], rest, b.add(pc, c.i32(1)))
    _set_lanes(c, w, W["pcs"], bits, pc)
    _set_lanes(c, w, W["wait"], bits, row)
    c.store(b.or_(c.load(INT32, w, W["blocked"]), bits), w, W["blocked"])
    c.store(b.and_(c.load(INT32, w, W["yielded"]), _not(c, bits)), w, W["yielded"])
    b.ret(c.call("rt_schedule", INT32, [w, c.i32(0)]))


@runtime("rt_converge")
def _converge(module: ir.Module, name: str) -> set[str]:
    """(warp, pc, barrier row, lanes) -> row or event. BSYNC."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, INT32, INT32, INT32]))
    b = c.b
    w, pc, row, bits = c.args
    following = b.add(pc, c.i32(1))
    group = c.load(INT32, w, W["active"])
    live = c.load(INT32, w, W["live"])
    members = c.load(V32, c.at(w, row), align=128)
    # nobody of the group waits for a lane outside it: the common case, all lanes hold the same mask
    outside = b.and_(members, c.splat(b.and_(live, _not(c, group))))
    missing = b.and_(c.bits(b.icmp_unsigned("!=", outside, c.splat(c.i32(0)))), bits)
    done = b.and_(b.icmp_unsigned("==", missing, c.i32(0)), b.icmp_unsigned("==", bits, group))
    c.return_if(done, following)
    c.return_if(b.icmp_unsigned("==", bits, c.i32(0)), following)
    _wait_here(c, w, pc, row, bits)
    c.finish()
    return c.needs


@runtime("rt_warpsync")
def _warpsync(module: ir.Module, name: str) -> set[str]:
    """(warp, pc, sync row, lanes) -> row or event. Member masks are in `data`."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, INT32, INT32, INT32]))
    b = c.b
    w, pc, row, bits = c.args
    at = c.at(w, row)
    new = b.select(c.mask(bits), c.load(V32, w, W["data"], align=128), c.load(V32, at, align=128))
    c.store(new, at, align=128)
    b.ret(c.call("rt_converge", INT32, [w, pc, row, bits]))
    c.finish()
    return c.needs


@runtime("rt_yield")
def _yield(module: ir.Module, name: str) -> set[str]:
    """(warp, pc) -> row. YIELD: another group's turn, if there is one."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, INT32]))
    b = c.b
    w, pc = c.args
    following = b.add(pc, c.i32(1))
    active = c.load(INT32, w, W["active"])
    live = c.load(INT32, w, W["live"])
    c.return_if(b.icmp_unsigned("==", active, live), following)
    c.store(b.or_(c.load(INT32, w, W["yielded"]), active), w, W["yielded"])
    _set_lanes(c, w, W["pcs"], active, following)
    b.ret(c.call("rt_schedule", INT32, [w, active]))
    c.finish()
    return c.needs


@runtime("rt_rotate")
def _rotate(module: ir.Module, name: str) -> set[str]:
    """(warp): the running group, at warp.pc, has used up its turn; sets the warp.pc of the next. A lane that waits only
    for lanes that have all executed YIELD waits no longer: they may be spinning on what it has to do."""
    c = Code(module, name, ir.FunctionType(VOID, [PTR]))
    b = c.b
    (w,) = c.args
    active = c.load(INT32, w, W["active"])
    live = c.load(INT32, w, W["live"])
    with c.when(b.icmp_unsigned("==", active, live)):
        b.ret_void()
    _set_lanes(c, w, W["pcs"], active, c.load(INT32, w, W["pc"]))
    blocked = c.load(INT32, w, W["blocked"])
    with c.lanes_of(b.and_(blocked, live)) as lane:
        still = c.load(INT32, w, W["blocked"])
        bit = b.shl(c.i32(1), lane)
        wait = b.load(_lane(c, w, W["wait"], lane), typ=INT32)
        waiting = b.and_(b.icmp_unsigned("!=", b.and_(still, bit), c.i32(0)), b.icmp_signed(">=", wait, c.i32(0)))
        with c.when(waiting):
            members = b.and_(b.load(_lane(c, w, wait, lane), typ=INT32), live)
            here = _here(c, w, wait, still)
            missing = b.and_(members, _not(c, here))
            unwilling = b.and_(missing, _not(c, c.load(INT32, w, W["yielded"])))
            with c.when(b.icmp_unsigned("==", unwilling, c.i32(0))):
                _release(c, w, here)
                row = c.load(V32, c.at(w, wait), align=128)
                without = b.and_(row, c.splat(_not(c, here)))
                c.store(b.select(c.mask(missing), without, row), c.at(w, wait), align=128)
    c.store(c.call("rt_schedule", INT32, [w, active]), w, W["pc"])
    b.ret_void()
    c.finish()
    return c.needs


@runtime("rt_barrier")
def _barrier(module: ir.Module, name: str) -> set[str]:
    """(warp, pc, barrier, threads, lanes, operation, lanes with predicate) -> row or event. BAR."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, INT32, INT32, INT32, INT32, INT32, INT32]))
    b = c.b
    w, pc, index, threads, bits, operation, true = c.args
    following = b.add(pc, c.i32(1))
    c.return_if(b.icmp_unsigned("==", bits, c.i32(0)), following)
    arrive_only = b.icmp_unsigned("==", operation, c.i32(1))
    before = c.load(INT32, w, W["arrivals"])
    other = b.and_(
        b.icmp_unsigned("!=", before, c.i32(0)), b.icmp_unsigned("!=", c.load(INT32, w, W["barrier"]), index)
    )
    with c.when(other):
        _fault(c, w, pc, layout.FAULT_BARRIER, c.ctz(bits))
        b.ret(c.i32(layout.EVENT_FAULT))
    for field, value in (("barrier", index), ("expected", threads), ("barrier_pc", pc), ("barrier_op", operation)):
        c.store(value, w, W[field])
    with c.when(arrive_only):
        c.store(following, w, W["pc"])
        b.ret(c.i32(layout.EVENT_ARRIVE))
    c.store(b.or_(before, bits), w, W["arrivals"])
    c.store(b.or_(c.load(INT32, w, W["barrier_bits"]), true), w, W["barrier_bits"])
    group = c.load(INT32, w, W["active"])
    _set_lanes(c, w, W["pcs"], group, following)
    _set_lanes(c, w, W["wait"], bits, b.sub(c.i32(-1), index))
    c.store(b.or_(c.load(INT32, w, W["blocked"]), bits), w, W["blocked"])
    b.ret(c.call("rt_schedule", INT32, [w, c.i32(0)]))
    c.finish()
    return c.needs
