"""Turns a cubin into `Program`s: disassembly text parsed, control fields and exact immediates cut from the encoding.

Immediates. nvdisasm prints integers exactly (hexadecimal) and floats rounded, so a float's bits come from the encoding:
bits 63:32 of operand forms 2 and 4 (bits 11:9). What `value` then holds:
- 32-bit opcodes: the IEEE binary32 bits;
- 64-bit float opcodes (DADD, DMUL, DFMA, DSETP, DMNMX): the high word of the double, whose low word is zero;
- packed halves (HFMA2 R0, R1, 0.5, 1): both printed operands get the whole 32-bit field, and the modifier "PACKED";
  the high half (bits 31:16, element 1) is printed first.
Integer immediates keep the printed value as a 32-bit pattern; the 64-bit opcodes of sm_100 and later (IADD.64,
ISETP.U64, ...) sign-extend it. MOV.64 and UMOV.64 (sm_120) have a whole 64-bit pattern in `value`.

Targets. BRA, BSSY, CALL.REL, RET.REL, LEPC and WARPSYNC.COLLECTIVE name an instruction: kind TARGET, `value` its row.
RET.REL and the register form of CALL.REL go to that row's address plus a register's bytes. BRX keeps its printed
displacement (IMMEDIATE): it goes to its register plus the displacement plus the address behind it.
"""

from __future__ import annotations

import math
import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from interpreter.cubin import DEFAULT_STACK_BYTES, Cubin, Kernel, parse_cubin
from interpreter.disassembly import cached_text, disassemble
from interpreter.errors import CubinError, ToolchainError, UnsupportedInstruction
from interpreter.operands import OperandError, float32_bits, is_float_text, parse_operand, with_value
from interpreter.program import CONTROL, INSTRUCTION_BYTES, Instruction, Operand, OperandKind, Program
from interpreter.toolchain import Tool, find_tools

_TARGET_OPCODES = frozenset({"BRA", "BSSY", "LEPC"})
_TARGET_WITH = {"CALL": "REL", "RET": "REL", "WARPSYNC": "COLLECTIVE"}
_MASK64 = (1 << 64) - 1
_GUARD = re.compile(r"@(!?)(U?P[0-6T])\s+")


def load_program(
    cubin: bytes,
    entry: str | None = None,
    *,
    cache: Path | None = None,
    nvdisasm: Tool | None = None,
    lines: bool = False,
) -> Program:
    """Decode the kernel `entry` of a cubin, or its only kernel.

    `cache` is the cache folder (default: FARM_CACHE, else ~/.cache/farm). `lines` adds source lines, if the cubin has a
    line table (nvcc -lineinfo), at the cost of one more run of nvdisasm. Raises CubinError (not a cubin, truncated, no
    such kernel, illegal word, unknown operand form), ToolchainError, UnsupportedInstruction (unlinked code).
    """
    return load_programs([(cubin, entry)], cache=cache, nvdisasm=nvdisasm, lines=lines)[0]


def cached_decoding(cubin: bytes, entry: str | None, *, cache: Path | None = None) -> Path:
    """The file in which the cache keeps what nvdisasm says of a kernel, whether or not it is there. Errors as
    `load_program`."""
    found = parse_cubin(cubin)
    return cached_text(found.kernel(entry).code, found.arch, cache)


def load_programs(
    requests: Sequence[tuple[bytes, str | None]],
    *,
    cache: Path | None = None,
    nvdisasm: Tool | None = None,
    lines: bool = False,
) -> list[Program]:
    """Decode many kernels; those of one architecture share a run of nvdisasm. Errors as `load_program`.

    What is cached is nvdisasm's text: parsing it again takes 6 us an instruction, less than unpickling a Program.
    """
    tool = nvdisasm or find_tools().require("nvdisasm")
    programs: list[Program | None] = [None] * len(requests)
    parsed: dict[bytes, Cubin] = {}
    by_arch: dict[str, list[tuple[int, Cubin, Kernel]]] = {}
    for position, (image, entry) in enumerate(requests):
        cubin = parsed[image] = parsed.get(image) or parse_cubin(image)
        by_arch.setdefault(cubin.arch, []).append((position, cubin, cubin.kernel(entry)))
    for arch, items in by_arch.items():
        texts = disassemble([(kernel.name, kernel.code) for _, _, kernel in items], arch, cache, tool)
        for (position, cubin, kernel), text in zip(items, texts, strict=True):
            image = requests[position][0]
            sources = _source_lines(image, kernel, tool) if lines and b".debug_line\0" in image else {}
            programs[position] = build_program(cubin, kernel, text, sources)
    return [program for program in programs if program is not None]


def build_program(
    cubin: Cubin, kernel: Kernel, texts: Sequence[str], sources: dict[int, tuple[str, int]] | None = None
) -> Program:
    """The Program of a kernel whose disassembly is known. `sources` maps rows to (file, line)."""
    if kernel.relocations:
        unlinked = [(r.offset, f"relocation {r.kind:#x} against {r.symbol}") for r in kernel.relocations]
        raise UnsupportedInstruction(kernel.name, unlinked)
    words = np.frombuffer(kernel.code, dtype="<u8").reshape(-1, 2)
    if len(words) != len(texts):
        raise CubinError(f"kernel {kernel.name}: {len(words)} instructions but {len(texts)} lines of disassembly")
    count = len(texts)
    instructions = []
    pairs = words.tolist()
    sources = sources or {}
    for row, text in enumerate(texts):
        low, high = pairs[row]
        try:
            opcode, modifiers, operands, guard = _parse_text(text)
            if operands is not None and _needs_encoding(text):
                operands = _exact(opcode, operands, low)
        except OperandError as error:
            raise CubinError(f"kernel {kernel.name}, {row * INSTRUCTION_BYTES:#06x}: {text}: {error}") from None
        file, line = sources.get(row, ("", 0))
        instruction = Instruction(row, opcode, modifiers, operands, guard, text, low, high, line, file)
        instructions.append(instruction)
        for operand in operands:
            if operand.kind == OperandKind.TARGET and not 0 <= operand.value < count:
                raise CubinError(
                    f"kernel {kernel.name}, {instruction.address:#06x}: {text}: target outside the kernel "
                    f"({count * INSTRUCTION_BYTES:#x} bytes)"
                )
    return Program(
        name=kernel.name,
        sm=cubin.sm,
        arch=cubin.arch,
        instructions=instructions,
        control=control_fields(words[:, 1]),
        registers=kernel.registers,
        static_shared=kernel.static_shared,
        stack=_stack(kernel, instructions),
        parameter_base=kernel.parameter_base,
        parameter_bytes=kernel.parameter_bytes,
        parameters=kernel.parameters,
        constants=kernel.constants,
        barriers=kernel.barriers,
        max_threads=kernel.max_threads,
        required_threads=kernel.required_threads,
        cubin_sha=cubin.sha,
        code_bytes=len(kernel.code),
        indirect_targets=_indirect_rows(kernel, count),
        variables=cubin.variables,
        constant_variables=cubin.constant_variables,
        address_slots=cubin.address_slots,
        cluster=kernel.cluster,
    )


def control_fields(high: np.ndarray) -> np.ndarray:
    """Control fields (dtype CONTROL) of instructions whose bits 127:64 are `high` (uint64, shape (n,)).

    Positions: bits 108:105 stall, 109 yield (inverted), 112:110 write barrier, 115:113 read barrier, 121:116 wait mask,
    124:122 reuse; found by flipping bits and comparing nvdisasm's and CuAssembler-style listings.
    """
    high = np.asarray(high, dtype=np.uint64)

    def bits(low: int, width: int) -> np.ndarray:
        return (high >> np.uint64(low - 64)) & np.uint64((1 << width) - 1)

    control = np.zeros(high.shape, dtype=CONTROL)
    control["stall"] = bits(105, 4)
    control["yield_"] = bits(109, 1) ^ np.uint64(1)
    control["write_barrier"] = bits(110, 3)
    control["read_barrier"] = bits(113, 3)
    control["wait_mask"] = bits(116, 6)
    control["reuse"] = bits(122, 3)
    return control


def split_operands(text: str) -> list[str]:
    """Operand texts of "R2, c[0x0] [0x160].H0_H0, {1,2}" and of "R2 0x1800" (RET, BRX: a blank separates)."""
    if not text:
        return []
    result: list[str] = []
    for part in text.split(", ") if "{" not in text else re.split(r",\s*(?![^{]*\})", text):
        part = part.strip()
        if " " in part and not part.startswith(("c[", "-c[", "|c[", "~c[", "-|c[")):
            result += part.split()
        else:
            result.append(part)
    return result


@lru_cache(maxsize=1 << 16)
def _parse_text(text: str) -> tuple[str, tuple[str, ...], tuple[Operand, ...], Operand | None]:
    """(opcode, modifiers, operands, guard) of one line of disassembly. Immediates as printed."""
    guard = None
    body = text
    match = _GUARD.match(text)
    if match:
        guard = parse_operand(match[1] + match[2])
        body = text[match.end() :]
    mnemonic, _, rest = body.partition(" ")
    opcode, *modifiers = mnemonic.split(".")
    parts = split_operands(rest.strip())
    operands = [parse_operand(part) for part in parts]
    if operands and operands[-1].kind == OperandKind.IMMEDIATE and _has_target(opcode, modifiers):
        value = operands[-1].value
        row, remainder = divmod(value - (1 << 64) if value >> 63 else value, INSTRUCTION_BYTES)
        if remainder:
            raise OperandError(f"target {parts[-1]} is no multiple of {INSTRUCTION_BYTES}")
        operands[-1] = Operand(OperandKind.TARGET, value=row, text=parts[-1])
    if opcode in ("MOV", "UMOV") and "64" in modifiers:
        immediate = OperandKind.IMMEDIATE
        operands = [with_value(o, int(o.text, 16) & _MASK64) if o.kind == immediate else o for o in operands]
    return opcode, tuple(modifiers), tuple(operands), guard


def parse_instruction(text: str, row: int = 0) -> Instruction:
    """One line of disassembly as an Instruction whose encoding is not known (0): float immediates as printed.

    Raises OperandError for an unknown operand form.
    """
    opcode, modifiers, operands, guard = _parse_text(text)
    return Instruction(row, opcode, modifiers, operands, guard, text, 0, 0)


def _has_target(opcode: str, modifiers: list[str]) -> bool:
    return opcode in _TARGET_OPCODES or _TARGET_WITH.get(opcode) in modifiers


@lru_cache(maxsize=1 << 16)
def _needs_encoding(text: str) -> bool:
    """Whether an operand is a float immediate, whose bits must come from the encoding."""
    return any(o.kind == OperandKind.IMMEDIATE and is_float_text(o.text) for o in _parse_text(text)[2])


def _exact(opcode: str, operands: tuple[Operand, ...], low: int) -> tuple[Operand, ...]:
    """`operands` with float immediates replaced by the bits of the encoding, checked against the printed numbers."""
    if low >> 9 & 7 not in (2, 4):
        raise OperandError(f"float immediate in operand form {low >> 9 & 7}, expected 2 or 4")
    field = low >> 32
    positions = [i for i, o in enumerate(operands) if o.kind == OperandKind.IMMEDIATE and is_float_text(o.text)]
    if not prints_as(field, tuple(operands[i].text for i in positions)):
        raise OperandError(f"bits 63:32 of the encoding hold {field:#010x}, which is not the printed immediate")
    result = list(operands)
    for position in positions:
        result[position] = with_value(operands[position], field, "PACKED" if len(positions) == 2 else None)
    return tuple(result)


@lru_cache(maxsize=1 << 16)
def prints_as(field: int, texts: tuple[str, ...]) -> bool:
    """Whether nvdisasm prints the 32-bit immediate `field` as these numbers, in one of the formats it can have."""
    if len(texts) == 2:  # halves, high one first: binary16 or bfloat16
        halves = field >> 16, field & 0xFFFF
        return all(_half_is(half, text) for half, text in zip(halves, texts, strict=True)) or all(
            _same_float(half << 16, text) for half, text in zip(halves, texts, strict=True)
        )
    if len(texts) != 1:
        return False
    text = texts[0]
    # binary32, the high word of a binary64, or one binary16 in both halves or the low one
    high_word = struct.unpack("<d", struct.pack("<Q", field << 32))[0]
    return _same_float(field, text) or _same_number(high_word, text) or _half_is(field & 0xFFFF, text)


def _same_float(bits: int, text: str) -> bool:
    return float32_bits(text) == bits or _same_number(struct.unpack("<f", struct.pack("<I", bits))[0], text)


def _half_is(bits: int, text: str) -> bool:
    return _same_number(struct.unpack("<e", struct.pack("<H", bits))[0], text)


def _same_number(value: float, text: str) -> bool:
    body = text.lstrip("+-")
    if body.endswith("NAN"):
        return math.isnan(value)
    number = float(text)
    if number == value or number == 0.0 == value:
        return True
    # printed with about 20 digits; smallest denormals with fewer
    return math.isfinite(value) and abs(number - value) <= 1e-6 * abs(value)


def _stack(kernel: Kernel, instructions: list[Instruction]) -> int:
    """Local memory a thread needs. Recursion shows as a recorded size of 0 in code that lowers the stack pointer R1."""
    if kernel.stack == 0 and any(_lowers_stack(instruction) for instruction in instructions):
        return DEFAULT_STACK_BYTES
    return kernel.stack


def _lowers_stack(instruction: Instruction) -> bool:
    """R1 = R1 + a negative number, whichever adder the generation has (VIADD, IADD, IADD3 with or without carries)."""
    if instruction.opcode not in ("IADD3", "IADD", "VIADD") or "R1," not in instruction.text:
        return False
    registers = [o.index for o in instruction.operands if o.kind == OperandKind.REGISTER]
    immediates = [o.value for o in instruction.operands if o.kind == OperandKind.IMMEDIATE]
    return registers[:2] == [1, 1] and len(immediates) == 1 and immediates[0] >> 31 == 1


def _indirect_rows(kernel: Kernel, count: int) -> dict[int, list[int]]:
    tables: dict[int, list[int]] = {}
    for source, targets in kernel.indirect_targets.items():
        for offset in (source, *targets):
            if offset % INSTRUCTION_BYTES or offset >= count * INSTRUCTION_BYTES:
                raise CubinError(
                    f"kernel {kernel.name}: branch table of {source:#x} names {offset:#x}, outside the kernel"
                )
        tables[source // INSTRUCTION_BYTES] = [offset // INSTRUCTION_BYTES for offset in targets]
    return tables


_FUNCTION = re.compile(r"^\.text\.(\S+):$")
_FILE_LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_ADDRESS = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s")


def _source_lines(image: bytes, kernel: Kernel, tool: Tool) -> dict[int, tuple[str, int]]:
    """Row -> (file, line), from `nvdisasm -gi`. Empty when the cubin has no line table.

    nvdisasm prints a chain of places, innermost first, where functions were inlined. The one taken is the innermost in
    the file the kernel is defined in: a helper beside the kernel is shown itself, a CUDA header's function where the
    file calls it.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        try:
            done = subprocess.run([tool.path, "-gi", "-c", file.name], capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.SubprocessError) as error:
            raise ToolchainError(f"{tool.path} failed: {error}") from error
    if done.returncode != 0:
        raise ToolchainError(f"nvdisasm -gi failed on kernel {kernel.name}: {done.stderr.strip()[:500]}")
    rows: dict[int, tuple[str, int]] = {}
    inside = False
    chain: list[tuple[str, int]] = []
    chain_open = False
    for text in done.stdout.splitlines():
        if found := _FUNCTION.match(text):
            inside, chain = found[1] == kernel.name, []
        elif inside and (found := _FILE_LINE.match(text)):
            place = found[1], int(found[2])
            chain = [*chain, place] if chain_open else [place]
            chain_open = True
        elif inside and chain and (found := _ADDRESS.match(text)):
            chain_open = False
            outermost = chain[-1][0]
            row = int(found[1], 16) // INSTRUCTION_BYTES
            rows[row] = next(place for place in chain if place[0] == outermost)
    return rows
