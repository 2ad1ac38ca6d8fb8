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

from abc import abstractmethod
from collections.abc import Callable, Sequence

from interpreter.isa.kinds import F32, F64, I32, I64, LANES, MASK, Kind, Number, Unsupported, Value
from interpreter.isa.rounding import Rounding
from interpreter.program import Instruction, Operand


class Emitter(Rounding):
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
    def converged(self) -> Value:
        """MASK of lanes of the running group, whatever their guard."""


Meaning = Callable[[Emitter, Instruction], None]

__all__ = [
    "F32", "F64", "I32", "I64", "LANES", "MASK", "Emitter", "Kind", "Meaning", "Number", "Unsupported", "Value",
]  # fmt: skip
