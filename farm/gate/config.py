"""The model of `.farm.yaml`: what a gate compares, with what, and how much slower it may get."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from interpreter.errors import FarmError
from jobs.sweep import Sweep
from jobs.sweep_errors import explain
from jobs.yamlfile import YamlFile, read_yaml
from timing.target import TargetError, load_target

CONFIG = ".farm.yaml"
DEFAULT_SLOWDOWN = 0.01  # estimates are deterministic: the same code gives the same time
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*$")


class GateError(FarmError):
    """A gate that cannot be run as asked; the message says what would be right."""


def share(value: Any) -> float:
    """'3%' or 0.03 as 0.03. ValueError for anything else, and for 100 % or more."""
    if isinstance(value, str) and (match := _PERCENT.match(value)):
        found = float(match[1]) / 100.0
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
        if found >= 1:
            raise ValueError(f"{value} means {100 * found:g} %: write '{value}%' or {found / 100:g}")
    else:
        raise ValueError("should be a share such as 3% or 0.03")
    if not 0 <= found < 1:
        raise ValueError(f"{value} is not a share from 0% to below 100%")
    return found


Share = Annotated[float, BeforeValidator(share)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Baseline(_Model):
    """What the kernels are compared with: one of a git ref, a Parquet file, or a run in a store."""

    git: str | None = Field(default=None, description="git ref; the merge base with it is built and estimated as well")
    parquet: str | None = Field(
        default=None, description="file written by farm gate --write-baseline, relative to this file"
    )
    store: str | None = Field(default=None, description="folder or URI of a store (s3://...), together with run")
    run: str | None = Field(default=None, description="name of the run in the store")

    @model_validator(mode="after")
    def _one(self) -> Baseline:
        given = [key for key in ("git", "parquet", "store") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError("give one of git, parquet and store")
        if (self.store is None) != (self.run is None):
            raise ValueError("store and run belong together: store: URI, run: NAME")
        return self


class Resources(_Model):
    """How much of each a variant may need more than before; null: not looked at."""

    registers: int | None = Field(default=0, ge=0, description="registers a thread")
    spill_bytes: int | None = Field(default=0, ge=0, description="bytes of spill stores and loads a thread")
    shared_bytes: int | None = Field(default=0, ge=0, description="static and dynamic shared memory a CTA")
    stack_bytes: int | None = Field(default=0, ge=0, description="stack frame a thread")
    ctas_per_sm: int | None = Field(default=0, ge=0, description="resident CTAs an SM that may be lost")


class SweepEntry(_Model):
    """A sweep.yaml, or its folder."""

    path: str = Field(description="sweep.yaml or its folder, relative to this file")
    limit: int | None = Field(default=None, ge=1, description="that many variants, spread over the sweep")
    max_slowdown: Share | None = Field(default=None, description="allowed slowdown of this sweep's variants")


class Gate(_Model):
    """One gate, as written in .farm.yaml."""

    baseline: Baseline | None = None
    sweeps: list[SweepEntry | str] = Field(default_factory=list, description="sweep files or folders")
    kernels: list[dict[str, Any]] = Field(
        default_factory=list, description="kernels written out here, with the keys of sweep.yaml"
    )
    targets: list[str] = Field(default_factory=list, description="GPUs (default: each sweep's)")
    max_slowdown: Share = Field(default=DEFAULT_SLOWDOWN, description="allowed slowdown of each variant")
    per_target: dict[str, Share] = Field(default_factory=dict, description="target: its own allowed slowdown")
    max_mean_slowdown: Share | None = Field(
        None, description="allowed slowdown of the geometric mean over all variants"
    )
    only: Literal["resources"] | None = Field(
        None, description="resources: registers, spills, shared memory, occupancy"
    )
    resources: Resources | None = Field(
        default=None, description="allowed increases (default: none, with only: resources)"
    )
    tier: Literal["static", "sampled", "cycle"] = "sampled"
    l2: Literal["warm", "cold"] = "warm"

    _file: YamlFile = YamlFile(Path(CONFIG), {}, {})

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def folder(self) -> Path:
        return self.path.parent

    def at(self, *place: str | int) -> str:
        """'file:line' of a key, for errors."""
        return self._file.at(place)

    def last_tier(self) -> str:
        """The tier whose estimates are compared; resources need the first alone."""
        return "static" if self.only == "resources" else self.tier

    def entries(self) -> list[SweepEntry]:
        return [SweepEntry(path=entry) if isinstance(entry, str) else entry for entry in self.sweeps]

    def allowed(self, target: str, entry: float | None = None) -> float:
        """Allowed slowdown on a target: the target's own, else the sweep's, else the gate's."""
        return self.per_target.get(target, self.max_slowdown if entry is None else entry)


def load_gate(path: Path) -> Gate:
    """Read and check a gate's file. Raises GateError naming file, line and key."""
    if path.is_dir():
        path = path / CONFIG
    if not path.is_file():
        raise GateError(f"{path}: no such file; a gate needs one that names sweeps and a baseline (docs/gate.md)")
    file = read_yaml(path, "a gate is a mapping of keys (baseline, sweeps, targets, max_slowdown, ...; docs/gate.md)")
    try:
        gate = Gate.model_validate(file.data)
    except ValidationError as error:
        raise GateError(explain(Gate, file, error)) from None
    if not gate.sweeps and not gate.kernels:
        raise GateError(f"{path}: names neither sweeps nor kernels: there is nothing to compare")
    targets = [_target(file, ("targets", i), name) for i, name in enumerate(gate.targets)]
    per_target = {_target(file, ("per_target", name), name): value for name, value in gate.per_target.items()}
    if targets and (unknown := set(per_target) - set(targets)):
        raise GateError(f"{file.at(('per_target',))}: per_target: {', '.join(sorted(unknown))} is not among targets")
    for i, kernel in enumerate(gate.kernels):
        _check_kernel(file, i, kernel)
    gate = gate.model_copy(update={"targets": targets, "per_target": per_target})
    gate._file = file
    return gate


def _target(file: YamlFile, place: tuple[str | int, ...], name: str) -> str:
    try:
        return load_target(name).name
    except TargetError as error:
        raise GateError(f"{file.at(place)}: {place[0]}: {error}") from None


def _check_kernel(file: YamlFile, index: int, kernel: dict[str, Any]) -> None:
    try:
        Sweep.model_validate(kernel)
    except ValidationError as error:
        inner = {place[2:]: line for place, line in file.lines.items() if place[:2] == ("kernels", index)}
        message = explain(Sweep, YamlFile(file.path, kernel, inner), error)
        raise GateError(f"kernels[{index}]: {message}") from None


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of .farm.yaml, for editors."""
    schema = Gate.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "farm gate"
    return schema
