"""Floating point with the hardware's options: directed rounding, flushing, saturation, conversions."""

from __future__ import annotations

from interpreter.isa.kinds import F32, F64, I32, I64, MASK, Kind, Unsupported, Value
from interpreter.isa.primitives import Primitives


class Rounding(Primitives):
    """Float operations with rounding modes RN (nearest even), RM (down), RP (up), RZ (toward zero), RO (to odd)."""

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
