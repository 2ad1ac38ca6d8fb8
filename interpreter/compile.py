"""Compiles CUDA source to cubins with nvcc, through a content-addressed cache.

The command is `nvcc -cubin -arch=sm_XX -std=c++17 -O3 FLAGS -DNAME=VALUE ... -o OUT kernel.cu`: with nvcc 13.0.88 the
cubins are byte for byte those measured on an H200. Anything more changes bytes: `-Xptxas=-v` and `--resource-usage` are
recorded in .note.nv.tkinfo, so registers, stack and shared memory come from the cubin. Spills need the compiler's
report, but a kernel without a stack frame has none; only the others are compiled a second time, with `-Xptxas=-v`, for
the numbers alone.

What was tried to make it cheaper (nvcc 13.0.88, an sgemm variant, 0.28 s of CPU: preprocessing 65 ms, front end 180 ms,
ptxas 20 ms; an empty kernel costs the front end 177 ms, so it is all headers): one run for six architectures takes
1.75 s of CPU against 1.77 s for six runs, since nothing is shared between architectures; precompiled headers are not
offered by this version. So one run a cubin, in parallel.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from interpreter.cubin import Cubin, parse_cubin
from interpreter.disassembly import cache_directory, write_atomically
from interpreter.errors import CompileError, CubinError, ToolchainError
from interpreter.toolchain import Tool, find_tools

_FORMAT = 1  # of cache entries
_TIMEOUT = 600.0  # seconds for one compilation
_SHOWN_ERRORS = 3
_SHOWN_LINES = 24

# A compiler's own verdict on the source, as opposed to a compiler that could not do its work.
_VERDICT = re.compile(r"\berror\b|^(?:nvcc|ptxas) fatal", re.MULTILINE)
_TROUBLE = re.compile(
    r"died due to signal|killed|segmentation|no space left|cannot allocate|out of memory|resource temporarily|"
    r"too many open files|read-only file system|permission denied|cannot execute|'?gcc'?.*(?:not found|no such file)|"
    r"input/output error|disk quota",
    re.IGNORECASE,
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(\S+))', re.MULTILINE)
_ERROR_LINE = re.compile(r"^(?:\S.*?\(\d+\): (?:catastrophic |internal )?error\b|\S.*:\d+:\d+: (?:fatal )?error:|"
                         r"(?:nvcc|ptxas|nvlink|cicc)\b.*(?:error|fatal)|.*\bfatal error\b)")  # fmt: skip
_PTXAS_FUNCTION = re.compile(r"Function properties for (\S+)")
_PTXAS_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel needs. Bytes; `registers` per thread."""

    registers: int
    stack: int
    static_shared: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """One compilation: `macros` become -DNAME=VALUE, `flags` go to nvcc as they are (paths relative to the source)."""

    source: Path
    arch: str
    macros: Mapping[str, int | str] = field(default_factory=dict)
    flags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A cubin and what the compiler said. `seconds` is what the compilation took, now or when it was cached."""

    cubin: bytes
    sha: str
    command: list[str]
    resources: dict[str, Resources]
    seconds: float
    cached: bool

    def _only(self) -> Resources:
        if len(self.resources) != 1:
            names = ", ".join(self.resources) or "none"
            raise CubinError(f"the cubin has {len(self.resources)} kernels ({names}): use resources[name]")
        return next(iter(self.resources.values()))

    @property
    def registers(self) -> int:
        """Registers per thread of the only kernel."""
        return self._only().registers

    @property
    def spill_store_bytes(self) -> int:
        """Bytes of spill stores in the code of the only kernel, as ptxas counts them."""
        return self._only().spill_store_bytes

    @property
    def spill_load_bytes(self) -> int:
        """Bytes of spill loads in the code of the only kernel, as ptxas counts them."""
        return self._only().spill_load_bytes


def compile_cubin(
    source: Path,
    arch: str,
    macros: Mapping[str, int | str] | None = None,
    flags: Sequence[str] = (),
    cache: Path | None = None,
    *,
    nvcc: Tool | None = None,
    timeout: float = _TIMEOUT,
) -> Compiled:
    """Compile `source` for `arch` ("sm_90a"), or take the result from the cache.

    `cache` is the cache folder (default: FARM_CACHE, else ~/.cache/farm). Raises CompileError when nvcc refuses the
    source (that is cached too) or takes longer than `timeout` seconds, ToolchainError when nvcc is missing or could not
    work (killed, no space, no host compiler: never cached).
    """
    request = CompileRequest(Path(source), arch, macros or {}, flags)
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise CompileError(f"{source}: unknown architecture {arch!r}, expected for instance sm_90a")
    if not request.source.is_file():
        raise CompileError(f"{source}: no such source file")
    tool = nvcc or find_tools().require("nvcc")
    path = cache_directory(cache) / "cubins" / _key(request, tool)
    entry = _read_entry(path)
    if entry is None:
        entry = _compile(request, tool, timeout)
        write_atomically(path, _pack_entry(entry))
        return _result(request, entry, cached=False)
    return _result(request, entry, cached=True)


def compile_many(
    requests: Iterable[CompileRequest],
    jobs: int | None = None,
    cache: Path | None = None,
    *,
    nvcc: Tool | None = None,
    timeout: float = _TIMEOUT,
) -> list[Compiled | CompileError]:
    """Compile all requests, `jobs` at a time (default: one a CPU). Results in order; a refused source gives its error.

    Raises ToolchainError as `compile_cubin` does.
    """
    wanted = list(requests)
    tool = nvcc or find_tools().require("nvcc")

    def one(request: CompileRequest) -> Compiled | CompileError:
        try:
            return compile_cubin(
                request.source, request.arch, request.macros, request.flags, cache, nvcc=tool, timeout=timeout
            )
        except CompileError as error:
            return error

    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
        futures = [pool.submit(one, request) for request in wanted]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def cache_entry(request: CompileRequest, cache: Path | None = None, *, nvcc: Tool | None = None) -> Path:
    """The file in which the cache keeps the result of a request, whether or not it is there."""
    return cache_directory(cache) / "cubins" / _key(request, nvcc or find_tools().require("nvcc"))


def cached_cubin(entry: Path) -> bytes | None:
    """The cubin in a file of the cache (see `cache_entry`); None when there is none, or nvcc refused the source."""
    found = _read_entry(entry)
    return found.cubin if found is not None and not found.error else None


def command_line(request: CompileRequest, nvcc: str, output: str) -> list[str]:
    """The nvcc command of a request; nvcc runs in the source's folder."""
    return [
        nvcc,
        "-cubin",
        f"-arch={request.arch}",
        "-std=c++17",
        "-O3",
        *request.flags,
        *(f"-D{name}={value}" for name, value in request.macros.items()),
        "-o",
        output,
        request.source.name,
    ]


@dataclass(slots=True)
class _Entry:
    """A cache entry: a cubin with its numbers, or the compiler's refusal."""

    command: list[str]
    seconds: float
    error: str = ""
    resources: dict[str, Resources] = field(default_factory=dict)
    cubin: bytes = b""


def _result(request: CompileRequest, entry: _Entry, cached: bool) -> Compiled:
    if entry.error:
        macros = " ".join(f"{name}={value}" for name, value in request.macros.items())
        first = next(line for line in entry.error.splitlines() if line.strip())
        where = f"{request.source} for {request.arch}" + (f" with {macros}" if macros else "")
        raise CompileError(f"nvcc refused {where}: {first}", entry.error)
    sha = hashlib.sha256(entry.cubin).hexdigest()
    return Compiled(entry.cubin, sha, entry.command, entry.resources, entry.seconds, cached)


def _compile(request: CompileRequest, tool: Tool, timeout: float) -> _Entry:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="farm-nvcc-") as folder:
        output = Path(folder) / "kernel.cubin"
        command = command_line(request, str(tool.path), str(output))
        shown = command_line(request, tool.name, "kernel.cubin")
        code, message = _run(request, command, folder, timeout)
        if code != 0:
            if code < 0 or _TROUBLE.search(message) or not _VERDICT.search(message):
                reason = " ".join(message.split())[-500:] or "no message"
                raise ToolchainError(f"{tool.path} could not compile {request.source} (exit status {code}): {reason}")
            return _Entry(shown, time.perf_counter() - start, error=_cut(message))
        try:
            image = output.read_bytes()
        except FileNotFoundError:
            raise ToolchainError(f"{tool.path} wrote no cubin for {request.source} (flags {request.flags})") from None
        cubin = parse_cubin(image)
        seconds = time.perf_counter() - start
        spills: dict[str, tuple[int, int]] = {}
        if any(kernel.stack for kernel in cubin.kernels.values()):
            spills = _spills(message)
            if not spills:
                code, message = _run(request, [*command, "-Xptxas=-v"], folder, timeout)
                spills = _spills(message) if code == 0 else {}
    return _Entry(shown, seconds, resources=_resources(cubin, spills), cubin=image)


def _run(request: CompileRequest, command: list[str], folder: str, timeout: float) -> tuple[int, str]:
    # These variables add flags behind our back; TMPDIR keeps nvcc's files where they are removed even if it is killed.
    environment = {k: v for k, v in os.environ.items() if k not in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")}
    environment["TMPDIR"] = folder
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            cwd=request.source.resolve().parent,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"nvcc did not finish {request.source} for {request.arch} in {timeout:g} s") from None
    except OSError as error:
        raise ToolchainError(f"{command[0]} does not run: {error}") from error
    return done.returncode, done.stderr + done.stdout


def _resources(cubin: Cubin, spills: dict[str, tuple[int, int]]) -> dict[str, Resources]:
    result = {}
    for name, kernel in cubin.kernels.items():
        if kernel.stack and name not in spills:
            raise ToolchainError(f"ptxas reported no spills for kernel {name}, which has a stack frame")
        stores, loads = spills.get(name, (0, 0))
        result[name] = Resources(kernel.registers, kernel.stack, kernel.static_shared, stores, loads)
    return result


def _spills(report: str) -> dict[str, tuple[int, int]]:
    """Kernel -> (store bytes, load bytes) of ptxas's verbose report."""
    result = {}
    name = ""
    for line in report.splitlines():
        if found := _PTXAS_FUNCTION.search(line):
            name = found[1]
        elif name and (found := _PTXAS_SPILLS.search(line)):
            result[name] = int(found[2]), int(found[3])
    return result


def _cut(message: str) -> str:
    """The first errors of a compiler's output, each with the source lines shown below it."""
    lines = message.splitlines()
    starts = [number for number, line in enumerate(lines) if _ERROR_LINE.match(line)]
    if not starts:
        return "\n".join(line for line in lines if line.strip())[:4000]
    kept: list[str] = []
    for start in starts[:_SHOWN_ERRORS]:
        kept.append(lines[start])
        for line in lines[start + 1 :]:
            # what belongs to an error is indented; the next message starts at the margin
            if line.strip() and not line[0].isspace():
                break
            if line.strip():
                kept.append(line)
    kept = kept[:_SHOWN_LINES]
    if len(starts) > _SHOWN_ERRORS:
        kept.append(f"... and {len(starts) - _SHOWN_ERRORS} more errors")
    return "\n".join(kept)


def _key(request: CompileRequest, tool: Tool) -> str:
    described = {
        "format": _FORMAT,
        "nvcc": tool.version,
        "arch": request.arch,
        "flags": list(request.flags),
        "macros": sorted((name, str(value)) for name, value in request.macros.items()),
        "name": request.source.name,
        "files": source_files(request, tool),
    }
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    return f"{digest[:2]}/{digest}"


def source_files(request: CompileRequest, tool: Tool) -> dict[str, str]:
    """SHA-256 of the source, of every file it includes from outside the toolkit and the system, and of files that flags
    name; keyed by path relative to the source's folder. An include whose name is a macro is resolved by `nvcc -M`."""
    folder = request.source.resolve().parent
    search = [folder / path for path in _include_folders(request.flags)]
    files: dict[Path, str] = {}
    waiting = [request.source.resolve()]
    waiting += [folder / flag for flag in request.flags if not flag.startswith("-") and (folder / flag).is_file()]
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        data = path.read_bytes()
        files[path] = hashlib.sha256(data).hexdigest()
        for quoted, angled, computed in _INCLUDE.findall(data.decode("utf-8", "replace")):
            if computed:
                waiting += _dependencies(request, tool)
                continue
            places = [path.parent, *search] if quoted else search
            candidates = [place / (quoted or angled) for place in places]
            waiting += [path.resolve() for path in candidates if path.is_file()][:1]
    return {os.path.relpath(path, folder): sha for path, sha in sorted(files.items())}


def _include_folders(flags: Sequence[str]) -> list[str]:
    folders = []
    words = iter(flags)
    for word in words:
        if word in ("-I", "--include-path", "-isystem", "--system-include"):
            folders.append(next(words, "."))
        elif word.startswith("-I"):
            folders.append(word[2:])
        elif match := re.fullmatch(r"(?:--include-path|-isystem|--system-include)=(.+)", word):
            folders.append(match[1])
    return folders


def _dependencies(request: CompileRequest, tool: Tool) -> list[Path]:
    """Files nvcc -M names that belong neither to the toolkit nor to the system."""
    command = command_line(request, str(tool.path), "-")
    command = [word for word in command[: -len(["-o", "-", request.source.name])] if word != "-cubin"]
    with tempfile.TemporaryDirectory(prefix="farm-nvcc-") as folder:
        code, message = _run(request, [*command, "-M", request.source.name], folder, _TIMEOUT)
    if code != 0:  # the compilation itself will say why
        return []
    base = request.source.resolve().parent
    system = (tool.path.resolve().parent.parent, Path("/usr"))
    names = message.replace("\\\n", " ").partition(":")[2].split()
    paths = [(base / name).resolve() for name in names]
    return [path for path in paths if path.is_file() and not any(path.is_relative_to(place) for place in system)]


def _pack_entry(entry: _Entry) -> bytes:
    """One line of JSON, then the cubin's bytes."""
    header = {
        "command": entry.command,
        "seconds": round(entry.seconds, 4),
        "error": entry.error,
        "resources": {name: asdict(resources) for name, resources in entry.resources.items()},
        "sha": hashlib.sha256(entry.cubin).hexdigest(),
    }
    return json.dumps(header).encode() + b"\n" + entry.cubin


def _read_entry(path: Path) -> _Entry | None:
    """A cache entry; None when there is none or it is damaged (then it is made anew)."""
    try:
        line, _, cubin = path.read_bytes().partition(b"\n")
        header = json.loads(line)
        if hashlib.sha256(cubin).hexdigest() != header["sha"]:
            return None
        resources = {name: Resources(**values) for name, values in header["resources"].items()}
        return _Entry(header["command"], header["seconds"], header["error"], resources, cubin)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return None
