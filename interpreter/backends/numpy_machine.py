"""The NumPy back end: executes each instruction's meaning directly. Slow and obvious; the reference for the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from interpreter.backends import faults, layout
from interpreter.backends.numpy_effects import Blocked, NumpyEmitter
from interpreter.backends.numpy_trace import Recorder
from interpreter.backends.numpy_values import bits_of, lane_numbers, lanes_of
from interpreter.errors import ExecutionError, UnsupportedInstruction
from interpreter.isa import registry
from interpreter.isa.registry import Opcode
from interpreter.isa.value import Unsupported
from interpreter.launch import WARP, Launch, constant_banks, cta_registers, shared_bytes, special_values, stack_bytes
from interpreter.lowering import FormOperands
from interpreter.memory import Memory
from interpreter.program import Program
from interpreter.trace import RunResult, Trace

TURN = 4096  # instructions of a warp's turn


@dataclass(slots=True)
class Warp:
    """State of one warp. Masks are ints, one bit a lane."""

    number: int
    live: int
    registers: np.ndarray  # uint32[256, 32]; row 255 stays zero
    uniforms: np.ndarray
    predicates: np.ndarray  # bool[8, 32]; row 7 stays true
    uniform_predicates: np.ndarray
    barriers: np.ndarray  # uint32[16, 32]: convergence barrier registers, a mask for each lane
    local: np.ndarray  # uint8[32, bytes]
    active: int = 0
    pc: int = 0
    pcs: list[int] = field(default_factory=lambda: [0] * WARP)
    waits: dict[int, Any] = field(default_factory=dict)  # lane -> Blocked
    leader: int = 0
    yielded: int = 0
    issued: int = 0
    barrier: int | None = None  # named barrier lanes wait at
    barrier_row: int = 0
    barrier_operation: str = "sync"
    expected: int = 0
    true_lanes: int = 0
    barrier_result: int = 0
    done: bool = False
    at_barrier: bool = False

    @property
    def blocked(self) -> int:
        return sum(1 << lane for lane in self.waits)


@dataclass(slots=True)
class NamedBarrier:
    arrived: int = 0
    expected: int = 0
    popc: int = 0
    every: bool = True


class Cta:
    """Warps, shared memory and barriers of one CTA."""

    def __init__(self, machine: NumpyMachine, number: int) -> None:
        program, launch = machine.program, machine.launch
        self.machine = machine
        self.number = number
        self.shared = np.zeros(shared_bytes(program, launch), np.uint8)
        self.specials = {**machine.specials}
        for name, n in cta_registers(launch.cta_index(number)).items():
            self.specials[name] = np.full((launch.warps, WARP), n, np.uint32)
        self.barriers = [NamedBarrier() for _ in range(16)]
        self.warps = [self._warp(k) for k in range(launch.warps)]

    def _warp(self, number: int) -> Warp:
        left = self.machine.launch.threads - WARP * number
        live = 0xFFFFFFFF if left >= WARP else (1 << left) - 1
        predicates, uniform_predicates = np.zeros((8, WARP), bool), np.zeros((8, WARP), bool)
        predicates[7] = uniform_predicates[7] = True
        stack = stack_bytes(self.machine.program)
        return Warp(
            number, live, np.zeros((256 + 8, WARP), np.uint32), np.zeros((256 + 8, WARP), np.uint32), predicates,
            uniform_predicates, np.zeros((16, WARP), np.uint32), np.zeros((WARP, stack), np.uint8), active=live,
        )  # fmt: skip


class NumpyMachine:
    """Runs a launch by interpretation."""

    def __init__(self, program: Program, memory: Memory, launch: Launch) -> None:
        registry.check(program)
        self.program = program
        self.memory = memory
        self.launch = launch
        self.banks = constant_banks(program, launch)
        self.operands = [FormOperands(i) for i in program.instructions]
        self.entries: list[Opcode] = [registry.load()[i.opcode] for i in program.instructions]
        names = {op.name for i in program.instructions for op in i.operands if op.kind.name == "SPECIAL"}
        special = [name for name in names if name in layout_names()]
        self.specials = {name: special_values(name, program, launch) for name in special}
        self.recorder: Recorder | None = None

    # ------------------------------------------------------------------ running

    def run(self, ctas: Sequence[int], mode: str, budget: int, counts: np.ndarray | None) -> RunResult:
        self.recorder = Recorder(self.program, self.launch, counts, mode == "trace") if counts is not None else None
        issued = 0
        for number in ctas:
            cta = Cta(self, number)
            if self.recorder:
                self.recorder.start()
            self._run_cta(cta, budget)
            issued += sum(warp.issued for warp in cta.warps)
        trace: Trace | None = self.recorder.trace(list(ctas)) if self.recorder and mode == "trace" else None
        return RunResult(issued, counts, trace)

    def _run_cta(self, cta: Cta, budget: int) -> None:
        progress = True
        while progress:
            progress = False
            for warp in cta.warps:
                if warp.done or warp.at_barrier:
                    continue
                progress = True
                self._turn(cta, warp, min(TURN, budget + 1))
                if warp.issued > budget:
                    raise faults.budget_exceeded(
                        self.program, self.launch, budget, cta.number, warp.number, warp.pc
                    )
        if not all(warp.done for warp in cta.warps):
            raise faults.deadlock(self.program, self.launch, cta.number, self._waits(cta))

    def _turn(self, cta: Cta, warp: Warp, most: int) -> None:
        """Run a warp until it waits, ends or has had its turn."""
        end = warp.issued + most
        while warp.issued < end:
            self.step(cta, warp)
            if warp.done or warp.at_barrier:
                return
            if warp.pc < 0:  # NANOSLEEP
                warp.pc = -1 - warp.pc
                break
        if warp.active != warp.live:
            self._rotate(cta, warp)

    def step(self, cta: Cta, warp: Warp) -> None:
        """Execute one instruction of a warp's running group."""
        row = warp.pc
        instruction = self.program.instructions[row]
        emitter = NumpyEmitter(self, cta, warp, instruction, self.operands[row])
        group, lanes = warp.active, bits_of(emitter.active.raw)
        try:
            self.entries[row].meaning(emitter, self.operands[row].masked)
        except Unsupported as error:
            what = (instruction.address, f"{instruction.text} ({error})")
            raise UnsupportedInstruction(self.program.name, [what]) from None
        warp.issued += 1
        if self.recorder:
            self.recorder.record(warp.number, row, group, lanes, emitter)
        emitter.finish()

    # ------------------------------------------------------------------ groups

    def release_complete(self, warp: Warp) -> None:
        """Let go the lanes whose convergence point every living member has reached."""
        for lane in sorted(warp.waits):
            wait = warp.waits.get(lane)
            if wait is None or wait.kind == "barrier":
                continue
            here = self._here(warp, wait)
            members = wait.members(warp, lane) & warp.live
            if members & ~here == 0:
                self._release(warp, (members & here) | 1 << lane)

    def _here(self, warp: Warp, wait: Blocked) -> int:
        """Lanes that wait on the same thing, at whatever instruction: each goes on behind its own."""
        return sum(1 << lane for lane, other in warp.waits.items() if other.same(wait))

    def _release(self, warp: Warp, bits: int) -> None:
        for lane in lane_numbers(bits):
            warp.waits.pop(lane, None)
            warp.pcs[lane] += 1

    def schedule(self, cta: Cta, warp: Warp, avoid: int = 0) -> None:
        """Choose the group that runs next: the first ready lane after the last leader, not in `avoid` if possible."""
        self.release_complete(warp)
        ready = warp.live & ~warp.blocked
        if not ready:
            warp.active = 0
            if not warp.live:
                warp.done = True
                for number, barrier in enumerate(cta.barriers):
                    if barrier.arrived:
                        self.complete(cta, number)
            elif warp.barrier is not None:
                warp.at_barrier = True
                self.arrive(cta, warp)
            else:
                raise faults.deadlock(self.program, self.launch, cta.number, self._waits(cta))
            return
        choice = ready & ~avoid or ready
        lanes = lane_numbers(choice)
        leader = next((lane for lane in lanes if lane > warp.leader), lanes[0])
        warp.leader = leader
        warp.pc = warp.pcs[leader]
        warp.active = sum(1 << lane for lane in lane_numbers(ready) if warp.pcs[lane] == warp.pc)

    def _rotate(self, cta: Cta, warp: Warp) -> None:
        """The running group has had its turn. Lanes that wait for lanes which have all yielded go on without them."""
        for lane in lane_numbers(warp.active):
            warp.pcs[lane] = warp.pc
        for lane in sorted(warp.waits):
            wait = warp.waits.get(lane)
            if wait is None or wait.kind == "barrier":
                continue
            here = self._here(warp, wait)
            missing = wait.members(warp, lane) & warp.live & ~here
            if missing & ~warp.yielded == 0:
                self._release(warp, here)
                wait.forget(warp, missing, here)
        self.schedule(cta, warp, avoid=warp.active)

    # ------------------------------------------------------------------ CTA barriers

    def arrive(self, cta: Cta, warp: Warp) -> None:
        """Count a warp's arrival. A barrier counts whole warps: lanes that have exited count as arrived."""
        assert warp.barrier is not None
        waiting = sum(1 << lane for lane, wait in warp.waits.items() if wait.kind == "barrier")
        lanes = waiting or warp.live
        barrier = cta.barriers[warp.barrier]
        barrier.arrived += lanes.bit_count() + WARP - warp.live.bit_count()
        barrier.expected = warp.expected
        barrier.popc += warp.true_lanes.bit_count()
        if lanes & ~warp.true_lanes:
            barrier.every = False
        self.complete(cta, warp.barrier)

    def complete(self, cta: Cta, number: int) -> None:
        """If enough threads have arrived, let the waiting warps go and reset the barrier."""
        barrier = cta.barriers[number]
        need = barrier.expected or WARP * sum(not warp.done for warp in cta.warps)
        if not barrier.arrived or barrier.arrived < need:
            return
        results = {"red.popc": barrier.popc, "red.and": int(barrier.every), "red.or": int(barrier.popc != 0)}
        cta.barriers[number] = NamedBarrier()
        for warp in cta.warps:
            if not warp.at_barrier or warp.barrier != number:
                continue
            warp.barrier_result = results.get(warp.barrier_operation, warp.barrier_result)
            warp.waits = {lane: wait for lane, wait in warp.waits.items() if wait.kind != "barrier"}
            warp.barrier, warp.at_barrier, warp.true_lanes = None, False, 0
            self.schedule(cta, warp)

    # ------------------------------------------------------------------ errors

    def fault(self, cta: Cta, warp: Warp, space: int, lane: int, address: int, limit: int = 0) -> NoReturn:
        error: ExecutionError = faults.fault(
            self.program, self.memory, self.launch, space=space, row=warp.pc, address=address, cta=cta.number,
            warp=warp.number, lane=lane, limit=limit,
        )  # fmt: skip
        raise error

    def _waits(self, cta: Cta) -> list[tuple[int, int, str]]:
        found: list[tuple[int, int, str]] = []
        for warp in cta.warps:
            if warp.done:
                continue
            if warp.at_barrier and warp.barrier is not None:
                barrier = cta.barriers[warp.barrier]
                expected = barrier.expected or WARP * self.launch.warps
                what = f"barrier {warp.barrier} ({barrier.arrived} of {expected} threads arrived)"
                found.append((warp.number, warp.barrier_row, what))
                continue
            for row in sorted({warp.pcs[lane] for lane in warp.waits if warp.live >> lane & 1}):
                here = [lane for lane in sorted(warp.waits) if warp.pcs[lane] == row]
                mask = warp.waits[here[0]].members(warp, here[0])
                absent = [lane for lane in lane_numbers(mask & warp.live) if lane not in here]
                found.append((warp.number, row, f"lanes {absent} (here: {here})"))
        return found


def layout_names() -> frozenset[str]:
    """Special registers that do not depend on the CTA or a clock."""
    from interpreter.launch import SPECIAL_NAMES

    return SPECIAL_NAMES - set(cta_registers((0, 0, 0)))


__all__ = ["Cta", "NumpyMachine", "Warp", "lanes_of", "layout"]
