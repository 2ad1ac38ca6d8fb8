"""The value interface in NumPy: a Value's `raw` is an array of 32 elements (bool for MASK). Executes at once."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from interpreter.isa.effects import MachineEmitter
from interpreter.isa.value import F32, F64, I32, I64, MASK, Kind, Number, Value
from interpreter.launch import WARP

DTYPE: dict[Kind, Any] = {I32: np.uint32, I64: np.uint64, F32: np.float32, F64: np.float64, MASK: np.bool_}
SIGNED: dict[Kind, Any] = {I32: np.int32, I64: np.int64}

_libm = ctypes.CDLL(None)
_fma = _libm.fma
_fma.restype = ctypes.c_double
_fma.argtypes = [ctypes.c_double] * 3


def to_odd(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """float64 `high` with the exact remainder `low` folded into its last bit, so that one more rounding is right."""
    bits = high.view(np.int64)
    inexact = np.isfinite(high) & (low != 0) & ~np.isnan(low) & (bits & 1 == 0)
    away = (low > 0) == (high > 0)
    zero = high == 0
    moved = np.where(zero, np.where(low > 0, 1, np.int64(-(2**63)) | 1), bits + np.where(away, 1, -1))
    return np.where(inexact, moved, bits).view(np.float64)


class NumpyValues(MachineEmitter):
    """Arithmetic and lanes; operands and effects are in `numpy_machine`."""

    def value(self, kind: Kind, raw: Any) -> Value:
        array = np.asarray(raw, DTYPE[kind])
        assert array.shape == (WARP,), f"{array.shape} values instead of one a lane"
        return Value(self, kind, array)

    def const(self, kind: Kind, number: Number) -> Value:
        if kind.is_float:
            with np.errstate(over="ignore"):
                return self.value(kind, np.full(WARP, number, DTYPE[kind]))
        if kind is MASK:
            return self.value(kind, np.full(WARP, bool(number)))
        return self.value(kind, np.full(WARP, int(number) & ((1 << kind.bits) - 1), DTYPE[kind]))

    def lanes(self, numbers: Sequence[int], kind: Kind = I32) -> Value:
        modulo = (1 << kind.bits) - 1
        return self.value(kind, np.array([n & modulo for n in numbers], DTYPE[kind]))

    def binary(self, op: str, a: Value, b: Value) -> Value:
        if a.kind is not b.kind:
            raise TypeError(f"{op} of {a.kind.value} and {b.kind.value}")
        kind, x, y = a.kind, a.raw, b.raw
        if kind.is_float:
            with np.errstate(all="ignore"):
                return self.value(kind, _float_binary(op, x, y))
        simple = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or,
                  "xor": np.bitwise_xor, "umin": np.minimum, "umax": np.maximum}  # fmt: skip
        if op in simple:
            return self.value(kind, simple[op](x, y))
        signed = SIGNED[kind]
        if op in ("shl", "lshr"):
            return self.value(kind, (np.left_shift if op == "shl" else np.right_shift)(x, y))
        if op == "ashr":
            return self.value(kind, np.right_shift(x.view(signed), y.view(signed)).view(DTYPE[kind]))
        if op in ("smin", "smax"):
            both = (np.minimum if op == "smin" else np.maximum)(x.view(signed), y.view(signed))
            return self.value(kind, both.view(DTYPE[kind]))
        if op in ("udiv", "urem", "sdiv", "srem"):
            return self.value(kind, [_divide(op, p, q, kind.bits) for p, q in zip(x.tolist(), y.tolist())])
        raise ValueError(f"no integer operation {op}")

    def unary(self, op: str, a: Value) -> Value:
        kind, x = a.kind, a.raw
        if kind.is_float:
            functions = {"neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil,
                         "trunc": np.trunc, "rint": np.rint}  # fmt: skip
            with np.errstate(all="ignore"):
                return self.value(kind, functions[op](x))
        width = kind.bits
        per_lane = {
            "popc": lambda n: n.bit_count(),
            "clz": lambda n: width - n.bit_length(),
            "ctz": lambda n: (n & -n).bit_length() - 1 if n else width,
            "brev": lambda n: int(f"{n:0{width}b}"[::-1], 2),
            "bswap": lambda n: int.from_bytes(n.to_bytes(width // 8, "little"), "big"),
        }
        return self.value(kind, [per_lane[op](n) for n in x.tolist()])

    def compare(self, op: str, a: Value, b: Value) -> Value:
        x, y = a.raw, b.raw
        functions = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                     "ge": np.greater_equal}  # fmt: skip
        if a.kind.is_float:
            unordered = np.isnan(x) | np.isnan(y)
            if op in ("ord", "uno"):
                return self.value(MASK, unordered if op == "uno" else ~unordered)
            result = functions[op[1:]](x, y)
            return self.value(MASK, result | unordered if op[0] == "u" else result & ~unordered)
        if op in ("eq", "ne"):
            return self.value(MASK, functions[op](x, y))
        if op[0] == "s":
            x, y = x.view(SIGNED[a.kind]), y.view(SIGNED[a.kind])
        return self.value(MASK, functions[op[1:]](x, y))

    def convert(self, op: str, a: Value, kind: Kind) -> Value:
        x = a.raw
        with np.errstate(all="ignore"):
            if op == "bitcast":
                return self.value(kind, x.view(DTYPE[kind]))
            if op == "zext":
                return self.value(kind, x.astype(DTYPE[kind]))
            if op == "sext":
                if a.kind is MASK:
                    return self.value(kind, np.where(x, SIGNED[kind](-1), SIGNED[kind](0)).view(DTYPE[kind]))
                return self.value(kind, x.view(SIGNED[a.kind]).astype(SIGNED[kind]).view(DTYPE[kind]))
            if op in ("trunc", "fpext", "fptrunc", "uitofp"):
                return self.value(kind, x.astype(DTYPE[kind]))
            if op == "sitofp":
                return self.value(kind, x.view(SIGNED[a.kind]).astype(DTYPE[kind]))
            if op in ("fptosi", "fptoui", "fptosi_in_range"):
                return self.value(kind, [_to_int(v, kind.bits, op != "fptoui") for v in x.tolist()])
            if op == "half_to_f32":
                return self.value(kind, x.astype(np.uint16).view(np.float16).astype(np.float32))
            if op == "f32_to_half":
                return self.value(kind, x.astype(np.float16).view(np.uint16).astype(np.uint32))
        raise ValueError(f"no conversion {op}")

    def fused(self, a: Value, b: Value, c: Value) -> Value:
        with np.errstate(all="ignore"):
            if a.kind is F32:
                product = a.raw.astype(np.float64) * b.raw.astype(np.float64)  # exact: 24 + 24 bits
                addend = c.raw.astype(np.float64)
                total = product + addend
                back = total - product
                rest = (product - (total - back)) + (addend - back)
                return self.value(F32, to_odd(total, rest).astype(np.float32))
            lanes = zip(a.raw.tolist(), b.raw.tolist(), c.raw.tolist())
            return self.value(F64, [_fma(x, y, z) for x, y, z in lanes])

    def select(self, mask: Value, a: Value | Number, b: Value | Number) -> Value:
        a, b = self._two(a, b)
        return self.value(a.kind, np.where(mask.raw, a.raw, b.raw))

    def permute(self, a: Value, source: Sequence[int]) -> Value:
        return self.value(a.kind, a.raw[list(source)])

    def shuffle(self, a: Value, source: Value) -> Value:
        return self.value(a.kind, a.raw[source.raw & (WARP - 1)])

    def ballot(self, mask: Value) -> Value:
        return self.const(I32, bits_of(mask.raw))

    def mask_from_bits(self, value: Value) -> Value:
        return self.value(MASK, lanes_of(int(value.raw[0])))

    def lookup(self, table: np.ndarray, index: Value) -> Value:
        if len(table) & (len(table) - 1):
            raise ValueError("a lookup table's length must be a power of two")
        kind = {4: I32, 8: I64}[table.dtype.itemsize]
        return self.value(kind, table[index.raw & (len(table) - 1)])


def bits_of(mask: np.ndarray) -> int:
    """Lane mask of 32 booleans."""
    return int(np.packbits(mask, bitorder="little").view("<u4")[0])


def lanes_of(bits: int) -> np.ndarray:
    """32 booleans of a lane mask."""
    return (bits >> np.arange(WARP, dtype=np.uint64) & 1).astype(bool)


def lane_numbers(bits: int) -> list[int]:
    return [lane for lane in range(WARP) if bits >> lane & 1]


def _float_binary(op: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    simple = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    if op in simple:
        return simple[op](x, y)
    # the number wins over NaN; -0 is below +0
    first = np.signbit(x) if op == "fmin" else ~np.signbit(x)
    better = np.where(x == y, first, x < y if op == "fmin" else x > y)
    chosen = np.where(better, x, y)
    return np.where(np.isnan(y), x, np.where(np.isnan(x), y, chosen))


def _divide(op: str, p: int, q: int, bits: int) -> int:
    if q == 0:
        return 0
    if op[0] == "s":
        half = 1 << (bits - 1)
        p, q = (p ^ half) - half, (q ^ half) - half
    quotient = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
    return (quotient if op.endswith("div") else p - quotient * q) & ((1 << bits) - 1)


def _to_int(x: float, bits: int, signed: bool) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if x != x:
        return 0
    if x in (float("inf"), float("-inf")):
        n = high if x > 0 else low
    else:
        n = min(max(int(x), low), high)
    return n & ((1 << bits) - 1)
