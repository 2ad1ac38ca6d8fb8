"""What can be read off a kernel's SASS: control flow, live registers, which instruction another one waits for.

Works on the text and the control fields that the table `instructions` keeps, so no cubin is needed. Flow through
indirect branches (BRX) is taken to go to whatever nothing else leads to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from farm.page.flow import Flow, always, members
from farm.page.register_use import PREDICATE_BASE, UNIFORM_BASE, Use, register_use
from interpreter.decode import parse_instruction
from interpreter.operands import OperandError
from interpreter.program import PT, Instruction, OperandKind

_GENERAL = (1 << UNIFORM_BASE) - 1
_UNIFORM = (1 << PREDICATE_BASE) - 1 - _GENERAL
_NO_SCOREBOARD = 7


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
    successors, calls = _successors(instructions)
    flow = Flow(instructions, uses, successors, calls)
    controls = None if control is None else [Control.of(int(word)) for word in control]
    listing = Listing(
        instructions=instructions,
        uses=uses,
        controls=controls,
        successors=successors,
        live=flow.live(),
        producers=[
            [(d, r) for r in members(read) for d in flow.definitions(row, r)] for row, read in enumerate(flow.reads)
        ],
        branches=[(row, t) for row, i in enumerate(instructions) if i is not None for t in _targets(i, len(texts))],
    )
    if controls is not None:
        listing.waits = _scoreboard_waits(instructions, controls, flow)
    else:
        listing.waits = [[] for _ in texts]
    return listing


def _targets(instruction: Instruction, count: int) -> list[int]:
    if instruction.opcode in ("BSSY", "LEPC", "WARPSYNC", "RET"):
        return []
    return [o.value for o in instruction.operands if o.kind is OperandKind.TARGET and 0 <= o.value < count]


def _successors(instructions: Sequence[Instruction | None]) -> tuple[list[tuple[int, ...]], dict[int, int]]:
    """Where control may go from each row (behind a call: on), and the calls: row -> first row of the function."""
    count = len(instructions)
    found: list[tuple[int, ...]] = []
    calls: dict[int, int] = {}
    for row, i in enumerate(instructions):
        below = (row + 1,) if row + 1 < count else ()
        if i is None:
            found.append(below)
            continue
        conditional = not always(i) or any(
            o.kind in (OperandKind.PREDICATE, OperandKind.UNIFORM_PREDICATE) and o.index != PT for o in i.operands
        )
        to = tuple(_targets(i, count))
        if i.opcode in ("EXIT", "KILL", "RET"):
            found.append(below if conditional else ())
        elif i.opcode == "BRA" and to:
            found.append(to + (below if conditional else ()))
        else:
            if i.opcode == "CALL" and to:
                calls[row] = to[0]
            found.append(below)
    jumps = [row for row, i in enumerate(instructions) if i is not None and i.opcode in ("BRX", "BRXU", "JMX")]
    if jumps:
        # the text does not say where they go: to what nothing else leads to
        led_to = {0, *calls.values(), *(t for row, to in enumerate(found) if row not in jumps for t in to)}
        open_rows = tuple(row for row in range(count) if row not in led_to)
        for row in jumps:
            found[row] = open_rows
    return found, calls


def _scoreboard_waits(
    instructions: Sequence[Instruction | None], controls: Sequence[Control], flow: Flow
) -> list[list[Waits]]:
    """For each row, the instructions that its scoreboards may be waiting for: all setters since the last wait."""
    waited = [set(c.waits) for c in controls]
    partly: list[set[int]] = [set() for _ in controls]  # DEPBAR.LE lets some of them remain
    for row, i in enumerate(instructions):
        if i is not None and i.opcode == "DEPBAR":
            boards = {o.index for o in i.operands if o.kind is OperandKind.SCOREBOARD}
            partly[row] |= boards
            if row + 1 < len(partly):  # DEPBAR issues; it is the next instruction that is seen waiting
                partly[row + 1] |= boards
    found: list[list[Waits]] = []
    for row in range(len(controls)):
        mine: list[Waits] = []
        for number in sorted(waited[row] | partly[row]):
            mine += _setters(row, number, controls, waited, flow)
        found.append(sorted(mine, key=lambda w: (w.setter, w.number)))
    return found


def _setters(row: int, number: int, controls: Sequence[Control], waited: Sequence[set[int]], flow: Flow) -> list[Waits]:
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
        waiting = list(flow.earlier[block])
        while waiting:
            block = waiting.pop()
            if block not in seen:
                seen.add(block)
                if not scan(flow.ends[block] - 1, flow.starts[block]):
                    waiting += flow.earlier[block]
    return list(found.values())
