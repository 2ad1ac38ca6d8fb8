"""Device memory: fills, lazy mapping, addresses; checked accesses of kernels."""

from __future__ import annotations

import numpy as np
import pytest
from assembly import BACKENDS, PROLOGUE, Run, kernel

from interpreter.errors import FarmError, MemoryFault
from interpreter.memory import PAGE, TILE_ELEMENTS, Fill, Memory, fill_values


def test_addresses_are_the_same_in_every_run() -> None:
    sizes = [4, 100_000, 5 << 20, 1]
    runs = [[Memory().allocate(f"b{k}", n) for k, n in enumerate(sizes)] for _ in range(2)]
    assert runs[0] == runs[1]
    assert all(address % PAGE == 0 for address in runs[0])


def test_big_buffers_cost_nothing_until_touched() -> None:
    """1 GiB of random numbers maps a tile over and over; the resident set grows by the tile, not by the buffer."""
    before = _resident_bytes()
    with Memory() as memory:
        address = memory.allocate("x", 1 << 30, Fill("normal", "float32"))
        assert _resident_bytes() - before < 64 << 20
        view = memory.view(address, np.float32, 1 << 28)
        period = (TILE_ELEMENTS * 4 - PAGE) // 4
        assert (view[: 1 << 10] == view[period : period + (1 << 10)]).all()
        assert (view[-100:] == view[(len(view) - 100) % period :][:100]).all()
        view[5] = 7.0  # private: the other copies of the tile do not change
        assert view[5 + period] != 7.0


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_normal_fill(dtype: str) -> None:
    values = fill_values(Fill("normal", dtype), 20_000, "a").astype(np.float64)
    if dtype == "bfloat16":
        values = (fill_values(Fill("normal", dtype), 20_000, "a").astype(np.uint32) << 16).view(np.float32)
    assert abs(values.mean()) < 0.05 and abs(values.std() - 1) < 0.05


def test_fills_depend_on_the_name_and_the_seed() -> None:
    a, b = (fill_values(Fill("uniform"), 100, name) for name in "ab")
    assert (a != b).any() and (a == fill_values(Fill("uniform"), 100, "a")).all()
    assert (a != fill_values(Fill("uniform"), 100, "a", seed=1)).any()
    assert a.min() >= 0 and a.max() < 1


def test_a_short_buffer_is_the_start_of_a_long_one() -> None:
    with Memory() as memory:
        long, short = (memory.allocate("x", n, Fill("normal")) for n in (32 << 20, 4096))
        assert (memory.view(long, np.float32, 1024) == memory.view(short, np.float32, 1024)).all()


def test_other_fills() -> None:
    assert fill_values(Fill("ones", "int32"), 3, "a").tolist() == [1, 1, 1]
    assert fill_values(Fill("arange", "float32"), 4, "a").tolist() == [0, 1, 2, 3]
    integers = fill_values(Fill("integers", "int32", low=-3, high=4), 5000, "a")
    assert integers.min() == -3 and integers.max() == 3
    offsets = fill_values(Fill("csr_offsets", "int32", entries=7), 1001, "a")
    assert offsets[0] == 0 and offsets[-1] == 7000 and (np.diff(offsets) >= 0).all()
    with Memory() as memory:  # arange does not repeat
        address = memory.allocate("x", 16 << 20, Fill("arange", "uint32"))
        assert int(memory.view(address, np.uint32, 4 << 20)[-1]) == (4 << 20) - 1


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (Fill("normal", "int32"), "buffer x: fill normal needs a floating type, not int32"),
        (Fill("integers", "int32", 4, 4), "buffer x: integers from 4 to 4"),
        (Fill("random", "float32"), "buffer x: fill random is unknown; known: zeros"),
        (Fill("ones", "float64"), "buffer x: 12 bytes are no whole number of float64"),
    ],
)
def test_bad_fills(fill: Fill, message: str) -> None:
    with Memory() as memory, pytest.raises(FarmError, match=message):
        memory.allocate("x", 12, fill)


def test_views_stay_inside_an_allocation() -> None:
    with Memory() as memory:
        address = memory.allocate("x", 64)
        with pytest.raises(FarmError, match="not inside one allocation"):
            memory.view(address, np.uint32, 17)


# ------------------------------------------------------------------ accesses of kernels


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("0x1000", "4096 bytes past|bytes past the end of out \\(128 bytes at 0x700000000\\)"),
        ("0x80", "0 bytes past the end of out"),
        ("-0x10", "16 bytes before out"),
        ("0x2", "not aligned to 4 bytes, inside out"),
    ],
)
def test_global_fault(backend: str, address: str, why: str) -> None:
    program = kernel(f"LDC.64 R2, c[0x0][0x210]\nS2R R0, SR_TID.X\nLDG.E R4, desc[UR4][R2.64+{address}]\nEXIT")
    run = Run(program, backend=backend, words=32)
    with pytest.raises(MemoryFault, match=why) as error:
        run.machine.run()
    fault = error.value
    assert (fault.space, fault.pc, fault.lane, fault.warp, fault.cta) == ("global", 0x20, 0, 0, 0)
    assert fault.address == run.address + int(address, 16)
    assert "LDG.E R4" in str(fault) and "global access of 4 bytes" in str(fault)


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_executing_lanes_are_checked(backend: str) -> None:
    """Lane 20 alone runs out of bounds: named when it executes, silent when its guard is false."""
    text = (
        PROLOGUE
        + """
        ISETP.EQ.AND P0, PT, R0, 0x14, PT
        @P0 IADD3 R2, R2, 0x10000, RZ
        {guard} LDG.E R4, desc[UR4][R2.64]
        EXIT
    """
    )
    Run(kernel(text.format(guard="@!P0")), backend=backend, words=64).machine.run()
    with pytest.raises(MemoryFault) as error:
        Run(kernel(text.format(guard="")), backend=backend, words=64).machine.run()
    assert error.value.lane == 20


@pytest.mark.parametrize("backend", BACKENDS)
def test_lanes_over_two_allocations(backend: str) -> None:
    """Lanes of one load may touch different allocations; each is checked against its own."""
    program = kernel(
        """
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x210]
        LDC.64 R4, c[0x0][0x218]
        LOP3.LUT R6, R0, 0x1, RZ, 0xc0, !PT
        ISETP.EQ.AND P0, PT, R6, RZ, PT
        SEL R8, R2, R4, P0
        SEL R9, R3, R5, P0
        IMAD.WIDE.U32 R8, R0, 0x4, R8
        LDG.E R7, desc[UR4][R8.64]
        IMAD.WIDE.U32 R2, R0, 0x4, R2
        STG.E desc[UR4][R2.64+0x100], R7
        EXIT
    """,
        parameters=(8, 8),
    )
    from interpreter.launch import Launch, pack_arguments
    from interpreter.machine import Machine

    with Memory() as memory:
        a = memory.allocate("a", 1024, Fill("arange", "uint32"))
        b = memory.allocate("b", 1024, Fill("ones", "uint32"))
        Machine(program, memory, Launch((1, 1, 1), (32, 1, 1), 0, pack_arguments(program, [a, b])), backend).run()
        got = memory.view(a, np.uint32, 256)[64:96].tolist()
    assert got == [lane if lane % 2 == 0 else 1 for lane in range(32)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("line", "space", "why"),
    [
        ("STS [R0+0x500], R0", "shared", "shared memory has 1280 bytes"),
        ("LDS.64 R4, [R0+0x404]", "shared", "not aligned to 8 bytes"),
        ("LDL R4, [R0+0x20]", "local", "local memory has 32 bytes"),
        ("STL.128 [R0+0x8], R4", "local", "not aligned to 16 bytes"),
        ("LDC R4, c[0x0][R0+0x4000]", "constant", "constant memory has"),
    ],
)
def test_faults_of_other_spaces(backend: str, line: str, space: str, why: str) -> None:
    program = kernel(f"MOV R0, RZ\n{line}\nEXIT", shared=256, stack=32)
    with pytest.raises(MemoryFault, match=why) as error:
        Run(program, backend=backend).machine.run()
    assert error.value.space == space and error.value.pc == 0x10


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stride", [4, 0, 12])
@pytest.mark.parametrize("width", ["U8", "S8", "U16", "S16", "", "64", "128"])
def test_every_width_through_global_shared_and_local(backend: str, width: str, stride: int) -> None:
    """Bytes go from global through shared and local memory back to global, whatever the lanes' stride."""
    size = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "": 4, "64": 8, "128": 16}[width]
    words = max(1, size // 4)
    step = stride // 4 * size
    store = {"S8": "U8", "S16": "U16"}.get(width, width)
    program = kernel(
        f"""
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x210]
        IMAD R1, R0, {step:#x}, RZ
        IADD3 R12, P0, R2, R1, RZ
        IADD3.X R13, RZ, R3, RZ, P0, !PT
        LDG.E{"." + width if width else ""} R4, desc[UR4][R12.64]
        STS{"." + store if store else ""} [R1+0x400], R4
        LDS{"." + width if width else ""} R4, [R1+0x400]
        STL{"." + store if store else ""} [R1], R4
        LDL{"." + width if width else ""} R4, [R1]
        IMAD.WIDE.U32 R2, R0, {4 * words:#x}, R2
        STG.E{"." + width if words > 1 else ""} desc[UR4][R2.64+0x1000], R4
        EXIT
    """,
        shared=2048,
        stack=2048,
    )
    data = np.random.default_rng(1).integers(0, 256, 4096, dtype=np.uint8)
    run = Run(program, backend=backend, words=4096, initial=data.view(np.uint32))
    run.machine.run()
    got = run.out[1024 : 1024 + 32 * words].view(np.uint32)
    dtype = {"U8": "u1", "S8": "i1", "U16": "u2", "S16": "i2"}.get(width)
    lanes = [data[lane * step : lane * step + size] for lane in range(32)]
    if dtype:
        expected = np.array([piece.view(dtype)[0] for piece in lanes]).astype(np.int32).view(np.uint32)
    else:
        expected = np.concatenate(lanes).view(np.uint32)
    assert got.tolist() == expected.tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_wide_256_bit_access(backend: str) -> None:
    """The 256-bit load names its upper quad first, the store its lower quad (sm_100 and later)."""
    program = kernel(
        """
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x380]
        IMAD.WIDE.U32 R2, R0, 0x20, R2
        LDG.E.ENL2.256 R8, R4, desc[UR4][R2.64]
        STG.E.ENL2.256 desc[UR4][R2.64+0x400], R8, R4
        EXIT
    """,
        sm=100,
    )
    data = np.arange(256, dtype=np.uint32)
    run = Run(program, backend=backend, initial=data)
    run.machine.run()
    assert run.out[256:512].tolist() == data.reshape(32, 2, 4)[:, ::-1].ravel().tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_generic_addresses(backend: str) -> None:
    """LD and ST reach global, shared and local memory by address, lanes mixed."""
    program = kernel(
        """
        S2R R0, SR_TID.X
        S2R R5, SR_SWINHI
        LDC.64 R2, c[0x0][0x210]
        LDC.64 R6, c[0x0][0x20]
        IMAD.WIDE.U32 R2, R0, 0x4, R2
        IMAD.SHL.U32 R4, R0, 0x4, RZ
        IADD3 R4, R4, 0x400, RZ
        STS [R4], R0
        MOV R9, 0x7
        STL [RZ], R9
        LOP3.LUT R8, R0, 0x3, RZ, 0xc0, !PT
        ISETP.EQ.AND P0, PT, R8, 0x1, PT
        ISETP.EQ.AND P1, PT, R8, 0x2, PT
        MOV R10, R2
        MOV R11, R3
        @P0 MOV R10, R4
        @P0 MOV R11, R5
        @P1 MOV R10, R6
        @P1 MOV R11, R7
        LD.E R12, desc[UR4][R10.64]
        STG.E desc[UR4][R2.64+0x100], R12
        EXIT
    """,
        shared=256,
        stack=16,
    )
    run = Run(program, backend=backend, initial=np.arange(100, 132, dtype=np.uint32))
    run.machine.run()
    expected = [[100 + lane, lane, 7, 100 + lane][lane % 4] for lane in range(32)]
    assert run.out[64:96].tolist() == expected


ATOMICS = [
    ("ADD", 5, lambda old, x: (old + x) % 2**32),
    ("MIN", 5, min),
    ("MAX", 5, max),
    ("MIN.S32", 0xFFFFFFFF, lambda old, x: min(old, x, key=lambda n: n - 2**32 * (n >> 31))),
    ("AND", 6, lambda old, x: old & x),
    ("OR", 6, lambda old, x: old | x),
    ("XOR", 6, lambda old, x: old ^ x),
    ("EXCH", 9, lambda old, x: x),
    ("INC", 3, lambda old, x: 0 if old >= x else old + 1),
    ("DEC", 3, lambda old, x: x if old == 0 or old > x else old - 1),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("operation", "operand", "meaning"), ATOMICS, ids=[a[0] for a in ATOMICS])
def test_atomics_in_lane_order(backend: str, operation: str, operand: int, meaning) -> None:
    """All lanes of a pair hit one word, in ascending order, in global and in shared memory; old values come back."""
    program = kernel(
        f"""
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x210]
        LOP3.LUT R1, R0, 0x3, RZ, 0xc0, !PT
        IMAD.WIDE.U32 R4, R1, 0x4, R2
        IMAD.WIDE.U32 R2, R0, 0x4, R2
        MOV R6, {operand:#x}
        IMAD.SHL.U32 R1, R1, 0x4, RZ
        LDG.E R7, desc[UR4][R4.64]
        STS [R1+0x400], R7
        ATOMG.E.{operation}.STRONG.GPU PT, R8, desc[UR4][R4.64], R6
        ATOMS.{operation} R9, [R1+0x400], R6
        LDS R10, [R1+0x400]
        STG.E desc[UR4][R2.64+0x100], R8
        STG.E desc[UR4][R2.64+0x200], R9
        STG.E desc[UR4][R2.64+0x300], R10
        EXIT
    """,
        shared=64,
    )
    run = Run(program, backend=backend, initial=np.array([0, 3, 7, 0x80000001], np.uint32))
    run.machine.run()
    memory, old = [0, 3, 7, 0x80000001], []
    for lane in range(32):
        old.append(memory[lane % 4])
        memory[lane % 4] = meaning(memory[lane % 4], operand)
    assert run.out[64:96].tolist() == old and run.out[128:160].tolist() == old
    assert run.out[:4].tolist() == memory and run.out[192:224].tolist() == memory * 8


@pytest.mark.parametrize("backend", BACKENDS)
def test_compare_and_swap(backend: str) -> None:
    """CAS gives the old value; the shared CAST gives 1 to the one lane that stored."""
    program = kernel(
        PROLOGUE
        + """
        LDC.64 R4, c[0x0][0x210]
        IADD3 R7, R0, 0x1, RZ
        ATOMG.E.CAS.STRONG.GPU PT, R8, [R4+0x40], RZ, R7
        STS [0x400], RZ
        ATOMS.CAST.SPIN R9, [0x400], RZ, R7
        STG.E desc[UR4][R2.64+0x100], R8
        STG.E desc[UR4][R2.64+0x200], R9
        EXIT
    """,
        shared=64,
    )
    run = Run(program, backend=backend)
    run.machine.run()
    assert run.out[64:96].tolist() == [0] + [1] * 31
    assert run.out[128:160].tolist() == [1] + [0] * 31
    assert run.out[16] == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_float_atomics(backend: str) -> None:
    """F32 sums round lane after lane; .FTZ loses denormals; two halves add apart; F64 is exact here."""
    program = kernel(
        """
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x210]
        I2FP.F32.U32 R4, R0
        MOV R5, 0x1
        MOV R6, 0x3c004000
        MOV R8, RZ
        MOV R9, 0x3ff00000
        REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R4
        REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64+0x4], R5
        REDG.E.ADD.F16x2.RN.STRONG.GPU desc[UR4][R2.64+0x8], R6
        REDG.E.ADD.F64.RN.STRONG.GPU desc[UR4][R2.64+0x10], R8
        EXIT
    """
    )
    run = Run(program, backend=backend)
    run.machine.run()
    assert run.out[:1].view(np.float32)[0] == 31 * 16
    assert run.out[1] == 0
    assert run.out[2:3].view(np.float16).tolist() == [64.0, 32.0]
    assert run.out[4:6].view(np.float64)[0] == 32.0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrix_loads_and_stores(backend: str, transposed: bool, count: int) -> None:
    """LDSM hands out 8x8 matrices as PTX's ldmatrix says; STSM puts them back."""
    kind = "MT88" if transposed else "M88"
    suffix = "" if count == 1 else f".{count}"
    stores = "\n".join(f"STG.E desc[UR4][R2.64+{0x800 + 128 * k:#x}], R{8 + k}" for k in range(count))
    program = kernel(
        f"""
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x210]
        IMAD.WIDE.U32 R4, R0, 0x10, R2
        LDG.E.128 R8, desc[UR4][R4.64]
        IMAD R1, R0, 0x10, RZ
        STS.128 [R1+0x400], R8
        LDSM.16.{kind}{suffix} R8, [R1+0x400]
        STSM.16.{kind}{suffix} [R1+0x600], R8
        IMAD.WIDE.U32 R2, R0, 0x4, R2
        {stores}
        LDS R12, [R1+0x600]
        STG.E desc[UR4][R2.64+0xc00], R12
        EXIT
    """,
        shared=1024,
    )
    data = np.arange(512, dtype=np.uint16)  # 8x8 matrices, one behind the other
    run = Run(program, backend=backend, initial=data.view(np.uint32))
    run.machine.run()
    for m in range(count):
        matrix = data[64 * m : 64 * m + 64].reshape(8, 8)
        got = run.out[512 + 32 * m : 544 + 32 * m].view(np.uint16).reshape(32, 2)
        for lane in range(32):
            row, column = lane // 4, 2 * (lane % 4)
            pair = matrix[[column, column + 1], row] if transposed else matrix[row, [column, column + 1]]
            assert got[lane].tolist() == pair.tolist()
    stored = run.out[768 : 768 + 8 * count].view(np.uint16).reshape(-1, 2)
    assert stored.tolist() == data[: 64 * count].reshape(-1, 8)[:, :2].tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_asynchronous_copies_fill_with_zeros(backend: str) -> None:
    """A false predicate stores zeros; .ZFILL keeps only as many bytes as the address's low bits leave."""
    program = kernel(
        """
        S2R R0, SR_TID.X
        LDC.64 R2, c[0x0][0x210]
        IMAD.WIDE.U32 R4, R0, 0x10, R2
        IMAD R1, R0, 0x10, RZ
        LOP3.LUT R6, R0, 0x1, RZ, 0xc0, !PT
        ISETP.NE.AND P0, PT, R6, RZ, PT
        LDGSTS.E.BYPASS.128 [R1+0x400], desc[UR4][R4.64], P0
        LOP3.LUT R6, R0, 0xf, RZ, 0xc0, !PT
        IADD3 R4, R4, R6, RZ
        LDGSTS.E.BYPASS.128.ZFILL [R1+0x600], desc[UR4][R4.64]
        LDGDEPBAR
        DEPBAR.LE SB0, 0x0
        LDS.128 R8, [R1+0x400]
        LDS.128 R12, [R1+0x600]
        IMAD.WIDE.U32 R2, R0, 0x10, R2
        STG.E.128 desc[UR4][R2.64+0x400], R8
        STG.E.128 desc[UR4][R2.64+0x800], R12
        EXIT
    """,
        shared=1024,
    )
    data = np.random.default_rng(2).integers(1, 256, 512, dtype=np.uint8)
    run = Run(program, backend=backend, initial=data.view(np.uint32))
    run.machine.run()
    rows = data.reshape(32, 16)
    guarded = run.out[256:384].view(np.uint8).reshape(32, 16)
    cut = run.out[512:640].view(np.uint8).reshape(32, 16)
    for lane in range(32):
        assert guarded[lane].tolist() == (rows[lane].tolist() if lane % 2 else [0] * 16)
        keep = 16 - lane % 16
        assert cut[lane].tolist() == rows[lane, :keep].tolist() + [0] * (16 - keep)
