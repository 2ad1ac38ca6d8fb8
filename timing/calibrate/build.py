"""Compiles the microbenchmark sources to cubins with whatever nvcc is at hand."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from interpreter.errors import CompileError, ToolchainError

SOURCES = Path(__file__).parent / "sources"
STRAIGHT = (128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)  # instructions in a row
ISSUE_PARTS = 5

# name of the cubin -> (source, macros)
UNITS: dict[str, tuple[str, dict[str, int]]] = {
    **{f"issue{part}": ("issue.cu", {"PART": part}) for part in range(ISSUE_PARTS)},
    "l1": ("l1.cu", {}),
    "barriers": ("barriers.cu", {}),
    "stream": ("stream.cu", {}),
    "launch": ("launch.cu", {}),
    "slots": ("slots.cu", {}),
    "mio": ("mio.cu", {}),
    "caches": ("caches.cu", {}),
    "waves": ("waves.cu", {}),
    "lives": ("lives.cu", {}),
    "slices": ("slices.cu", {}),
    **{f"straight{count}": ("barriers.cu", {"STRAIGHT": count}) for count in STRAIGHT},
}


def find_nvcc(given: str | None = None) -> str:
    """Path of nvcc: as given, from CUDA_HOME, from PATH, or /usr/local/cuda."""
    home = os.environ.get("CUDA_HOME")
    for candidate in (given, f"{home}/bin/nvcc" if home else None, shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if candidate and Path(candidate).exists():
            return candidate
    raise ToolchainError("nvcc not found: give --nvcc, set CUDA_HOME, or put it on PATH")


def compile_unit(nvcc: str, name: str, arch: str, cache: Path) -> bytes:
    """The cubin of one unit; kept in `cache` under a hash of source, macros, architecture and compiler path."""
    source, macros = UNITS[name]
    path = SOURCES / source
    command = [nvcc, "-cubin", f"-arch={arch}", "-std=c++17", "-O3", "-ftemplate-depth=1000"]
    command += [f"-D{key}={value}" for key, value in macros.items()]
    key = hashlib.sha256(" ".join(command).encode() + path.read_bytes()).hexdigest()[:16]
    out = cache / f"{name}.{arch}.{key}.cubin"
    if not out.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = out.with_suffix(".tmp")
        done = subprocess.run([*command, str(path), "-o", str(partial)], capture_output=True, text=True)
        if done.returncode != 0:
            raise CompileError(f"{path.name} does not compile for {arch}", done.stderr[:2000])
        partial.replace(out)
    return out.read_bytes()


def compile_all(nvcc: str, arch: str, cache: Path, workers: int = 8) -> dict[str, bytes]:
    with ThreadPoolExecutor(workers) as pool:
        futures = {name: pool.submit(compile_unit, nvcc, name, arch, cache) for name in UNITS}
        return {name: future.result() for name, future in futures.items()}
