"""SASS text of kernels: nvdisasm in raw mode, many kernels a run, with a cache on disk.

nvdisasm needs 0.45 s to start and then disassembles 50 to 130 thousand instructions a second (measured with 13.5 on two
2.x GHz cores), so the code of all kernels of one architecture goes through one run: their sections are concatenated
and branch targets, which raw mode prints as absolute addresses in the blob, are made relative to the kernel again.
The cached text has one instruction a line as nvdisasm prints it, targets relative to the kernel's first instruction.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from interpreter.errors import CubinError, ToolchainError
from interpreter.program import INSTRUCTION_BYTES
from interpreter.toolchain import Tool, find_tools

_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", re.MULTILINE)
_TARGET = re.compile(
    r"^((?:@!?U?P[0-9T]+ +)?(?:BRA|BSSY|CALL\.REL|RET\.REL|LEPC|WARPSYNC\.COLLECTIVE)\b[^;]*?)\b0x([0-9a-f]+)$"
)
# Cheap test before the regular expression: only these opcodes print an absolute address in raw mode.
_MAY_TARGET = ("BRA", "BSSY", "CALL.REL", "RET.REL", "LEPC", "WARPSYNC.COLL")
_BATCH_BYTES = 16 << 20  # code bytes of one nvdisasm run; a million instructions take about 10 s and 700 MB
_TIMEOUT = 600.0
_MASK64 = (1 << 64) - 1


def cache_directory(given: Path | None = None) -> Path:
    """Where caches live: `given`, else FARM_CACHE, else ~/.cache/farm."""
    if given is not None:
        return given
    return Path(os.environ.get("FARM_CACHE") or Path.home() / ".cache" / "farm")


def write_atomically(path: Path, data: bytes) -> None:
    """Write under a temporary name in the same folder, then rename: readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def disassemble(
    kernels: Sequence[tuple[str, bytes]], arch: str, cache: Path | None = None, nvdisasm: Tool | None = None
) -> list[list[str]]:
    """Instruction texts of each (name, code), all of architecture `arch` ("sm_90a").

    `cache` is the cache folder (see `cache_directory`). Raises CubinError naming kernel and address when a word is not
    an instruction of that architecture, ToolchainError when nvdisasm is missing or fails.
    """
    tool = nvdisasm or find_tools().require("nvdisasm")
    paths = [cached_text(code, arch, cache, tool) for _, code in kernels]
    keys = {path.name: path for path in paths}
    texts: dict[str, list[str]] = {}
    missing: dict[str, tuple[str, bytes]] = {}
    for path, (name, code) in zip(paths, kernels, strict=True):
        key = path.name
        if key in texts or key in missing:
            continue
        cached = _read_cached(path, len(code) // INSTRUCTION_BYTES)
        if cached is None:
            missing[key] = name, code
        else:
            texts[key] = cached
    for batch in _batches(list(missing.items())):
        for (key, _), lines in zip(batch, _run(tool, arch, [kernel for _, kernel in batch]), strict=True):
            texts[key] = lines
            write_atomically(keys[key], "\n".join(lines).encode())
    return [texts[path.name] for path in paths]


def cached_text(code: bytes, arch: str, cache: Path | None = None, nvdisasm: Tool | None = None) -> Path:
    """The file in which the cache keeps the instruction texts of a kernel's code, whether or not it is there."""
    tool = nvdisasm or find_tools().require("nvdisasm")
    key = hashlib.sha256(code).hexdigest()
    return cache_directory(cache) / "disassembly" / f"nvdisasm-{tool.version}" / _machine(arch) / key[:2] / key


def _machine(arch: str) -> str:
    """nvdisasm's name of an architecture: its accelerated superset from sm_90 on, so that no instruction is refused."""
    number = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if number is None:
        raise CubinError(f"unknown architecture {arch!r}, expected for instance sm_90a")
    return f"SM{number[1]}" + ("a" if int(number[1]) >= 90 else "")


def _read_cached(path: Path, count: int) -> list[str] | None:
    try:
        lines = path.read_text().split("\n")
    except FileNotFoundError:
        return None
    return lines if len(lines) == count else None


def _batches(
    items: list[tuple[str, tuple[str, bytes]]],
) -> list[list[tuple[str, tuple[str, bytes]]]]:
    batches: list[list[tuple[str, tuple[str, bytes]]]] = []
    size = _BATCH_BYTES
    for item in items:
        if size + len(item[1][1]) > _BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(item)
        size += len(item[1][1])
    return batches


def _run(tool: Tool, arch: str, kernels: list[tuple[str, bytes]]) -> list[list[str]]:
    lines, message = _raw(tool, arch, b"".join(code for _, code in kernels))
    if sum(len(code) for _, code in kernels) // INSTRUCTION_BYTES != len(lines):
        if len(kernels) == 1:
            _refuse(tool, arch, *kernels[0], message)
        # One bad word stops nvdisasm: halve the batch until it is alone.
        middle = len(kernels) // 2
        return _run(tool, arch, kernels[:middle]) + _run(tool, arch, kernels[middle:])
    result = []
    row = 0
    for _, code in kernels:
        count = len(code) // INSTRUCTION_BYTES
        base = row * INSTRUCTION_BYTES
        result.append([_rebase(text, base) for text in lines[row : row + count]])
        row += count
    return result


def _raw(tool: Tool, arch: str, blob: bytes) -> tuple[list[str], str]:
    """Texts in address order (as far as nvdisasm got) and its error output."""
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(blob)
        file.flush()
        try:
            done = subprocess.run(
                [tool.path, "-b", _machine(arch), file.name], capture_output=True, text=True, timeout=_TIMEOUT
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ToolchainError(f"{tool.path} failed: {error}") from error
    if done.returncode < 0:
        raise ToolchainError(f"{tool.path} was killed by signal {-done.returncode} (out of memory?)")
    lines: list[str] = []
    for match in _LINE.finditer(done.stdout):
        if int(match[1], 16) != len(lines) * INSTRUCTION_BYTES:
            break
        lines.append(match[2])
    return lines, done.stderr.strip()


def _refuse(tool: Tool, arch: str, name: str, code: bytes, message: str) -> NoReturn:
    """Raise for a kernel that nvdisasm did not take, naming its first bad word."""
    if "is not defined for option" in message:
        raise ToolchainError(f"nvdisasm {tool.version} ({tool.path}) does not know {arch}; install a newer one")
    named = re.search(r"at address 0x([0-9a-f]+)", message)
    if named:
        row = int(named[1], 16) // INSTRUCTION_BYTES
    else:  # often it names no address: find the shortest prefix that fails
        good, row = 0, len(code) // INSTRUCTION_BYTES
        while row - good > 1:
            middle = (good + row) // 2
            if len(_raw(tool, arch, code[: middle * INSTRUCTION_BYTES])[0]) == middle:
                good = middle
            else:
                row = middle
        row -= 1
    value = int.from_bytes(code[row * INSTRUCTION_BYTES : (row + 1) * INSTRUCTION_BYTES], "little")
    reason = " ".join(message.split()) or "no message"
    raise CubinError(
        f"kernel {name}: the word {value:#034x} at address {row * INSTRUCTION_BYTES:#06x} is not an {arch} instruction "
        f"(nvdisasm {tool.version}: {reason})"
    )


def _rebase(text: str, base: int) -> str:
    if base == 0 or not any(opcode in text for opcode in _MAY_TARGET):
        return text
    match = _TARGET.match(text)
    if match is None:
        return text
    return f"{match[1]}{(int(match[2], 16) - base) & _MASK64:#x}"
