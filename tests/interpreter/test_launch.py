"""Launches: argument packing, limits, constant banks and special registers."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from assembly import kernel

from interpreter.errors import LaunchError
from interpreter.launch import Launch, check_launch, constant_banks, pack_arguments, shared_bytes, special_values

PROGRAM = kernel("EXIT", parameters=(8, 4, 4, 2, 1))


def test_arguments_take_the_parameters_sizes() -> None:
    packed = pack_arguments(PROGRAM, [0x7_0000_0000, -1, 1.5, 0.5, True])
    assert packed == [struct.pack("<Q", 0x7_0000_0000), b"\xff" * 4, struct.pack("<f", 1.5), b"\x00\x38", b"\x01"]


def test_numpy_scalars_and_bytes_keep_their_bits() -> None:
    packed = pack_arguments(PROGRAM, [np.uint64(3), np.float32(2.5), np.int32(-2), np.float16(1), b"\x07"])
    assert packed[1] == struct.pack("<f", 2.5) and packed[4] == b"\x07"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2, 3], "takes 5 arguments, 3 were given"),
        ([1 << 64, 0, 0, 0, 0], "argument 0: 18446744073709551616 does not fit 8 bytes"),
        ([0, 1 << 32, 0, 0, 0], "argument 1: 4294967296 does not fit 4 bytes"),
        ([0, np.float64(1), 0, 0, 0], "argument 1: 8 bytes given, the parameter has 4"),
        ([0, 1e40, 0, 0, 0], "argument 1: 1e\\+40 is out of range for 4 bytes"),
        ([0, 0, 0, 0, 1.0], "argument 4: a float does not fit a parameter of 1 bytes"),
        ([0, "x", 0, 0, 0], "argument 1: a str cannot be passed"),
    ],
)
def test_bad_arguments(values, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        pack_arguments(PROGRAM, values)


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((0, 1, 1), (32, 1, 1), "grid.x = 0: it must be from 1 to 2147483647"),
        ((1, 70000, 1), (32, 1, 1), "grid.y = 70000"),
        ((1, 1, 1), (1, 1, 65), "block.z = 65: it must be from 1 to 64"),
        ((1, 1, 1), (64, 32, 1), "2048 threads a block: the most is 1024"),
    ],
)
def test_sizes_no_gpu_accepts(grid, block, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        check_launch(kernel("EXIT", parameters=()), Launch(grid, block))


def test_launch_bounds_are_kept() -> None:
    program = kernel("EXIT", parameters=())
    program.max_threads = (128, 1, 1)
    check_launch(program, Launch((1, 1, 1), (128, 1, 1)))
    with pytest.raises(LaunchError, match="compiled for 128 threads, 256 were asked for"):
        check_launch(program, Launch((1, 1, 1), (256, 1, 1)))


@pytest.mark.parametrize(
    ("sm", "block_at", "grid_at", "stack_at", "base"),
    [(80, 0x0, 0xC, 0x28, 0x160), (90, 0x0, 0xC, 0x28, 0x210), (100, 0x360, 0x370, 0x37C, 0x380)],
)
def test_constant_bank(sm: int, block_at: int, grid_at: int, stack_at: int, base: int) -> None:
    program = kernel("EXIT", parameters=(8, 4), sm=sm, stack=40)
    launch = Launch((5, 6, 7), (8, 4, 2), 0, pack_arguments(program, [0x1122334455, 9]))
    bank = constant_banks(program, launch)[0]
    assert struct.unpack_from("<3I", bank, block_at) == (8, 4, 2)
    assert struct.unpack_from("<3I", bank, grid_at) == (5, 6, 7)
    assert struct.unpack_from("<I", bank, stack_at)[0] == 48  # rounded up to 16
    assert struct.unpack_from("<QI", bank, base) == (0x1122334455, 9)


def test_shared_memory_starts_behind_the_reserved_part() -> None:
    launch = Launch((1, 1, 1), (32, 1, 1), 256)
    assert shared_bytes(kernel("EXIT", parameters=(), sm=80, shared=100), launch) == 356
    assert shared_bytes(kernel("EXIT", parameters=(), sm=90, shared=100), launch) == 1024 + 356


def test_thread_numbers() -> None:
    program = kernel("EXIT", parameters=())
    launch = Launch((1, 1, 1), (6, 5, 3))
    x, y, z = (special_values(f"SR_TID.{axis}", program, launch).ravel()[:90] for axis in "XYZ")
    thread = np.arange(90)
    assert (x == thread % 6).all() and (y == thread // 6 % 5).all() and (z == thread // 30).all()
    masks = [int(special_values(f"SR_{name}MASK", program, launch)[0, 4]) for name in ("EQ", "LT", "LE", "GT", "GE")]
    assert masks == [0x10, 0xF, 0x1F, 0xFFFFFFE0, 0xFFFFFFF0]


def test_cta_numbers() -> None:
    launch = Launch((3, 4, 5), (1, 1, 1))
    assert launch.ctas == 60 and launch.warps == 1
    assert [launch.cta_index(n) for n in (0, 2, 3, 59)] == [(0, 0, 0), (2, 0, 0), (0, 1, 0), (2, 3, 4)]
