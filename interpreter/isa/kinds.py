"""Kinds of values and the Value itself: 32 lanes of one kind, with Python's operators."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interpreter.isa.primitives import Primitives

LANES = 32


class Unsupported(Exception):
    """Raised by an emitter for a form it does not cover; lowering turns it into UnsupportedInstruction."""


class Kind(Enum):
    """Type of a value, one element a lane."""

    I32 = "i32"
    I64 = "i64"
    F32 = "f32"
    F64 = "f64"
    MASK = "mask"

    @property
    def is_float(self) -> bool:
        return self in (Kind.F32, Kind.F64)

    @property
    def is_int(self) -> bool:
        return self in (Kind.I32, Kind.I64)

    @property
    def bits(self) -> int:
        return {Kind.I32: 32, Kind.I64: 64, Kind.F32: 32, Kind.F64: 64, Kind.MASK: 1}[self]


I32, I64, F32, F64, MASK = Kind.I32, Kind.I64, Kind.F32, Kind.F64, Kind.MASK
Number = int | float


class Value:
    """32 lanes of one kind. `raw` belongs to the back end.

    Operators: `+ - *` on numbers (integers wrap), `& | ^ ~` on integers and masks, `<<` and `>>` (logical) on integers:
    a shift count of the width or more gives 0. Comparisons are methods of the emitter (`e.lt(a, b)`), never operators.
    """

    __slots__ = ("e", "kind", "raw")

    def __init__(self, e: Primitives, kind: Kind, raw: Any) -> None:
        self.e = e
        self.kind = kind
        self.raw = raw

    def __add__(self, other: Value | Number) -> Value:
        return self.e.binary("add", self, self.e.like(other, self))

    def __radd__(self, other: Number) -> Value:
        return self.e.binary("add", self.e.like(other, self), self)

    def __sub__(self, other: Value | Number) -> Value:
        return self.e.binary("sub", self, self.e.like(other, self))

    def __rsub__(self, other: Number) -> Value:
        return self.e.binary("sub", self.e.like(other, self), self)

    def __mul__(self, other: Value | Number) -> Value:
        return self.e.binary("mul", self, self.e.like(other, self))

    __rmul__ = __mul__

    def __and__(self, other: Value | Number) -> Value:
        return self.e.binary("and", self, self.e.like(other, self))

    __rand__ = __and__

    def __or__(self, other: Value | Number) -> Value:
        return self.e.binary("or", self, self.e.like(other, self))

    __ror__ = __or__

    def __xor__(self, other: Value | Number) -> Value:
        return self.e.binary("xor", self, self.e.like(other, self))

    __rxor__ = __xor__

    def __lshift__(self, other: Value | int) -> Value:
        return self.e.shl(self, other)

    def __rshift__(self, other: Value | int) -> Value:
        return self.e.lshr(self, other)

    def __neg__(self) -> Value:
        return self.e.neg(self)

    def __invert__(self) -> Value:
        if self.kind is MASK:
            return self ^ self.e.const(MASK, 1)
        return self ^ self.e.const(self.kind, -1)

    def __bool__(self) -> bool:
        raise TypeError("a Value has 32 lanes: use e.select, e.any or e.all, not Python truth")

    def __repr__(self) -> str:
        return f"Value({self.kind.value}, {self.raw})"
