"""The value interface: what an opcode's meaning is written in, and what each back end implements.

An opcode's meaning is an *emitter*, `def imad(e: Emitter, i: Instruction) -> None`. It reads operands through `e`,
computes with `Value`s (32 lanes each) and writes the destination. The NumPy back end executes the calls at once; the
LLVM back end records them as one function over 32-lane vectors, used by every instruction of the same *form*.

    @opcode("IMAD", modifiers=("U32", "MOV", "SHL", "IADD"), pipe=Pipe.FMA_HEAVY, latency="fma")
    def imad(e, i):
        d, a, b, c = i.operands
        e.write(d, e.i32(a) * e.i32(b) + e.i32(c))

Rules of an emitter
-------------------
* It runs once for many instructions. It may look at the opcode, the modifiers, and of each operand at `kind`, prefixes
  (`negate`, `absolute`, `invert`), `modifiers`, `scale`, `wide`, `bank`, `name`, `e.is_zero(op)` and `e.is_true(op)`.
  `index`, `value`, `uniform`, `descriptor` and `text` are hidden (None): numbers come from `e.literal(op)`, which makes
  the number part of the form, so use it only where the number shapes the code (a LOP3 table, a shape immediate).
* No Python `if` on lane data: use `e.select` and masks.
* Registers are written under `e.active` (lanes executing and guard true) unless a mask is passed.
* All registers are read before any is written: take every operand first, then write (a destination may be a source).
* What it cannot express it refuses: `raise Unsupported("why")`.

Kinds: I32 and I64 are bit patterns without a sign; operations where sign matters take `signed`. F32 and F64 are IEEE,
round to nearest even, denormals kept; `e.ftz` flushes. MASK holds one bit a lane. Python numbers mix with values and
take the value's kind. NaN: `write` stores every F32 NaN as 0x7fffffff, as the hardware does (CUDA C++ Programming
Guide, "Floating-Point Standard"); to move float bits untouched, use I32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from interpreter.program import Instruction, Operand

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

    def __init__(self, e: Emitter, kind: Kind, raw: Any) -> None:
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


class Emitter(ABC):
    """Operand access, arithmetic, lane operations, memory and control, as an opcode's meaning sees them.

    The abstract methods are the primitives of a back end; everything else is built from them here, so both back ends
    give the same bits.
    """

    # ------------------------------------------------------------------ operands

    @abstractmethod
    def rows(self, op: Operand, count: int) -> list[Value]:
        """`count` consecutive 32-bit rows of a REGISTER, UNIFORM, CONSTANT or IMMEDIATE operand as I32, no prefix
        applied.

        RZ and URZ give zeros for every row. c[b][o] gives the words at o, o + 4, ... An immediate gives its pattern in
        row 0 and zeros above (see `i64` and `f64` for the sign-extended and the double forms).
        """

    @abstractmethod
    def is_zero(self, op: Operand) -> bool:
        """True when the operand is RZ or URZ (known when the form is built)."""

    @abstractmethod
    def is_true(self, op: Operand) -> bool:
        """True when the operand is PT or UPT without `!` as a source, or PT/UPT as a destination (result discarded)."""

    @abstractmethod
    def is_false(self, op: Operand) -> bool:
        """True when the operand is !PT or !UPT."""

    @abstractmethod
    def literal(self, op: Operand) -> int:
        """The 32-bit pattern of an IMMEDIATE (or the number of a SCOREBOARD or BARRIER) as a Python int, part of the
        form."""

    def bits(self, op: Operand) -> Value:
        """The 32 bits of an operand as I32, ignoring prefixes (for packed halves, whose sign is applied a half)."""
        return self.rows(op, 1)[0]

    def i32(self, op: Operand) -> Value:
        """An integer operand: |x|, then -x (two's complement) or ~x. Masks of predicates are read by `pred`."""
        v = self.rows(op, 1)[0]
        if op.absolute:
            v = self.select(self.lt(v, 0), self.neg(v), v)
        if op.negate:
            v = self.neg(v)
        return ~v if op.invert else v

    @abstractmethod
    def pair(self, op: Operand, extend: str = "zero") -> Value:
        """Rows r, r + 1 as I64, prefixes not applied. `extend` says what an immediate's high word is: "zero", "sign",
        or "double" (the 32 bits are the *high* word, low word 0, as in DADD's immediates)."""

    def i64(self, op: Operand, signed: bool = True) -> Value:
        """A 64-bit integer operand; a 32-bit immediate is sign-extended (`signed`) or zero-extended."""
        v = self.pair(op, "sign" if signed else "zero")
        if op.negate:
            v = self.neg(v)
        return ~v if op.invert else v

    def f32(self, op: Operand) -> Value:
        """A float operand with |x| and -x applied to its sign bit."""
        v = self.rows(op, 1)[0]
        if op.absolute:
            v = v & 0x7FFFFFFF
        if op.negate:
            v = v ^ 0x80000000
        return self.bitcast(v, F32)

    def f64(self, op: Operand) -> Value:
        """A double operand (rows r, r + 1; an immediate is the high word) with |x| and -x applied."""
        v = self.pair(op, "double")
        if op.absolute:
            v = v & 0x7FFFFFFFFFFFFFFF
        if op.negate:
            v = v ^ 0x8000000000000000
        return self.bitcast(v, F64)

    @abstractmethod
    def pred(self, op: Operand) -> Value:
        """A PREDICATE or UNIFORM_PREDICATE source as MASK, `!` applied. Lanes that do not execute hold garbage."""

    @abstractmethod
    def pred_number(self, index: int, uniform: bool = False) -> Value:
        """P<index> (or UP<index>), 0..6, as MASK: for P2R and friends, whose PR operand means all of them."""

    @abstractmethod
    def write_rows(self, op: Operand, values: Sequence[Value], mask: Value | None = None) -> None:
        """Store I32 values to consecutive rows of a REGISTER or UNIFORM destination, under `e.active` or `mask`.

        A UNIFORM destination is written in all 32 lanes when any lane is in the mask; the value must be equal in all
        lanes (sources that are uniform, or `e.first`, `e.ballot`, `e.broadcast`). RZ discards.
        """

    def write(self, op: Operand, value: Value, mask: Value | None = None) -> None:
        """Store I32/F32 to one row or I64/F64 to two (low word first). F32 NaNs become 0x7fffffff."""
        if value.kind is MASK:
            raise TypeError("write a MASK with write_pred, or choose its integer form with select/zext/sext")
        if value.kind is F32:
            raw = self.bitcast(value, I32)
            value = self.select(self.is_nan(value), self.const(I32, 0x7FFFFFFF), raw)
        elif value.kind is F64:
            value = self.bitcast(value, I64)
        if value.kind is I64:
            self.write_rows(op, [self.lo32(value), self.hi32(value)], mask)
        else:
            self.write_rows(op, [value], mask)

    @abstractmethod
    def write_pred(self, op: Operand, value: Value, mask: Value | None = None) -> None:
        """Store a MASK to a predicate under `e.active` (or `mask`). UP destinations take any lane's value: it must be
        equal in all lanes. PT and UPT discard."""

    @abstractmethod
    def write_pred_number(self, index: int, value: Value, uniform: bool = False) -> None:
        """Store to P<index> (R2P and friends)."""

    @property
    @abstractmethod
    def active(self) -> Value:
        """MASK of lanes that execute this instruction: in the running group, and guard true."""

    @property
    @abstractmethod
    def converged(self) -> Value:
        """MASK of lanes of the running group, whatever their guard."""

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

    # ---- floats with the hardware's options

    def ftz(self, a: Value) -> Value:
        """Denormals become zero of the same sign (.FTZ: apply to inputs and to the result). F32 only."""
        raw = self.bitcast(a, I32)
        tiny = self.eq(raw & 0x7F800000, 0)
        return self.bitcast(self.select(tiny, raw & 0x80000000, raw), F32)

    def saturate(self, a: Value) -> Value:
        """.SAT: clamp to [0, 1]; NaN and -0 give +0."""
        return self.select(self.gt(a, 0.0), self.min(a, 1.0), 0.0)

    def add(self, a: Value, b: Value, rounding: str = "RN") -> Value:
        """a + b of floats. `rounding`: RN (nearest even), RM (down), RP (up), RZ (toward zero)."""
        if rounding == "RN":
            return a + b
        if a.kind is F64:
            return self.fma(a, self.const(F64, 1.0), b, rounding)
        high, low = self._sum_exact(self.widen(a), self.widen(b))
        return self._zero_down(self.narrow(high, low, rounding), high, a, b, rounding)

    def mul(self, a: Value, b: Value, rounding: str = "RN") -> Value:
        """a * b of floats, rounded as `rounding` says."""
        if rounding == "RN":
            return a * b
        if a.kind is F32:
            return self.f32_of(self.widen(a) * self.widen(b), rounding)
        r = a * b
        product, error, exponent = self._product(a, b)
        difference = (product - self._scale(r, -exponent)) + error
        return self._towards(r, difference, rounding)

    def fma(self, a: Value, b: Value, c: Value, rounding: str = "RN") -> Value:
        """a * b + c, one rounding, floats."""
        if rounding == "RN":
            return self.fused(a, b, c)
        if a.kind is F32:
            product = self.widen(a) * self.widen(b)
            high, low = self._sum_exact(product, self.widen(c))
            return self._zero_down(self.narrow(high, low, rounding), high, product, c, rounding)
        r = self.fused(a, b, c)
        # all three terms scaled by the larger of product and c, so that nothing of the exact sum is lost below it
        product, error, exponent = self._product(a, b)
        c_part, c_exponent = self._unit(c)
        exponent = self.select(self.eq(product, 0.0), c_exponent, exponent)
        c_exponent = self.select(self.eq(c, 0.0), exponent, c_exponent)
        top = self.max(exponent, c_exponent)
        # a term far below the other only tells the sign of what is lost: 2**-300 does as well
        down = self.max(exponent - top, -300)
        product, error = self._scale(product, down), self._scale(error, down)
        c_part = self._scale(c_part, self.max(c_exponent - top, -300))
        s, lost = self._sum_exact(product, c_part)
        first, second = self._sum_exact(lost, error)
        difference = ((s - self._scale(r, -top)) + first) + second
        exact_zero = self.eq(r, 0.0) & self.eq(difference, 0.0)
        exact = self.select(exact_zero, 0.0, self.const(F64, 1.0))
        return self._zero_down(self._towards(r, difference, rounding), exact, a * b, c, rounding)

    def widen(self, a: Value) -> Value:
        """F32 to F64, exact."""
        return self.convert("fpext", a, F64)

    def _sum_error(self, a: Value, b: Value, s: Value) -> Value:
        """What s = a + b lost by rounding (Knuth's two-sum)."""
        bb = s - a
        return (a - (s - bb)) + (b - bb)

    def _sum_exact(self, a: Value, b: Value) -> tuple[Value, Value]:
        s = a + b
        return s, self._sum_error(a, b, s)

    def _unit(self, x: Value) -> tuple[Value, Value]:
        """(m, e as I32) with x = m * 2**e and 1 <= |m| < 2, for finite F64 x; zeros, infinities and NaN stay as they
        are."""
        tiny = self.lt(self.abs(x), 2.0**-1022)
        bits = self.bitcast(self.select(tiny, x * 2.0**54, x), I64)
        field = self.hi32(bits) >> 20 & 0x7FF
        m = self.bitcast((bits & 0x800FFFFFFFFFFFFF) | 0x3FF0000000000000, F64)
        odd = self.eq(x, 0.0) | self.eq(field, 0x7FF)
        return self.select(odd, x, m), field - self.select(tiny, 1023 + 54, self.const(I32, 1023))

    def _product(self, a: Value, b: Value) -> tuple[Value, Value, Value]:
        """(p, error, exponent): a * b = (p + error) * 2**exponent exactly, for finite F64."""
        (ma, ea), (mb, eb) = self._unit(a), self._unit(b)
        p = ma * mb
        return p, self.fused(ma, mb, -p), ea + eb

    def _scale(self, x: Value, exponent: Value) -> Value:
        """x * 2**exponent for I32 exponents within 2200 of zero, in three steps that neither overflow nor lose bits
        unless the result does."""
        third = self.ashr(exponent * 21846, 16)
        rest = exponent - third - third
        for e in (third, third, rest):
            x = x * self.bitcast(self.sext(e + 1023) << 52, F64)
        return x

    def _step(self, x: Value, up: Value, move: Value) -> Value:
        """The neighbour of x above (`up`) or below it where `move`, by its bits."""
        kind = I32 if x.kind is F32 else I64
        bits = self.bitcast(x, kind)
        sign = self.const(kind, 1 << (kind.bits - 1))
        zero = self.eq(x, 0.0)
        grow = up ^ self.lt(bits, 0)
        stepped = self.select(grow, bits + 1, bits - 1)
        stepped = self.select(zero, self.select(up, self.const(kind, 1), sign | 1), stepped)
        return self.bitcast(self.select(move, stepped, bits), x.kind)

    def _directed(self, x: Value, below: Value, above: Value, rounding: str) -> Value:
        """Move x, a nearest rounding, where the exact value lies `below` or `above` it."""
        negative = self.lt(self.bitcast(x, I32 if x.kind is F32 else I64), 0)
        if rounding == "RM":
            up, move = self.const(MASK, 0), below
        elif rounding == "RP":
            up, move = self.const(MASK, 1), above
        elif rounding == "RZ":
            zero = self.eq(x, 0.0)
            up, move = negative, ((below & ~negative) | (above & negative)) & ~zero
        elif rounding == "RO":  # to odd: an inexact result has its last bit set, so that rounding again is safe
            bits = self.bitcast(x, I32 if x.kind is F32 else I64)
            even = self.eq(bits & 1, 0)
            up, move = above, (below | above) & even
        else:
            raise Unsupported(f"rounding mode {rounding}")
        return self._step(x, up, move)

    def _towards(self, r: Value, difference: Value, rounding: str) -> Value:
        """F64 r, a nearest rounding, moved to `rounding`; `difference` has the sign of exact value less r (NaN: no
        move).

        An overflow to infinity counts as above the exact value and moves back to the largest finite number.
        """
        return self._directed(r, self.lt(difference, 0.0), self.gt(difference, 0.0), rounding)

    def _zero_down(self, result: Value, exact: Value, a: Value, b: Value, rounding: str) -> Value:
        """An exact zero sum (`exact` is 0) is -0 when rounding down, unless both terms are +0."""
        if rounding != "RM":
            return result
        negative = self.lt(self.bitcast(a, I32 if a.kind is F32 else I64), 0)
        negative = negative | self.lt(self.bitcast(b, I32 if b.kind is F32 else I64), 0)
        return self.select(self.eq(exact, 0.0) & negative, -0.0, result)

    def narrow(self, high: Value, low: Value, rounding: str) -> Value:
        """The exact sum high + low (F64, |low| at most half an ulp of high) as F32 with `rounding`."""
        odd = self._directed(high, self.lt(low, 0.0), self.gt(low, 0.0), "RO")
        safe = self.lt(self.abs(high), 1.7976931348623157e308)
        return self.f32_of(self.select(safe, odd, high), rounding)

    def f32_of(self, a: Value, rounding: str = "RN") -> Value:
        """F64 to F32. RN, RM, RP, RZ, or RO (to odd, for a further rounding to a narrower type)."""
        r = self.convert("fptrunc", a, F32)
        if rounding == "RN":
            return r
        back = self.widen(r)
        finite = self.lt(self.abs(r), float("inf"))
        moved = self._directed(r, self.lt(a, back), self.gt(a, back), rounding)
        overflow = self.lt(self.abs(a), float("inf")) & ~finite & ~self.is_nan(a)
        biggest = self.bitcast(self.const(I32, 0x7F7FFFFF), F32)
        inward = {
            "RZ": self.const(MASK, 1),
            "RO": self.const(MASK, 1),
            "RM": self.gt(a, 0.0),
            "RP": self.lt(a, 0.0),
        }[rounding]
        clipped = self.select(self.lt(a, 0.0), -biggest, biggest)
        return self.select(overflow & inward, clipped, self.select(finite, moved, r))

    def half_to_f32(self, bits: Value) -> Value:
        """IEEE half in the low 16 bits of an I32 to F32, exact."""
        return self.convert("half_to_f32", bits, F32)

    def f32_to_half(self, a: Value, rounding: str = "RN") -> Value:
        """F32 to IEEE half in the low 16 bits of an I32 (upper bits 0). RN or RZ.

        For one rounding from a wider exact result, round that to F32 with "RO" first.
        """
        h = self.convert("f32_to_half", a, I32)
        if rounding == "RN":
            return h
        if rounding != "RZ":
            raise Unsupported(f"half with rounding mode {rounding}")
        back = self.half_to_f32(h)
        over = self.gt(self.abs(back), self.abs(a))  # rounded away from zero, perhaps to infinity
        return self.select(over, h - 1, h)

    def round_integral(self, a: Value, rounding: str = "RN") -> Value:
        """To an integral float: RN (rint), RM (floor), RP (ceil), RZ (trunc)."""
        return self.unary({"RN": "rint", "RM": "floor", "RP": "ceil", "RZ": "trunc"}[rounding], a)

    def float_to_int(self, a: Value, kind: Kind = I32, signed: bool = True, rounding: str = "RN") -> Value:
        """Float to I32/I64 after rounding; out of range saturates, NaN gives 0."""
        return self.convert("fptosi" if signed else "fptoui", self.round_integral(a, rounding), kind)

    def int_to_float(self, a: Value, kind: Kind = F32, signed: bool = True, rounding: str = "RN") -> Value:
        """I32/I64 to F32/F64."""
        op = "sitofp" if signed else "uitofp"
        if rounding == "RN" or (a.kind is I32 and kind is F64):
            return self.convert(op, a, kind)
        if a.kind is I32:
            return self.f32_of(self.convert(op, a, F64), rounding)
        high = self.hi32(a)
        top = self.convert(op, high, F64) * 4294967296.0
        low = self.convert("uitofp", self.lo32(a), F64)
        s, error = self._sum_exact(top, low)
        if kind is F64:
            return self._directed(s, self.lt(error, 0.0), self.gt(error, 0.0), rounding)
        return self.narrow(s, error, rounding)

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


Meaning = Callable[[Emitter, Instruction], None]
