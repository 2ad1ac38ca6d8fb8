"""The LLVM back end's machine: warps in memory, the CTA loop, trace buffers and errors."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from interpreter.backends import faults, layout
from interpreter.backends.layout import CTA, LANES, MACHINE, ROW_BYTES, WARP, WARP_HEADER, W
from interpreter.backends.llvm_engine import Batch, CacheLost, DiskCache, engine
from interpreter.backends.llvm_trace import tracer_of
from interpreter.launch import (
    LOCAL_WINDOW,
    SHARED_WINDOW,
    Launch,
    constant_banks,
    cta_registers,
    shared_bytes,
    special_values,
    stack_bytes,
)
from interpreter.lowering import FileLayout, Lowered, immediate_words, lower
from interpreter.memory import Memory
from interpreter.program import Program
from interpreter.trace import COUNTS, EVENT, RunResult, Trace

EVENTS_PER_CHUNK = 1 << 13
LINES_PER_CHUNK = 1 << 13
LINES_PER_EVENT = 128  # most an instruction can add, with room
QUANTUM = 4096  # instructions of a warp's turn: long enough to cost nothing, short enough for spin waits


def aligned(nbytes: int, boundary: int = 128) -> np.ndarray:
    """Zeroed uint8 array whose data starts on a boundary."""
    raw = np.zeros(nbytes + boundary, np.uint8)
    start = -raw.ctypes.data % boundary
    return raw[start : start + nbytes]


def prepare(program: Program) -> tuple[Lowered, Batch]:
    """Lower a program with compiled handlers. Raises UnsupportedInstruction."""
    eng = engine()
    try:
        return _prepare(program)
    except CacheLost:  # the disk cache lost an object: do without what it says
        eng.shapes.clear()
        eng.disk = DiskCache(None)
        return _prepare(program)


def _prepare(program: Program) -> tuple[Lowered, Batch]:
    batch = Batch(engine())
    lowered = lower(program, batch.form)
    batch.finish()
    handlers = engine().addresses
    lowered.rows["handler"] = [handlers[form.symbol] for form in lowered.forms]
    return lowered, batch


class LlvmMachine:
    """Runs a launch on compiled handlers."""

    def __init__(self, program: Program, memory: Memory, launch: Launch) -> None:
        self.program = program
        self.memory = memory
        self.launch = launch
        lowered, _ = prepare(program)
        self.file = lowered.file
        self.rows = aligned(lowered.rows.nbytes).view(layout.ROW)
        self.rows[:] = lowered.rows
        self._patterns: np.ndarray | None = None
        self.banks = {k: np.frombuffer(b, np.uint8).copy() for k, b in constant_banks(program, launch).items()}
        self.shared = aligned(max(shared_bytes(program, launch), 128))
        self.local_bytes = stack_bytes(program)
        self.local = aligned(launch.warps * max(self.local_bytes, 4) * LANES)
        self.machine = np.zeros(1, MACHINE)
        self.template = self._template()
        self.warps = aligned(self.template.size)
        self.header = np.ndarray(launch.warps, WARP, self.warps.data, 0, (self.warp_bytes,))
        self.cta = np.zeros(1, CTA)
        self._events: list[list[np.ndarray]] = []
        self._lines: list[list[np.ndarray]] = []

    # ------------------------------------------------------------------ initial state

    @property
    def warp_bytes(self) -> int:
        return WARP_HEADER + ROW_BYTES * self.file.count

    def _template(self) -> np.ndarray:
        """All warps of a CTA as they start, but for the registers that depend on the CTA."""
        warps = self.launch.warps
        block = aligned(warps * self.warp_bytes)
        header = np.ndarray(warps, WARP, block.data, 0, (self.warp_bytes,))
        file = np.ndarray(
            (warps, self.file.count, LANES), np.uint32, block.data, WARP_HEADER, (self.warp_bytes, ROW_BYTES, 4)
        )
        fill_rows(file, self.file, self.program, self.launch, {k: bytes(v) for k, v in self.banks.items()})
        header["preds"][:, 7] = 0xFFFFFFFF
        header["upreds"][:, 7] = 0xFFFFFFFF
        left = self.launch.threads - LANES * np.arange(warps)
        header["live"] = [0xFFFFFFFF if n >= LANES else (1 << n) - 1 for n in left.tolist()]
        header["active"] = header["live"]
        header["leader"] = 0
        header["shared"] = self.shared.ctypes.data
        header["shared_bytes"] = shared_bytes(self.program, self.launch)
        header["local_bytes"] = self.local_bytes
        header["local"] = self.local.ctypes.data + np.arange(warps) * max(self.local_bytes, 4) * LANES
        header["machine"] = self.machine.ctypes.data
        header["warp"] = np.arange(warps)
        return block

    def _start_cta(self, number: int) -> None:
        self.warps[:] = self.template
        file = np.ndarray(
            (self.launch.warps, self.file.count, LANES),
            np.uint32, self.warps.data, WARP_HEADER, (self.warp_bytes, ROW_BYTES, 4),
        )  # fmt: skip
        index = cta_registers(self.launch.cta_index(number))
        for source in self.file.sources:
            if source.kind == "special" and source.arguments[0] in index:
                file[:, source.row] = index[source.arguments[0]]
        self.shared[:] = 0
        self.local[:] = 0
        cta = self.cta[0]
        cta["warps"], cta["stride"], cta["count"] = self.warps.ctypes.data, self.warp_bytes, self.launch.warps
        cta["done"] = cta["resume"] = 0
        for name in ("arrived", "expected", "popc"):
            cta[name] = 0
        cta["all"] = 1

    def _start_run(self, mode: str, budget: int, counts: np.ndarray | None) -> int:
        m = self.machine[0]
        bases, sizes = self.memory.tables()
        self._keep = (bases, sizes, counts)  # the compiled code reads them
        m["delta"] = self.memory.delta & 0xFFFFFFFFFFFFFFFF
        m["bases"], m["sizes"], m["allocations"] = bases.ctypes.data, sizes.ctypes.data, len(bases)
        m["counts"] = 0 if counts is None else counts.ctypes.data
        m["shared_window"], m["local_window"] = SHARED_WINDOW, LOCAL_WINDOW
        for bank, content in self.banks.items():
            if bank < 8:
                m["banks"][bank], m["bank_bytes"][bank] = content.ctypes.data, len(content)
        m["rows"], m["row_count"] = self.rows.ctypes.data, len(self.rows)
        m["quantum"] = min(QUANTUM, budget + 1)
        m["budget"] = budget
        eng = engine()
        if mode != "plain" and self._patterns is None:
            tracers = [tracer_of(i, self.program.sm) for i in self.program.instructions]
            eng.require({t[0] for t in tracers if t})
            self.rows["tracer"] = [eng.addresses[t[0]] if t else 0 for t in tracers]
            self.rows["width"] = [t[1] if t else 0 for t in tracers]
            self._patterns = aligned(2 * len(self.rows) * layout.PATTERN.itemsize)
        if self._patterns is not None:
            m["patterns"] = self._patterns.ctypes.data
        eng.require([f"rt_cta_{mode}"])
        return eng.addresses[f"rt_cta_{mode}"]

    # ------------------------------------------------------------------ running

    def run(self, ctas: Sequence[int], mode: str, budget: int, counts: np.ndarray | None) -> RunResult:
        address = self._start_run(mode, budget, counts)
        step = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(address)
        trace = TraceBuffers(self.header) if mode == "trace" else None
        issued = 0
        for number in ctas:
            self._start_cta(number)
            if trace:
                trace.start()
            while True:
                event = step(self.cta.ctypes.data, self.machine.ctypes.data)
                if event == layout.CTA_DONE:
                    break
                if event == layout.EVENT_FULL and trace:
                    trace.flush(int(self.cta[0]["warp"]))
                    continue
                self._raise(event, number, budget)
            issued += int(self.header["issued"].sum())
            if trace:
                trace.end()
        return RunResult(issued, counts, trace.result(list(ctas)) if trace else None)

    def _raise(self, event: int, cta: int, budget: int) -> None:
        number = int(self.cta[0]["warp"])
        warp = self.header[number]
        row = int(warp["pc"])
        if event == layout.EVENT_FAULT:
            lane = int(warp["fault_lane"])
            space = int(warp["fault_space"])
            limits = {layout.FAULT_SHARED: "shared_bytes", layout.FAULT_LOCAL: "local_bytes"}
            limit = int(warp[limits[space]]) if space in limits else 0
            if space == layout.FAULT_CONSTANT:
                bank = next((op.bank for op in self.program.instructions[row].operands if op.bank), 0)
                limit = len(self.banks.get(bank, b""))
            raise faults.fault(
                self.program, self.memory, self.launch, space=space, row=row, address=int(warp["address"][lane]),
                cta=cta, warp=number, lane=lane, limit=limit,
            )  # fmt: skip
        if event == layout.EVENT_BUDGET:
            raise faults.budget_exceeded(self.program, self.launch, budget, cta, number, row)
        if event in (layout.CTA_STUCK, layout.EVENT_DEADLOCK):
            raise faults.deadlock(self.program, self.launch, cta, self._waits())
        raise RuntimeError(f"the interpreter's loop gave {event}")

    def _waits(self) -> list[tuple[int, int, str]]:
        """What each warp that has not ended waits for."""
        found: list[tuple[int, int, str]] = []
        for number, warp in enumerate(self.header):
            if warp["status"] == layout.DONE:
                continue
            live, blocked = int(warp["live"]), int(warp["blocked"])
            if warp["status"] == layout.AT_BARRIER:
                barrier = int(warp["barrier"])
                arrived = int(self.cta[0]["arrived"][barrier])
                expected = int(self.cta[0]["expected"][barrier]) or LANES * self.launch.warps
                what = f"barrier {barrier} ({arrived} of {expected} threads arrived)"
                found.append((number, int(warp["barrier_pc"]), what))
                continue
            lanes = [lane for lane in range(LANES) if blocked & live & 1 << lane]
            for row in sorted({int(warp["pcs"][lane]) for lane in lanes}):
                here = [lane for lane in lanes if warp["pcs"][lane] == row]
                mask = self._mask(number, int(warp["wait"][here[0]]), here[0])
                absent = [lane for lane in range(LANES) if mask & live & 1 << lane and lane not in here]
                found.append((number, row, f"lanes {absent} (here: {here})"))
        return found

    def _mask(self, number: int, offset: int, lane: int) -> int:
        if offset < 0:
            return 0
        at = number * self.warp_bytes + offset + 4 * lane
        return int(self.warps[at : at + 4].view(np.uint32)[0])


def fill_rows(
    file: np.ndarray, rows: FileLayout, program: Program, launch: Launch, banks: dict[int, bytes]
) -> None:
    """Fill the launch rows of uint32[warps, rows, 32]."""
    for source in rows.sources:
        if source.kind == "special":
            if source.arguments[0] not in cta_registers((0, 0, 0)):
                file[:, source.row] = special_values(source.arguments[0], program, launch)
            continue
        words = launch_words(source.kind, source.arguments, source.count, banks)
        for k, word in enumerate(words):
            file[:, source.row + k] = word


def launch_words(kind: str, arguments: tuple, count: int, banks: dict[int, bytes]) -> list[int]:
    """Words of an "immediate", "constant" or "bytes" source. Reading past a constant bank gives zeros, as the
    padding of a bank does."""
    if kind == "immediate":
        value, extend = arguments
        return immediate_words(value, count, extend)
    bank, offset = arguments[:2]
    content = banks.get(bank, b"")
    width = 4 * count if kind == "constant" else arguments[2]
    raw = content[offset : offset + width].ljust(width, b"\0")
    if width >= 4:
        return [int.from_bytes(raw[4 * k : 4 * k + 4], "little") for k in range(width // 4)]
    return [int.from_bytes(raw, "little", signed=arguments[3]) & 0xFFFFFFFF]


class TraceBuffers:
    """Event and line buffers of the warps of a CTA, and what earlier CTAs left.

    Events are handled as plain 64-bit words: NumPy copies records field by field, ten times slower.
    """

    def __init__(self, header: np.ndarray) -> None:
        self.header = header
        self.streams = [
            _Stream(header, "events", EVENTS_PER_CHUNK, 0),
            _Stream(header, "lines", LINES_PER_CHUNK, LINES_PER_EVENT),
        ]

    def start(self) -> None:
        """Point the warps of a CTA that is about to run at empty buffers."""
        for stream in self.streams:
            stream.reset()

    def flush(self, warp: int) -> None:
        """A warp's buffer is full: keep its content and empty it."""
        for stream in self.streams:
            stream.flush(warp)

    def end(self) -> None:
        """The CTA has ended."""
        for stream in self.streams:
            stream.end()

    def result(self, ctas: list[int]) -> Trace:
        (events, warp_start), (lines, line_start) = (stream.result() for stream in self.streams)
        return Trace(ctas, len(self.header), events.view(EVENT), warp_start, lines, line_start)


class _Stream:
    """One kind of record, a buffer a warp."""

    def __init__(self, header: np.ndarray, name: str, room: int, slack: int) -> None:
        self.position, self.limit = header[name], header[f"{name}_end"]  # live views
        self.buffers = np.zeros((len(header), room + slack), np.uint64)
        self.starts = self.buffers.ctypes.data + self.buffers.strides[0] * np.arange(len(header), dtype=np.uint64)
        self.ends = self.starts + np.uint64(8 * room)
        self.early: dict[int, list[np.ndarray]] = {}  # of the running CTA: what full buffers held
        self.kept: list[np.ndarray] = []
        self.lengths: list[int] = []

    def reset(self) -> None:
        self.position[:] = self.starts
        self.limit[:] = self.ends

    def flush(self, warp: int) -> None:
        used = int(self.position[warp] - self.starts[warp]) // 8
        self.early.setdefault(warp, []).append(self.buffers[warp, :used].copy())
        self.position[warp] = self.starts[warp]

    def end(self) -> None:
        used = ((self.position - self.starts) // np.uint64(8)).tolist()
        pieces: list[np.ndarray] = []
        for warp, n in enumerate(used):
            early = self.early.get(warp, [])
            pieces += [*early, self.buffers[warp, :n]]
            self.lengths.append(n + sum(len(piece) for piece in early))
        self.early.clear()
        self.kept.append(np.concatenate(pieces))

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        content = np.concatenate([np.zeros(0, np.uint64), *self.kept])
        return content, np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)


__all__ = ["COUNTS", "LlvmMachine", "TraceBuffers", "W", "launch_words", "prepare"]
