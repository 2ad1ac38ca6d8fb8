"""Estimates of a gate's kernels as they are in one folder: the working tree, or a checkout of the baseline."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from farm.analysis.variant import Variant, VariantTable
from farm.database import RunDatabase
from farm.gate.config import Gate, GateError, SweepEntry
from farm.store import open_store
from farm.submit import Options, submit
from interpreter.disassembly import cache_directory
from jobs.run_folder import MANIFEST, RunError
from jobs.sweep import Funnel, Sweep, load_sweep
from timing.occupancy import CannotLaunch, occupancy
from timing.target import load_target

LINE_INFO = "-lineinfo"  # leaves the code as it is, and lets a finding name a source line
KEPT_DAYS = 30
SECONDS = 600.0  # a busy runner must not turn a slow simulation into a broken kernel
Key = tuple[str, tuple[tuple[str, int], ...], str]  # family, parameters, target


@dataclass(slots=True)
class Side:
    """Variants of one side of the comparison by their key, and the entries that are not there."""

    variants: dict[Key, Variant] = field(default_factory=dict)
    entry_of: dict[str, int] = field(default_factory=dict)  # family -> position among the gate's entries
    sources: dict[str, str] = field(default_factory=dict)  # family -> source file, relative to the gate's folder
    missing: list[str] = field(default_factory=list)
    model: str = ""  # digest of the simulator that made the estimates
    label: str = ""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How to evaluate: folder for results that a later gate reuses, processes, where progress goes."""

    console: Console
    jobs: int | None = None
    store: Path | None = None

    def folder(self) -> str:
        return str(self.store or cache_directory(None) / "gate")


def evaluate(gate: Gate, folder: Path, scratch: Path, how: Evaluation, lenient: bool = False) -> Side:
    """Estimate all kernels of the gate as `folder` (the gate's folder in some checkout) has them.

    `scratch` takes files for kernels written out in the gate. With `lenient` an entry whose file is not there is noted
    in `missing`; otherwise it raises. Variants that fail are in the result with their reason.
    """
    side = Side()
    entries = gate.entries()
    paths: list[tuple[Path, SweepEntry | None]] = [(folder / entry.path, entry) for entry in entries]
    paths += [(_written_out(kernel, folder, scratch, i), None) for i, kernel in enumerate(gate.kernels)]
    for position, (path, entry) in enumerate(paths):
        name = entry.path if entry is not None else f"kernels[{position - len(entries)}]"
        file = path / "sweep.yaml" if path.is_dir() else path
        if lenient and not _complete(file, entry is None):
            side.missing.append(name)
            continue
        if entry is not None and not file.is_file():
            lacks = "holds no sweep.yaml" if path.is_dir() else "no such file or folder"
            raise GateError(f"{gate.at('sweeps', position)}: sweeps: {entry.path}: {lacks}")
        _evaluate_one(gate, side, position, file, entry, folder, scratch, how)
    _prune(Path(how.folder()))
    return side


def _evaluate_one(
    gate: Gate,
    side: Side,
    position: int,
    file: Path,
    entry: SweepEntry | None,
    folder: Path,
    scratch: Path,
    how: Evaluation,
) -> None:
    sweep = load_sweep(file, allow_outside=entry is None)
    if sweep.name in side.entry_of:
        raise GateError(f"{file}: name: {sweep.name} is used by two entries of the gate")
    side.entry_of[sweep.name] = position
    if sweep.kernel.source is not None:
        source = (sweep.folder / sweep.kernel.source).resolve()
        inside = source.is_relative_to(folder.resolve())
        side.sources[sweep.name] = str(source.relative_to(folder.resolve()) if inside else source.name)
    options = Options(
        targets=tuple(gate.targets),
        tier=gate.last_tier(),
        limit=entry.limit if entry is not None else None,
        jobs=how.jobs,
        l2=gate.l2,
        seconds=None if gate.tier == "cycle" else SECONDS,
        allow_outside=entry is None,
        retry=True,  # a failure may have been the machine's: no verdict rests on an old one
        adjust=_adjusted,
    )
    database = _submitted(file, options, how, scratch)
    family = database.folder.manifest.families[sweep.name]
    side.model = family.identity.get("model", "")
    targets = gate.targets or list(sweep.targets)
    for target in targets:
        for variant in VariantTable(database, sweep.name, target, gate.last_tier()):
            if gate.only == "resources":
                _complete_resources(variant.row, target)
            side.variants[key_of(variant)] = variant
    _keep_limit(side, sweep.name, entry.limit if entry is not None else None)


def _submitted(file: Path, options: Options, how: Evaluation, scratch: Path) -> RunDatabase:
    """The sweep's run, in the folder that gates share; in a folder of this gate's own when that one is in use."""
    try:
        store = open_store(how.folder())
        outcome = submit([file], options, store, how.console)
    except RunError:  # another gate is writing the same run, or an older version of farm left it
        store = open_store(str(scratch / "runs"))
        outcome = submit([file], options, store, how.console)
    return RunDatabase(store.find(outcome.run))


def _prune(folder: Path) -> None:
    """Remove runs that no gate has made or extended for KEPT_DAYS."""
    for manifest in folder.glob(f"*/{MANIFEST}"):
        if time.time() - manifest.stat().st_mtime > KEPT_DAYS * 86400:
            shutil.rmtree(manifest.parent, ignore_errors=True)


def _adjusted(sweep: Sweep) -> Sweep:
    """All variants through the gate's tier, with line tables, without measured files."""
    kernel = sweep.kernel
    if kernel.language == "cuda" and LINE_INFO not in kernel.flags:
        kernel = kernel.model_copy(update={"flags": [*kernel.flags, LINE_INFO]})
    return sweep.model_copy(update={"kernel": kernel, "funnel": Funnel(), "measured": {}})


def _keep_limit(side: Side, family: str, limit: int | None) -> None:
    """The stored run may hold more variants than this gate asks for, from a gate with a larger limit."""
    if limit is None:
        return
    numbers = sorted({v.number for key, v in side.variants.items() if key[0] == family})
    if len(numbers) <= limit:
        return
    from jobs.plan import evenly

    kept = set(evenly(numbers, limit))
    side.variants = {k: v for k, v in side.variants.items() if k[0] != family or v.number in kept}


def key_of(variant: Variant) -> Key:
    return variant.family, tuple(variant.parameters.items()), variant.target


def _complete(file: Path, written_out: bool) -> bool:
    """Whether the sweep and the source it names are there."""
    if not file.is_file():
        return False
    if not written_out:
        return True
    source = yaml.safe_load(file.read_text())["kernel"].get("source")
    return source is None or Path(source).is_file()


def _written_out(kernel: dict[str, Any], folder: Path, scratch: Path, index: int) -> Path:
    """A sweep.yaml of a kernel that the gate's file holds, its files named from the gate's folder."""
    inner = dict(kernel["kernel"])
    for name in ("source", "cubin"):
        if inner.get(name):
            inner[name] = str((folder / inner[name]).resolve())
    path = scratch / f"kernel-{index}" / "sweep.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**kernel, "kernel": inner}, sort_keys=False))
    return path


def _complete_resources(row: dict[str, Any], target: str) -> None:
    """Residency of a kernel that compiled but could not be executed, by the occupancy rules."""
    if row["ctas_per_sm"] is not None or row["registers"] is None:
        return
    threads = 1
    for part in row["block_dim"].split("x"):
        threads *= int(part)
    shared = (row["static_shared_bytes"] or 0, row["dynamic_shared_bytes"] or 0)
    try:
        found = occupancy(load_target(target), row["registers"], threads, *shared, row.get("barriers") or 0)
    except CannotLaunch as error:
        row["message"] = str(error)
        row["ctas_per_sm"] = 0
        return
    row |= {"ctas_per_sm": found.ctas_per_sm, "warps_per_sm": found.warps_per_sm}
    row |= {"occupancy": found.fraction, "limiter": found.limiter}
