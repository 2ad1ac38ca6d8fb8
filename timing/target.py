"""Targets: what the timing model knows of one GPU, every number with its source.

`load_target("h200")` reads `timing/targets/h200.yaml`. In a file each number is written `[value, source, note]`, where
source is one of SOURCES:

- measured: by our own microbenchmarks or profiles on that very GPU;
- vendor: NVIDIA's documents, tools or headers (occupancy header, programming guide, datasheet);
- literature: somebody else's measurement on such hardware, named in the note;
- derived: arithmetic on other numbers, or a number of a sibling GPU taken over;
- guess: nothing better known.

A file may say `extends: other`: sections it leaves out, or keys within SM-level sections, are then those of the other
GPU, and what was measured there counts as derived here. Board-level sections (BOARD_SECTIONS) are never inherited.
An optional section `measured:` maps dotted paths to `[value, note]` and replaces the values above it.

Units are in the names: `_cycles` are SM clock cycles, `_bytes` bytes, `_kb` KiB, `_mhz` MHz, `gb_per_s` 10^9 bytes a
second, `_per_clk` per SM clock cycle. Intervals are cycles between two warp instructions on one sub-core's pipe (on the
SM's only unit where `shared_per_sm`). Latencies are cycles from issue to the first dependent issue.
"""

from __future__ import annotations

import difflib
import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from interpreter.isa import registry
from interpreter.isa.pipes import MemoryKind, Timing
from interpreter.program import Program
from timing.target_model import SECTIONS as _SECTIONS
from timing.target_model import ClassTiming, PipeTiming, Source, Target, TargetError, build, close_names

__all__ = [
    "BOARD_SECTIONS", "ROW_TIMING", "SOURCES", "TARGETS", "ClassTiming", "PipeTiming", "Source", "Target",
    "TargetError", "check_architecture", "load_target", "row_timing",
]  # fmt: skip

SOURCES = ("measured", "vendor", "literature", "derived", "guess")
BOARD_SECTIONS = ("gpu", "l2", "dram", "launch")
_DIRECTORY = Path(__file__).parent / "targets"


def _names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in _DIRECTORY.glob("*.yaml")))


TARGETS: tuple[str, ...] = _names()
"""Names of the targets, one a file of timing/targets."""

_AMD = re.compile(r"^(amd.*|radeon.*|instinct.*|mi\d{2,3}[a-z]?|rx\d{3,4}.*|gfx\d.*|navi.*|cdna.*|rdna.*)$")


def _fold(name: str) -> str:
    return re.sub(r"[\s_\-]+", "", name.lower())


def load_target(name: str) -> Target:
    """The target of that name or alias ("h200", "RTX 4090", "4090"), or of a file path ending in .yaml.

    Raises TargetError for an unknown name, listing the known ones; for AMD GPUs it says that they are not modelled.
    """
    if name.endswith(".yaml"):
        path = Path(name)
        if not path.is_file():
            raise TargetError(f"{name}: no such target file")
        return _load_file(path.resolve())
    folded = _fold(name)
    for known in TARGETS:
        if folded == _fold(known):
            return _load_file(_DIRECTORY / f"{known}.yaml")
    found = _alias_index().get(folded)
    if found:
        return _load_file(_DIRECTORY / f"{found}.yaml")
    known_names = ", ".join(TARGETS)
    if _AMD.match(folded):
        raise TargetError(
            f"target {name!r}: AMD GPUs are not modelled (the simulator runs NVIDIA SASS); known targets: {known_names}"
        )
    near = difflib.get_close_matches(folded, [*TARGETS, *_alias_index()], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise TargetError(
        f"target {name!r} is not known; known targets: {known_names}.{hint} "
        "A new GPU is one file (docs/adding-a-target.md)."
    )


def check_gpu_is(target: Target, found: str) -> None:
    """Raise TargetError unless `found`, the driver's name of a GPU, is that target."""
    model = next((word for word in target.full_name.split() if any(c.isdigit() for c in word)), target.name)
    plain = found.lower().replace(" ", "")
    if model.lower() not in plain and target.name.lower() not in plain:
        raise TargetError(f"--gpu {target.name}: this machine's GPU is {found!r}, not {target.full_name!r}")


@functools.lru_cache(maxsize=1)
def _alias_index() -> dict[str, str]:
    index: dict[str, str] = {}
    for name in TARGETS:
        for alias in _read(_DIRECTORY / f"{name}.yaml").get("aliases", []):
            other = index.setdefault(_fold(str(alias)), name)
            if other != name:
                raise TargetError(f"{name}.yaml: alias {alias!r} is already one of {other}.yaml")
    return index


@functools.lru_cache(maxsize=64)
def _load_file(path: Path) -> Target:
    identity, values, sources = _flatten(path, ())
    return build(identity, values, sources, path.name)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe loader that refuses a key written twice, of which YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


@functools.lru_cache(maxsize=64)
def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # a safe loader
    except yaml.YAMLError as error:
        raise TargetError(f"{path.name}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise TargetError(f"{path.name}: must be a mapping of sections, is {type(data).__name__}")
    return data


_IDENTITY = ("name", "full_name", "aliases", "sm", "arch")
_TABLES = ("pipes", "classes")
Flat = tuple[dict[str, Any], dict[str, Any], dict[str, Source]]


def _flatten(path: Path, seen: tuple[Path, ...]) -> Flat:
    """Identity, values and sources (by dotted path) of a file and those it extends."""
    if path in seen:
        raise TargetError(f"{path.name}: extends itself through {' -> '.join(p.name for p in seen)}")
    data = _read(path)
    known = {*_IDENTITY, *_SECTIONS, *_TABLES, "extends", "measured"}
    for key in data:
        if key not in known:
            raise TargetError(f"{path.name}: unknown key {key!r}; allowed: {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    base = data.get("extends")
    if base is not None:
        base_path = path.parent / f"{base}.yaml"
        if not base_path.is_file():
            base_path = _DIRECTORY / f"{base}.yaml"
        if not base_path.is_file():
            raise TargetError(f"{path.name}: extends {base!r}, but there is no {base}.yaml")
        _, values, sources = _flatten(base_path, (*seen, path))
        values = {key: value for key, value in values.items() if key.split(".")[0] not in BOARD_SECTIONS}
        sources = {key: _inherited(sources[key], str(base)) for key in values}
    identity = {}
    for key in _IDENTITY:
        if key not in data:
            raise TargetError(f"{path.name}: {key!r} is missing")
        identity[key] = tuple(map(str, data[key])) if key == "aliases" else data[key]
    for section in (*_SECTIONS, *_TABLES):
        _leaves(path.name, section, data.get(section, {}), values, sources)
    for key, entry in (data.get("measured") or {}).items():
        if key not in values:
            raise TargetError(f"{path.name}: measured: no number at {key!r}{close_names(key, values)}")
        if not (isinstance(entry, list) and len(entry) == 2):
            raise TargetError(f"{path.name}: measured: {key}: write [value, note], is {entry!r}")
        values[key] = _plain(entry[0])
        sources[key] = Source("measured", str(entry[1]))
    return identity, values, sources


def _inherited(source: Source, base: str) -> Source:
    if source.kind == "measured":
        return Source("derived", f"measured on {base}: {source.note}")
    return source


def _leaves(file: str, prefix: str, node: Any, values: dict[str, Any], sources: dict[str, Source]) -> None:
    if isinstance(node, dict):
        for key, child in node.items():
            _leaves(file, f"{prefix}.{key}", child, values, sources)
        return
    right = f"write [value, source, note] with source one of {', '.join(SOURCES)}"
    if not isinstance(node, list) or len(node) not in (2, 3):
        raise TargetError(f"{file}: {prefix}: a number without its source ({node!r}); {right}")
    if node[1] not in SOURCES:
        raise TargetError(f"{file}: {prefix}: source {node[1]!r} is not known; {right}")
    if node[1] != "guess" and (len(node) < 3 or not str(node[2]).strip()):
        raise TargetError(f"{file}: {prefix}: source {node[1]!r} needs a note saying which; {right}")
    values[prefix] = _plain(node[0])
    sources[prefix] = Source(node[1], str(node[2]) if len(node) == 3 else "")


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# ---------------------------------------------------------------------------------------------------------------------
# A program on a target

ROW_TIMING = np.dtype(
    [
        ("pipe", "u1"),  # Pipe
        ("memory", "u1"),  # MemoryKind
        ("variable", "u1"),  # result guarded by a scoreboard
        ("shared_per_sm", "u1"),  # the interval is that of the SM's one unit, not of a sub-core's
        ("source", "u1"),  # index into SOURCES: the weaker of where latency and interval come from
        ("width", "u1"),  # bytes a lane, memory instructions
        ("floating", "u1"),  # an atomic that adds floating-point numbers
        ("interval", "<f4"),  # cycles the pipe is taken
        ("latency", "<f4"),  # cycles from issue to dependent issue; memory: on an L1 hit
        ("release", "<f4"),  # cycles until a variable-latency instruction has read its sources; 0: not given
    ]
)


def row_timing(program: Program, target: Target) -> np.ndarray:
    """One ROW_TIMING per instruction of `program` on `target`, shape (instructions,).

    Raises UnsupportedInstruction for an instruction without an entry, TargetError for a cubin of another architecture
    or when the target's file lacks a latency class that the program needs.
    """
    check_architecture(program, target)
    rows = np.zeros(len(program.instructions), ROW_TIMING)
    known: dict[Timing, tuple[float, ...]] = {}
    floating = rows["floating"]
    for i, instruction in enumerate(program.instructions):
        timing = registry.timing_of(instruction, target.sm)
        facts = known.get(timing)
        if facts is None:
            try:
                facts = known[timing] = _facts(timing, target)
            except TargetError as error:
                raise TargetError(f"{error}; needed by {instruction.text!r} at {instruction.address:#06x}") from None
        rows[i] = facts
        if timing.memory in _GLOBAL_ATOMICS and not _FLOATS.isdisjoint(instruction.modifiers):
            floating[i] = 1
    return rows


_GLOBAL_ATOMICS = (MemoryKind.ATOMIC_GLOBAL, MemoryKind.REDUCE_GLOBAL)
_FLOATS = frozenset({"F16", "F16x2", "BF16", "BF16x2", "F32", "F64", "F16_V2", "BF16_V2"})


def _facts(timing: Timing, target: Target) -> tuple[float, ...]:
    """The fields of ROW_TIMING, in order."""
    entry = target.class_timing(timing.latency)
    pipe = target.pipes[timing.pipe]
    paths = [f"classes.{timing.latency}.latency"]
    if entry.interval is None:
        interval, per_sm = pipe.interval, pipe.shared_per_sm
        paths.append(f"pipes.{timing.pipe.name}.interval")
    else:
        interval, per_sm = entry.interval, entry.shared_per_sm
        paths.append(f"classes.{timing.latency}.interval")
    if not timing.variable:
        paths = paths[1:]  # fixed latencies are enforced by the code's own stall counts: only the interval matters
    source = max(SOURCES.index(target.source(path).kind) for path in paths)
    width = timing.width
    return (
        timing.pipe, timing.memory, timing.variable, per_sm, source, width, 0,
        interval, entry.latency_of(width), entry.release_of(width),
    )  # fmt: skip


def check_architecture(program: Program, target: Target) -> None:
    """Raise TargetError unless the target can run this machine code.

    Machine code runs on its own compute capability and on later minors of the same major; an `a` suffix ties it to
    exactly one (CUDA binary compatibility).
    """
    exact = program.arch.endswith("a")
    same = program.sm == target.sm
    if not same and (exact or program.sm // 10 != target.sm // 10 or program.sm > target.sm):
        raise TargetError(
            f"kernel {program.name}: compiled for {program.arch}, which {target.name} (sm_{target.sm}) cannot run; "
            f"compile with -arch={target.arch}"
        )
