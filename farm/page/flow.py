"""Data flow through a kernel's SASS: which registers are live, and who may have written one last.

Guards are followed: what @P0 alone writes and reads is not live before it. A call counts as one instruction that reads
what the called function reads before writing it, and writes what that writes: so one caller's registers do not leak
into another's through the function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from farm.page.register_use import PREDICATE_BASE, UNIFORM_PREDICATE_BASE, Use
from interpreter.program import PT, Instruction, OperandKind

STACK_POINTER = 1

Guard = tuple[int, bool]  # number of the predicate register, and whether it must be false


def always(instruction: Instruction) -> bool:
    """Whether no guard can stop it."""
    guard = instruction.guard
    return guard is None or (guard.index == PT and not guard.invert)


def _guard(instruction: Instruction) -> Guard | None:
    guard = instruction.guard
    if guard is None or guard.index == PT:
        return None
    base = UNIFORM_PREDICATE_BASE if guard.kind is OperandKind.UNIFORM_PREDICATE else PREDICATE_BASE
    return base + guard.index, guard.invert


def bits(numbers: Iterable[int]) -> int:
    """A set of small numbers as an integer."""
    total = 0
    for number in numbers:
        total |= 1 << number
    return total


class Flow:
    """Basic blocks and sets of registers (as bits) of a kernel.

    `successors` are the rows control may go to next (a call's: the row behind it), `calls` maps rows of calls to the
    first row of what they call. In `reads` and `writes` a call's row has what the function reads and writes.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction | None],
        uses: Sequence[Use],
        successors: Sequence[tuple[int, ...]],
        calls: Mapping[int, int],
    ) -> None:
        self._calls = dict(calls)
        self._returns = [row for row, i in enumerate(instructions) if i is not None and i.opcode == "RET"]
        self.guards = [None if i is None else _guard(i) for i in instructions]
        # compiled code keeps the stack pointer to the end, used or not
        self._kept = 1 << STACK_POINTER if any(STACK_POINTER in use.writes for use in uses) else 0
        self._split(successors)
        self.reads = [bits(use.reads) for use in uses]
        self.writes = [bits(use.writes) for use in uses]
        # registers whose old value is gone behind the row: a guarded write leaves it in some lanes
        self._kills = [
            written if i is not None and always(i) else 0 for i, written in zip(instructions, self.writes, strict=True)
        ]
        self._summarise_calls()
        self._definitions = [self._defined(block) for block in range(len(self.starts))]

    def _split(self, successors: Sequence[tuple[int, ...]]) -> None:
        """Basic blocks. A call is one of its own."""
        count = len(successors)
        starts = {0, *self._calls.values(), *self._calls, *(row + 1 for row in self._calls)}
        for row, to in enumerate(successors):
            if to != (row + 1,):
                starts.update(to)
                starts.add(row + 1)
        self.starts = sorted(s for s in starts if s < count)
        self.ends = [*self.starts[1:], count] if self.starts else []
        self.block_of = np.searchsorted(np.array(self.starts), np.arange(count), side="right") - 1
        self._after = [tuple({int(self.block_of[t]) for t in successors[end - 1]}) for end in self.ends]
        self._before: list[list[int]] = [[] for _ in self.starts]
        for block, targets in enumerate(self._after):
            for target in targets:
                self._before[target].append(block)
        # backwards in the order of time: from behind a call into the function, from its beginning to before the call
        self.earlier = [list(blocks) for blocks in self._before]
        self._arguments: dict[int, list[int]] = {}  # block where a function begins -> blocks before its calls
        for row, target in self._calls.items():
            call, entry = int(self.block_of[row]), int(self.block_of[target])
            self._arguments.setdefault(entry, []).extend(self._before[call])
            self.earlier[entry].append(call)
            for back in self._after[call]:
                ends = [int(self.block_of[r]) for r in self._returns if entry in self._body_of_return(r)]
                self.earlier[back] = [b for b in self.earlier[back] if b != call] + (ends or [call])

    def _body_of_return(self, row: int) -> set[int]:
        """Blocks from which a RET is reached, the function's first among them."""
        return self._reaching(int(self.block_of[row]), self._before)

    @staticmethod
    def _reaching(block: int, edges: Sequence[Sequence[int]]) -> set[int]:
        seen: set[int] = set()
        waiting = [block]
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                waiting += edges[at]
        return seen

    def _summarise_calls(self) -> None:
        """Put into the rows of calls what the functions read and write; more than once where they call each other."""
        if not self._calls:
            return
        own = {row: self.reads[row] for row in self._calls}
        for _ in range(len(self._calls) + 1):
            _, entry = self._solve({})
            changed = False
            for row, target in self._calls.items():
                first = int(self.block_of[target])
                body = self._reaching(first, self._after)
                may = 0
                for block in body:
                    for inner in range(self.starts[block], self.ends[block]):
                        may |= self.writes[inner]
                found = own[row] | entry[first], may, self._surely_written(first, body)
                changed |= found != (self.reads[row], self.writes[row], self._kills[row])
                self.reads[row], self.writes[row], self._kills[row] = found
            if not changed:
                break

    def _surely_written(self, first: int, body: set[int]) -> int:
        """Registers that every way through a function to one of its returns writes."""
        everything = -1
        at_end = dict.fromkeys(body, everything)
        changed = True
        while changed:
            changed = False
            for block in sorted(body):
                inside = 0 if block == first else everything
                for earlier in self._before[block]:
                    inside &= at_end.get(earlier, everything)
                for row in range(self.starts[block], self.ends[block]):
                    inside |= self._kills[row]
                if inside != at_end[block]:
                    at_end[block], changed = inside, True
        ends = [at_end[b] for b in body if self.ends[b] - 1 in self._returns]
        total = everything
        for found in ends:
            total &= found
        return total if ends and total >= 0 else 0

    # ------------------------------------------------------------------ live registers

    def live(self) -> list[int]:
        """Registers held at each row: live behind it, or read or written by it. Within a function, its callers' too."""
        wanted: dict[int, int] = {}  # block of a return -> live behind the calls
        while True:
            rows, entry = self._solve(wanted)
            found: dict[int, int] = {}
            for row, target in self._calls.items():
                alive = bits(())
                for after in self._after[int(self.block_of[row])]:
                    alive |= entry[after]
                for block in self._reaching(int(self.block_of[target]), self._after):
                    if self.ends[block] - 1 in self._returns:
                        found[block] = found.get(block, 0) | alive
            if found == wanted:
                return rows
            wanted = found

    def _solve(self, behind: Mapping[int, int]) -> tuple[list[int], list[int]]:
        """(registers held at each row, live where each block begins), `behind`: live where certain blocks end."""
        entry = [0] * len(self.starts)
        rows = [0] * len(self.reads)
        pending = list(range(len(self.starts)))  # popped from the end: backwards through the code
        queued = [True] * len(self.starts)
        while pending:
            block = pending.pop()
            queued[block] = False
            alive = behind.get(block, 0) | (0 if self._after[block] else self._kept)
            for target in self._after[block]:
                alive |= entry[target]
            alive = self._live_before(block, alive, rows)
            if alive != entry[block]:
                entry[block] = alive
                for earlier in self._before[block]:
                    if not queued[earlier]:
                        queued[earlier] = True
                        pending.append(earlier)
        return rows, entry

    def _live_before(self, block: int, alive: int, rows: list[int]) -> int:
        """Registers live where a block begins, `alive` those where it ends; fills in `rows`.

        Follows guards: what is read under @P0 only, and written under @P0 before, is not live before that; nor is what
        @P0 and @!P0 both write.
        """
        only: dict[Guard, int] = {}  # live in the lanes of one guard
        for row in range(self.ends[block] - 1, self.starts[block] - 1, -1):
            read, written, guard = self.reads[row], self.writes[row], self.guards[row]
            held = alive
            for mask in only.values():
                held |= mask
            rows[row] = held | read | (0 if row in self._calls else written)
            if guard is None:
                killed = self._kills[row]
                alive &= ~killed
                only = {g: mask & ~killed for g, mask in only.items()}
            else:
                # what is live where the guard holds is written here; it stays live where the guard does not hold
                opposite = guard[0], not guard[1]
                others = alive
                for g, mask in only.items():
                    others |= 0 if g == guard else mask
                alive &= ~written
                only = {g: mask & ~written for g, mask in only.items()}
                only[guard] = only.get(guard, 0)
                only[opposite] = only.get(opposite, 0) | others & written
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

    # ------------------------------------------------------------------ who wrote a register

    def _defined(self, block: int) -> dict[int, tuple[list[int], bool]]:
        """Register -> (rows of the block whose write reaches its end, whether an earlier one may reach it too)."""
        found: dict[int, tuple[list[int], bool]] = {}
        for row in range(self.starts[block], self.ends[block]):
            for register in members(self.writes[row]):
                if self._kills[row] >> register & 1:
                    found[register] = [row], False
                else:
                    earlier, through = found.get(register, ([], True))
                    found[register] = [*earlier, row], through
        return found

    def definitions(self, row: int, register: int) -> list[int]:
        """Rows whose write of `register` may be the one that `row` reads, in order; a call for all that it runs."""
        found: set[int] = set()
        block = int(self.block_of[row])
        for earlier in range(row - 1, self.starts[block] - 1, -1):
            if self.writes[earlier] >> register & 1:
                found.add(earlier)
                if self._kills[earlier] >> register & 1:
                    return sorted(found)
        seen: set[int] = set()
        waiting = [*self._before[block], *self._arguments.get(block, ())]
        while waiting:
            block = waiting.pop()
            if block in seen:
                continue
            seen.add(block)
            rows, through = self._definitions[block].get(register, ([], True))
            found.update(rows)
            if through:
                waiting += [*self._before[block], *self._arguments.get(block, ())]
        return sorted(found)


def members(mask: int) -> list[int]:
    """The numbers in a set of bits, rising."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
