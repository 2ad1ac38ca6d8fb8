"""Counters and traces of the NumPy back end, written from the rules of `llvm_trace` without sharing code with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interpreter.backends.numpy_values import lane_numbers
from interpreter.isa import registry
from interpreter.isa.pipes import MemoryKind
from interpreter.launch import LOCAL_WINDOW, SHARED_WINDOW, WARP, Launch
from interpreter.program import Program
from interpreter.trace import EVENT, LOCAL_LINE, Trace

if TYPE_CHECKING:
    from interpreter.backends.numpy_effects import NumpyEmitter

WINDOW_BYTES = 1 << 24
ATOMICS = (MemoryKind.ATOMIC_GLOBAL, MemoryKind.REDUCE_GLOBAL)


def lines_and_sectors(addresses: list[int], width: int) -> dict[int, int]:
    """128-byte line -> mask of its 32-byte sectors, in the order lanes meet them."""
    found: dict[int, int] = {}
    for address in addresses:
        for sector in range(address // 32, (address + width - 1) // 32 + 1):
            found[sector // 4] = found.get(sector // 4, 0) | 1 << sector % 4
    return found


def bank_passes(addresses: list[int], words: int) -> int:
    """Passes of one group: the most distinct words in one bank."""
    distinct = {address // 4 + k for address in addresses for k in range(words)}
    banks = [0] * 32
    for word in distinct:
        banks[word % 32] += 1
    return max(banks)


def reads_in_pairs(places: dict[int, int]) -> bool:
    """Every lane reads where lane ^ 1 does, or every lane where lane ^ 2 does (absent lanes agree)."""
    return any(all(places.get(lane ^ step, a) == a for lane, a in places.items()) for step in (1, 2))


def shared_groups(places: dict[int, int], width: int, load: bool, matrix: bool) -> list[tuple[list[int], int]]:
    """(addresses, words) of each group of lanes that a shared access is split into."""
    if matrix:
        spans, words = [range(8 * k, 8 * k + 8) for k in range(4)], 4
    elif width <= 4:
        spans, words = [range(WARP)], 1
    else:
        lanes = 32 if width == 8 else 16  # lanes that may be one group
        words = width // 4
        spans = []
        for start in range(0, WARP, lanes):
            members = {lane: a for lane, a in places.items() if start <= lane < start + lanes}
            if load and reads_in_pairs(members):
                spans.append(range(start, start + lanes))
            else:
                spans += [range(start, start + lanes // 2), range(start + lanes // 2, start + lanes)]
    groups = [[places[lane] for lane in span if lane in places] for span in spans]
    return [(group, words) for group in groups if group]


class Recorder:
    """Collects counts and, if asked, events."""

    def __init__(self, program: Program, launch: Launch, counts: np.ndarray, events: bool) -> None:
        self.counts = counts
        self.warps = launch.warps
        self.timings = [registry.timing_of(i, program.sm) for i in program.instructions]
        self.matrix = [i.opcode in ("LDSM", "STSM") for i in program.instructions]
        self.keep = events
        self.events: list[list[tuple[int, int, int, int]]] = []
        self.lines: list[list[int]] = []

    def start(self) -> None:
        """A CTA begins."""
        self.events += [[] for _ in range(self.warps)]
        self.lines += [[] for _ in range(self.warps)]

    def record(self, warp: int, row: int, group: int, lanes: int, emitter: NumpyEmitter) -> None:
        counts = self.counts[row]
        counts["instructions_executed"] += 1
        counts["thread_instructions_executed"] += group.bit_count()
        counts["predicated_on_thread_instructions_executed"] += lanes.bit_count()
        counts["divergent_branches"] += emitter.diverged
        wavefronts, lines = self._memory(row, emitter) if lanes else (0, [])
        if self.keep:
            place = len(self.events) - self.warps + warp
            self.events[place].append((row, lanes.bit_count(), wavefronts, len(lines)))
            self.lines[place] += lines

    def _memory(self, row: int, emitter: NumpyEmitter) -> tuple[int, list[int]]:
        timing = self.timings[row]
        wavefronts, lines = 0, []
        for position, (space, bits, numbers) in enumerate(emitter.accesses):
            places = {lane: numbers[lane] for lane in lane_numbers(bits)}
            parts: dict[str, dict[int, int]] = {space: places}
            if space == "generic":
                parts = {"shared": {}, "local": {}, "global": {}}
                for lane, address in places.items():
                    name = _space_of(address)
                    parts[name][lane] = address if name == "global" else address % WINDOW_BYTES
            for name, part in parts.items():
                if not part:
                    continue
                if name == "shared":
                    load = timing.memory is MemoryKind.LOAD_SHARED and position == 0
                    wavefronts += self._shared(row, part, load)
                elif name == "local":
                    lines += _local_lines(part, timing.width)
                else:
                    lines += self._global(row, part)
                    if timing.memory in ATOMICS:
                        addresses = list(part.values())
                        wavefronts += max(addresses.count(a) for a in set(addresses))
                    elif timing.memory is MemoryKind.LOAD_GLOBAL:
                        groups = shared_groups(part, timing.width, load=False, matrix=False)
                        wavefronts += sum(bank_passes(addresses, words) for addresses, words in groups)
        return wavefronts, lines

    def _global(self, row: int, places: dict[int, int]) -> list[int]:
        width = self.timings[row].width
        found = lines_and_sectors(list(places.values()), width)
        sectors = sum(mask.bit_count() for mask in found.values())
        counts = self.counts[row]
        counts["l1_tag_requests_global"] += len(found)
        counts["l2_theoretical_sectors_global"] += sectors
        counts["l2_theoretical_sectors_global_ideal"] += min(sectors, -(-len(places) * width // 32))
        return [line << 4 | mask for line, mask in found.items()]

    def _shared(self, row: int, places: dict[int, int], load: bool) -> int:
        groups = shared_groups(places, self.timings[row].width, load, self.matrix[row])
        passes = sum(bank_passes(addresses, words) for addresses, words in groups)
        self.counts[row]["l1_wavefronts_shared"] += passes
        self.counts[row]["l1_wavefronts_shared_ideal"] += len(groups)
        return passes

    def trace(self, ctas: list[int]) -> Trace:
        def starts(lists: list[list]) -> np.ndarray:
            return np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)

        events = np.array([e for one in self.events for e in one], EVENT)
        lines = np.array([n for one in self.lines for n in one], np.uint64)
        return Trace(ctas, self.warps, events, starts(self.events), lines, starts(self.lines))


def _space_of(address: int) -> str:
    if SHARED_WINDOW <= address < SHARED_WINDOW + WINDOW_BYTES:
        return "shared"
    return "local" if LOCAL_WINDOW <= address < LOCAL_WINDOW + WINDOW_BYTES else "global"


def _local_lines(places: dict[int, int], width: int) -> list[int]:
    """Entries of a local access: distinct words in the order met, with the sectors (lane / 8) of their lanes."""
    found: dict[int, int] = {}
    for lane, address in places.items():
        found[address // 4] = found.get(address // 4, 0) | 1 << lane // 8
    return [LOCAL_LINE + word + k << 4 | mask for word, mask in found.items() for k in range(-(-width // 4))]
