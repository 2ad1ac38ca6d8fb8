"""Reads a cubin: its kernels with their code, resources, parameters, constant banks and relocations.

A cubin is an ELF64 file for machine 190 (EM_CUDA). Section and attribute layouts were read from files that ptxas 12.8
and 13.0 wrote, attribute numbers and names are those cuobjdump prints; the older header layout (OS/ABI 0x33) is the one
LLVM's public `llvm/BinaryFormat/ELF.h` describes. Nothing here needs a GPU or NVIDIA's tools.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from elftools.elf.elffile import ELFFile

from interpreter.errors import CubinError
from interpreter.program import INSTRUCTION_BYTES, AddressSlot, GlobalVariable, Parameter

EM_CUDA = 190
RESERVED_SHARED_BYTES = 1024  # sm_90 and later: bottom of shared memory, counted in .nv.shared.KERNEL's size
DEFAULT_STACK_BYTES = 1024  # cudaLimitStackSize's default: used for kernels of unknown call depth (recursion)
_ABI_VERSION_2 = 0x41  # OS/ABI byte of toolkit 13: SM number in e_flags bits 15:8; older (0x33): bits 7:0
_ACCELERATOR_FLAG_OLD = 0x800  # older ABI: set for sm_90a and the like
_R_CUDA_64 = 2
_STT_OBJECT = 1
_STT_FUNC = 2
_STO_ENTRY = 0x10  # st_other bit of a kernel's symbol


class Attribute(IntEnum):
    """Attributes of .nv.info sections that are read here (numbers as cuobjdump names them)."""

    MAX_THREADS = 0x05
    PARAM_CBANK = 0x0A
    EXTERNS = 0x0F
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    KPARAM_INFO = 0x17
    CBANK_PARAM_SIZE = 0x19
    MAXREG_COUNT = 0x1B
    EXIT_INSTR_OFFSETS = 0x1C
    REGCOUNT = 0x2F
    INDIRECT_BRANCH_TARGETS = 0x34
    CTA_PER_CLUSTER = 0x3D
    KPARAM_INFO_V2 = 0x45
    NUM_BARRIERS = 0x4C


@dataclass(frozen=True, slots=True)
class Function:
    """A function inside a kernel's code: the kernel itself, or a device function placed behind it."""

    name: str
    offset: int  # bytes from the start of the kernel's section
    size: int


@dataclass(frozen=True, slots=True)
class CodeRelocation:
    """A relocation that the linker left in a kernel's code. `offset` is the byte offset of the instruction field."""

    offset: int
    kind: int
    symbol: str
    addend: int


@dataclass(slots=True)
class Kernel:
    """One kernel of a cubin. Sizes in bytes; fields as `Program` has them."""

    name: str
    code: bytes
    registers: int
    stack: int
    static_shared: int
    barriers: int
    parameter_base: int
    parameter_bytes: int
    parameters: list[Parameter]
    constants: dict[int, bytes]
    max_threads: tuple[int, int, int] | None
    required_threads: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None
    max_registers: int | None
    indirect_targets: dict[int, list[int]]  # byte offset of a BRX -> byte offsets it may reach
    exits: list[int]
    functions: list[Function]
    relocations: list[CodeRelocation]
    externals: list[str]  # functions the driver supplies: vprintf, malloc, ...


@dataclass(slots=True)
class Cubin:
    """A parsed cubin."""

    sha: str
    sm: int
    arch: str
    kernels: dict[str, Kernel]
    variables: list[GlobalVariable] = field(default_factory=list)
    constant_variables: list[GlobalVariable] = field(default_factory=list)  # __constant__, offsets in bank 3
    address_slots: list[AddressSlot] = field(default_factory=list)

    def kernel(self, entry: str | None = None) -> Kernel:
        """The kernel named `entry`, or the only one. Raises CubinError naming those that exist."""
        names = ", ".join(self.kernels) or "none"
        if entry is None:
            if len(self.kernels) == 1:
                return next(iter(self.kernels.values()))
            raise CubinError(f"cubin has {len(self.kernels)} kernels: name one of {names}")
        if entry not in self.kernels:
            raise CubinError(f"cubin has no kernel {entry!r}; its kernels: {names}")
        return self.kernels[entry]


@dataclass(slots=True)
class _Section:
    name: str
    size: int
    link: int
    info: int
    data: bytes  # empty for NOBITS


@dataclass(slots=True)
class _Symbol:
    name: str
    kind: int
    other: int
    section: int
    value: int
    size: int


def parse_cubin(image: bytes) -> Cubin:
    """Parse a cubin. Raises CubinError when it is not one, is truncated or is damaged."""
    if image[:4] != b"\x7fELF":
        what = "an empty file" if not image else f"a file that starts with {image[:4].hex(' ')}"
        raise CubinError(f"not a cubin: expected an ELF file, got {what} ({len(image)} bytes)")
    try:
        return _parse(image)
    except CubinError:
        raise
    except (struct.error, IndexError, KeyError, ValueError, OverflowError) as error:
        raise CubinError(f"damaged cubin ({len(image)} bytes): {error}") from error


def _parse(image: bytes) -> Cubin:
    os_abi, flags, file_type, sections = _read_sections(image)
    sm, arch = _architecture(os_abi, flags, sections)
    if file_type == 1:
        raise CubinError(f"relocatable {arch} object (compiled with -rdc or -dc): link it first (nvcc -dlink -cubin)")
    symbols = _read_symbols(sections)
    by_name = {section.name: section for section in sections}
    module = list(_records(by_name[".nv.info"].data, ".nv.info")) if ".nv.info" in by_name else []
    module_values: dict[tuple[int, int], int] = {}
    for attribute, payload in module:
        if attribute in (Attribute.REGCOUNT, Attribute.FRAME_SIZE, Attribute.MIN_STACK_SIZE):
            symbol, value = struct.unpack_from("<II", payload)
            module_values[attribute, symbol] = value

    banks = {n: by_name[f".nv.constant{n}"].data for n in (3, 4) if f".nv.constant{n}" in by_name}
    kernels: dict[str, Kernel] = {}
    for number, symbol_entry in enumerate(symbols):
        if symbol_entry.kind != _STT_FUNC or not symbol_entry.other & _STO_ENTRY:
            continue
        name = symbol_entry.name
        section = by_name.get(f".text.{name}")
        if section is None:
            raise CubinError(f"kernel {name} has no section .text.{name}")
        kernels[name] = _read_kernel(name, number, section, sm, by_name, sections, symbols, module_values, banks)
    return Cubin(
        sha=hashlib.sha256(image).hexdigest(),
        sm=sm,
        arch=arch,
        kernels=kernels,
        variables=_variables(sections, symbols),
        constant_variables=_objects_in(sections, symbols, ".nv.constant3"),
        address_slots=_address_slots(by_name, symbols),
    )


def _read_sections(image: bytes) -> tuple[int, int, int, list[_Section]]:
    """(OS/ABI byte, e_flags, e_type, sections), every section within the file."""
    try:
        elf = ELFFile(io.BytesIO(image))
        if elf.elfclass != 64 or not elf.little_endian:
            raise CubinError("not a cubin: expected a little-endian ELF64 file")
        header = elf.header
        machine = header["e_machine"]
        if machine not in (EM_CUDA, "EM_CUDA"):
            raise CubinError(f"not a cubin: ELF machine is {machine}, expected {EM_CUDA} (EM_CUDA)")
        count = header["e_shnum"]
        ends = {
            "section table": header["e_shoff"] + count * header["e_shentsize"],
            "program header table": header["e_phoff"] + header["e_phnum"] * header["e_phentsize"],
        }
        for table, end in ends.items():
            if end > len(image):
                raise CubinError(f"truncated cubin: {table} ends at byte {end}, the file has {len(image)}")
        headers = [elf._get_section_header(index) for index in range(count)]
    except CubinError:
        raise
    except Exception as error:  # pyelftools raises many kinds (construct's, assertions) on damaged headers
        raise CubinError(f"damaged cubin ({len(image)} bytes): {type(error).__name__}: {error}") from error

    def body(entry: Any, what: str) -> bytes:
        start, size = entry["sh_offset"], entry["sh_size"]
        if start + size > len(image):
            raise CubinError(f"truncated cubin: {what} ends at byte {start + size}, the file has {len(image)}")
        return image[start : start + size]

    names = body(headers[header["e_shstrndx"]], "section name table")
    sections = []
    for entry in headers:
        name = _string(names, entry["sh_name"])
        empty = entry["sh_type"] in ("SHT_NOBITS", "SHT_NULL")
        data = b"" if empty else body(entry, f"section {name}")
        sections.append(_Section(name, entry["sh_size"], entry["sh_link"], entry["sh_info"], data))
    abi = image[7]
    file_type = struct.unpack_from("<H", image, 16)[0]
    return abi, header["e_flags"], file_type, sections


def _string(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if offset > len(table) or end < 0:
        raise CubinError(f"damaged cubin: name at offset {offset} of a string table of {len(table)} bytes")
    return table[offset:end].decode("utf-8", "replace")


def _architecture(os_abi: int, flags: int, sections: list[_Section]) -> tuple[int, str]:
    """(SM number, "sm_90a"). Toolkit 13 keeps the `a` in .nv.compat and the command line in .note.nv.tkinfo."""
    if os_abi == _ABI_VERSION_2:
        sm = flags >> 8 & 0xFF
        accelerated = any(
            attribute == 0x09 and payload[0] == 1
            for section in sections
            if section.name == ".nv.compat"
            for attribute, payload in _records(section.data, ".nv.compat")
        )
        suffix = "a" if accelerated else ""
        for section in sections:
            if section.name == ".note.nv.tkinfo":  # only place that tells the family suffix `f`
                found = re.search(rb"-arch sm_(\d+)([af]?)\b", section.data)
                if found and int(found[1]) == sm and not accelerated:
                    suffix = found[2].decode()
    else:
        sm = flags & 0xFF
        suffix = "a" if flags & _ACCELERATOR_FLAG_OLD else ""
    if not 75 <= sm <= 129:
        raise CubinError(f"cubin for sm_{sm}{suffix} (e_flags {flags:#x}): expected sm_75 or later")
    return sm, f"sm_{sm}{suffix}"


def _read_symbols(sections: list[_Section]) -> list[_Symbol]:
    table = next((s for s in sections if s.name == ".symtab"), None)
    if table is None:
        raise CubinError("damaged cubin: no symbol table")
    names = sections[table.link].data
    symbols = []
    for at in range(0, len(table.data) - 23, 24):
        name, info, other, section, value, size = struct.unpack_from("<IBBHQQ", table.data, at)
        symbols.append(_Symbol(_string(names, name) if name else "", info & 15, other, section, value, size))
    return symbols


def _records(data: bytes, where: str) -> Iterator[tuple[int, bytes]]:
    """(attribute, payload) of an .nv.info-like section. Formats 1 to 3 hold two bytes inline, 4 a counted payload."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, inline = struct.unpack_from("<BBH", data, at)
        if form == 4:
            if at + 4 + inline > len(data):
                raise CubinError(
                    f"damaged cubin: {where} record at byte {at} (attribute {attribute:#x}) runs past its end"
                )
            yield attribute, data[at + 4 : at + 4 + inline]
            at += 4 + inline
        elif form in (1, 2, 3):
            yield attribute, data[at + 2 : at + 4]
            at += 4
        elif form == 0 and not any(data[at:]):
            return  # padding
        else:
            raise CubinError(f"damaged cubin: {where} record at byte {at} has format {form}, expected 1 to 4")


def _words(payload: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(payload) // 4}I", payload[: len(payload) // 4 * 4]))


def _triple(payload: bytes) -> tuple[int, int, int]:
    x, y, z = struct.unpack_from("<III", payload)
    return x, y, z


def _read_kernel(
    name: str,
    number: int,
    section: _Section,
    sm: int,
    by_name: dict[str, _Section],
    sections: list[_Section],
    symbols: list[_Symbol],
    module_values: dict[tuple[int, int], int],
    banks: dict[int, bytes],
) -> Kernel:
    code = section.data
    if not code or len(code) % INSTRUCTION_BYTES:
        raise CubinError(f"damaged cubin: .text.{name} has {len(code)} bytes, not a positive multiple of 16")
    values: dict[int, bytes] = {}
    parameters: list[Parameter] = []
    indirect: dict[int, list[int]] = {}
    externals: list[str] = []
    info = by_name.get(f".nv.info.{name}")
    for attribute, payload in _records(info.data, info.name) if info else ():
        values[attribute] = payload
        if attribute == Attribute.KPARAM_INFO:
            _, ordinal, offset, packed = struct.unpack_from("<IHHI", payload)
            parameters.append(Parameter(ordinal, offset, packed >> 18))
        elif attribute == Attribute.KPARAM_INFO_V2:
            _, ordinal, offset, size = struct.unpack_from("<IHHI", payload)
            parameters.append(Parameter(ordinal, offset, size))
        elif attribute == Attribute.INDIRECT_BRANCH_TARGETS:
            indirect.update(_branch_tables(payload, name))
        elif attribute == Attribute.EXTERNS:
            externals += [symbols[index].name for index in _words(payload)]
    parameters.sort(key=lambda parameter: parameter.ordinal)

    base = size = 0
    if Attribute.PARAM_CBANK in values:
        _, base, size = struct.unpack_from("<IHH", values[Attribute.PARAM_CBANK])
    constants = dict(banks)
    for bank in (0, 1, 2):
        if f".nv.constant{bank}.{name}" in by_name:
            constants[bank] = by_name[f".nv.constant{bank}.{name}"].data
    if not base:
        base = len(constants.get(0, b""))  # no parameters: the section holds the launch constants alone

    shared = by_name[f".nv.shared.{name}"].size if f".nv.shared.{name}" in by_name else 0
    if sm >= 90 and shared >= RESERVED_SHARED_BYTES:
        shared -= RESERVED_SHARED_BYTES

    def module_value(attribute: Attribute) -> int:
        return module_values.get((attribute, number), 0)

    registers = module_value(Attribute.REGCOUNT)
    if not registers and sm < 90:
        registers = section.info >> 24
    if not registers:
        raise CubinError(f"kernel {name}: .nv.info has no register count")
    stack = max(module_value(Attribute.FRAME_SIZE), module_value(Attribute.MIN_STACK_SIZE))
    index = sections.index(section)
    functions = [
        Function(s.name, s.value, s.size) for s in symbols if s.kind == _STT_FUNC and s.section == index and s.name
    ]
    return Kernel(
        name=name,
        code=code,
        registers=registers,
        stack=stack,
        static_shared=shared,
        barriers=values[Attribute.NUM_BARRIERS][0] if Attribute.NUM_BARRIERS in values else 0,
        parameter_base=base,
        parameter_bytes=size,
        parameters=parameters,
        constants=constants,
        max_threads=_triple(values[Attribute.MAX_THREADS]) if Attribute.MAX_THREADS in values else None,
        required_threads=_triple(values[Attribute.REQNTID]) if Attribute.REQNTID in values else None,
        cluster=_triple(values[Attribute.CTA_PER_CLUSTER]) if Attribute.CTA_PER_CLUSTER in values else None,
        max_registers=values[Attribute.MAXREG_COUNT][0] if Attribute.MAXREG_COUNT in values else None,
        indirect_targets=indirect,
        exits=_words(values.get(Attribute.EXIT_INSTR_OFFSETS, b"")),
        functions=sorted(functions, key=lambda function: function.offset),
        relocations=_code_relocations(name, by_name, symbols),
        externals=externals,
    )


def _branch_tables(payload: bytes, kernel: str) -> dict[int, list[int]]:
    """Records of (offset of the BRX, 0, count, `count` target offsets), 32 bits each."""
    words = _words(payload)
    tables: dict[int, list[int]] = {}
    at = 0
    while at < len(words):
        if at + 3 > len(words) or at + 3 + words[at + 2] > len(words):
            raise CubinError(f"damaged cubin: branch table of kernel {kernel} runs past its record")
        tables[words[at]] = words[at + 3 : at + 3 + words[at + 2]]
        at += 3 + words[at + 2]
    return tables


def _relocations(name: str, by_name: dict[str, _Section]) -> Iterator[tuple[int, int, int, int]]:
    """(offset, kind, symbol number, addend) of the relocation section for section `name`, either flavour."""
    if f".rela{name}" in by_name:
        data = by_name[f".rela{name}"].data
        for at in range(0, len(data) - 23, 24):
            offset, info, addend = struct.unpack_from("<QQq", data, at)
            yield offset, info & 0xFFFFFFFF, info >> 32, addend
    if f".rel{name}" in by_name:
        data = by_name[f".rel{name}"].data
        for at in range(0, len(data) - 15, 16):
            offset, info = struct.unpack_from("<QQ", data, at)
            yield offset, info & 0xFFFFFFFF, info >> 32, 0


def _code_relocations(name: str, by_name: dict[str, _Section], symbols: list[_Symbol]) -> list[CodeRelocation]:
    return [
        CodeRelocation(offset, kind, symbols[number].name, addend)
        for offset, kind, number, addend in _relocations(f".text.{name}", by_name)
    ]


def _address_slots(by_name: dict[str, _Section], symbols: list[_Symbol]) -> list[AddressSlot]:
    """Places of bank 4 that the loader fills with the 64-bit address of a variable or function."""
    slots = []
    for offset, kind, number, addend in _relocations(".nv.constant4", by_name):
        if kind != _R_CUDA_64:
            raise CubinError(f".nv.constant4 has relocation type {kind} at {offset:#x}, expected 2 (R_CUDA_64)")
        slots.append(AddressSlot(offset, symbols[number].name, addend))
    return sorted(slots, key=lambda slot: slot.offset)


def _variables(sections: list[_Section], symbols: list[_Symbol]) -> list[GlobalVariable]:
    return _objects_in(sections, symbols, ".nv.global.init") + _objects_in(sections, symbols, ".nv.global")


def _objects_in(sections: list[_Section], symbols: list[_Symbol], name: str) -> list[GlobalVariable]:
    for index, section in enumerate(sections):
        if section.name == name:
            return [
                GlobalVariable(s.name, s.size, s.value, section.data[s.value : s.value + s.size])
                for s in symbols
                if s.kind == _STT_OBJECT and s.section == index
            ]
    return []
