"""The model of `sweep.yaml`: what a sweep may say, and errors that name file, line, key, value and what is allowed."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, ValidationError, model_validator

from jobs.compiler_flags import Refused, examine, plain_name
from jobs.expression import Expression, ExpressionError, close_match, parse
from jobs.sweep_errors import explain
from jobs.yamlfile import SweepError, YamlFile, read_yaml
from timing.target import TARGETS, TargetError, load_target

__all__ = ["DTYPES", "LIMITS", "Sweep", "SweepError", "json_schema", "load_sweep"]

# Names an expression may use besides the sweep's own: limits of the target at hand.
LIMITS = ("smem_per_block", "regs_per_sm", "max_warps", "sm_count")

# dtype -> bytes. bfloat16 has no NumPy type and is held as its 16-bit pattern.
DTYPES: dict[str, int] = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
}
Dtype = Literal[
    "float16", "bfloat16", "float32", "float64",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
_FAMILY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*$")


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not an integer: write {int(value)}")
    return value


Integer = Annotated[StrictInt, BeforeValidator(_no_bool)]
ExpressionText = Annotated[Union[StrictInt, str], BeforeValidator(_no_bool)]  # noqa: UP007


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Kernel(_Model):
    """The kernel: CUDA source compiled for every variant, or a cubin that exists already."""

    language: Literal["cuda", "cubin", "triton"] = Field("cuda", description="language of the source")
    source: str | None = Field(None, description="source file, relative to the sweep's folder")
    cubin: str | None = Field(
        None, description="cubin file; {NAME} stands for a parameter's value, {arch} for sm_90a and so on"
    )
    entry: str | None = Field(None, description="name of the kernel; may be left out when the file has only one")
    flags: list[str] = Field(default_factory=list, description="extra nvcc options")
    options: dict[str, Any] = Field(default_factory=dict, description="Triton compile options")

    @model_validator(mode="before")
    @classmethod
    def _language(cls, data: Any) -> Any:
        if isinstance(data, dict) and "language" not in data and "cubin" in data:
            return {**data, "language": "cubin"}
        return data

    @model_validator(mode="after")
    def _one_origin(self) -> Kernel:
        if self.language == "cubin":
            if self.cubin is None or self.source is not None:
                raise ValueError("language cubin takes `cubin: FILE` and no `source`")
            if self.flags:
                raise ValueError("a cubin is compiled already: `flags` would do nothing")
        elif self.source is None or self.cubin is not None:
            raise ValueError(f"language {self.language} takes `source: FILE` and no `cubin`")
        if self.language == "cuda" and self.entry is None:
            raise ValueError('language cuda takes `entry: NAME`, the extern "C" __global__ function')
        return self


class Launch(_Model):
    """Launch dimensions, one to three expressions each. Triton kernels have no `block`: the compiler decides."""

    grid: list[ExpressionText] = Field(min_length=1, max_length=3)
    block: list[ExpressionText] | None = Field(None, min_length=1, max_length=3)
    shared: ExpressionText = Field(0, description="dynamic shared memory, bytes")


class Integers(_Model):
    integers: tuple[Integer, Integer] = Field(description="low, high (high excluded)")

    @model_validator(mode="after")
    def _order(self) -> Integers:
        if self.integers[0] >= self.integers[1]:
            raise ValueError(f"[low, high] needs low < high, not {list(self.integers)}")
        return self


class CsrOffsets(_Model):
    csr_offsets: ExpressionText = Field(description="entries per row on average")


class Argument(_Model):
    """A kernel argument: a scalar (`value`) or a buffer (`shape`)."""

    name: str
    dtype: Dtype | None = None
    value: ExpressionText | float | None = None
    shape: list[ExpressionText] | None = None
    fill: Literal["normal", "uniform", "zeros", "ones", "arange"] | Integers | CsrOffsets | None = None
    output: bool = False
    descriptor: dict[str, Any] | None = Field(None, description="Triton host tensor descriptor")

    @model_validator(mode="after")
    def _scalar_or_buffer(self) -> Argument:
        given = [key for key in ("value", "shape", "descriptor") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"argument {self.name}: give either `value` (a scalar) or `shape` (a buffer)")
        if self.descriptor is None and self.dtype is None:
            raise ValueError(f"argument {self.name}: dtype is missing")
        if self.value is not None and (self.fill is not None or self.output):
            raise ValueError(f"argument {self.name}: a scalar has no `fill` and no `output`")
        return self


class Funnel(_Model):
    """How many variants go on from static to sampled, and from sampled to cycle: a count, or a share like 50%."""

    sampled: Integer | str = "100%"
    cycle: Integer | str = 0

    @model_validator(mode="after")
    def _shares(self) -> Funnel:
        for key in ("sampled", "cycle"):
            keep_count(getattr(self, key), 100, key)
        return self


def keep_count(share: int | str, total: int, key: str = "funnel") -> int:
    """How many of `total` a funnel entry keeps: '50%' rounds up, a number is itself. ValueError for anything else."""
    if isinstance(share, int):
        if share < 0:
            raise ValueError(f"{key}: {share} is negative")
        return min(share, total)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", share)
    if not found or float(found[1]) > 100:
        raise ValueError(f"{key}: '{share}' is neither a count nor a share from 0% to 100%")
    return -int(-(total * float(found[1])) // 100)


class Reference(_Model):
    source: str
    entry: str = "reference"


class Sweep(_Model):
    """One family of kernel variants, as written in sweep.yaml."""

    name: str = Field(description="name of the family")
    kernel: Kernel
    problem: dict[str, Integer] = Field(default_factory=dict, description="fixed integers, such as sizes")
    parameters: dict[str, Annotated[list[Integer], Field(min_length=1)]] = Field(default_factory=dict)
    derive: dict[str, ExpressionText] = Field(default_factory=dict)
    constraints: list[ExpressionText] = Field(default_factory=list)
    launch: Launch
    arguments: list[Argument] = Field(default_factory=list)
    accumulates: bool = Field(False, description="a launch adds to its output instead of overwriting it")
    reference: Reference | None = None
    targets: list[str] = Field(default_factory=lambda: list(TARGETS), min_length=1, description="GPUs to estimate for")
    funnel: Funnel = Field(default_factory=Funnel)
    measured: dict[str, str] = Field(default_factory=dict, description="target: CSV file of measured times")
    rank_within: list[str] = Field(default_factory=list, description="parameters that change the problem itself")

    _file: YamlFile = YamlFile(Path("sweep.yaml"), {}, {})
    _allow_outside: bool = False

    @property
    def path(self) -> Path:
        """The file it was read from."""
        return self._file.path

    @property
    def folder(self) -> Path:
        return self.path.parent

    def holds(self, path: Path) -> bool:
        """Whether the sweep may name a file: it lies in the sweep's folder, links followed, or others are allowed."""
        return self._allow_outside or path.resolve().is_relative_to(self.folder.resolve())

    def where(self, *place: str | int) -> str:
        """'file:line: key' of a place in the file, arguments by their name, to begin an error with."""
        shown = list(place)
        if len(place) > 1 and place[0] == "arguments" and isinstance(place[1], int):
            shown[1] = self.arguments[place[1]].name
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in shown)
        return f"{self._file.at(place)}: {key.removeprefix('.')}"

    def expression(self, place: tuple[str | int, ...], text: str | int) -> Expression:
        """Parse an expression of this sweep, naming file, line and key in errors."""
        try:
            return parse(text)
        except ExpressionError as error:
            raise SweepError(f"{self.where(*place)}: {error}") from None

    def digest(self) -> str:
        """SHA-256 (hex) of what decides variants and code: the sweep, its source and the headers beside it.

        Targets, funnel and measured files are left out: a run can be extended by those.
        """
        left_out = {"targets", "funnel", "measured", "rank_within", "reference"}
        content = self.model_dump(mode="json", exclude=left_out)
        digest = hashlib.sha256(json.dumps(content, sort_keys=False).encode())
        if self.kernel.source is not None:
            source = self.folder / self.kernel.source
            headers = (p for suffix in ("h", "hpp", "cuh", "inl") for p in source.parent.rglob(f"*.{suffix}"))
            for path in (source, *sorted(headers)):
                digest.update(path.read_bytes())
        return digest.hexdigest()


def load_sweep(path: Path | str, *, allow_outside: bool = False, measured: bool = True) -> Sweep:
    """Read and check a sweep file (or the sweep.yaml of a folder).

    Files it names must lie inside its folder unless `allow_outside`; those of measured times need not be there if not
    `measured`. Raises SweepError, naming file, line and key.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "sweep.yaml"
    file = read_yaml(path)
    try:
        sweep = Sweep.model_validate(file.data)
    except ValidationError as error:
        raise SweepError(explain(Sweep, file, error)) from None
    _check_names(file, sweep)
    sweep = _check_targets(file, sweep)
    sweep._file, sweep._allow_outside = file, allow_outside
    _check_files(file, sweep, allow_outside, measured)
    return sweep


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of sweep.yaml, for editors."""
    schema = Sweep.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "farm sweep"
    return schema


def _check_targets(file: YamlFile, sweep: Sweep) -> Sweep:
    """The sweep with targets' names made canonical ("4090" is rtx4090)."""

    def canonical(place: tuple[str | int, ...], name: str) -> str:
        if name.endswith(".yaml"):  # a file to be read: for the command line, where the user names it
            raise SweepError(
                f"{file.at(place)}: {place[0]}: '{name}' is a file; give it as `farm submit --target {name}`"
            )
        try:
            return load_target(name).name
        except TargetError as error:
            raise SweepError(f"{file.at(place)}: {place[0]}: {error}") from None

    targets = [canonical(("targets", index), name) for index, name in enumerate(sweep.targets)]
    if len(set(targets)) < len(targets):
        raise SweepError(f"{file.at(('targets',))}: targets: one is named twice")
    measured = {canonical(("measured", name), name): path for name, path in sweep.measured.items()}
    return sweep.model_copy(update={"targets": targets, "measured": measured})


def _check_names(file: YamlFile, sweep: Sweep) -> None:
    if not _FAMILY.match(sweep.name):
        raise SweepError(f"{file.at(('name',))}: name: '{sweep.name}' may hold letters, digits, _ . and - only")
    for section in ("problem", "parameters", "derive"):
        for name in getattr(sweep, section):
            if not _NAME.match(name):
                raise SweepError(
                    f"{file.at((section, name))}: {section}.{name}: a name is letters, digits and _, "
                    "not starting with a digit"
                )
            if name in LIMITS:
                raise SweepError(f"{file.at((section, name))}: {section}.{name}: is a target's limit")
    for name in sweep.parameters:
        if name in sweep.problem:
            raise SweepError(f"{file.at(('parameters', name))}: parameters.{name}: also given under problem")
        values = sweep.parameters[name]
        if len(set(values)) < len(values):
            raise SweepError(f"{file.at(('parameters', name))}: parameters.{name}: a value is given twice")
    for index, name in enumerate(sweep.rank_within):
        if name not in sweep.parameters:
            match = close_match(name, sweep.parameters)
            raise SweepError(
                f"{file.at(('rank_within', index))}: rank_within: {name} is not a parameter{match} "
                f"(parameters: {', '.join(sweep.parameters) or 'none'})"
            )
    arguments = [argument.name for argument in sweep.arguments]
    for index, name in enumerate(arguments):
        if name in arguments[:index]:
            raise SweepError(f"{file.at(('arguments', index))}: arguments: {name} is given twice")
    if sweep.kernel.language != "triton" and sweep.launch.block is None:
        raise SweepError(f"{file.at(('launch',))}: launch.block: missing")


def _check_files(file: YamlFile, sweep: Sweep, allow_outside: bool, measured: bool) -> None:
    named: list[tuple[tuple[str | int, ...], str]] = []
    if sweep.kernel.source is not None:
        named.append((("kernel", "source"), sweep.kernel.source))
    if sweep.kernel.cubin is not None:
        named.append((("kernel", "cubin"), sweep.kernel.cubin))
    if measured:
        named += [(("measured", target), text) for target, text in sweep.measured.items()]
    if not allow_outside:
        _check_flags(file, sweep)
    for place, text in named:
        key = ".".join(map(str, place))
        target = sweep.folder / text
        if place[-1] == "source" and not allow_outside and not plain_name(target.name):
            raise SweepError(
                f"{file.at(place)}: {key}: '{text}': a file name of letters, digits and _ . + - only, as the "
                "compiler's shell takes others for commands (allow it with --allow-outside)"
            )
        if not sweep.holds(target):
            raise SweepError(
                f"{file.at(place)}: {key}: '{text}' lies outside the sweep's folder (allow it with --allow-outside)"
            )
        if "{" in text and place[-1] == "cubin":
            continue  # one file a variant: looked up when the variant is built
        if not target.is_file():
            siblings = [p.name for p in target.parent.iterdir()] if target.parent.is_dir() else []
            raise SweepError(f"{file.at(place)}: {key}: no such file: {target}{close_match(target.name, siblings)}")


def _check_flags(file: YamlFile, sweep: Sweep) -> None:
    if sweep.kernel.source is None:
        return
    folder = (sweep.folder / sweep.kernel.source).parent
    for found in examine(sweep.kernel.flags):
        at = f"{file.at(('kernel', 'flags', found.index))}: kernel.flags: '{sweep.kernel.flags[found.index]}'"
        if isinstance(found, Refused):
            raise SweepError(f"{at}: {found.reason} (allow it with --allow-outside)")
        if not sweep.holds(folder / found.path):
            raise SweepError(f"{at}: lies outside the sweep's folder (allow it with --allow-outside)")
