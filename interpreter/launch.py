"""A launch: grid, block, shared memory and arguments; what it puts into constant banks and special registers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from interpreter.architectures import Generation, layout_for
from interpreter.errors import LaunchError
from interpreter.program import Program

Dim3 = tuple[int, int, int]
WARP = 32

# Generic addresses (64-bit) of shared and local byte 0. The hardware's are chosen by the driver; any will do that no
# allocation uses, with a low word of zero, since code compares or joins high words.
SHARED_WINDOW = 0x0000_4000_0000_0000
LOCAL_WINDOW = 0x0000_4100_0000_0000
SM_COUNT = 132  # what %nsmid reads: the interpreter runs CTAs, it has no SMs

# CUDA programming guide, technical specifications per compute capability.
MAX_THREADS = 1024
MAX_BLOCK: Dim3 = (1024, 1024, 64)
MAX_GRID: Dim3 = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True, slots=True)
class Launch:
    """Sizes in CTAs and threads (x, y, z), dynamic shared memory in bytes, packed arguments in order."""

    grid: Dim3
    block: Dim3
    dynamic_shared: int = 0
    arguments: Sequence[bytes] = field(default_factory=tuple)

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Warps a CTA."""
        return -(-self.threads // WARP)

    @property
    def ctas(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def cta_index(self, number: int) -> Dim3:
        """(x, y, z) of a linear CTA number, x fastest."""
        return number % self.grid[0], number // self.grid[0] % self.grid[1], number // (self.grid[0] * self.grid[1])


Argument = int | float | bytes | bool | np.generic


def pack_arguments(program: Program, values: Sequence[Argument]) -> list[bytes]:
    """Arguments as bytes of the kernel's parameter sizes.

    A pointer is its guest address (int). A float becomes binary16, binary32 or binary64 by the parameter's size. NumPy
    scalars and bytes keep their own size, which must match. Raises LaunchError.
    """
    parameters = sorted(program.parameters, key=lambda p: p.ordinal)
    if len(values) != len(parameters):
        raise LaunchError(f"kernel {program.name} takes {len(parameters)} arguments, {len(values)} were given")
    return [_pack(program.name, p.ordinal, p.size, value) for p, value in zip(parameters, values)]


def _pack(kernel: str, ordinal: int, size: int, value: Argument) -> bytes:
    what = f"kernel {kernel}, argument {ordinal}"
    if isinstance(value, np.generic):
        value = value.tobytes()
    if isinstance(value, bytes):
        if len(value) != size:
            raise LaunchError(f"{what}: {len(value)} bytes given, the parameter has {size}")
        return value
    if isinstance(value, float):
        formats = {2: "<e", 4: "<f", 8: "<d"}
        if size not in formats:
            raise LaunchError(f"{what}: a float does not fit a parameter of {size} bytes")
        try:
            return struct.pack(formats[size], value)
        except OverflowError:
            raise LaunchError(f"{what}: {value} is out of range for {size} bytes") from None
    if isinstance(value, int):
        bits = 8 * size
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            raise LaunchError(f"{what}: {value} does not fit {size} bytes")
        return (value & ((1 << bits) - 1)).to_bytes(size, "little")
    raise LaunchError(f"{what}: a {type(value).__name__} cannot be passed")


def check_launch(program: Program, launch: Launch) -> None:
    """Raise LaunchError for what no GPU accepts: sizes out of range, wrong arguments, __launch_bounds__ broken."""
    for name, size, most in (("grid", launch.grid, MAX_GRID), ("block", launch.block, MAX_BLOCK)):
        for axis, n, limit in zip("xyz", size, most):
            if not 1 <= n <= limit:
                raise LaunchError(f"{name}.{axis} = {n}: it must be from 1 to {limit}")
    if launch.threads > MAX_THREADS:
        raise LaunchError(f"{launch.threads} threads a block: the most is {MAX_THREADS}")
    bounds = program.max_threads
    if bounds is not None and launch.threads > bounds[0] * bounds[1] * bounds[2]:
        allowed = bounds[0] * bounds[1] * bounds[2]
        raise LaunchError(f"kernel {program.name} was compiled for {allowed} threads, {launch.threads} were asked for")
    if program.required_threads is not None and tuple(program.required_threads) != tuple(launch.block):
        raise LaunchError(f"kernel {program.name} needs a block of {program.required_threads}, not {launch.block}")
    if launch.dynamic_shared < 0:
        raise LaunchError(f"dynamic shared memory of {launch.dynamic_shared} bytes")
    parameters = sorted(program.parameters, key=lambda p: p.ordinal)
    if len(parameters) != len(launch.arguments):
        raise LaunchError(
            f"kernel {program.name} takes {len(parameters)} arguments, {len(launch.arguments)} were given"
        )
    for p, packed in zip(parameters, launch.arguments):
        if len(packed) != p.size:
            raise LaunchError(f"kernel {program.name}, argument {p.ordinal}: {len(packed)} bytes given, not {p.size}")


def shared_bytes(program: Program, launch: Launch) -> int:
    """Shared memory of a CTA from address 0, bytes: the reserved part, the kernel's own and the dynamic."""
    return layout_for(program.sm).shared_base + program.static_shared + launch.dynamic_shared


def stack_bytes(program: Program) -> int:
    """Local memory of a thread, bytes."""
    return -(-program.stack // 16) * 16


def constant_banks(program: Program, launch: Launch) -> dict[int, bytes]:
    """Bytes of each constant bank; bank 0 gets the launch constants and the arguments."""
    layout = layout_for(program.sm)
    banks = dict(program.constants)
    size = max(program.parameter_base + program.parameter_bytes, len(banks.get(0, b"")))
    bank = bytearray(size)
    bank[: len(banks.get(0, b""))] = banks.get(0, b"")

    def put(offset: int, value: int, width: int = 4) -> None:
        if offset + width <= program.parameter_base:
            bank[offset : offset + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")

    for offset, n in zip(layout.block_dim, launch.block):
        put(offset, n)
    for offset, n in zip(layout.grid_dim, launch.grid):
        put(offset, n)
    put(layout.stack_pointer, stack_bytes(program))
    put(layout.local_window, LOCAL_WINDOW, 8)
    if layout.shared_window is not None:
        put(layout.shared_window, SHARED_WINDOW, 8)
    put(layout.dynamic_shared, launch.dynamic_shared)
    put(layout.grid_id, 1, 8)
    put(layout.sm_count, SM_COUNT)
    _put_cluster(layout, launch, put)
    for p, packed in zip(sorted(program.parameters, key=lambda p: p.ordinal), launch.arguments):
        at = program.parameter_base + p.offset
        bank[at : at + p.size] = packed
    banks[0] = bytes(bank)
    return banks


def _put_cluster(layout: Generation, launch: Launch, put) -> None:  # type: ignore[no-untyped-def]
    """A launch without clusters: clusters of one CTA."""
    if layout.cluster is None:
        return
    one = struct.unpack("<I", struct.pack("<f", 1.0))[0]
    for offset in layout.cluster.dims:
        put(offset, 1)
    for offset in layout.cluster.reciprocals:
        put(offset, one)
    for offset, n in zip(layout.cluster.grid, launch.grid):
        put(offset, n)
    put(layout.cluster.ctas, 1)


# ------------------------------------------------------------------ special registers

_CTA_REGISTERS = ("SR_CTAID.X", "SR_CTAID.Y", "SR_CTAID.Z")
SPECIAL_NAMES = frozenset(
    (
        *_CTA_REGISTERS, "SR_LANEID", "SR_TID.X", "SR_TID.Y", "SR_TID.Z", "SR_TID", "SR_NTID", "SR_EQMASK", "SR_LTMASK",
        "SR_LEMASK", "SR_GTMASK", "SR_GEMASK", "SR_VIRTID", "SR_VIRTCFG", "SR_VIRTUALSMID", "SR_SWINHI", "SR_LWINHI",
        "SR_SWINLO", "SR_LWINLO", "SR_SMEMSZ", "SR_CgaCtaId", "SR_GpcLocalCgaId", "SR_CgaSize",
    )
)  # fmt: skip
CLOCK_NAMES = frozenset({"SR_CLOCK", "SR_CLOCKLO", "SR_CLOCKHI", "SR_GLOBALTIMERLO", "SR_GLOBALTIMERHI"})


def special_values(name: str, program: Program, launch: Launch) -> np.ndarray:
    """uint32[warps, 32] of a special register that does not depend on the CTA. Raises LaunchError for unknown names."""
    warps = launch.warps
    lane = np.tile(np.arange(WARP, dtype=np.uint32), (warps, 1))
    thread = lane + WARP * np.arange(warps, dtype=np.uint32)[:, None]
    x, y, _ = launch.block
    tid_x, tid_y, tid_z = thread % x, thread // x % y, thread // (x * y)
    one = np.uint32(1)
    below = (one << lane) - one
    constants = {
        "SR_NTID": launch.threads,
        "SR_VIRTCFG": launch.warps << 8,
        "SR_VIRTUALSMID": 0,
        "SR_SWINHI": SHARED_WINDOW >> 32,
        "SR_SWINLO": SHARED_WINDOW & 0xFFFFFFFF,
        "SR_LWINHI": LOCAL_WINDOW >> 32,
        "SR_LWINLO": LOCAL_WINDOW & 0xFFFFFFFF,
        "SR_SMEMSZ": shared_bytes(program, launch),
        "SR_CgaCtaId": 0,
        "SR_GpcLocalCgaId": 0,
        "SR_CgaSize": 0,
    }
    if name in constants:
        return np.full((warps, WARP), constants[name], np.uint32)
    varying = {
        "SR_LANEID": lambda: lane,
        "SR_TID.X": lambda: tid_x,
        "SR_TID.Y": lambda: tid_y,
        "SR_TID.Z": lambda: tid_z,
        "SR_TID": lambda: tid_x | tid_y << 16 | tid_z << 26,  # packed as the hardware does
        "SR_EQMASK": lambda: one << lane,
        "SR_LTMASK": lambda: below,
        "SR_LEMASK": lambda: below | one << lane,
        "SR_GTMASK": lambda: ~(below | one << lane),
        "SR_GEMASK": lambda: ~below,
        "SR_VIRTID": lambda: np.broadcast_to(np.arange(warps, dtype=np.uint32)[:, None], (warps, WARP)),
    }
    if name not in varying:
        raise LaunchError(f"special register {name} is not modelled")
    return varying[name]().astype(np.uint32)


def cta_registers(index: Dim3) -> dict[str, int]:
    """Special registers that differ by CTA."""
    return dict(zip(_CTA_REGISTERS, index))
