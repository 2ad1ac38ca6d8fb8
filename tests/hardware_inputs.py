"""Inputs of the results recorded on a real GPU (tests/data/hardware), made anew from names alone.

Everything starts from the raw 64-bit words of NumPy's PCG64, seeded by the CRC-32 of a name: raw words are the same in
every NumPy version, and what is made of them is exact integer arithmetic and one rounding, so any machine gets the same
bytes. `record` programs and tests both call these functions; only the results are stored.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


def raw_words(name: str, count: int) -> np.ndarray:
    """`count` random uint64 words that belong to `name`."""
    return np.random.PCG64(zlib.crc32(name.encode())).random_raw(count)


def fill(name: str, dtype: str, shape: tuple[int, ...], how: object) -> np.ndarray:
    """An input buffer: `how` is normal, uniform, zeros, ones, arange or {"integers": [low, high]} (high excluded).

    "normal" is the sum of four uniform 16-bit numbers, scaled to variance 1: bell-shaped, and exact everywhere.
    """
    count = int(np.prod(shape))
    if how == "zeros":
        return np.zeros(shape, dtype)
    if how == "ones":
        return np.ones(shape, dtype)
    if how == "arange":
        return np.arange(count).astype(dtype).reshape(shape)
    words = raw_words(name, count)
    if how == "uniform":
        values = (words >> np.uint64(40)).astype(np.float64) * 2.0**-24
    elif how == "normal":
        total = sum((words >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64) for shift in (0, 16, 32, 48))
        values = (total - 131070) * (1.7320508075688772 / 65536)
    elif isinstance(how, dict) and "integers" in how:
        low, high = how["integers"]
        values = low + (words % np.uint64(high - low)).astype(np.int64)
    else:
        raise ValueError(f"fill {how!r}")
    return values.astype(dtype).reshape(shape)


# -- operands of single operations -----------------------------------------------------------------------------------

COUNT = 1024  # results recorded an operation


def _hex(words: str) -> list[int]:
    return [int(word, 16) for word in words.split()]


F32_SPECIAL = _hex(
    "00000000 80000000 3F800000 BF800000 7F800000 FF800000 7FC00000 FFC00001 7F800001 00000001 "
    "80000001 007FFFFF 00800000 80800000 7F7FFFFF FF7FFFFF 4F000000 CF000000 4EFFFFFF 3F000000 "
    "3FC00000 40200000 BF000000 4B000001 3EFFFFFF 5F000000 42FE0000 C2FC0000 34000000 477FE000 "
    "477FF000 33800000"
)
F64_SPECIAL = _hex(
    "0000000000000000 8000000000000000 3FF0000000000000 BFF0000000000000 7FF0000000000000 "
    "FFF0000000000000 7FF8000000000000 FFF8000000000001 7FF0000000000001 0000000000000001 "
    "800FFFFFFFFFFFFF 0010000000000000 7FEFFFFFFFFFFFFF 41DFFFFFFFC00000 C1E0000000000000 "
    "43E0000000000000 3FE0000000000000 3FF8000000000000 47EFFFFFE0000000 47EFFFFFF0000000 "
    "36A0000000000000 3690000000000000 380FFFFFFFFFFFFF 4330000000000001"
)
F16_SPECIAL = _hex("0000 8000 3C00 BC00 7C00 FC00 7E00 FE01 7C01 0001 8001 03FF 0400 7BFF FBFF 3800")
BF16_SPECIAL = _hex("0000 8000 3F80 BF80 7F80 FF80 7FC0 FFC1 7F81 0001 8001 007F 0080 7F7F FF7F 3F00")
INT_SPECIAL = _hex(
    "00000000 00000001 00000002 0000001F 00000020 00000021 0000007F 00000080 000000FF 00007FFF "
    "00008000 0000FFFF 7FFFFFFF 80000000 FFFFFFFE FFFFFFFF"
)
INT64_SPECIAL = _hex(
    "0000000000000000 0000000000000001 000000000000003F 0000000000000040 00000000FFFFFFFF "
    "0000000100000000 7FFFFFFFFFFFFFFF 8000000000000000 FFFFFFFFFFFFFFFF 8000000000000001"
)


def _pairs(special: list[int], random: list[np.ndarray]) -> list[np.ndarray]:
    """Three operands: every pair of special values first (the third runs through them), then random words."""
    values = np.array(special, np.uint64)
    n = len(values)
    head = min(n * n, COUNT // 2)
    order = np.arange(head)
    out = []
    for k, index in enumerate((order % n, order // n % n, (order * 7 + 3) % n)):
        out.append(np.concatenate([values[index], random[k][head:COUNT]]))
    return out


def _floats(words: np.ndarray, mantissa: int, bias: int, spread: int) -> np.ndarray:
    """Floats of random sign and mantissa; exponents within `spread` of zero for half of them, any for the rest."""
    sign = words >> np.uint64(63)
    fraction = words & np.uint64((1 << mantissa) - 1)
    near = (words >> np.uint64(54)) % np.uint64(2 * spread + 1) + np.uint64(bias - spread)
    anywhere = (words >> np.uint64(52)) % np.uint64(2 * bias + 2)
    exponent = np.where(np.arange(len(words)) % 2 == 0, near, anywhere)
    total = {52: 63, 23: 31, 10: 15, 7: 15}[mantissa]
    return sign << np.uint64(total) | exponent << np.uint64(mantissa) | fraction


def operands(kernel: str) -> list[np.ndarray]:
    """The words a, b, c of `kernel` of arithmetic.cu, each uint64 of length COUNT. The source type ends its name."""
    kind = kernel.rsplit("_", 1)[-1]
    words = [raw_words(f"{kernel}.{operand}", COUNT) for operand in "abc"]
    if kind == "mufu":
        kind = "f32"
    if kind == "f32":
        return _pairs(F32_SPECIAL, [_floats(w, 23, 127, 24) for w in words])
    if kind == "f64":
        return _pairs(F64_SPECIAL, [_floats(w, 52, 1023, 40) for w in words])
    if kind in ("f16x2", "f16"):
        low = _pairs(F16_SPECIAL, [_floats(w, 10, 15, 4) for w in words])
        high = [_floats(raw_words(f"{kernel}.{operand}.high", COUNT), 10, 15, 4) for operand in "abc"]
        return [a | b << np.uint64(16) for a, b in zip(low, high, strict=True)]
    if kind == "bf16x2":
        low = _pairs(BF16_SPECIAL, [_floats(w, 7, 127, 6) for w in words])
        high = [_floats(raw_words(f"{kernel}.{operand}.high", COUNT), 7, 127, 6) for operand in "abc"]
        return [a | b << np.uint64(16) for a, b in zip(low, high, strict=True)]
    if kind in ("s64", "u64", "b64"):
        return _pairs(INT64_SPECIAL, words)
    return _pairs(INT_SPECIAL, [w & np.uint64(0xFFFFFFFF) for w in words])


# MUFU functions by the value of bits 77:74 of the instruction word.
MUFU_FUNCTIONS = {
    "COS": 0,
    "SIN": 1,
    "EX2": 2,
    "LG2": 3,
    "RCP": 4,
    "RSQ": 5,
    "RCP64H": 6,
    "RSQ64H": 7,
    "SQRT": 8,
    "TANH": 9,
}
MUFU_COUNT = 4096


def mufu_inputs(function: str) -> np.ndarray:
    """Words (uint32, MUFU_COUNT) for one MUFU function: special values, the edges of every binade, then random."""
    if function.endswith("64H"):  # the high word of a double
        edges = [
            e << 20 | m for e in (*range(8), *range(1000, 1048), *range(2036, 2048)) for m in (0, 1, 0xFFFFF, 0x80000)
        ]
        edges += [word | 0x80000000 for word in edges]
    else:
        edges = [e << 23 | m for e in range(256) for m in (0, 1, 0x7FFFFF, 0x400000)]
        edges += [word | 0x80000000 for word in edges[:: 4 if function != "EX2" else 1]]
    head = np.array(F32_SPECIAL + edges, np.uint64)
    words = raw_words(f"mufu.{function}", MUFU_COUNT - len(head))
    return np.concatenate([head, _floats(words, 23, 127, 12)]).astype(np.uint32)


# -- matrix multiply-accumulate --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Format:
    """A number format: bits of exponent and mantissa, its exponent bias, and the shift to its place in a word."""

    bits: int
    exponent: int
    mantissa: int
    low: int  # least and greatest unbiased exponent drawn for "wide" operands
    high: int
    shift: int = 0

    @property
    def bias(self) -> int:
        return (1 << self.exponent - 1) - 1


FORMATS = {
    "f16": Format(16, 5, 10, -14, 15),
    "bf16": Format(16, 8, 7, -30, 30),
    "tf32": Format(32, 8, 10, -30, 30, 13),
    "f32": Format(32, 8, 23, -40, 40),
    "e4m3": Format(8, 4, 3, -6, 7),
}


@dataclass(frozen=True, slots=True)
class Mma:
    """One kernel of arithmetic.cu's matrix part: k, types of A and B, of C and D."""

    k: int
    ab: str
    cd: str
    b: str = ""


MMA = {
    "mma_16816_f32_f16": Mma(16, "f16", "f32"),
    "mma_16816_f32_bf16": Mma(16, "bf16", "f32"),
    "mma_16816_f16_f16": Mma(16, "f16", "f16"),
    "mma_1688_f32_f16": Mma(8, "f16", "f32"),
    "mma_1688_f16_f16": Mma(8, "f16", "f16"),
    "mma_1688_f32_bf16": Mma(8, "bf16", "f32"),
    "mma_1688_f32_tf32": Mma(8, "tf32", "f32"),
    "mma_1684_f32_tf32": Mma(4, "tf32", "f32"),
    "mma_16816_f32_e4m3": Mma(32, "e4m3", "f32"),
    "mma_16832_s8": Mma(32, "s8", "s32"),
    "mma_16832_u8_s8_sat": Mma(32, "u8", "s32", "s8"),
    "mma_16816_s8": Mma(16, "s8", "s32"),
}
MMA_GROUPS = ("normal", "wide", "sparse", "powers", "cancel", "special", "zeros")


def _draw(words: np.ndarray, form: Format, low: int, high: int, density: float, mantissa: bool) -> np.ndarray:
    """Bit patterns (uint64): exponents uniform in [low, high] (clipped to the normal range), zeros for the rest."""
    low, high = max(low, 1 - form.bias), min(high, form.bias)
    sign = words >> np.uint64(63)
    exponent = (words >> np.uint64(40) & np.uint64(0xFFFF)) % np.uint64(high - low + 1) + np.uint64(low + form.bias)
    fraction = words & np.uint64((1 << form.mantissa) - 1) if mantissa else np.zeros_like(words)
    pattern = sign << np.uint64(form.exponent + form.mantissa) | exponent << np.uint64(form.mantissa) | fraction
    present = (words >> np.uint64(24) & np.uint64(0xFFFF)) < np.uint64(round(density * 65536))
    return np.where(present, pattern, np.uint64(0)) << np.uint64(form.shift)


def mma_matrices(kernel: str, group: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bit patterns (uint32) of A (count, 16, k), B (count, k, 8) and C (count, 16, 8)."""
    shape = MMA[kernel]
    k = shape.k
    sizes = {"a": (count, 16, k), "b": (count, k, 8), "c": (count, 16, 8)}
    words = {key: raw_words(f"{kernel}.{group}.{key}", int(np.prod(size))).reshape(size) for key, size in sizes.items()}
    if shape.ab not in FORMATS:  # bytes: any bits; C near the ends of its range in the "special" group
        a, b = (words[key] >> np.uint64(20) & np.uint64(0xFF) for key in "ab")
        c = words["c"] & np.uint64(0xFFFFFFFF)
        c = (
            np.where(c & np.uint64(0xFF000), c & np.uint64(0xFFFFF), c)
            if group != "special"
            else c | np.uint64(0x70000000)
        )
        return a.astype(np.uint32), b.astype(np.uint32), c.astype(np.uint32)
    ab, cd = FORMATS[shape.ab], FORMATS[shape.cd]
    ranges = {  # exponents of A and B, of C; densities; whether mantissas are drawn
        "normal": ((-3, 1), (-3, 3), 1.0, 1.0, True),
        "wide": ((ab.low, ab.high), (cd.low, cd.high), 1.0, 1.0, True),
        "sparse": ((-8, 8), (-20, 20), 0.25, 0.5, True),
        "powers": ((-8, 3), (-20, 10), 0.5, 0.7, False),
        "cancel": ((-4, 4), (-12, 12), 1.0, 0.5, True),
        "special": ((-ab.bias, ab.bias), (-cd.bias, cd.bias), 0.5, 0.5, True),
    }
    if group == "zeros":  # zeros of either sign
        a, b, c = (
            (words[key] >> np.uint64(63)) << np.uint64(form.exponent + form.mantissa + form.shift)
            for key, form in (("a", ab), ("b", ab), ("c", cd))
        )
        a[:, ::4] = a[:, ::4, :1]  # whole rows and columns of one sign, so that all products have one
        b[:, :, ::2] = b[:, :1, ::2]
        return a.astype(np.uint32), b.astype(np.uint32), c.astype(np.uint32)
    (low, high), (c_low, c_high), density, c_density, mantissa = ranges[group]
    a = _draw(words["a"], ab, low, high, density, mantissa)
    b = _draw(words["b"], ab, low, high, density, mantissa)
    c = _draw(words["c"], cd, c_low, c_high, c_density, mantissa)
    if group == "cancel":  # every odd k nearly undoes the even one before it
        sign = np.uint64(1 << ab.exponent + ab.mantissa + ab.shift)
        a[:, :, 1::2] = a[:, :, 0::2] ^ sign
        b[:, 1::2] = b[:, 0::2] ^ (words["b"][:, 1::2] >> np.uint64(62) << np.uint64(ab.shift))
    if group == "special":  # infinities, NaN and subnormals among them
        top = np.uint64(((1 << ab.exponent) - 1) << ab.mantissa + ab.shift)
        rare = words["a"] >> np.uint64(56)
        a = np.where(rare < np.uint64(4), a | top, np.where(rare > np.uint64(224), a & ~top, a))
        rare = words["b"] >> np.uint64(56)
        b = np.where(rare < np.uint64(2), b | top, np.where(rare > np.uint64(224), b & ~top, b))
        top = np.uint64(((1 << cd.exponent) - 1) << cd.mantissa)
        rare = words["c"] >> np.uint64(56)
        c = np.where(rare < np.uint64(6), c | top, np.where(rare > np.uint64(224), c & ~top, c))
    return a.astype(np.uint32), b.astype(np.uint32), c.astype(np.uint32)


def _pack(values: np.ndarray, bits: int) -> np.ndarray:
    """Neighbouring elements of the last axis into 32-bit words, the first in the low bits."""
    per_word = 32 // bits
    grouped = values.reshape(*values.shape[:-1], -1, per_word).astype(np.uint64)
    word = np.zeros(grouped.shape[:-1], np.uint64)
    for i in range(per_word):
        word |= grouped[..., i] << np.uint64(bits * i)
    return word.astype(np.uint32)


def fragments(kernel: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The registers of A, B and C, shapes (count, 32 lanes, registers), as PTX lays fragments out."""
    shape = MMA[kernel]
    bits = FORMATS[shape.ab].bits if shape.ab in FORMATS else 8
    lane = np.arange(32)
    g, t = lane // 4, lane % 4
    a_words = _pack(a, bits)  # (count, 16, k / per word): a column of words for each quad lane and half of k
    b_words = _pack(np.swapaxes(b, 1, 2), bits)  # (count, 8, k / per word)
    halves = a_words.shape[2] // 4
    a_regs = np.stack([a_words[:, g + 8 * row, t + 4 * half] for half in range(halves) for row in (0, 1)], axis=2)
    b_regs = np.stack([b_words[:, g, t + 4 * half] for half in range(halves)], axis=2)
    if shape.cd == "f16":
        c_words = _pack(c, 16)
        c_regs = np.stack([c_words[:, g + 8 * row, t] for row in (0, 1)], axis=2)
    else:
        c_regs = np.stack([c[:, g + 8 * row, 2 * t + column] for row in (0, 1) for column in (0, 1)], axis=2)
    return a_regs, b_regs, c_regs


def accumulator(kernel: str, registers: np.ndarray) -> np.ndarray:
    """D as a matrix (count, 16, 8) of uint32 patterns, from its registers (count, 32, n): inverse of `fragments`."""
    lane = np.arange(32)
    g, t = lane // 4, lane % 4
    out = np.empty((registers.shape[0], 16, 8), np.uint32)
    if MMA[kernel].cd == "f16":
        for row in (0, 1):
            out[:, g + 8 * row, 2 * t] = registers[:, lane, row] & 0xFFFF
            out[:, g + 8 * row, 2 * t + 1] = registers[:, lane, row] >> 16
    else:
        for row in (0, 1):
            for column in (0, 1):
                out[:, g + 8 * row, 2 * t + column] = registers[:, lane, 2 * row + column]
    return out


def f64_mma(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Registers of mma_884_f64 (uint64): A and B (count, 32), C (count, 32, 2)."""
    a, b = (_floats(raw_words(f"mma_884_f64.{key}", count * 32), 52, 1023, 8).reshape(count, 32) for key in "ab")
    c = _floats(raw_words("mma_884_f64.c", count * 64), 52, 1023, 16).reshape(count, 32, 2)
    return a, b, c
