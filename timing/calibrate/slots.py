"""Issue rules, measured on instruction streams written word by word into a compiled loop (see sources/slots.cu).

The compiler chooses registers and control fields itself, so what the register file's ports, the operand cache, stall
counts and the yield bit do can only be seen by setting them in the machine code. Field positions are those of the
128-bit instruction word of compute capability 7.0 to 9.0; the destination registers are ones the loop may overwrite.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from interpreter.errors import CubinError

SLOTS = 256
EVEN = (0, 2, 4, 6, 8, 10)
ODD = (5, 7, 11, 13, 15, 17)
TARGETS = (12, 14, 16, 18, 19, 20, 21, 22)
RZ = 255
# opcode with register operands, and the constant part of the high word
_OPS = {
    "FFMA": (0x223, 0),
    "FADD": (0x221, 0),
    "IMAD": (0x224, 0x078E0200),
    "IADD3": (0x210, 0x07FFE000),
    "LOP3": (0x212, 0x078E9600),
}


@dataclass(frozen=True, slots=True)
class Slot:
    """One instruction: operation, sources, reuse mask (1 A, 2 B, 4 C), stall count, bit 109 (1: keep the warp)."""

    op: str
    a: int
    b: int
    c: int
    d: int = -1
    reuse: int = 0
    stall: int = 1
    keep: int = 1


def encode(slot: Slot, target: int) -> bytes:
    opcode, high = _OPS[slot.op]
    low = opcode | 7 << 12 | target << 16 | slot.a << 24 | slot.b << 32
    control = slot.stall | slot.keep << 4 | 7 << 5 | 7 << 8 | slot.reuse << 17
    if slot.op != "FADD":
        high |= slot.c
    return struct.pack("<QQ", low, high | control << 41)


def text_section(cubin: bytes, kernel: str) -> tuple[int, int]:
    """File offset and size of the code of `kernel`; CubinError when there is none."""
    if cubin[:4] != b"\x7fELF":
        raise CubinError("not an ELF file")
    table = struct.unpack_from("<Q", cubin, 0x28)[0]
    entry, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + i * entry) for i in range(count)]
    strings = headers[names][4]
    for header in headers:
        begin = strings + header[0]
        if cubin[begin : cubin.index(b"\0", begin)] == f".text.{kernel}".encode():
            return header[4], header[5]
    raise CubinError(f"no code of kernel {kernel!r} in this cubin")


def rewrite(cubin: bytes, pattern: list[Slot], kernel: str = "slots") -> bytes:
    """The cubin with the SLOTS FFMAs of its loop replaced by `pattern`, repeated."""
    offset, size = text_section(cubin, kernel)
    words = [struct.unpack_from("<Q", cubin, offset + 16 * i)[0] & 0xFFF for i in range(size // 16)]
    places = [i for i, word in enumerate(words) if word == 0x223]
    if len(places) != SLOTS:
        raise CubinError(f"kernel {kernel!r} has {len(places)} FFMAs instead of {SLOTS}")
    out = bytearray(cubin)
    for i, place in enumerate(places):
        slot = pattern[i % len(pattern)]
        target = slot.d if slot.d >= 0 else TARGETS[i % len(TARGETS)]
        begin = offset + 16 * place
        out[begin : begin + 16] = encode(slot, target)
    return bytes(out)


def _rotating(op: str, banks: str, reuse: int = 0, fixed_b: int | None = None) -> list[Slot]:
    """Three instructions with the given banks (E, O, Z = RZ) for A, B, C, each with registers of its own."""
    pattern = []
    for i in range(3):
        even, odd = list(EVEN[i:] + EVEN[:i]), list(ODD[i:] + ODD[:i])
        regs = [even.pop(0) if bank == "E" else odd.pop(0) if bank == "O" else RZ for bank in banks]
        if fixed_b is not None:
            regs[1] = fixed_b
        pattern.append(Slot(op, regs[0], regs[1], regs[2], reuse=reuse))
    return pattern


def _zip(*patterns: list[Slot]) -> list[Slot]:
    length = max(len(pattern) for pattern in patterns)
    return [pattern[i % len(pattern)] for i in range(length) for pattern in patterns]


def _runs(length: int, first: str, second: str) -> list[Slot]:
    """`length` FFMAs with the banks `first`, then as many with `second`."""
    return [*(_rotating("FFMA", first) * 3)[:length], *(_rotating("FFMA", second) * 3)[:length]]


def cases() -> dict[str, list[Slot]]:
    """Patterns by name. Banks are those of operands A, B, C; a name's `reuse` says which slots carry the flag."""
    found: dict[str, list[Slot]] = {}
    for op in ("FFMA", "IADD3", "IMAD", "LOP3"):
        found[f"{op} one register"] = [Slot(op, 0, 0, 0)]
        for banks in ("EEE", "EEO", "EOE", "OEE", "EOO", "OOO", "EOZ", "EEZ"):
            found[f"{op} {banks}"] = _rotating(op, banks)
    found["FADD EE"] = _rotating("FADD", "EEZ")
    found["FADD EO"] = _rotating("FADD", "EOZ")
    for banks in ("EEE", "EEO", "OEO", "OEE"):
        found[f"FFMA {banks} same B"] = _rotating("FFMA", banks, fixed_b=24)
        found[f"FFMA {banks} same B, reuse B"] = _rotating("FFMA", banks, reuse=2, fixed_b=24)
    found["FFMA EEE same registers, reuse ABC"] = [Slot("FFMA", 0, 2, 4, reuse=7)]
    found["FFMA EEE same registers"] = [Slot("FFMA", 0, 2, 4)]
    found["FFMA EEO same registers"] = [Slot("FFMA", 0, 2, 5)]
    found["FFMA EOZ to even"] = [Slot("FFMA", 0, 5, RZ, d=12), Slot("FFMA", 2, 7, RZ, d=14)]
    found["FFMA EOZ to odd"] = [Slot("FFMA", 0, 5, RZ, d=19), Slot("FFMA", 2, 7, RZ, d=21)]
    for other in ("IMAD", "IADD3", "LOP3"):
        for banks in ("EOZ", "EEZ", "EEO", "EEE"):
            found[f"FFMA + {other}, all {banks}"] = _zip(_rotating("FFMA", banks), _rotating(other, banks))
        found[f"FFMA EOZ + {other} one register"] = _zip(_rotating("FFMA", "EOZ"), [Slot(other, 0, 0, 0)])
        found[f"2 FFMA + {other}, all EOZ"] = _zip(
            _rotating("FFMA", "EOZ"), _rotating("FFMA", "OEZ"), _rotating(other, "EOZ")
        )
    found["IMAD + IADD3, all EOZ"] = _zip(_rotating("IMAD", "EOZ"), _rotating("IADD3", "EOZ"))
    found["IMAD + IADD3, all EEO"] = _zip(_rotating("IMAD", "EEO"), _rotating("IADD3", "EEO"))
    found["FFMA + IMAD + IADD3, all EOZ"] = _zip(
        _rotating("FFMA", "EOZ"), _rotating("IMAD", "EOZ"), _rotating("IADD3", "EOZ")
    )
    # instructions that need opposite banks: how far the ports' work may be spread over neighbours
    for run in (1, 2, 3, 4, 8):
        found[f"FFMA {run} EEZ, {run} OOZ"] = _runs(run, "EEZ", "OOZ")
        found[f"FFMA {run} EEO, {run} OOE"] = _runs(run, "EEO", "OOE")
    found["FFMA EEE, OOO"] = _runs(1, "EEE", "OOO")
    found["FFMA EEE, 2 EOZ"] = [*_rotating("FFMA", "EEE")[:1], *_rotating("FFMA", "EOZ")[:2]]
    found["FFMA EEE, 2 OZZ"] = [*_rotating("FFMA", "EEE")[:1], *_rotating("FFMA", "OZZ")[:2]]
    found["FFMA EEE, 3 ZZZ"] = [*_rotating("FFMA", "EEE")[:1], *[Slot("FFMA", RZ, RZ, RZ)] * 3]
    found["FFMA EEZ, ZZZ"] = [*_rotating("FFMA", "EEZ")[:1], Slot("FFMA", RZ, RZ, RZ)]
    found["FFMA 2 EEZ, 2 ZZZ"] = [*_rotating("FFMA", "EEZ")[:2], *[Slot("FFMA", RZ, RZ, RZ)] * 2]
    found["FFMA 3 EEZ, 3 ZZZ"] = [*_rotating("FFMA", "EEZ")[:3], *[Slot("FFMA", RZ, RZ, RZ)] * 3]
    found["FFMA 8 EEZ, 8 ZZZ"] = [*(_rotating("FFMA", "EEZ") * 3)[:8], *[Slot("FFMA", RZ, RZ, RZ)] * 8]
    found["FADD EE, FFMA OOE"] = _zip(_rotating("FADD", "EEZ"), _rotating("FFMA", "OOE"))
    for stall in range(16):
        for keep in (0, 1):
            found[f"FFMA EOZ stall {stall} keep {keep}"] = [Slot("FFMA", 0, 5, RZ, stall=stall, keep=keep)]
    return found
