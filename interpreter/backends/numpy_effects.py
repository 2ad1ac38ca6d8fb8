"""Control flow and special registers of the NumPy back end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from interpreter.backends import layout
from interpreter.backends.numpy_memory import NumpyMemory
from interpreter.backends.numpy_values import bits_of, lane_numbers
from interpreter.isa.value import I32, Unsupported, Value
from interpreter.launch import CLOCK_NAMES, WARP
from interpreter.program import Operand

if TYPE_CHECKING:
    from interpreter.backends.numpy_machine import Warp


@dataclass(frozen=True, slots=True)
class Blocked:
    """What a lane waits for, and where: "converge" (barrier register), "sync" (member mask), "barrier" (the CTA's)."""

    kind: str
    row: int
    detail: int  # barrier register, member mask, or named barrier

    def members(self, warp: Warp, lane: int) -> int:
        if self.kind == "converge":
            return int(warp.barriers[self.detail, lane])
        return self.detail if self.kind == "sync" else 0

    def same(self, other: Blocked) -> bool:
        return self.kind == other.kind and (self.kind == "sync" or self.detail == other.detail)

    def forget(self, warp: Warp, lanes: int, gone: int) -> None:
        """Take `gone` out of the barrier masks of `lanes`."""
        if self.kind == "converge":
            for lane in lane_numbers(lanes):
                warp.barriers[self.detail, lane] &= np.uint32(~gone & 0xFFFFFFFF)


class NumpyEmitter(NumpyMemory):
    """Completes the NumPy emitter with control flow."""

    # ------------------------------------------------------------------ special registers

    def special(self, op: Operand) -> Value:
        name = op.name
        if name == "SRZ":
            return self.const(I32, 0)
        if name in CLOCK_NAMES:
            return self.const(I32, self.warp.issued >> (32 if name.endswith("HI") else 0))
        if name not in self.cta.specials:
            raise Unsupported(f"special register {name}")
        return self.value(I32, self.cta.specials[name][self.warp.number].copy())

    def special_high(self, op: Operand) -> Value:
        if op.name == "SRZ":
            return self.const(I32, 0)
        if op.name not in CLOCK_NAMES:
            raise Unsupported(f"{op.name} read as 64 bits")
        return self.const(I32, self.warp.issued >> 32)

    def barrier_result(self) -> Value:
        return self.const(I32, self.warp.barrier_result)

    # ------------------------------------------------------------------ control

    def instruction_address(self) -> Value:
        return self.const(I32, 16 * self._row)

    def target_address(self, target: Operand) -> Value:
        return self.const(I32, 16 * self.form.actual(target).value)

    def branch(self, target: Operand, mask: Value) -> None:
        to = self.form.actual(target).value
        taken = bits_of(mask.raw) & self.warp.active
        warp = self.warp

        def go() -> None:
            rest = warp.active & ~taken
            if not taken:
                warp.pc += 1
            elif not rest:
                warp.pc = to
            else:
                self.diverged = True
                for lane in lane_numbers(taken):
                    warp.pcs[lane] = to
                warp.active = rest
                warp.leader = lane_numbers(rest)[0]
                warp.pc += 1

        self.diverged = bool(taken and warp.active & ~taken)
        self._next = go

    diverged = False

    def branch_to(self, address: Value, mask: Value) -> None:
        warp = self.warp
        bits = bits_of(mask.raw)
        if not bits:
            return
        numbers = address.raw.tolist()
        for lane in lane_numbers(bits):
            if numbers[lane] % 16 or numbers[lane] // 16 >= len(self.machine.program.instructions):
                self.machine.fault(self.cta, warp, layout.FAULT_TARGET, lane, numbers[lane])
        targets = {numbers[lane] // 16 for lane in lane_numbers(bits)}
        whole = len(targets) == 1 and bits == warp.active
        self.diverged = not whole

        def go() -> None:
            if whole:
                warp.pc = targets.pop()
                return
            for lane in lane_numbers(warp.active):
                warp.pcs[lane] = numbers[lane] // 16 if bits >> lane & 1 else warp.pc + 1
            self.machine.schedule(self.cta, warp)

        self._next = go

    def exit(self, mask: Value) -> None:
        bits = bits_of(mask.raw)
        warp = self.warp

        def go() -> None:
            warp.live &= ~bits
            warp.active &= ~bits
            if warp.active:
                warp.pc += 1
            else:
                self.machine.schedule(self.cta, warp)

        self._next = go

    def converge_set(self, barrier: Operand) -> None:
        lanes = self._active.raw
        self.warp.barriers[self.form.actual(barrier).index][lanes] = bits_of(lanes)

    def converge_wait(self, barrier: Operand) -> None:
        self._wait("converge", {lane: self.form.actual(barrier).index for lane in range(WARP)})

    def converge_lanes(self, members: Value) -> None:
        self._wait("sync", dict(enumerate(members.raw.tolist())))

    def _wait(self, kind: str, details: dict[int, int]) -> None:
        warp = self.warp
        bits = bits_of(self._active.raw)
        waits = {lane: Blocked(kind, self._row, details[lane]) for lane in lane_numbers(bits)}

        def go() -> None:
            outside = warp.live & ~warp.active
            missing = any(wait.members(warp, lane) & outside for lane, wait in waits.items())
            if not bits or (bits == warp.active and not missing):
                warp.pc += 1
                return
            for lane in lane_numbers(warp.active):
                warp.pcs[lane] = warp.pc if bits >> lane & 1 else warp.pc + 1
            warp.waits.update(waits)
            warp.yielded &= ~bits
            self.machine.schedule(self.cta, warp)

        self._next = go

    def converge_leave(self, barrier: Operand, mask: Value) -> None:
        bits = bits_of(mask.raw)
        if not bits:
            return
        row = self.warp.barriers[self.form.actual(barrier).index]
        fellows = int(row[lane_numbers(bits)[0]])
        for lane in lane_numbers(fellows):
            row[lane] &= np.uint32(~bits & 0xFFFFFFFF)

    def read_barrier(self, barrier: Operand) -> Value:
        return self.value(I32, self.warp.barriers[self.form.actual(barrier).index].copy())

    def write_barrier(self, barrier: Operand, value: Value) -> None:
        lanes = self._active.raw
        self.warp.barriers[self.form.actual(barrier).index][lanes] = value.raw[lanes]

    def cta_barrier(self, operation: str, number: Value, count: Value | None, predicate: Value | None) -> None:
        warp = self.warp
        lanes = self._active.raw
        bits = bits_of(lanes)
        if not bits:
            return
        first = lane_numbers(bits)[0]
        index = int(number.raw[first]) & 15
        if warp.barrier is not None and warp.barrier != index:
            self.machine.fault(self.cta, warp, layout.FAULT_BARRIER, first, 0)
        expected = 0 if count is None else int(count.raw[first])
        true = bits if predicate is None else bits & bits_of(predicate.raw)

        def go() -> None:
            warp.expected, warp.barrier_row, warp.barrier_operation = expected, warp.pc, operation
            before, warp.barrier = warp.barrier, index
            if operation == "arv":
                self.machine.arrive(self.cta, warp)
                warp.barrier = before
                warp.pc += 1
                return
            warp.true_lanes |= true
            for lane in lane_numbers(warp.active):
                warp.pcs[lane] = warp.pc + 1
            warp.waits.update({lane: Blocked("barrier", self._row, index) for lane in lane_numbers(bits)})
            self.machine.schedule(self.cta, warp)

        self._next = go

    def yield_turn(self) -> None:
        warp = self.warp

        def go() -> None:
            warp.pc += 1
            if warp.active == warp.live:
                return
            warp.yielded |= warp.active
            for lane in lane_numbers(warp.active):
                warp.pcs[lane] = warp.pc
            self.machine.schedule(self.cta, warp, avoid=warp.active)

        self._next = go

    def sleep(self) -> None:
        warp = self.warp

        def go() -> None:
            warp.pc = -1 - (warp.pc + 1)  # `_turn` sees it and ends the turn

        self._next = go

    def trap(self, mask: Value) -> None:
        if mask.raw.any():
            self.machine.fault(self.cta, self.warp, layout.FAULT_TRAP, lane_numbers(bits_of(mask.raw))[0], 0)
