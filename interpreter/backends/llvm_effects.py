"""Memory, control flow and special registers of the LLVM back end.

A memory instruction leaves its addresses (and data) in the warp's scratch and calls a runtime function; the traced loop
reads the same scratch afterwards. Control instructions keep the warp's masks; whatever involves more than the running
group is a call to the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import llvmlite.ir as ir

from interpreter.backends import layout
from interpreter.backends.layout import W
from interpreter.backends.llvm_code import INT32, INT64, V32
from interpreter.backends.llvm_values import LlvmValues
from interpreter.isa.value import I32, I64, Unsupported, Value
from interpreter.program import Operand

CLOCKS = ("SR_CLOCK", "SR_CLOCKLO", "SR_CLOCKHI", "SR_GLOBALTIMERLO", "SR_GLOBALTIMERHI")
BARRIER_OPS = {"sync": 0, "arv": 1, "red.popc": 2, "red.and": 3, "red.or": 4}


class LlvmEmitter(LlvmValues):
    """Completes the LLVM emitter with effects."""

    # ------------------------------------------------------------------ operand parts

    def base(self, op: Operand, count: int) -> list[Value]:
        if not self.has_base(op):
            return [self.const(I32, 0)] * count
        return self._run(("base", self.form.position(op), count), count)

    def uniform(self, op: Operand, count: int) -> list[Value]:
        if not self.has_uniform(op):
            return [self.const(I32, 0)] * count
        return self._run(("uniform", self.form.position(op), count), count)

    def has_base(self, op: Operand) -> bool:
        return self.form.has_base(op)

    def has_uniform(self, op: Operand) -> bool:
        return self.form.has_uniform(op)

    def offset(self, op: Operand) -> Value:
        return self.value(I32, self.code.splat(self.field(("offset", self.form.position(op)))))

    # ------------------------------------------------------------------ memory

    def _bits_of(self, mask: Value | None) -> ir.Value:
        return self.active_bits if mask is None else self.code.bits(mask.raw)

    def _put_address(self, address: Value) -> None:
        wide = address if address.kind is I64 else self.zext(address)
        self.code.store(wide.raw, self.w, W["address"])

    def _access(self, function: str, bits: ir.Value) -> None:
        failed = self.code.call(function, INT32, [self.w, self.row, self.pc, bits])
        fault = self.b.icmp_unsigned("!=", failed, self.code.i32(0))
        self.code.return_if(fault, self.code.i32(layout.EVENT_FAULT))

    def _rows_from(self, area: str, count: int) -> list[Value]:
        return [self.value(I32, self.code.load(V32, self.w, W[area] + 128 * k)) for k in range(count)]

    def load(
        self, space: str, address: Value, width: int, signed: bool = False, mask: Value | None = None
    ) -> list[Value]:
        self._put_address(address)
        suffix = "s" if signed and width < 4 else ""
        self._access(f"rt_load_{space}_{width}{suffix}", self._bits_of(mask))
        return self._rows_from("data", max(1, width // 4))

    def store(self, space: str, address: Value, rows: Sequence[Value], width: int, mask: Value | None = None) -> None:
        self._put_address(address)
        for k, row in enumerate(rows):
            self.code.store(row.raw, self.w, W["data"] + 128 * k)
        self._access(f"rt_store_{space}_{width}", self._bits_of(mask))

    def atomic(
        self,
        space: str,
        address: Value,
        operation: str,
        kind: str,
        data: Sequence[Value],
        compare: Sequence[Value] = (),
    ) -> list[Value]:
        self._put_address(address)
        for k, row in enumerate(data):
            self.code.store(row.raw, self.w, W["data"] + 128 * k)
        for k, row in enumerate(compare):
            self.code.store(row.raw, self.w, W["extra"] + 128 * k)
        self._access(f"rt_atomic_{space}_{operation}_{kind}", self.active_bits)
        return self._rows_from("data", {"b128": 4, "u64": 2, "s64": 2, "f64": 2}.get(kind, 1))

    def note_copy(self, source: Value, read: Value, written: Value) -> None:
        self.code.store(source.raw, self.w, W["extra"])
        self.code.store(self.code.bits(read.raw), self.w, W["copy_lanes"])
        self.code.store(self.code.bits(written.raw), self.w, W["copy_stores"])

    def load_constant(self, op: Operand, width: int, signed: bool = False) -> list[Value]:
        if not self.has_base(op) and not self.has_uniform(op):
            recipe = ("bytes", self.form.position(op), width, signed)
            return self._run(recipe, max(1, width // 4))
        self._put_address(self.address32(op))
        suffix = "s" if signed and width < 4 else ""
        self._access(f"rt_load_constant{op.bank}_{width}{suffix}", self.active_bits)
        return self._rows_from("data", max(1, width // 4))

    # ------------------------------------------------------------------ long operands

    def repeat(self, count: int, body: Callable[[Value], None]) -> None:
        _ = self.active  # known before the loop, so that it may be used inside and behind
        number = self.code.variable(self.code.i32(0))
        with self.code.loop(lambda: self.b.icmp_unsigned("<", number.get(), self.code.i32(count))):
            now = number.get()
            body(self.value(I32, self.code.splat(now)))
            number.set(self.b.add(now, self.code.i32(1)))

    def _place(self, op: Operand, count: int, index: Value) -> ir.Value:
        start = self.code.at(self.w, self.field(("row", self.form.position(op), count, "")))
        first = self.b.extract_element(index.raw, self.code.i32(0))
        return self.code.at(start, self.b.zext(self.b.mul(first, self.code.i32(128 * count)), INT64))

    def rows_at(self, op: Operand, count: int, index: Value) -> list[Value]:
        if self.is_zero(op):
            return [self.const(I32, 0)] * count
        place = self._place(op, count, index)
        return [self.value(I32, self.code.load(V32, place, 128 * k)) for k in range(count)]

    def write_rows_at(self, op: Operand, values: Sequence[Value], index: Value) -> None:
        if self.is_zero(op):
            return
        place = self._place(op, len(values), index)
        for k, value in enumerate(values):
            old = self.code.load(V32, place, 128 * k)
            self.code.store(self.b.select(self.active.raw, value.raw, old), place, 128 * k)

    @property
    def warp_number(self) -> Value:
        return self.value(I32, self.code.splat(self.code.load(INT32, self.w, W["warp"])))

    # ------------------------------------------------------------------ special registers

    def special(self, op: Operand) -> Value:
        if op.name in CLOCKS:
            return self._clock(op.name.endswith("HI"))
        if op.name == "SRZ":
            return self.const(I32, 0)
        return self._run(("special", op.name), 1)[0]

    def special_high(self, op: Operand) -> Value:
        if op.name == "SRZ":
            return self.const(I32, 0)
        if op.name not in CLOCKS:
            raise Unsupported(f"{op.name} read as 64 bits")
        return self._clock(high=True)

    def _clock(self, high: bool) -> Value:
        """No clock runs here: the count of instructions the warp has issued moves forward and repeats exactly."""
        issued = self.code.load(ir.IntType(64), self.w, W["issued"])
        if high:
            issued = self.b.lshr(issued, self.code.i64(32))
        return self.value(I32, self.code.splat(self.b.trunc(issued, INT32)))

    def barrier_result(self) -> Value:
        return self.value(I32, self.code.splat(self.code.load(INT32, self.w, W["barrier_result"])))

    # ------------------------------------------------------------------ control

    def instruction_address(self) -> Value:
        return self.value(I32, self.code.splat(self.b.shl(self.pc, self.code.i32(4))))

    def _following(self) -> ir.Value:
        return self.b.add(self.pc, self.code.i32(1))

    def branch(self, target: Operand, mask: Value) -> None:
        """All or none of the group: a select; otherwise the runtime splits the group."""
        to = self.field(("target", self.form.position(target)))
        taken = self.code.bits(mask.raw)
        group = self.code.load(INT32, self.w, W["active"])
        taken = self.b.and_(taken, group)
        some = self.b.icmp_unsigned("!=", taken, self.code.i32(0))
        split = self.b.and_(some, self.b.icmp_unsigned("!=", taken, group))
        with self.code.when(split):
            self.b.ret(self.code.call("rt_split", INT32, [self.w, self.pc, taken, to]))
        self.next = self.b.select(some, to, self._following())

    def branch_to(self, address: Value, mask: Value) -> None:
        self.code.store(address.raw, self.w, W["data"])
        bits = self.code.bits(mask.raw)
        self.next = self.code.call("rt_branch_to", INT32, [self.w, self.pc, bits])

    def exit(self, mask: Value) -> None:
        self.next = self.code.call("rt_exit", INT32, [self.w, self.pc, self.code.bits(mask.raw)])

    def _barrier_offset(self, barrier: Operand) -> ir.Value:
        return self.field(("barrier", self.form.position(barrier)))

    def converge_set(self, barrier: Operand) -> None:
        at = self.code.at(self.w, self._barrier_offset(barrier))
        new = self.code.splat(self.active_bits)
        self.code.store(self.b.select(self.active.raw, new, self.code.load(V32, at)), at)

    def converge_wait(self, barrier: Operand) -> None:
        self.next = self.code.call(
            "rt_converge", INT32, [self.w, self.pc, self._barrier_offset(barrier), self.active_bits]
        )

    def converge_leave(self, barrier: Operand, mask: Value) -> None:
        at = self.code.at(self.w, self._barrier_offset(barrier))
        bits = self.code.bits(mask.raw)
        old = self.code.load(V32, at)
        # fellows: lanes named in the masks of the leaving lanes
        lane = self.b.and_(self.code.ctz(bits), self.code.i32(31))
        some = self.b.icmp_unsigned("!=", bits, self.code.i32(0))
        fellows = self.b.select(some, self.b.extract_element(old, lane), self.code.i32(0))
        without = self.b.and_(old, self.code.splat(self.b.not_(bits)))
        self.code.store(self.b.select(self.code.mask(fellows), without, old), at)

    def converge_lanes(self, members: Value) -> None:
        self.code.store(members.raw, self.w, W["data"])
        row = self.field(("sync",))
        self.next = self.code.call("rt_warpsync", INT32, [self.w, self.pc, row, self.active_bits])

    def read_barrier(self, barrier: Operand) -> Value:
        return self.value(I32, self.code.load(V32, self.code.at(self.w, self._barrier_offset(barrier))))

    def write_barrier(self, barrier: Operand, value: Value) -> None:
        at = self.code.at(self.w, self._barrier_offset(barrier))
        self.code.store(self.b.select(self.active.raw, value.raw, self.code.load(V32, at)), at)

    def cta_barrier(self, operation: str, number: Value, count: Value | None, predicate: Value | None) -> None:
        if operation not in BARRIER_OPS:
            raise Unsupported(f"BAR operation {operation}")
        lane = self.b.and_(self.code.ctz(self.active_bits), self.code.i32(31))
        index = self.b.and_(self.b.extract_element(number.raw, lane), self.code.i32(15))
        threads = self.code.i32(0) if count is None else self.b.extract_element(count.raw, lane)
        bits = self.active_bits
        true = bits if predicate is None else self.b.and_(bits, self.code.bits(predicate.raw))
        op = self.code.i32(BARRIER_OPS[operation])
        self.next = self.code.call("rt_barrier", INT32, [self.w, self.pc, index, threads, bits, op, true])

    def yield_turn(self) -> None:
        self.next = self.code.call("rt_yield", INT32, [self.w, self.pc])

    def sleep(self) -> None:
        self.code.store(self._following(), self.w, W["pc"])
        self.next = self.code.i32(layout.EVENT_YIELD)

    def target_address(self, target: Operand) -> Value:
        row = self.field(("target", self.form.position(target)))
        return self.value(I32, self.code.splat(self.b.shl(row, self.code.i32(4))))

    def trap(self, mask: Value) -> None:
        bits = self.code.bits(mask.raw)
        some = self.b.icmp_unsigned("!=", bits, self.code.i32(0))
        with self.code.when(some):
            self.code.store(self.pc, self.w, W["pc"])
            self.code.store(self.code.i32(layout.FAULT_TRAP), self.w, W["fault_space"])
            self.code.store(self.code.ctz(bits), self.w, W["fault_lane"])
            self.b.ret(self.code.i32(layout.EVENT_FAULT))
