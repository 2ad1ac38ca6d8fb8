"""What a back end must offer on values, and the operations built from that alone.

The abstract methods are a back end's primitives. Everything else here, in `rounding` and in `value` is made of them, so
that all back ends give the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from interpreter.isa.kinds import I32, I64, LANES, Kind, Number, Value


class Primitives(ABC):
    """Arithmetic, comparisons and lane operations."""

    @property
    @abstractmethod
    def active(self) -> Value:
        """MASK of lanes that execute this instruction: in the running group, and guard true."""

    # ------------------------------------------------------------------ arithmetic primitives

    @abstractmethod
    def const(self, kind: Kind, number: Number) -> Value:
        """All lanes `number` (integers modulo 2**bits; a float rounds to the kind; MASK 0 or 1)."""

    @abstractmethod
    def lanes(self, numbers: Sequence[int], kind: Kind = I32) -> Value:
        """A constant that differs by lane: 32 integers."""

    @abstractmethod
    def binary(self, op: str, a: Value, b: Value) -> Value:
        """Same kinds in, same kind out. add, sub, mul, div (floats, IEEE); udiv, urem, sdiv, srem (integers, a zero
        divisor gives 0); and, or, xor (integers, masks); shl, lshr, ashr (integers, count already below the width);
        umin, umax, smin, smax (integers); fmin, fmax (IEEE minNum: the number wins over NaN, -0 < +0)."""

    @abstractmethod
    def unary(self, op: str, a: Value) -> Value:
        """neg, abs (floats: sign bit only), sqrt, floor, ceil, trunc, rint (floats); popc, clz, ctz (32 or 64 for 0),
        brev, bswap (integers)."""

    @abstractmethod
    def compare(self, op: str, a: Value, b: Value) -> Value:
        """MASK. Integers: eq, ne, ult, ule, ugt, uge, slt, sle, sgt, sge. Floats: oeq, one, olt, ole, ogt, oge (false
        on NaN), ueq, une, ult, ule, ugt, uge (true on NaN), ord, uno."""

    @abstractmethod
    def convert(self, op: str, a: Value, kind: Kind) -> Value:
        """bitcast (same width), zext, sext (I32 to I64; MASK to I32/I64), trunc (I64 to I32), fpext, fptrunc (nearest
        even), sitofp, uitofp (nearest even), fptosi, fptoui (truncate, saturate, NaN gives 0), fptosi_in_range
        (truncate; any result where the value does not fit), half_to_f32 (low 16 bits of an I32), f32_to_half (nearest
        even, into the low 16 bits of an I32)."""

    @abstractmethod
    def fused(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c with one rounding to nearest even, F32 or F64."""

    @abstractmethod
    def select(self, mask: Value, a: Value | Number, b: Value | Number) -> Value:
        """a where mask, else b; at least one of a, b is a Value (masks allowed)."""

    # ------------------------------------------------------------------ lane primitives

    @abstractmethod
    def permute(self, a: Value, source: Sequence[int]) -> Value:
        """Lane l gets a[source[l]]; 32 constants (tensor fragments, butterflies)."""

    @abstractmethod
    def shuffle(self, a: Value, source: Value) -> Value:
        """Lane l gets a[source[l] mod 32]; `source` is I32. Reads inactive lanes' registers as they are."""

    @abstractmethod
    def ballot(self, mask: Value) -> Value:
        """I32, equal in all lanes: bit l is lane l of the mask."""

    @abstractmethod
    def mask_from_bits(self, value: Value) -> Value:
        """Inverse of ballot: MASK whose lane l is bit l of `value` as held by lane 0 (must be equal in all lanes)."""

    @abstractmethod
    def lookup(self, table: np.ndarray, index: Value) -> Value:
        """Element of a constant 1-D table (uint32 gives I32, uint64 gives I64), index I32 taken modulo the length,
        which is a power of two."""

    # ------------------------------------------------------------------ built from the primitives

    def like(self, x: Value | Number, model: Value) -> Value:
        """`x` as a Value of the model's kind (Python numbers become constants)."""
        if isinstance(x, Value):
            if x.kind is not model.kind:
                raise TypeError(f"kinds differ: {model.kind.value} and {x.kind.value}")
            return x
        return self.const(model.kind, x)

    def _two(self, a: Value | Number, b: Value | Number) -> tuple[Value, Value]:
        if isinstance(a, Value):
            return a, self.like(b, a)
        assert isinstance(b, Value)
        return self.like(a, b), b

    def neg(self, a: Value) -> Value:
        """-a: sign bit of floats (also of NaN), two's complement of integers."""
        return self.unary("neg", a) if a.kind.is_float else self.const(a.kind, 0) - a

    def abs(self, a: Value) -> Value:
        """|a| (floats: sign bit cleared; integers: two's complement magnitude)."""
        return self.unary("abs", a) if a.kind.is_float else self.select(self.lt(a, 0), self.neg(a), a)

    def bitcast(self, a: Value, kind: Kind) -> Value:
        return a if a.kind is kind else self.convert("bitcast", a, kind)

    def zext(self, a: Value, kind: Kind = I64) -> Value:
        """I32 to I64, or MASK to 0/1."""
        return self.convert("zext", a, kind)

    def sext(self, a: Value, kind: Kind = I64) -> Value:
        """I32 to I64, or MASK to 0/-1."""
        return self.convert("sext", a, kind)

    def lo32(self, a: Value) -> Value:
        return self.convert("trunc", a, I32)

    def hi32(self, a: Value) -> Value:
        return self.convert("trunc", self.binary("lshr", a, self.const(I64, 32)), I32)

    def pack64(self, low: Value, high: Value) -> Value:
        return self.zext(low) | self.binary("shl", self.zext(high), self.const(I64, 32))

    def mul_wide(self, a: Value, b: Value, signed: bool = True) -> Value:
        """Full I64 product of two I32."""
        extend = self.sext if signed else self.zext
        return extend(a) * extend(b)

    def _shift(self, op: str, a: Value, n: Value | int) -> Value:
        width = a.kind.bits
        if not isinstance(n, Value):
            if n >= width:
                return self.const(a.kind, 0) if op != "ashr" else self.binary(op, a, self.const(a.kind, width - 1))
            return self.binary(op, a, self.const(a.kind, n))
        if n.kind is not a.kind:
            n = self.zext(n) if a.kind is I64 else self.lo32(n)
        big = self.compare("uge", n, self.const(a.kind, width))
        safe = n & (width - 1)
        if op == "ashr":
            return self.binary(op, a, self.select(big, width - 1, safe))
        return self.select(big, 0, self.binary(op, a, safe))

    def shl(self, a: Value, n: Value | int) -> Value:
        """a << n, 0 for n >= width; n is unsigned (I32 count allowed with I64 values)."""
        return self._shift("shl", a, n)

    def lshr(self, a: Value, n: Value | int) -> Value:
        return self._shift("lshr", a, n)

    def ashr(self, a: Value, n: Value | int) -> Value:
        """Arithmetic shift right; n >= width gives the sign."""
        return self._shift("ashr", a, n)

    def udiv(self, a: Value, b: Value | int) -> Value:
        return self.binary("udiv", a, self.like(b, a))

    def div(self, a: Value | float, b: Value | float) -> Value:
        """IEEE division of floats, nearest even."""
        a, b = self._two(a, b)
        return self.binary("div", a, b)

    def sqrt(self, a: Value) -> Value:
        return self.unary("sqrt", a)

    def _compare(self, name: str, a: Value | Number, b: Value | Number, signed: bool, unordered: bool) -> Value:
        a, b = self._two(a, b)
        if a.kind.is_float:
            return self.compare(("u" if unordered else "o") + name, a, b)
        if name in ("eq", "ne"):
            return self.compare(name, a, b)
        return self.compare(("s" if signed else "u") + name, a, b)

    def eq(self, a: Value | Number, b: Value | Number, unordered: bool = False) -> Value:
        """Equal. For floats, `unordered=True` makes any comparison true when an operand is NaN (EQU); default false."""
        return self._compare("eq", a, b, True, unordered)

    def ne(self, a: Value | Number, b: Value | Number, unordered: bool = False) -> Value:
        return self._compare("ne", a, b, True, unordered)

    def lt(self, a: Value | Number, b: Value | Number, signed: bool = True, unordered: bool = False) -> Value:
        return self._compare("lt", a, b, signed, unordered)

    def le(self, a: Value | Number, b: Value | Number, signed: bool = True, unordered: bool = False) -> Value:
        return self._compare("le", a, b, signed, unordered)

    def gt(self, a: Value | Number, b: Value | Number, signed: bool = True, unordered: bool = False) -> Value:
        return self._compare("gt", a, b, signed, unordered)

    def ge(self, a: Value | Number, b: Value | Number, signed: bool = True, unordered: bool = False) -> Value:
        return self._compare("ge", a, b, signed, unordered)

    def is_nan(self, a: Value) -> Value:
        return self.compare("uno", a, a)

    def min(self, a: Value, b: Value | Number, signed: bool = True) -> Value:
        """Smaller of two; floats: the number wins over NaN, -0 < +0."""
        b = self.like(b, a)
        return self.binary("fmin" if a.kind.is_float else "smin" if signed else "umin", a, b)

    def max(self, a: Value, b: Value | Number, signed: bool = True) -> Value:
        b = self.like(b, a)
        return self.binary("fmax" if a.kind.is_float else "smax" if signed else "umax", a, b)

    def popc(self, a: Value) -> Value:
        return self.unary("popc", a)

    def clz(self, a: Value) -> Value:
        return self.unary("clz", a)

    def ctz(self, a: Value) -> Value:
        return self.unary("ctz", a)

    def brev(self, a: Value) -> Value:
        return self.unary("brev", a)

    # ---- lanes

    @property
    def lane_id(self) -> Value:
        return self.lanes(list(range(LANES)))

    def any(self, mask: Value) -> Value:
        """MASK, all lanes equal: true when any lane is set."""
        return self.ne(self.ballot(mask), 0)

    def all(self, mask: Value, among: Value | None = None) -> Value:
        """MASK, all lanes equal: true when every lane of `among` (default e.active) is set."""
        among = self.active if among is None else among
        return self.eq(self.ballot(~mask & among), 0)

    def first(self, a: Value, mask: Value | None = None) -> Value:
        """The value of the lowest lane in `mask` (default e.active), in all lanes."""
        return self.shuffle(a, self.ctz(self.ballot(self.active if mask is None else mask)))

    def broadcast(self, a: Value, lane: int) -> Value:
        return self.permute(a, [lane] * LANES)

    def reduce(
        self, combine: Callable[[Value, Value], Value], a: Value, identity: Number, mask: Value | None = None
    ) -> Value:
        """Combine the lanes in `mask` (default e.active) by a butterfly; the result is in all lanes. `combine` must be
        associative and commutative bit for bit (integers, not float sums)."""
        a = self.select(self.active if mask is None else mask, a, identity)
        for step in (16, 8, 4, 2, 1):
            a = combine(a, self.permute(a, [lane ^ step for lane in range(LANES)]))
        return a
