"""What can be read off a kernel's SASS: control flow, live registers, which instruction another one waits for.

Works on the text and the control fields that the table `instructions` keeps, so no cubin is needed. Flow through
indirect branches (BRX) is taken to go on below; calls return to every place behind a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from farm.page.register_use import PREDICATE_BASE, UNIFORM_BASE, UNIFORM_PREDICATE_BASE, Use, register_use
from interpreter.decode import parse_instruction
from interpreter.operands import OperandError
from interpreter.program import PT, Instruction, OperandKind

_GENERAL = (1 << UNIFORM_BASE) - 1
_UNIFORM = (1 << PREDICATE_BASE) - 1 - _GENERAL
_NO_SCOREBOARD = 7
STACK_POINTER = 1

Guard = tuple[int, bool]  # number of the predicate register, and whether it must be false


@dataclass(frozen=True, slots=True)
class Control:
    """Control fields of one instruction, from bits 125:105 of its encoding."""

    stall: int
    yields: bool
    write_barrier: int | None  # scoreboard released when the result is there
    read_barrier: int | None  # scoreboard released when the sources have been read
    waits: tuple[int, ...]  # scoreboards that must be free before issue

    @classmethod
    def of(cls, word: int) -> Control:
        write, read = word >> 5 & 7, word >> 8 & 7
        return cls(
            stall=word & 15,
            yields=not word >> 4 & 1,
            write_barrier=None if write == _NO_SCOREBOARD else write,
            read_barrier=None if read == _NO_SCOREBOARD else read,
            waits=tuple(n for n in range(6) if word >> 11 + n & 1),
        )


@dataclass(frozen=True, slots=True)
class Waits:
    """A line waits for `setter` through scoreboard `number`; `result` says whether for its result or its sources."""

    setter: int
    number: int
    result: bool


@dataclass(slots=True)
class Listing:
    """A kernel's instructions by row, analysed. Lists have one entry a row."""

    instructions: list[Instruction | None]  # None: text of an unknown form
    uses: list[Use]
    controls: list[Control] | None
    successors: list[tuple[int, ...]]
    live: list[int]  # registers live behind the instruction, or read or written by it: a set as bits
    producers: list[list[tuple[int, int]]]  # (row that wrote it, register) of each register read
    waits: list[list[Waits]] = field(default_factory=list)
    branches: list[tuple[int, int]] = field(default_factory=list)  # (from, to)

    def live_registers(self) -> list[int]:
        """General registers held at each line, as `nvdisasm -plr` counts them."""
        return [(mask & _GENERAL).bit_count() for mask in self.live]

    def live_uniforms(self) -> list[int]:
        return [(mask & _UNIFORM).bit_count() for mask in self.live]

    def local_accesses(self) -> list[int]:
        """1 for a store to local memory, 2 for a load from it, else 0: spills, where the compiler reports spills."""
        kinds = {"STL": 1, "LDL": 2}
        return [0 if i is None else kinds.get(i.opcode, 0) for i in self.instructions]


def analyse(texts: Sequence[str], control: Sequence[int] | np.ndarray | None = None) -> Listing:
    """The listing of a kernel: `texts` as disassembled, row by row, `control` its words (bits 125:105), if known."""
    instructions: list[Instruction | None] = []
    for row, text in enumerate(texts):
        try:
            instructions.append(parse_instruction(text, row))
        except OperandError:
            instructions.append(None)
    uses = [Use((), (), False) if i is None else register_use(i) for i in instructions]
    successors = _successors(instructions)
    flow = _Flow(instructions, uses, successors)
    controls = None if control is None else [Control.of(int(word)) for word in control]
    listing = Listing(
        instructions=instructions,
        uses=uses,
        controls=controls,
        successors=successors,
        live=flow.live(),
        producers=[[(d, r) for r in use.reads for d in flow.definitions(row, r)] for row, use in enumerate(uses)],
        branches=[(row, t) for row, i in enumerate(instructions) if i is not None for t in _targets(i, len(texts))],
    )
    if controls is not None:
        listing.waits = _scoreboard_waits(instructions, controls, flow)
    else:
        listing.waits = [[] for _ in texts]
    return listing


def _always(instruction: Instruction) -> bool:
    guard = instruction.guard
    return guard is None or (guard.index == PT and not guard.invert)


def _guard(instruction: Instruction) -> Guard | None:
    guard = instruction.guard
    if guard is None or guard.index == PT:
        return None
    base = UNIFORM_PREDICATE_BASE if guard.kind is OperandKind.UNIFORM_PREDICATE else PREDICATE_BASE
    return base + guard.index, guard.invert


def _targets(instruction: Instruction, count: int) -> list[int]:
    if instruction.opcode in ("BSSY", "LEPC", "WARPSYNC", "RET"):
        return []
    return [o.value for o in instruction.operands if o.kind is OperandKind.TARGET and 0 <= o.value < count]


def _successors(instructions: Sequence[Instruction | None]) -> list[tuple[int, ...]]:
    count = len(instructions)
    returns = tuple(
        row + 1 for row, i in enumerate(instructions) if i is not None and i.opcode == "CALL" and row + 1 < count
    )
    found: list[tuple[int, ...]] = []
    for row, i in enumerate(instructions):
        below = (row + 1,) if row + 1 < count else ()
        if i is None:
            found.append(below)
            continue
        conditional = not _always(i) or any(
            o.kind in (OperandKind.PREDICATE, OperandKind.UNIFORM_PREDICATE) and o.index != PT for o in i.operands
        )
        to = tuple(_targets(i, count))
        if i.opcode == "EXIT" or i.opcode == "KILL":
            found.append(below if conditional else ())
        elif i.opcode == "RET":
            found.append(returns + (below if conditional else ()))
        elif i.opcode == "CALL":
            found.append(to + (below if conditional or not to else ()))
        elif i.opcode == "BRA" and to:
            found.append(to + (below if conditional else ()))
        else:
            found.append(below)
    return found


class _Flow:
    """Basic blocks, and the two questions asked of them: what is live, and who wrote a register last."""

    def __init__(
        self, instructions: Sequence[Instruction | None], uses: Sequence[Use], successors: Sequence[tuple[int, ...]]
    ) -> None:
        self.uses = uses
        count = len(uses)
        self.kills = [i is not None and _always(i) for i in instructions]  # a guarded write leaves the old value
        self.guards = [None if i is None else _guard(i) for i in instructions]
        # compiled code keeps the stack pointer to the end, used or not
        self.kept = 1 << STACK_POINTER if any(STACK_POINTER in use.writes for use in uses) else 0
        starts = {0}
        for row, to in enumerate(successors):
            if to != (row + 1,):
                starts.update(to)
                starts.add(row + 1)
        self.starts = sorted(s for s in starts if s < count)
        self.ends = [*self.starts[1:], count] if self.starts else []
        self.block_of = np.searchsorted(np.array(self.starts), np.arange(count), side="right") - 1
        self.after = [tuple({int(self.block_of[t]) for t in successors[end - 1]}) for end in self.ends]
        self.before: list[list[int]] = [[] for _ in self.starts]
        for block, targets in enumerate(self.after):
            for target in targets:
                self.before[target].append(block)
        self.read_bits = [_bits(use.reads) for use in uses]
        self.written_bits = [_bits(use.writes) for use in uses]
        self._definitions: list[dict[int, tuple[list[int], bool]]] = [self._defined(b) for b in range(len(self.starts))]

    def live(self) -> list[int]:
        """Registers held at each row: live behind it, or read or written by it."""
        entry = [0] * len(self.starts)
        rows = [0] * len(self.uses)
        pending = list(range(len(self.starts)))  # popped from the end: backwards through the code
        queued = [True] * len(self.starts)
        while pending:
            block = pending.pop()
            queued[block] = False
            alive = 0 if self.after[block] else self.kept
            for target in self.after[block]:
                alive |= entry[target]
            alive = self._live_before(block, alive, rows)
            if alive != entry[block]:
                entry[block] = alive
                for earlier in self.before[block]:
                    if not queued[earlier]:
                        queued[earlier] = True
                        pending.append(earlier)
        return rows

    def _live_before(self, block: int, alive: int, rows: list[int]) -> int:
        """Registers live where a block begins, `alive` those where it ends; fills in `rows`.

        Follows guards: what is read under @P0 only, and written under @P0 before, is not live before that; nor is what
        @P0 and @!P0 both write.
        """
        only: dict[Guard, int] = {}  # live in the lanes of one guard
        for row in range(self.ends[block] - 1, self.starts[block] - 1, -1):
            read, written, guard = self.read_bits[row], self.written_bits[row], self.guards[row]
            held = alive
            for mask in only.values():
                held |= mask
            rows[row] = held | read | written
            if guard is None:
                alive &= ~written
                only = {g: mask & ~written for g, mask in only.items()}
            else:
                opposite = guard[0], not guard[1]
                only[opposite] = only.get(opposite, 0) | alive & written
                alive &= ~written
                only[guard] = only.get(guard, 0) & ~written
            for g in [g for g in only if written >> g[0] & 1]:  # the guard was another one before
                alive |= only.pop(g)
            if guard is None or written >> guard[0] & 1:
                alive |= read
            else:
                alive |= 1 << guard[0]
                only[guard] |= read & ~(1 << guard[0])
        for mask in only.values():
            alive |= mask
        return alive

    def _defined(self, block: int) -> dict[int, tuple[list[int], bool]]:
        """Register -> (rows of the block whose write reaches its end, whether an earlier one may reach it too)."""
        found: dict[int, tuple[list[int], bool]] = {}
        for row in range(self.starts[block], self.ends[block]):
            for register in self.uses[row].writes:
                if self.kills[row]:
                    found[register] = [row], False
                else:
                    earlier, through = found.get(register, ([], True))
                    found[register] = [*earlier, row], through
        return found

    def definitions(self, row: int, register: int) -> list[int]:
        """Rows whose write of `register` may be the one that `row` reads, in order."""
        found: set[int] = set()
        block = int(self.block_of[row])
        for earlier in range(row - 1, self.starts[block] - 1, -1):
            if self.written_bits[earlier] >> register & 1:
                found.add(earlier)
                if self.kills[earlier]:
                    return sorted(found)
        seen: set[int] = set()
        waiting = list(self.before[block])
        while waiting:
            block = waiting.pop()
            if block in seen:
                continue
            seen.add(block)
            rows, through = self._definitions[block].get(register, ([], True))
            found.update(rows)
            if through:
                waiting += self.before[block]
        return sorted(found)


def _bits(numbers: Iterable[int]) -> int:
    total = 0
    for number in numbers:
        total |= 1 << number
    return total


def _scoreboard_waits(
    instructions: Sequence[Instruction | None], controls: Sequence[Control], flow: _Flow
) -> list[list[Waits]]:
    """For each row, the instructions that its scoreboards may be waiting for: all setters since the last wait."""
    waited = [set(c.waits) for c in controls]
    partly: list[set[int]] = [set() for _ in controls]  # DEPBAR.LE lets some of them remain
    for row, i in enumerate(instructions):
        if i is not None and i.opcode == "DEPBAR":
            partly[row] = {o.index for o in i.operands if o.kind is OperandKind.SCOREBOARD}
    found: list[list[Waits]] = []
    for row in range(len(controls)):
        mine: list[Waits] = []
        for number in sorted(waited[row] | partly[row]):
            mine += _setters(row, number, controls, waited, flow)
        found.append(sorted(mine, key=lambda w: (w.setter, w.number)))
    return found


def _setters(
    row: int, number: int, controls: Sequence[Control], waited: Sequence[set[int]], flow: _Flow
) -> list[Waits]:
    found: dict[tuple[int, bool], Waits] = {}

    def scan(last: int, first: int) -> bool:
        """Backwards over rows; True when an earlier wait ends the search."""
        for at in range(last, first - 1, -1):
            control = controls[at]
            for barrier, result in ((control.write_barrier, True), (control.read_barrier, False)):
                if barrier == number:
                    found[at, result] = Waits(at, number, result)
            if number in waited[at]:
                return True
        return False

    block = int(flow.block_of[row])
    if not scan(row - 1, flow.starts[block]):
        seen: set[int] = set()
        waiting = list(flow.before[block])
        while waiting:
            block = waiting.pop()
            if block not in seen:
                seen.add(block)
                if not scan(flow.ends[block] - 1, flow.starts[block]):
                    waiting += flow.before[block]
    return list(found.values())
