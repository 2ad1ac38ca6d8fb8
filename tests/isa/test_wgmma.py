"""Warpgroup matrix instructions against results recorded on an H200."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import wgmma_inputs as inputs
from sass import BACKENDS, parse, program_of

from interpreter.launch import Launch
from interpreter.machine import Machine
from interpreter.memory import Memory

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "hardware" / "wgmma.json").read_text())
IMAGE = 4 * inputs.WORDS
ROW = 4 * inputs.THREADS


def kernel_lines(kernel: str, registers: int) -> list[str]:
    """Copies the image to shared memory, loads operands, runs the instruction and stores D.

    Memory: image, then rows of one word a thread: A's four registers, the descriptors' four words, the accumulate flag,
    C's registers, D's registers.
    """
    n, instruction, _, _, ta, tb, in_registers = inputs.KERNELS[kernel]
    lines = ["S2R R2, SR_TID.X", "IMAD.WIDE R4, R2, 0x10, c[0x0][0x160]", "IMAD.SHL.U32 R3, R2, 0x10, RZ"]
    for start in range(0, IMAGE, 16 * inputs.THREADS):
        lines += [f"LDG.E.128 R8, [R4.64+{start:#x}]", f"STS.128 [R3+{start:#x}], R8"]
    lines += ["BAR.SYNC.DEFER_BLOCKING 0x0", "IMAD.WIDE R4, R2, 0x4, c[0x0][0x160]"]
    at = IMAGE
    for k in range(4):
        lines.append(f"LDG.E R{8 + k}, [R4.64+{at:#x}]")
        at += ROW
    for k in range(4):
        lines += [f"LDG.E R6, [R4.64+{at:#x}]", f"R2UR UR{8 + k}, R6"]
        at += ROW
    lines += [f"LDG.E R6, [R4.64+{at:#x}]", "R2UR UR4, R6", "UISETP.NE.AND UP0, UPT, UR4, URZ, UPT"]
    at += ROW
    for k in range(registers):
        lines.append(f"LDG.E R{24 + k}, [R4.64+{at:#x}]")
        at += ROW
    transposed = (".tnspA" if ta else "") + (".tnspB" if tb else "")
    a = "R8, " if in_registers else ""
    lines += [
        "WARPGROUP.ARRIVE",
        f"{instruction.format(n)} R24, {a}gdesc[UR8]{transposed}, R24, UP0, gsb0",
        "WARPGROUP.DEPBAR.LE gsb0, 0x0",
    ]
    for k in range(registers):
        lines.append(f"STG.E [R4.64+{at:#x}], R{24 + k}")
        at += ROW
    return [*lines, "EXIT"]


# the NumPy back end is slow: one of each kind
SLOW = {"f16_n8_01", "f16_n64_11", "f16r_n64_1", "f16acc_n64_00", "tf32_n64", "s8_n64", "e4m3_n64"}
RUNS = [(kernel, backend) for kernel in inputs.KERNELS for backend in BACKENDS if backend == "llvm" or kernel in SLOW]


@pytest.mark.parametrize(("kernel", "backend"), RUNS)
def test_wgmma(kernel: str, backend: str) -> None:
    registers = len(next(inputs.cases(kernel, (0,))).c)
    program = program_of([parse(line) for line in kernel_lines(kernel, registers)])
    # all swizzles and offsets for the main type; both offsets and two swizzles for the others
    chosen = range(8) if kernel.startswith("f16_n64") else (0, 5)
    for case in inputs.cases(kernel, chosen if backend == "llvm" else (3,)):
        words = [w for d in case.descriptors for w in (d & 0xFFFFFFFF, d >> 32)] + [int(case.accumulate)]
        rows = np.concatenate(
            [case.a, np.repeat(np.array(words, np.uint32)[:, None], inputs.THREADS, 1), case.c, np.zeros_like(case.c)]
        )
        content = np.concatenate([case.image, rows.reshape(-1)])
        memory = Memory()
        address = memory.allocate("bench", content.nbytes)
        view = memory.view(address, np.dtype(np.uint32), content.shape)
        view[:] = content
        launch = Launch((1, 1, 1), (inputs.THREADS, 1, 1), IMAGE, [address.to_bytes(8, "little")])
        Machine(program, memory, launch, backend).run()
        found = view[-registers * inputs.THREADS :]
        assert zlib.crc32(found.tobytes()) == RECORDED[case.name], f"{case.name} differs from the GPU's result"
