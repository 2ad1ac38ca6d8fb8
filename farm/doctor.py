"""`farm doctor`: what this installation finds, and what it lacks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from farm.executors.interface import default_jobs
from farm.store import LocalStore, open_store
from interpreter.disassembly import cache_directory
from interpreter.errors import FarmError
from interpreter.toolchain import TOOL_NAMES, find_tools
from jobs.blobs import StorageError

PACKAGES = ("numpy", "numba", "llvmlite", "pyarrow", "duckdb", "pydantic", "typer", "rich", "PyYAML", "pyelftools")
REQUIRED_TOOLS = ("nvcc", "ptxas", "nvdisasm")  # cuobjdump only looks into fat binaries
LOW_DISK_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `problem` is empty when all is well; `fatal` problems make the exit code 3."""

    name: str
    value: str
    problem: str = ""
    fatal: bool = False


def examine(store: str | None = None) -> list[Finding]:
    """Tools, packages, folders and cores of this machine."""
    return [
        Finding("python", f"{platform.python_version()} on {platform.machine()} {platform.system()}"),
        *_packages(),
        *_tools(),
        _folder("cache", cache_directory(None)),
        _store(store),
        Finding("cores", f"{default_jobs()} usable of {os.cpu_count()}"),
        Finding("memory", f"{_memory_bytes() / 2**30:.1f} GiB"),
    ]


def _packages() -> list[Finding]:
    found = []
    for name in PACKAGES:
        try:
            found.append(Finding(name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            found.append(Finding(name, "missing", "pip install farm installs it", fatal=True))
    return found


def _tools() -> list[Finding]:
    try:
        tools = find_tools()
    except FarmError as error:
        return [Finding("tools", "not found", str(error), fatal=True)]
    found = []
    for name in TOOL_NAMES:
        required = name in REQUIRED_TOOLS
        try:
            tool = tools.require(name)
            found.append(Finding(name, f"{tool.version} ({tool.origin}: {tool.path})"))
        except FarmError as error:
            found.append(Finding(name, "missing", str(error), fatal=required))
    return found


def _folder(name: str, path: Path) -> Finding:
    parent = path
    while not parent.exists():
        parent = parent.parent
    if not os.access(parent, os.W_OK):
        return Finding(name, str(path), "cannot be written", fatal=True)
    free = shutil.disk_usage(parent).free
    value = f"{path} ({free / 2**30:.1f} GiB free)"
    return Finding(name, value, "the disk is nearly full" if free < LOW_DISK_BYTES else "")


def _store(uri: str | None) -> Finding:
    try:
        store = open_store(uri)
    except FarmError as error:
        return Finding("store", uri or "", str(error), fatal=True)
    if isinstance(store, LocalStore):
        finding = _folder("store", store.path.resolve())
    else:
        finding = Finding("store", store.location)
    try:
        return Finding("store", f"{finding.value}, {len(store.runs())} run(s)", finding.problem, finding.fatal)
    except StorageError as error:
        return Finding("store", store.location, str(error), fatal=True)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
