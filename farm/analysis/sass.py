"""SASS as text: what an instruction accesses, which registers it touches, and its form with register names left out.

The tables hold disassembly, not encodings, so explanations and comparisons read the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = re.compile(r"^\s*(?:@(!?U?P\w+)\s+)?([A-Z][\w]*)((?:\.[\w]+)*)\s*(.*)$")
_REGISTER = re.compile(r"\b(U?R)(\d+)((?:\.64)?)")
_RENAMED = re.compile(r"\b(UR|R|UP|P|B)\d+\b")
_TARGET = re.compile(r"\b(BRA|BSSY|JMP|CALL|BRX|WARPSYNC|BREAK)\b(.*?)0x[0-9a-f]+\s*$")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}

GLOBAL, SHARED, LOCAL = "global", "shared", "local"
_SPACES = {
    "LDG": (GLOBAL, "load"), "STG": (GLOBAL, "store"), "LD": (GLOBAL, "load"), "ST": (GLOBAL, "store"),
    "ATOMG": (GLOBAL, "atomic"), "ATOM": (GLOBAL, "atomic"), "RED": (GLOBAL, "atomic"), "REDG": (GLOBAL, "atomic"),
    "LDGSTS": (GLOBAL, "copy"), "LDS": (SHARED, "load"), "STS": (SHARED, "store"), "LDSM": (SHARED, "load"),
    "STSM": (SHARED, "store"), "ATOMS": (SHARED, "atomic"), "LDL": (LOCAL, "load"), "STL": (LOCAL, "store"),
}  # fmt: skip
# results that a scoreboard guards although they come from no memory
SPECIAL_FUNCTIONS = frozenset({"MUFU", "F2F", "F2I", "I2F", "FRND", "POPC", "FLO", "BREV"})


@dataclass(frozen=True, slots=True)
class Access:
    """A memory instruction: its space, what it does ("load", "store", "atomic", "copy") and bytes a lane."""

    space: str
    kind: str
    width: int

    def ideal_sectors(self, lanes: float = 32.0) -> float:
        """32-byte sectors of a request whose `lanes` active lanes access neighbouring bytes."""
        return max(1.0, lanes * self.width / 32.0)

    def ideal_wavefronts(self, lanes: float = 32.0) -> float:
        """Shared-memory wavefronts of a request without bank conflicts: 128 bytes each."""
        return max(1.0, lanes * self.width / 128.0)


def parts(text: str) -> tuple[str, tuple[str, ...], str]:
    """(opcode, modifiers, operands) of an instruction's text, without its guard."""
    match = _HEAD.match(text)
    if match is None:
        return "", (), text
    return match[2], tuple(match[3].split(".")[1:]), match[4]


def access_of(text: str) -> Access | None:
    """What a memory instruction accesses, None for all others."""
    opcode, modifiers, _ = parts(text)
    found = _SPACES.get(opcode)
    if found is None:
        return None
    if opcode in ("LDSM", "STSM"):  # a matrix is 8 rows of 16 bytes, a word a lane
        count = next((int(m) for m in modifiers if m in ("1", "2", "4")), 1)
        return Access(*found, 4 * count)
    return Access(*found, next((_WIDTHS[m] for m in modifiers if m in _WIDTHS), 4))


def _registers(operand: str, width: int = 1) -> set[str]:
    found: set[str] = set()
    for kind, number, wide in _REGISTER.findall(operand):
        found |= {f"{kind}{int(number) + i}" for i in range(max(width, 2 if wide else 1))}
    return found


def written(text: str) -> set[str]:
    """Names of the general and uniform registers an instruction writes."""
    opcode, modifiers, operands = parts(text)
    access = access_of(text)
    stores = access is not None and access.kind == "store"
    if stores or opcode in ("RED", "REDG", "LDGSTS", "BRA", "EXIT", "BAR", "BSSY", "BSYNC"):
        return set()
    first = operands.split(",")[0]
    if first.strip().startswith(("P", "UP")):
        rest = operands.split(",")
        first = rest[1] if len(rest) > 1 and opcode in ("ATOMG", "ATOM", "ATOMS", "SHFL", "LDG", "LD") else ""
    width = max(1, access.width // 4) if access else 1
    if {"64", "WIDE"} & set(modifiers) or opcode in ("DADD", "DFMA", "DMUL"):
        width = max(width, 2)
    if opcode in ("HMMA", "IMMA"):
        width = 4
    return _registers(first, width)


def read(text: str) -> set[str]:
    """Names of the registers an instruction reads, as far as the text tells (registers of wide operands: the first)."""
    _, _, operands = parts(text)
    pieces = operands.split(",")
    sources = pieces if not written(text) else pieces[1:]
    return set().union(*(_registers(piece) for piece in sources)) if sources else set()


def normalised(text: str) -> str:
    """The text without register numbers, reuse flags and branch targets: equal for lines only renamed or moved."""
    plain = text.replace(".reuse", "")
    plain = _TARGET.sub(lambda match: f"{match[1]}{match[2]}target", plain)
    return _RENAMED.sub(lambda match: match[1], plain)
