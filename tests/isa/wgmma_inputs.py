"""Inputs of the warpgroup matrix results recorded on an H200 (tests/data/hardware/wgmma.json), made anew from names.

Each case: 64 KB of shared memory, A's registers, the accumulator, two descriptors (with the offsets of their
matrices) and whether to accumulate. The recorded number is the CRC-32 of D's registers, words [register][thread].
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

# name: (N, instruction without N, type of the factors, type of D, A and B transposed, A in registers)
KERNELS: dict[str, tuple[int, str, str, str, int, int, bool]] = {
    **{f"f16_n{n}_0{tb}": (n, "HGMMA.64x{}x16.F32", "f16", "f32", 0, tb, False) for n in (8, 32, 256) for tb in (0, 1)},
    **{f"f16_n64_{ta}{tb}": (64, "HGMMA.64x{}x16.F32", "f16", "f32", ta, tb, False) for ta in (0, 1) for tb in (0, 1)},
    **{f"f16r_n64_{tb}": (64, "HGMMA.64x{}x16.F32", "f16", "f32", 0, tb, True) for tb in (0, 1)},
    "bf16_n64_00": (64, "HGMMA.64x{}x16.F32.BF16", "bf16", "f32", 0, 0, False),
    "bf16r_n64_1": (64, "HGMMA.64x{}x16.F32.BF16", "bf16", "f32", 0, 1, True),
    "f16acc_n64_00": (64, "HGMMA.64x{}x16.F16", "f16", "f16", 0, 0, False),
    "tf32_n64": (64, "HGMMA.64x{}x8.F32.TF32", "tf32", "f32", 0, 0, False),
    "e4m3_n64": (64, "QGMMA.64x{}x32.F32.E4M3.E4M3", "e4m3", "f32", 0, 0, False),
    "e5m2_n64": (64, "QGMMA.64x{}x32.F32.E5M2.E4M3", "e5m2", "f32", 0, 0, False),
    "e4m3acc_n64": (64, "QGMMA.64x{}x32.F16.E4M3.E4M3", "e4m3", "f16", 0, 0, False),
    "s8_n64": (64, "IGMMA.64x{}x32.S8.S8", "s8", "s32", 0, 0, False),
    "u8_n64": (64, "IGMMA.64x{}x32.U8.U8", "u8", "s32", 0, 0, False),
}
WORDS = 16384  # of the shared-memory image
THREADS = 128


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    image: np.ndarray  # uint32[WORDS]
    a: np.ndarray  # uint32[4, THREADS]
    c: np.ndarray  # uint32[registers, THREADS]
    descriptors: tuple[int, int]  # of A and B, start addresses included
    accumulate: bool


def _rng(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()))


def _image(name: str, kind: str, count: int) -> np.ndarray:
    r = _rng(name)
    which = np.arange(count) % 4
    if kind in ("f16", "bf16"):
        mantissa, bias, most = (10, 15, 30) if kind == "f16" else (7, 127, 254)
        shape = (count, WORDS, 2)
        spread = np.array([1, 3, 8, 20])[which][:, None, None]
        exponent = np.clip(bias + np.floor((r.random_sample(shape) - 0.5) * spread).astype(np.int64), 0, most)
        v = (r.randint(0, 2, shape) << 15) | (exponent << mantissa) | r.randint(0, 1 << mantissa, shape)
        v = np.where(r.random_sample(shape) < 0.03, 0, v)
        return (v[..., 0] | (v[..., 1] << 16)).astype(np.uint32)
    if kind in ("e4m3", "e5m2"):
        v = r.randint(0, 256, size=(count, WORDS, 4))
        nan = (v & 0x7F) == 0x7F if kind == "e4m3" else (v & 0x7C) == 0x7C
        v = np.where(nan, v & 0x8F, v)
        if kind == "e4m3":
            group = which[:, None, None]
            v = np.where(group == 1, (v & 0x87) | 0x38, np.where(group == 2, (v & 0x8F) | 0x30, v))
        return (v[..., 0] | v[..., 1] << 8 | v[..., 2] << 16 | v[..., 3] << 24).astype(np.uint32)
    if kind == "tf32":
        shape2 = (count, WORDS)
        spread = np.array([1, 3, 8, 20])[which][:, None]
        exponent = 127 + np.floor((r.random_sample(shape2) - 0.5) * spread).astype(np.int64)
        return ((r.randint(0, 2, shape2) << 31) | (exponent << 23) | r.randint(0, 1 << 23, shape2)).astype(np.uint32)
    return r.randint(0, 1 << 32, size=(count, WORDS), dtype=np.uint64).astype(np.uint32)


def _accumulator(name: str, shape: tuple[int, int, int], kind: str) -> np.ndarray:
    r = _rng(name + "c")
    which = np.arange(shape[0]) % 4
    if kind == "f32":
        spread = np.array([1, 4, 10, 24])[which][:, None, None]
        exponent = 127 + np.floor((r.random_sample(shape) - 0.4) * spread).astype(np.int64)
        v = (r.randint(0, 2, shape) << 31) | (exponent << 23) | r.randint(0, 1 << 23, shape)
        return np.where(r.random_sample(shape) < 0.1, 0, v).astype(np.uint32)
    if kind == "f16":
        halves = []
        for _ in range(2):
            spread = np.array([1, 4, 8, 12])[which][:, None, None]
            exponent = np.clip(15 + np.floor((r.random_sample(shape) - 0.4) * spread).astype(np.int64), 0, 30)
            halves.append((r.randint(0, 2, shape) << 15) | (exponent << 10) | r.randint(0, 1 << 10, shape))
        return (halves[0] | halves[1] << 16).astype(np.uint32)
    return r.randint(0, 1 << 32, size=shape, dtype=np.uint64).astype(np.uint32)


def descriptor(start: int, leading: int, stride: int, swizzle: int) -> int:
    return start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | swizzle << 62


def cases(kernel: str, numbers: Collection[int] = range(8)) -> Iterator[Case]:
    """Four swizzles, two choices of offsets each; only those numbered."""
    n, _, kind, result, _, _, _ = KERNELS[kernel]
    registers = n // 4 if result == "f16" else n // 2
    for swizzle in range(4):
        for variant in range(2):
            if 2 * swizzle + variant not in numbers:
                continue
            count = 4 if swizzle else 6  # as recorded; only the first is used here
            name = f"{kernel}_{swizzle}_{variant}"
            image = _image(name, kind, count)
            a = _image(name + "A", kind, count)[:, : 4 * THREADS].reshape(count, 4, THREADS)
            c = _accumulator(name, (count, registers, THREADS), result)
            if variant == 0:
                a_offsets, b_offsets = ((128, 256), (256, 1024)) if swizzle == 0 else ((4096, 1024), (4096, 1024))
            else:
                a_offsets, b_offsets = ((2048, 144), (1040, 512)) if swizzle == 0 else ((6144, 2048), (5120, 2048))
            if n == 256:
                b_offsets = (1024 if swizzle == 0 else 2048, 1024)
            a_start = 0 if variant == 0 else 64 if swizzle else 16
            b_start = 24576 + (0 if variant == 0 else 32 if swizzle else 48)
            both = (descriptor(a_start, *a_offsets, swizzle), descriptor(b_start, *b_offsets, swizzle))
            yield Case(name, image[0], a[0], c[0], both, variant == 0 or swizzle != 1)
