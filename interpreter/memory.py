"""Device memory: allocations at fixed guest addresses, filled lazily.

All allocations live in one reserved stretch of the host's address space, so that host = guest + a constant and a buffer
costs nothing before it is touched. Guest addresses depend only on the order and sizes of the allocations.

Random and constant fills repeat a tile of about 2**20 elements (an odd number of 4 KiB pages just below that, so that
no power of two of rows lands on the same values), mapped copy-on-write over the buffer. `arange` and `csr_offsets` are
written out in full. Random numbers: NumPy's PCG64, seeded by the argument's name and the memory's seed.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import tempfile
import weakref
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from interpreter.errors import FarmError

PAGE = 4096
TILE_ELEMENTS = 1 << 20
GUEST_BASE = 0x7_0000_0000  # guest address of the reserved stretch
RESERVED_BYTES = 1 << 37  # 128 GiB of address space, not of memory
SMALLEST_RESERVED = 1 << 32
LARGE = 1 << 20  # allocations from this size on start on a 2 MiB boundary, as the driver's do

FILLS = ("zeros", "ones", "normal", "uniform", "arange", "integers", "csr_offsets")

_PROT_NONE, _PROT_RW = 0, mmap.PROT_READ | mmap.PROT_WRITE
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_MAP_ANONYMOUS = mmap.MAP_ANONYMOUS
_MAP_PRIVATE = mmap.MAP_PRIVATE
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_munmap = _libc.munmap
_munmap.restype = ctypes.c_int
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class MemoryError_(FarmError):
    """The host cannot give the memory asked for, or a fill does not exist for a type."""


@dataclass(frozen=True, slots=True)
class Fill:
    """How a buffer starts.

    `kind`: zeros, ones, normal (mean 0, deviation 1), uniform (in [0, 1)), arange (0, 1, 2, ...), integers (low <= x <
    high), csr_offsets (row offsets of a sparse matrix with `entries` entries a row on average: the last is rows times
    `entries`). `dtype`: float16, bfloat16, float32, float64, int8 .. int64, uint8 .. uint64.
    """

    kind: str = "zeros"
    dtype: str = "float32"
    low: int = 0
    high: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Allocation:
    """`size` bytes at guest address `address`."""

    name: str
    address: int
    size: int

    @property
    def end(self) -> int:
        return self.address + self.size


def _map(address: int | None, size: int, protection: int, flags: int, file: int = -1) -> int:
    got = _mmap(address, size, protection, flags, file, 0)
    if got is None or got == _FAILED:
        code = ctypes.get_errno()
        raise MemoryError_(f"cannot map {size} bytes: {os.strerror(code)}")
    return int(got)


def _release(base: int, size: int) -> None:
    _munmap(base, size)


def round_to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """bfloat16 patterns of float32 values (no NaN among them), nearest even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def fill_values(fill: Fill, count: int, name: str, seed: int = 0) -> np.ndarray:
    """The first `count` elements of a fill, without the tile's repetition. bfloat16 gives uint16 patterns.

    Raises MemoryError_ for a fill that does not suit the type.
    """
    bf16 = fill.dtype == "bfloat16"
    dtype = np.dtype(np.float32 if bf16 else fill.dtype)
    if fill.kind == "zeros":
        values = np.zeros(count, dtype)
    elif fill.kind == "ones":
        values = np.ones(count, dtype)
    elif fill.kind == "arange":
        values = np.arange(count).astype(dtype)
    elif fill.kind in ("normal", "uniform"):
        if dtype.kind != "f":
            raise MemoryError_(f"buffer {name}: fill {fill.kind} needs a floating type, not {fill.dtype}")
        random = _generator(name, seed)
        working = np.float64 if dtype == np.float64 else np.float32
        draw = random.standard_normal if fill.kind == "normal" else random.random
        values = draw(count, dtype=working).astype(dtype)
        if fill.kind == "uniform" and dtype == np.float16:
            values = np.minimum(values, np.float16(0.9995))  # rounding must not reach 1
    elif fill.kind == "integers":
        if fill.high <= fill.low:
            raise MemoryError_(f"buffer {name}: integers from {fill.low} to {fill.high} (excluded) are none")
        values = _generator(name, seed).integers(fill.low, fill.high, count, dtype=np.int64).astype(dtype)
    elif fill.kind == "csr_offsets":
        rows = max(count - 1, 0)
        sizes = _generator(name, seed).integers(0, 2 * fill.entries + 1, rows)
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.float64)
        total = ends[-1] if ends[-1] else 1.0
        values = np.rint(ends * (rows * fill.entries / total)).astype(dtype)[:count]
    else:
        raise MemoryError_(f"buffer {name}: fill {fill.kind} is unknown; known: {', '.join(FILLS)}")
    return round_to_bfloat16(values) if bf16 else values


def _generator(name: str, seed: int) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def element_bytes(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


class Memory:
    """The device's global memory. Use as a context manager, or call `close`; views die with it."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        size = RESERVED_BYTES
        while True:
            try:
                self._host = _map(None, size, _PROT_NONE, _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE)
                break
            except MemoryError_:
                size //= 2
                if size < SMALLEST_RESERVED:
                    raise
        self._size = size
        self._next = GUEST_BASE
        self._allocations: list[Allocation] = []
        self._close = weakref.finalize(self, _release, self._host, size)
        self._tables: tuple[np.ndarray, np.ndarray] | None = None

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the host memory back. Existing views must not be used any more."""
        self._close()

    @property
    def delta(self) -> int:
        """Host address of a byte = its guest address + delta (modulo 2**64)."""
        return self._host - GUEST_BASE

    @property
    def allocations(self) -> list[Allocation]:
        return list(self._allocations)

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """uint64 guest addresses, ascending, and sizes of the allocations."""
        if self._tables is None:
            self._tables = (
                np.array([a.address for a in self._allocations], np.uint64),
                np.array([a.size for a in self._allocations], np.uint64),
            )
        return self._tables

    def allocate(self, name: str, nbytes: int, fill: Fill | None = None) -> int:
        """Reserve `nbytes` and fill them (None: zeros); gives the guest address. Raises MemoryError_."""
        if nbytes < 0:
            raise MemoryError_(f"buffer {name}: {nbytes} bytes")
        align = 2 << 20 if nbytes >= LARGE else PAGE
        address = -(-self._next // align) * align
        span = -(-max(nbytes, 1) // PAGE) * PAGE
        if address + span + PAGE - GUEST_BASE > self._size:
            raise MemoryError_(f"buffer {name}: {nbytes} bytes do not fit the {self._size >> 30} GiB of device memory")
        host = address + self.delta
        _map(host, span, _PROT_RW, _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_FIXED | _MAP_NORESERVE)
        self._next = address + span + PAGE  # a page nobody may touch follows
        self._allocations.append(Allocation(name, address, nbytes))
        self._tables = None
        if fill is not None and fill.kind != "zeros" and nbytes:
            self._fill(name, address, nbytes, span, fill)
        return address

    def _fill(self, name: str, address: int, nbytes: int, span: int, fill: Fill) -> None:
        width = element_bytes(fill.dtype)
        if nbytes % width:
            raise MemoryError_(f"buffer {name}: {nbytes} bytes are no whole number of {fill.dtype}")
        count = nbytes // width
        tile_bytes = TILE_ELEMENTS * width // PAGE * PAGE - PAGE
        tile_bytes -= PAGE * ((tile_bytes // PAGE + 1) % 2)  # an odd number of pages
        if fill.kind in ("arange", "csr_offsets") or nbytes <= tile_bytes:
            values = fill_values(fill, count, name, self.seed)
            self.view(address, values.dtype, (count,))[:] = values
            return
        tile = fill_values(fill, tile_bytes // width, name, self.seed).tobytes()
        with _anonymous_file() as file:
            os.ftruncate(file.fileno(), tile_bytes)
            os.pwrite(file.fileno(), tile, 0)
            for at in range(0, span, tile_bytes):
                piece = min(tile_bytes, span - at)
                where = address + at + self.delta
                _map(where, piece, _PROT_RW, _MAP_PRIVATE | _MAP_FIXED | _MAP_NORESERVE, file.fileno())

    def view(self, address: int, dtype: npt.DTypeLike, shape: tuple[int, ...] | int) -> np.ndarray:
        """Live array over guest memory, which must lie inside one allocation."""
        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        owner = self.find(address)
        if owner is None or address + nbytes > owner.end:
            raise MemoryError_(f"{nbytes} bytes at {address:#x} are not inside one allocation")
        raw = (ctypes.c_char * nbytes).from_address(address + self.delta)
        return np.ndarray(shape, dtype, memoryview(raw))

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds an address."""
        return next((a for a in self._allocations if a.address <= address < max(a.end, a.address + 1)), None)

    def nearest(self, address: int) -> str:
        """Words for a message: where `address` lies with respect to the nearest allocation."""
        if not self._allocations:
            return "there are no allocations"

        def distance(a: Allocation) -> int:
            return max(a.address - address, address - (a.end - 1), 0)

        a = min(self._allocations, key=distance)
        if a.address <= address < a.end:
            return f"inside {a.name} ({a.size} bytes at {a.address:#x}), {a.end - address} bytes before its end"
        if address >= a.end:
            return f"{address - a.end} bytes past the end of {a.name} ({a.size} bytes at {a.address:#x})"
        return f"{a.address - address} bytes before {a.name} ({a.size} bytes at {a.address:#x})"


def _anonymous_file():  # type: ignore[no-untyped-def]
    """A file without a name that only mappings keep alive."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("farm-tile"), "r+b", buffering=0)
    return tempfile.TemporaryFile()
