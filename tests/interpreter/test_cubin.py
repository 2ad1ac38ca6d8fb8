"""Reading cubins: what they hold, and every way they can be damaged."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from interpreter.cubin import Function, parse_cubin
from interpreter.errors import CubinError
from interpreter.program import AddressSlot, Parameter

CUBINS = Path(__file__).parents[1] / "data" / "cubins"


def image(name: str) -> bytes:
    return (CUBINS / f"{name}.cubin").read_bytes()


@pytest.mark.parametrize(
    ("name", "sm", "arch"),
    [
        ("features.sm_80", 80, "sm_80"),
        ("features.sm_90a", 90, "sm_90a"),
        ("features.sm_100a", 100, "sm_100a"),
        ("features.sm_120a", 120, "sm_120a"),
        ("elementwise_triton.sm_90a", 90, "sm_90a"),  # ptxas 12.8: the older header layout
    ],
)
def test_architecture(name: str, sm: int, arch: str) -> None:
    cubin = parse_cubin(image(name))
    assert (cubin.sm, cubin.arch) == (sm, arch)


BASES = [("sm_80", 0x160), ("sm_90a", 0x210), ("sm_100a", 0x380), ("sm_120a", 0x380)]


@pytest.mark.parametrize(("arch", "base"), BASES)
def test_a_kernel_with_everything(arch: str, base: int) -> None:
    cubin = parse_cubin(image(f"features.{arch}"))
    assert set(cubin.kernels) == {"jump_table", "calls", "no_parameters", "immediates"}
    kernel = cubin.kernel("jump_table")
    # float *p, int n, char c, double d
    assert kernel.parameters == [Parameter(0, 0, 8), Parameter(1, 8, 4), Parameter(2, 12, 1), Parameter(3, 16, 8)]
    assert (kernel.parameter_base, kernel.parameter_bytes) == (base, 24)
    assert len(kernel.constants[0]) == base + 24
    assert kernel.static_shared == 400  # float tile[100]
    assert kernel.max_threads == (128, 1, 1)
    assert kernel.required_threads is None
    assert kernel.barriers == 1
    assert kernel.stack > 0
    assert kernel.externals == ["vprintf"]
    assert kernel.functions[0] == Function("jump_table", 0, kernel.functions[0].size)
    assert struct.unpack_from("<2f", kernel.constants[3]) == (1.0, 2.0)
    assert {v.name: v.size for v in cubin.constant_variables} == {"coefficients": 64}
    # the jump tables in bank 2 hold the same offsets as INDIRECT_BRANCH_TARGETS lists
    table = set(struct.unpack(f"<{len(kernel.constants[2]) // 4}I", kernel.constants[2]))
    assert kernel.indirect_targets
    assert all(set(targets) <= table for targets in kernel.indirect_targets.values())


def test_a_kernel_without_parameters() -> None:
    kernel = parse_cubin(image("features.sm_90a")).kernel("no_parameters")
    assert (kernel.parameters, kernel.parameter_base, kernel.parameter_bytes) == ([], 0x210, 0)
    assert (kernel.static_shared, kernel.stack, kernel.barriers, kernel.max_threads) == (0, 0, 0, None)


def test_device_variables_and_their_address_slots() -> None:
    cubin = parse_cubin(image("features.sm_90a"))
    variables = {variable.name: variable for variable in cubin.variables}
    assert variables["counter"].initial == (3).to_bytes(4, "little")
    assert (variables["scratch"].size, variables["scratch"].initial) == (32, b"")
    assert variables["$str"].initial == b"high %f\0"
    assert {slot.symbol for slot in cubin.address_slots} >= {"counter", "scratch", "$str", "vprintf"}
    assert cubin.address_slots == sorted(cubin.address_slots, key=lambda slot: slot.offset)
    assert all(isinstance(slot, AddressSlot) and slot.offset % 8 == 0 for slot in cubin.address_slots)


def test_the_reserved_kilobyte_is_not_static_shared_memory() -> None:
    kernel = parse_cubin(image("hgemm_mma.sm_90a")).kernel()
    assert kernel.static_shared == 0  # .nv.shared.hgemm_mma says 1024; the kernel uses dynamic shared memory only
    assert kernel.registers == 126  # what the driver reported on an H200


def test_the_only_kernel_needs_no_name_but_several_do() -> None:
    assert parse_cubin(image("hgemm_mma.sm_90a")).kernel().name == "hgemm_mma"
    cubin = parse_cubin(image("features.sm_90a"))
    with pytest.raises(CubinError, match=r"4 kernels.*calls.*jump_table"):
        cubin.kernel()
    with pytest.raises(CubinError, match=r"no kernel 'sgemm'; its kernels: .*calls"):
        cubin.kernel("sgemm")


def test_what_is_not_a_cubin() -> None:
    for data, what in [
        (b"", "empty file"),
        (b"#include <cuda.h>", "starts with 23 69 6e 63"),
        (b"\x7fELF", "damaged cubin"),
        (Path("/proc/self/exe").read_bytes()[:4096], "ELF machine is EM_"),
    ]:
        with pytest.raises(CubinError, match=what):
            parse_cubin(data)


def patched(data: bytes, at: int, form: str, value: int) -> bytes:
    copy = bytearray(data)
    struct.pack_into(form, copy, at, value)
    return bytes(copy)


def test_relocatable_and_foreign_files_say_what_they_are() -> None:
    data = image("features.sm_80")
    with pytest.raises(CubinError, match=r"relocatable sm_80 object.*link"):
        parse_cubin(patched(data, 16, "<H", 1))
    with pytest.raises(CubinError, match=r"ELF machine is .*expected 190"):
        parse_cubin(patched(data, 18, "<H", 62))
    with pytest.raises(CubinError, match=r"sm_30.*expected sm_75 or later"):
        parse_cubin(patched(data, 48, "<I", 30 << 8))


def test_every_truncation_is_an_error() -> None:
    data = image("elementwise_triton.sm_90a")
    for length in range(0, len(data), 3):
        # the section table lies at the end: without its last byte nothing is left to trust
        with pytest.raises(CubinError):
            parse_cubin(data[:length])


@pytest.mark.parametrize(("name", "cases"), [("elementwise_triton.sm_90a", 1500), ("features.sm_80", 1000)])
def test_flipped_bytes_give_a_cubin_or_a_clear_error(name: str, cases: int) -> None:
    data = image(name)
    generator = random.Random(7)
    refused = 0
    for _ in range(cases):
        copy = bytearray(data)
        for _ in range(generator.choice((1, 1, 3))):
            copy[generator.randrange(len(copy))] ^= generator.choice((0xFF, 0x01, 0x80))
        try:
            parse_cubin(bytes(copy))
        except CubinError as error:
            refused += 1
            assert str(error)
    assert 0 < refused < cases
