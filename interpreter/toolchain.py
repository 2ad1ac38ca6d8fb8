"""Finds NVIDIA's compiler and disassembler: nvcc, ptxas, nvdisasm, cuobjdump.

Search order, per tool: the folder given explicitly or in FARM_CUDA; CUDA_HOME (or CUDA_PATH); the PyPI wheels
(`nvidia-cuda-nvcc`, `nvidia-cuda-nvdisasm`: folder `nvidia/cu13/bin` of any entry of sys.path; after those the copies
of ptxas, nvdisasm and cuobjdump that `triton` carries); PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from interpreter.errors import ToolchainError

TOOL_NAMES = ("nvcc", "ptxas", "nvdisasm", "cuobjdump")
_INSTALL = {
    "nvcc": "pip install 'farm[nvcc]', or set CUDA_HOME to a CUDA toolkit",
    "ptxas": "pip install 'farm[nvcc]', or set CUDA_HOME to a CUDA toolkit",
    "nvdisasm": "pip install nvidia-cuda-nvdisasm, or set CUDA_HOME to a CUDA toolkit",
    "cuobjdump": "set CUDA_HOME to a CUDA toolkit (it is needed only to look into fat binaries)",
}
_VERSION_TIMEOUT = 60.0  # seconds; a cold disk can be slow, a hung tool must not hang us


@dataclass(frozen=True, slots=True)
class Tool:
    """One executable. `origin` says where it was found: "argument", "FARM_CUDA", "CUDA_HOME", "wheel" or "PATH"."""

    name: str
    path: Path
    origin: str

    @property
    def version(self) -> str:
        """For instance "13.0.88". Raises ToolchainError when the tool does not run."""
        return _version(self.path, self.path.stat().st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools found; None where one is missing."""

    nvcc: Tool | None
    ptxas: Tool | None
    nvdisasm: Tool | None
    cuobjdump: Tool | None

    def require(self, name: str) -> Tool:
        """The tool named `name`. Raises ToolchainError that says how to install it."""
        tool: Tool | None = getattr(self, name)
        if tool is None:
            raise ToolchainError(
                f"{name} not found (looked in FARM_CUDA, CUDA_HOME, PyPI wheels, PATH): {_INSTALL[name]}"
            )
        return tool


def find_tools(root: Path | None = None) -> Tools:
    """Look for the tools; `root` is a toolkit folder (with bin/) or the folder of the executables itself.

    A `root` (or FARM_CUDA) that holds none of them is an error; otherwise missing tools are None.
    """
    explicit = root or (Path(os.environ["FARM_CUDA"]) if os.environ.get("FARM_CUDA") else None)
    if explicit is not None and not any(_executable(folder, n) for folder in _bins(explicit) for n in TOOL_NAMES):
        what = "argument" if root else "FARM_CUDA"
        raise ToolchainError(f"{what} names {explicit}, but neither it nor its bin/ has any of {', '.join(TOOL_NAMES)}")
    folders = list(_folders(root))
    found: dict[str, Tool | None] = dict.fromkeys(TOOL_NAMES)
    for name in TOOL_NAMES:
        for origin, folder in folders:
            path = _executable(folder, name)
            if path is not None:
                found[name] = Tool(name, path, origin)
                break
        else:
            on_path = shutil.which(name)
            if on_path:
                found[name] = Tool(name, Path(on_path), "PATH")
    return Tools(**found)


def _bins(root: Path) -> tuple[Path, Path]:
    return root / "bin", root


def _folders(root: Path | None) -> Iterator[tuple[str, Path]]:
    if root is not None:
        yield from (("argument", folder) for folder in _bins(root))
    for variable in ("FARM_CUDA", "CUDA_HOME", "CUDA_PATH"):
        value = os.environ.get(variable)
        if value:
            origin = "CUDA_HOME" if variable == "CUDA_PATH" else variable
            yield from ((origin, folder) for folder in _bins(Path(value)))
    for entry in sys.path:
        nvidia = Path(entry or ".") / "nvidia"
        if nvidia.is_dir():
            # newest toolkit first; wheels of CUDA 12 use one folder a package
            for pattern in ("cu[0-9]*", "cuda_nvcc", "cuda_nvdisasm", "cuda_cuobjdump"):
                for package in sorted(nvidia.glob(pattern), reverse=True):
                    yield "wheel", package / "bin"
    for entry in sys.path:
        yield "wheel", Path(entry or ".") / "triton" / "backends" / "nvidia" / "bin"


def _executable(folder: Path, name: str) -> Path | None:
    path = folder / name
    return path if path.is_file() and os.access(path, os.X_OK) else None


@lru_cache(maxsize=64)
def _version(path: Path, _modified: int) -> str:
    try:
        command = [str(path), "--version"]
        output = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"{path} does not run: {error}") from error
    match = re.search(r"\bV(\d+(?:\.\d+)+)", output.stdout)
    if match is None:
        raise ToolchainError(f"{path} --version names no version: {output.stdout.strip()[:200]!r}")
    return match[1]
