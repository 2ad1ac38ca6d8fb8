"""Runtime functions that run warps and CTAs: the loops (plain, counting, tracing), turns, and CTA barriers."""

from __future__ import annotations

import llvmlite.ir as ir

from interpreter.backends import layout
from interpreter.backends.layout import LANES, C, M, R, W
from interpreter.backends.llvm_code import HANDLER, INT32, INT64, PTR, VOID, Code
from interpreter.backends.llvm_control import GENERATORS, _not, runtime
from interpreter.trace import COUNTERS, COUNTS

TRACER = ir.FunctionType(VOID, [PTR, PTR, INT32, INT32])


def _run(module: ir.Module, name: str, mode: str) -> set[str]:
    """(warp, rows, pc, most) -> event. Runs one warp until an event or `most` instructions."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, PTR, INT32, INT64]))
    b = c.b
    w, rows, start, most = c.args
    pc = c.variable(start)
    before = c.load(INT64, w, W["issued"])
    stop = b.add(before, most)
    count = c.variable(before)
    counts = c.pointer(c.load(INT64, c.load(PTR, w, W["machine"]), M["counts"])) if mode != "plain" else None
    events_end = c.load(INT64, w, W["events_end"]) if mode == "trace" else None
    lines_end = c.load(INT64, w, W["lines_end"]) if mode == "trace" else None

    def more() -> ir.Value:
        running = b.icmp_signed(">=", pc.get(), c.i32(0))
        return b.and_(running, b.icmp_unsigned("<", count.get(), stop))

    with c.loop(more):
        here = pc.get()
        row = c.at(rows, b.shl(b.zext(here, INT64), c.i64(7)))
        if mode != "plain":
            if mode == "trace":
                full = b.or_(
                    b.icmp_unsigned(">=", c.load(INT64, w, W["events"]), events_end),
                    b.icmp_unsigned(">=", c.load(INT64, w, W["lines"]), lines_end),
                )
                with c.when(full):
                    c.store(here, w, W["pc"])
                    c.store(count.get(), w, W["issued"])
                    b.ret(c.i32(layout.EVENT_FULL))
            group = c.load(INT32, w, W["active"])
            guard = c.load(INT32, c.at(w, c.load(INT32, row, R["guard"])))
            lanes = b.and_(group, b.xor(guard, c.load(INT32, row, R["guard_invert"])))
        following = b.call(c.load(HANDLER.as_pointer(), row, R["handler"]), [w, row, here])
        n = b.add(count.get(), c.i64(1))
        count.set(n)
        c.store(n, w, W["issued"])
        if mode != "plain":
            assert counts is not None
            at = c.at(counts, b.mul(b.zext(here, INT64), c.i64(COUNTS.itemsize)))
            for counter, amount in (
                ("instructions_executed", c.i64(1)),
                ("thread_instructions_executed", b.zext(c.popcount(group), INT64)),
                ("predicated_on_thread_instructions_executed", b.zext(c.popcount(lanes), INT64)),
            ):
                _count(c, at, counter, amount)
            diverged = c.load(INT32, w, W["diverged"])
            with c.when(b.icmp_unsigned("!=", diverged, c.i32(0))):
                _count(c, at, "divergent_branches", b.zext(diverged, INT64))
                c.store(c.i32(0), w, W["diverged"])
            tracer = c.load(INT64, row, R["tracer"])
            with c.when(b.icmp_unsigned("!=", tracer, c.i64(0))):
                b.call(b.inttoptr(tracer, TRACER.as_pointer()), [w, row, here, lanes])
        if mode == "trace":
            event = c.load(INT64, w, W["events"])
            low = b.zext(here, INT64)
            high = b.or_(c.popcount(lanes), c.load(INT32, w, W["aux"]))
            word = b.or_(low, b.shl(b.zext(high, INT64), c.i64(32)))
            b.store(word, c.pointer(event), align=8)
            c.store(b.add(event, c.i64(8)), w, W["events"])
            c.store(c.i32(0), w, W["aux"])
        pc.set(following)
    end = pc.get()
    c.return_if(b.icmp_signed("<", end, c.i32(0)), end)
    c.store(end, w, W["pc"])
    b.ret(c.i32(layout.EVENT_QUANTUM))
    c.finish()
    return c.needs


def _count(c: Code, counts_row: ir.Value, counter: str, amount: ir.Value) -> None:
    offset = 8 * COUNTERS.index(counter)
    c.store(c.b.add(c.load(INT64, counts_row, offset), amount), counts_row, offset)


for _mode in ("plain", "count", "trace"):
    GENERATORS[f"rt_run_{_mode}"] = lambda module, name: _run(module, name, name.rsplit("_", 1)[1])


@runtime("rt_arrive")
def _arrive(module: ir.Module, name: str) -> set[str]:
    """(cta, warp): count a warp's arrival at its barrier; let all who wait go if it is complete."""
    c = Code(module, name, ir.FunctionType(VOID, [PTR, PTR]))
    b = c.b
    cta, w = c.args
    index = b.shl(b.zext(c.load(INT32, w, W["barrier"]), INT64), c.i64(2))
    live = c.load(INT32, w, W["live"])
    lanes = c.load(INT32, w, W["arrivals"])
    lanes = b.select(b.icmp_unsigned("==", lanes, c.i32(0)), live, lanes)  # BAR.ARV: the warp arrives as a whole
    # a barrier counts whole warps: lanes that have exited, or never were, count as arrived
    threads = b.add(c.popcount(lanes), b.sub(c.i32(LANES), c.popcount(live)))
    at = c.at(cta, index)
    c.store(b.add(c.load(INT32, at, C["arrived"]), threads), at, C["arrived"])
    c.store(c.load(INT32, w, W["expected"]), at, C["expected"])
    true = c.load(INT32, w, W["barrier_bits"])
    c.store(b.add(c.load(INT32, at, C["popc"]), c.popcount(true)), at, C["popc"])
    false = b.icmp_unsigned("!=", b.and_(lanes, _not(c, true)), c.i32(0))
    with c.when(false):
        c.store(c.i32(0), at, C["all"])
    c.call("rt_complete", VOID, [cta, c.load(INT32, w, W["barrier"])])
    b.ret_void()
    c.finish()
    return c.needs


@runtime("rt_complete")
def _complete(module: ir.Module, name: str) -> set[str]:
    """(cta, barrier): if enough threads have arrived, let the waiting warps go and reset the barrier."""
    c = Code(module, name, ir.FunctionType(VOID, [PTR, INT32]))
    b = c.b
    cta, barrier = c.args
    at = c.at(cta, b.shl(b.zext(barrier, INT64), c.i64(2)))
    arrived = c.load(INT32, at, C["arrived"])
    expected = c.load(INT32, at, C["expected"])
    count = c.load(INT32, cta, C["count"])
    done = c.load(INT32, cta, C["done"])
    whole = b.icmp_unsigned("==", expected, c.i32(0))
    need = b.select(whole, b.mul(b.sub(count, done), c.i32(LANES)), expected)
    enough = b.and_(b.icmp_unsigned(">=", arrived, need), b.icmp_unsigned("!=", arrived, c.i32(0)))
    with c.when(b.not_(enough)):
        b.ret_void()
    popc = c.load(INT32, at, C["popc"])
    every = c.load(INT32, at, C["all"])
    c.store(c.i32(0), at, C["arrived"])
    c.store(c.i32(0), at, C["popc"])
    c.store(c.i32(1), at, C["all"])
    k = c.variable(c.i32(0))
    base = c.load(PTR, cta, C["warps"])
    stride = c.load(INT64, cta, C["stride"])
    with c.loop(lambda: b.icmp_unsigned("<", k.get(), count)):
        w = c.at(base, b.mul(b.zext(k.get(), INT64), stride))
        k.set(b.add(k.get(), c.i32(1)))
        waits = b.icmp_unsigned("==", c.load(INT32, w, W["status"]), c.i32(layout.AT_BARRIER))
        with c.when(b.and_(waits, b.icmp_unsigned("==", c.load(INT32, w, W["barrier"]), barrier))):
            operation = c.load(INT32, w, W["barrier_op"])
            result = b.select(
                b.icmp_unsigned("==", operation, c.i32(2)),
                popc,
                b.select(
                    b.icmp_unsigned("==", operation, c.i32(3)),
                    every,
                    b.zext(b.icmp_unsigned("!=", popc, c.i32(0)), INT32),
                ),
            )
            reduces = b.icmp_unsigned(">=", operation, c.i32(2))
            old = c.load(INT32, w, W["barrier_result"])
            c.store(b.select(reduces, result, old), w, W["barrier_result"])
            lanes = c.load(INT32, w, W["arrivals"])
            c.store(b.and_(c.load(INT32, w, W["blocked"]), _not(c, lanes)), w, W["blocked"])
            c.store(c.i32(0), w, W["arrivals"])
            c.store(c.i32(0), w, W["barrier_bits"])
            c.store(c.i32(layout.READY), w, W["status"])
            c.store(c.call("rt_schedule", INT32, [w, c.i32(0)]), w, W["pc"])
    b.ret_void()
    c.finish()
    return c.needs


def _cta(module: ir.Module, name: str, mode: str) -> set[str]:
    """(cta, machine) -> CTA_DONE, CTA_STUCK or an event Python must handle; cta.warp says whose."""
    c = Code(module, name, ir.FunctionType(INT32, [PTR, PTR]))
    b = c.b
    cta, machine = c.args
    rows = c.load(PTR, machine, M["rows"])
    quantum = c.load(INT64, machine, M["quantum"])
    budget = c.load(INT64, machine, M["budget"])
    count = c.load(INT32, cta, C["count"])
    base = c.load(PTR, cta, C["warps"])
    stride = c.load(INT64, cta, C["stride"])
    progress = c.variable(c.i32(1))
    k = c.variable(c.i32(0))

    def unfinished() -> ir.Value:
        return b.icmp_unsigned("!=", progress.get(), c.i32(0))

    k.set(c.load(INT32, cta, C["resume"]))
    c.store(c.i32(0), cta, C["resume"])
    with c.loop(unfinished):
        progress.set(c.i32(0))
        with c.loop(lambda: b.icmp_unsigned("<", k.get(), count)):
            number = k.get()
            w = c.at(base, b.mul(b.zext(number, INT64), stride))
            k.set(b.add(number, c.i32(1)))
            with c.when(b.icmp_unsigned("==", c.load(INT32, w, W["status"]), c.i32(layout.READY))):
                progress.set(c.i32(1))
                issued = c.load(INT64, w, W["issued"])
                end = c.load(INT64, w, W["turn_end"])
                left = b.select(b.icmp_unsigned(">", end, issued), b.sub(end, issued), quantum)
                c.store(b.add(issued, left), w, W["turn_end"])
                event = c.call(f"rt_run_{mode}", INT32, [w, rows, c.load(INT32, w, W["pc"]), left])

                def is_event(code: int, event: ir.Value = event) -> ir.Value:
                    return b.icmp_signed("==", event, c.i32(code))

                with c.when(is_event(layout.EVENT_FULL)):  # go on in the same turn
                    c.store(number, cta, C["warp"])
                    c.store(number, cta, C["resume"])
                    b.ret(event)
                c.store(c.i64(0), w, W["turn_end"])
                turn = b.or_(is_event(layout.EVENT_QUANTUM), is_event(layout.EVENT_YIELD))
                with b.if_else(turn) as (then, otherwise):
                    with then:
                        over = b.icmp_signed(">", c.load(INT64, w, W["issued"]), budget)
                        with c.when(over):
                            c.store(number, cta, C["warp"])
                            b.ret(c.i32(layout.EVENT_BUDGET))
                        c.call("rt_rotate", VOID, [w])
                    with otherwise:
                        handled = c.variable(c.i32(0))
                        with c.when(is_event(layout.EVENT_BARRIER)):
                            c.store(c.i32(layout.AT_BARRIER), w, W["status"])
                            c.call("rt_arrive", VOID, [cta, w])
                            handled.set(c.i32(1))
                        with c.when(is_event(layout.EVENT_ARRIVE)):
                            c.call("rt_arrive", VOID, [cta, w])
                            handled.set(c.i32(1))
                        with c.when(is_event(layout.EVENT_EXIT)):
                            c.store(c.i32(layout.DONE), w, W["status"])
                            c.store(b.add(c.load(INT32, cta, C["done"]), c.i32(1)), cta, C["done"])
                            for barrier in range(16):
                                waits = b.icmp_unsigned(
                                    "!=", c.load(INT32, cta, C["arrived"] + 4 * barrier), c.i32(0)
                                )
                                with c.when(waits):
                                    c.call("rt_complete", VOID, [cta, c.i32(barrier)])
                            handled.set(c.i32(1))
                        with c.when(b.icmp_unsigned("==", handled.get(), c.i32(0))):
                            c.store(number, cta, C["warp"])
                            b.ret(event)
        k.set(c.i32(0))
    finished = b.icmp_unsigned("==", c.load(INT32, cta, C["done"]), count)
    b.ret(b.select(finished, c.i32(layout.CTA_DONE), c.i32(layout.CTA_STUCK)))
    c.finish()
    return c.needs


for _mode in ("plain", "count", "trace"):
    GENERATORS[f"rt_cta_{_mode}"] = lambda module, name: _cta(module, name, name.rsplit("_", 1)[1])

