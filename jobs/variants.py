"""Expanding a sweep into variants: the product of its parameters, derived names, constraints, launch and arguments.

A variant's number is its place among the points that pass every constraint not involving a target's limits, the last
parameter changing fastest: the row number of a file of measured times. What depends on a target (a constraint on
`smem_per_block`, a grid of `sm_count` CTAs) is decided per target without renumbering.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from jobs.expression import Expression, ExpressionError
from jobs.packed import Packed
from jobs.sweep import DTYPES, LIMITS, CsrOffsets, Integers, Sweep, SweepError

MAX_THREADS_PER_BLOCK = 1024  # CUDA programming guide, technical specifications: every compute capability
MAX_POINTS = 20_000_000

Dim3 = tuple[int, int, int]
Place = tuple[str | int, ...]  # of a key in the sweep's file
Value = Callable[[Place, Expression], int]  # evaluates at a point, naming key and point in errors


@dataclass(frozen=True, slots=True)
class FillSpec(Packed):
    """How a buffer starts: kind is one of normal, uniform, zeros, ones, arange, integers, csr_offsets."""

    kind: str
    low: int = 0
    high: int = 0  # excluded
    entries: int = 0  # csr_offsets: entries per row on average


@dataclass(frozen=True, slots=True)
class BufferSpec(Packed):
    """A buffer argument. `shape` in elements; `bytes` is its size. Output buffers start at zero."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    fill: FillSpec
    output: bool

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype]


@dataclass(frozen=True, slots=True)
class ScalarSpec(Packed):
    """A scalar argument, passed by value."""

    name: str
    dtype: str
    value: int | float


ArgumentSpec = BufferSpec | ScalarSpec


@dataclass(frozen=True, slots=True)
class Variant:
    """One point of a sweep (for one target, when the sweep uses target limits).

    `parameters` are the swept values; `names` holds problem sizes, parameters and derived names, which nvcc gets as
    macros. `excluded` says why this target cannot have the variant (then the launch is meaningless), else is empty.
    """

    family: str
    number: int
    parameters: dict[str, int]
    names: dict[str, int]
    grid: Dim3
    block: Dim3
    shared: int
    arguments: tuple[ArgumentSpec, ...]
    excluded: str = ""

    @property
    def threads(self) -> int:
        return math.prod(self.block)

    @property
    def ctas(self) -> int:
        return math.prod(self.grid)


@dataclass(slots=True)
class Removed:
    """How many points each constraint (or the block limit) removed, for the message of an empty space."""

    points: int = 0
    by: dict[str, int] = field(default_factory=dict)

    def count(self, reason: str) -> None:
        self.by[reason] = self.by.get(reason, 0) + 1

    def __str__(self) -> str:
        parts = [f"{count} by '{reason}'" for reason, count in self.by.items()]
        return f"{self.points} point(s): removed {', '.join(parts)}" if parts else f"{self.points} point(s)"


def uses_limits(sweep: Sweep) -> bool:
    """Whether any expression of the sweep reads a target's limit."""
    return bool(_Compiled(sweep).limit_names)


def expand(sweep: Sweep, limits: Mapping[str, int] | None = None) -> list[Variant]:
    """All variants of the sweep in order.

    `limits` gives the target's limits (`jobs.sweep.LIMITS`), needed when the sweep uses them. Raises SweepError: for
    an expression that fails (naming key and point), and for an empty space (saying which constraint removed how many).
    """
    return list(VariantSpace(sweep, limits))


class VariantSpace(Sequence[Variant]):
    """A sweep's variants by number, made when asked for: four bytes a variant at most, none where all points are some.

    Every point is evaluated once when the space is made, so that a sweep's errors show then. Raises as `expand`.
    """

    def __init__(self, sweep: Sweep, limits: Mapping[str, int] | None = None) -> None:
        self._compiled = compiled = _Compiled(sweep)
        if compiled.limit_names and limits is None:
            used = ", ".join(sorted(compiled.limit_names))
            raise SweepError(f"{sweep.path}: uses {used}, which only a target gives")
        self._limits = dict(limits or {})
        removed = Removed()
        points: Sequence[int] | np.ndarray = np.fromiter(compiled.points(self._limits, removed), np.uint32)
        self._points = range(len(points)) if len(points) == removed.points else points
        if not len(self._points):
            raise SweepError(f"{sweep.where('constraints')}: no variant is left of {removed}")

    def __len__(self) -> int:
        return len(self._points)

    @overload
    def __getitem__(self, index: int) -> Variant: ...
    @overload
    def __getitem__(self, index: slice) -> list[Variant]: ...
    def __getitem__(self, index: int | slice) -> Variant | list[Variant]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        return self._compiled.variant(number, int(self._points[number]), self._limits)


class _Compiled:
    """A sweep's expressions, compiled, with what depends on the target marked."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        known = [*sweep.problem, *sweep.parameters]
        self.limit_names: set[str] = set()
        tainted: set[str] = set(LIMITS)  # names whose value depends on the target
        self.derive: list[tuple[str, Expression, bool]] = []
        for name, text in sweep.derive.items():
            expression = self._parse(("derive", name), text, known)
            depends = bool(expression.names & tainted)
            (tainted.add if depends else tainted.discard)(name)
            self.derive.append((name, expression, depends))
            known.append(name)
        self.tainted = tainted
        self.constraints: list[tuple[str, Expression, bool]] = []
        for index, text in enumerate(sweep.constraints):
            expression = self._parse(("constraints", index), text, known)
            self.constraints.append((str(text), expression, bool(expression.names & tainted)))
        self.grid = [self._parse(("launch", "grid"), text, known) for text in sweep.launch.grid]
        self.block = [self._parse(("launch", "block"), text, known) for text in sweep.launch.block or [1]]
        self.block_depends = any(e.names & tainted for e in self.block)
        self.shared = self._parse(("launch", "shared"), sweep.launch.shared, known)
        self.arguments = [_CompiledArgument(self, index, known) for index in range(len(sweep.arguments))]

    def _parse(self, place: Place, text: str | int, known: list[str]) -> Expression:
        expression = self.sweep.expression(place, text)
        try:
            expression.check_names(known, LIMITS)
        except ExpressionError as error:
            raise SweepError(f"{self.sweep.where(*place)}: {error}") from None
        self.limit_names |= expression.names - set(known)
        return expression

    def points(self, limits: Mapping[str, int], removed: Removed) -> Iterator[int]:
        """Places in the parameters' product, the last one changing fastest, of the points that are variants."""
        sweep = self.sweep
        points = math.prod(len(values) for values in sweep.parameters.values())
        if points > MAX_POINTS:
            raise SweepError(f"{sweep.where('parameters')}: {points} points; at most {MAX_POINTS} are gone through")
        number = 0
        for place, values in enumerate(itertools.product(*sweep.parameters.values())):
            removed.points += 1
            parameters = dict(zip(sweep.parameters, values, strict=True))
            if self._point(number, parameters, limits, removed) is not None:
                yield place
                number += 1

    def variant(self, number: int, place: int, limits: Mapping[str, int]) -> Variant:
        """The variant at a place in the parameters' product."""
        chosen: list[tuple[str, int]] = []
        for name, values in reversed(self.sweep.parameters.items()):
            place, index = divmod(place, len(values))
            chosen.append((name, values[index]))
        variant = self._point(number, dict(reversed(chosen)), limits, Removed())
        assert variant is not None, "the space holds points that passed"
        return variant

    def _point(
        self, number: int, parameters: dict[str, int], limits: Mapping[str, int], removed: Removed
    ) -> Variant | None:
        sweep = self.sweep
        names: dict[str, int] = {**sweep.problem, **parameters}
        scope: dict[str, int] = {**limits, **names}

        def value(place: Place, expression: Expression) -> int:
            try:
                return expression.evaluate(scope)
            except ExpressionError as error:
                at = ", ".join(f"{n}={v}" for n, v in parameters.items())
                raise SweepError(f"{sweep.where(*place)}: {error} (at {at or 'the only point'})") from None

        for name, expression, _ in self.derive:
            names[name] = scope[name] = value(("derive", name), expression)
        excluded = ""
        for index, (text, expression, depends) in enumerate(self.constraints):
            if value(("constraints", index), expression):
                continue
            if not depends:
                removed.count(text)
                return None
            used = ", ".join(f"{n}={scope[n]}" for n in sorted(expression.names))
            excluded = excluded or f"constraint '{text}' is false here ({used})"
        if sweep.launch.block is None:
            block = (0, 0, 0)  # Triton: decided by the compiler
        else:
            block = _dim3(value(("launch", "block"), e) for e in self.block)
        if math.prod(block) > MAX_THREADS_PER_BLOCK:
            reason = f"block of at most {MAX_THREADS_PER_BLOCK} threads"
            if not self.block_depends:
                removed.count(reason)
                return None
            excluded = excluded or f"block of {math.prod(block)} threads; at most {MAX_THREADS_PER_BLOCK}"
        grid = _dim3(value(("launch", "grid"), e) for e in self.grid)
        shared = value(("launch", "shared"), self.shared)
        arguments: tuple[ArgumentSpec, ...] = ()
        if not excluded:
            self._check_launch(parameters, grid, block, shared)
            arguments = tuple(argument.at(value) for argument in self.arguments)
        return Variant(sweep.name, number, parameters, names, grid, block, shared, arguments, excluded)

    def _check_launch(self, parameters: dict[str, int], grid: Dim3, block: Dim3, shared: int) -> None:
        at = ", ".join(f"{n}={v}" for n, v in parameters.items()) or "the only point"
        limits = (2**31 - 1, 65535, 65535)  # CUDA programming guide: grid dimensions
        for axis, size, limit in zip("xyz", grid, limits, strict=True):
            if not 1 <= size <= limit:
                raise SweepError(f"{self.sweep.where('launch', 'grid')}: {axis} is {size}, not 1 to {limit} (at {at})")
        if self.sweep.launch.block is not None and min(block) < 1:
            raise SweepError(f"{self.sweep.where('launch', 'block')}: {block} has a dimension below 1 (at {at})")
        if shared < 0:
            raise SweepError(f"{self.sweep.where('launch', 'shared')}: {shared} is negative (at {at})")


class _CompiledArgument:
    """One argument's expressions, compiled."""

    def __init__(self, owner: _Compiled, index: int, known: list[str]) -> None:
        self.sweep = owner.sweep
        self.argument = argument = owner.sweep.arguments[index]
        self.place: Place = ("arguments", index)
        self.constant: float | None = None
        self.value: Expression | None = None
        if isinstance(argument.value, float):
            self.constant = argument.value
        elif argument.value is not None:
            self.constant = _plain_float(argument.value)
            if self.constant is None:
                self.value = owner._parse((*self.place, "value"), argument.value, known)
        self.shape = [owner._parse((*self.place, "shape"), text, known) for text in argument.shape or []]
        self.entries: Expression | None = None
        if isinstance(argument.fill, CsrOffsets):
            self.entries = owner._parse((*self.place, "fill"), argument.fill.csr_offsets, known)

    def at(self, value: Value) -> ArgumentSpec:
        argument = self.argument
        dtype = argument.dtype or "uint64"
        if argument.shape is None:
            number: int | float = (
                value((*self.place, "value"), self.value) if self.value is not None else self.constant or 0.0
            )
            return ScalarSpec(argument.name, dtype, self._checked(dtype, number))
        shape = tuple(value((*self.place, "shape"), expression) for expression in self.shape)
        if any(size < 0 for size in shape):
            raise SweepError(f"{self.sweep.where(*self.place, 'shape')}: {list(shape)} has a negative size")
        fill = self._fill(value, "zeros" if argument.output else "normal")
        return BufferSpec(argument.name, dtype, shape, fill, argument.output)

    def _checked(self, dtype: str, number: int | float) -> int | float:
        if dtype.startswith(("float", "bfloat")):
            return float(number)
        if number != int(number):
            raise SweepError(f"{self.sweep.where(*self.place, 'value')}: {number} is not an integer, as {dtype} asks")
        bits = 8 * DTYPES[dtype]
        low, high = (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if not low <= number <= high:
            raise SweepError(
                f"{self.sweep.where(*self.place, 'value')}: {number} does not fit {dtype} ({low} to {high})"
            )
        return int(number)

    def _fill(self, value: Value, default: str) -> FillSpec:
        fill = self.argument.fill
        if self.argument.output:
            return FillSpec("zeros")  # outputs start at zero, whatever the fill
        if isinstance(fill, Integers):
            return FillSpec("integers", low=fill.integers[0], high=fill.integers[1])
        if self.entries is not None:
            return FillSpec("csr_offsets", entries=value((*self.place, "fill"), self.entries))
        return FillSpec(str(fill or default))


def _plain_float(text: int | str) -> float | None:
    """A number with a point or an exponent ('1e-5' is a string in YAML 1.1); None for integers and expressions."""
    if isinstance(text, int):
        return None
    try:
        int(text)
        return None
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _dim3(sizes: Iterator[int]) -> Dim3:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
