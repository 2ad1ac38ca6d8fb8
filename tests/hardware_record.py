"""Records on a real GPU the results that tests compare the interpreter with.

    PYTHONPATH=. python tests/hardware_record.py --cases cases.json --cubins FOLDER --out FOLDER

`cases.json` lists launches of whole kernels (as outputs.json, without results); the folder holds one cubin a case
(caseN.cubin) and arithmeticN.cubin, one for each PART of arithmetic.cu. Inputs come from tests/hardware_inputs.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
from pathlib import Path

import hardware_inputs as inputs
import numpy as np

from timing.calibrate.driver import Buffer, Gpu, Kernel
from timing.calibrate.slots import text_section

PARTS = 6


def run_case(gpu: Gpu, cubin: bytes, case: dict) -> dict:
    """Launch one kernel on its made inputs; SHA-256 and first values of every output."""
    kernel = gpu.kernel(gpu.load(cubin), case["entry"])
    if case["shared"] > 48 * 1024:
        kernel.allow_shared(case["shared"])
    arguments: list[object] = []
    outputs: list[tuple[dict, Buffer]] = []
    for argument in case["arguments"]:
        dtype = argument["dtype"]
        if "value" in argument:
            arguments.append(np.dtype(dtype).type(argument["value"]))
            continue
        shape = tuple(argument["shape"])
        data = (
            np.zeros(shape, dtype)
            if argument.get("output")
            else inputs.fill(argument["name"], dtype, shape, argument["fill"])
        )
        buffer = gpu.buffer(max(16, data.nbytes))
        buffer.write(data)
        arguments.append(buffer)
        if argument.get("output"):
            outputs.append((argument, buffer))
    kernel.launch(case["grid"], case["block"], arguments, case["shared"])
    gpu.synchronize()
    results = {}
    for argument, buffer in outputs:
        data = buffer.read(argument["dtype"], int(np.prod(argument["shape"])))
        results[argument["name"]] = {
            "sha256": hashlib.sha256(data.tobytes()).hexdigest(),
            "first": [float(x) if data.dtype.kind == "f" else int(x) for x in data[:4]],
        }
    return {**case, "cubin_sha": hashlib.sha256(cubin).hexdigest(), "results": results}


class Operations:
    """Runs the one-operation kernels of arithmetic.cu."""

    def __init__(self, gpu: Gpu, cubins: list[bytes]) -> None:
        self.gpu, self.cubins = gpu, cubins
        self.buffers = [gpu.buffer(8 << 23) for _ in range(4)]

    def run(self, kernel: Kernel, words: list[np.ndarray]) -> np.ndarray:
        count = len(words[0])
        for buffer, data in zip(self.buffers[1:], words, strict=False):
            buffer.write(data.astype(np.uint64))
        self.buffers[0].fill(0xDEADBEEF)
        self.gpu.synchronize()
        kernel.launch(-(-count // 128), 128, [*self.buffers, np.uint32(count)])
        self.gpu.synchronize()
        return self.buffers[0].read(np.uint64, count)

    def names(self, part: int) -> list[str]:
        """Kernels of one part, from the names of its code sections."""
        cubin = self.cubins[part]
        table = struct.unpack_from("<Q", cubin, 0x28)[0]
        entry, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
        strings = struct.unpack_from("<Q", cubin, table + names * entry + 24)[0]
        found = []
        for i in range(count):
            begin = strings + struct.unpack_from("<I", cubin, table + i * entry)[0]
            name = cubin[begin : cubin.index(b"\0", begin)].decode()
            if name.startswith(".text."):
                found.append(name[6:])
        return sorted(found)

    def kernel(self, part: int, name: str) -> Kernel:
        return self.gpu.kernel(self.gpu.load(self.cubins[part]), name)

    def mufu(self, function: str) -> Kernel:
        return self.gpu.kernel(self.gpu.load(mufu_cubin(self.cubins[0], function)), "mufu")

    def matrix(self, name: str, registers: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
        count = registers[0].shape[0]
        for buffer, data in zip(self.buffers[1:], registers, strict=True):
            buffer.write(data)
        self.buffers[0].fill(0xDEADBEEF)
        self.gpu.synchronize()
        self.kernel(5, name).launch(-(-count // 4), 128, [*self.buffers, np.uint32(count)])
        self.gpu.synchronize()
        return self.buffers[0].read(registers[2].dtype, registers[2].size).reshape(registers[2].shape)


def mufu_cubin(cubin: bytes, function: str) -> bytes:
    """The cubin of arithmetic.cu's first part with the MUFU of kernel `mufu` turned into another function."""
    offset, size = text_section(cubin, "mufu")
    out = bytearray(cubin)
    for place in range(offset, offset + size, 16):
        low, high = struct.unpack_from("<QQ", out, place)
        if low & 0xFFF in (0x308, 0x108, 0x508):
            high = high & ~(0xF << 10) | inputs.MUFU_FUNCTIONS[function] << 10
            struct.pack_into("<QQ", out, place, low, high)
            return bytes(out)
    raise ValueError("kernel mufu has no MUFU instruction")


def packed(results: np.ndarray) -> np.ndarray:
    """uint32 when the high halves are all zero."""
    return results.astype(np.uint32) if not (results >> np.uint64(32)).any() else results


def steps(values: np.ndarray) -> np.ndarray:
    """First value, then differences, in the smallest signed type that holds them: small when compressed."""
    gaps = np.diff(values.astype(np.int64))
    for dtype in (np.int8, np.int16, np.int32):
        if np.abs(gaps).max() <= np.iinfo(dtype).max:
            return gaps.astype(dtype)
    return gaps


# function -> first words of the runs of 2**23 consecutive inputs to record in full
DUMPS = {
    "a": {"RCP": [0x3F800000], "RSQ": [0x3F800000, 0x40000000], "SQRT": [0x3F800000, 0x40000000]},
    "b": {
        "EX2": [0x3F800000, 0x3F000000, 0x3E800000, 0x3D800000, 0xBF800000, 0xBF000000],
        "LG2": [0x3F800000, 0x3F000000, 0x40000000],
    },
    "c": {"SIN": [0x3D800000, 0x3E000000, 0x3E800000, 0x3F000000, 0x3F800000]},
    "d": {"COS": [0x3D800000, 0x3E000000, 0x3E800000, 0x3F000000, 0x3F800000]},
    "e": {"TANH": [0x39800000 + k * 0x800000 for k in range(16)]},
}


def dump(operations: Operations, which: str, folder: Path) -> None:
    found = {}
    zeros = np.zeros(1, np.uint64)
    for function, starts in DUMPS[which].items():
        kernel = operations.mufu(function)
        for start in starts:
            words = start + np.arange(1 << 23, dtype=np.uint64)
            results = operations.run(kernel, [words, zeros, zeros])
            key = f"{function}_{start:08x}"
            found[key] = steps(results)
            found[key + "_first"] = results[:1].astype(np.uint32)
    np.savez_compressed(folder / f"full_{which}.npz", **found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--cubins", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--mma", type=int, default=4, help="MMAs a group and kernel")
    parser.add_argument("--learn", type=int, default=0, help="MMAs a group and kernel in a second, larger set")
    parser.add_argument("--dumps", default="", help="letters of the full MUFU dumps to make: " + "".join(DUMPS))
    options = parser.parse_args()
    gpu = Gpu()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.mma:
        recorded = []
        for index, case in enumerate(json.loads(options.cases.read_text())):
            recorded.append(run_case(gpu, (options.cubins / f"case{index}.cubin").read_bytes(), case))
        (options.out / "outputs.json").write_text(json.dumps({"gpu": gpu.name, "cases": recorded}))
        print(len(recorded), "kernels")
    operations = Operations(gpu, [(options.cubins / f"arithmetic{part}.cubin").read_bytes() for part in range(PARTS)])
    if options.mma:
        single = {}
        for part in range(PARTS - 1):
            for name in operations.names(part):
                single[name] = packed(operations.run(operations.kernel(part, name), inputs.operands(name)))
        np.savez_compressed(options.out / "arithmetic.npz", **single)
        print(len(single), "operations")
        functions = {}
        for function in inputs.MUFU_FUNCTIONS:
            words = inputs.mufu_inputs(function).astype(np.uint64)
            functions[function] = operations.run(operations.mufu(function), [words]).astype(np.uint32)
        np.savez_compressed(options.out / "mufu.npz", **functions)
    for label, count in (("mma", options.mma), ("mma_learn", options.learn)):
        if not count:
            continue
        matrices = {}
        for name in inputs.MMA:
            for group in inputs.MMA_GROUPS:
                registers = inputs.fragments(name, *inputs.mma_matrices(name, group, count))
                matrices[f"{name}.{group}"] = inputs.accumulator(name, operations.matrix(name, registers))
        matrices["mma_884_f64"] = operations.matrix("mma_884_f64", inputs.f64_mma(8 * count))
        np.savez_compressed(options.out / f"{label}.npz", **matrices)
        print(label, "done")
    if options.learn:
        every = np.arange(1 << 16, dtype=np.uint64)
        halves = {
            name: operations.run(operations.kernel(2, name), [every]).astype(np.uint32)
            for name in ("ex2_f16x2", "tanh_f16x2", "tanh_bf16x2")
        }
        for function, starts in (("RCP64H", [0x3FF00000]), ("RSQ64H", [0x3FF00000, 0x40000000])):
            for start in starts:
                words = start + np.arange(1 << 20, dtype=np.uint64)
                halves[f"{function}_{start:08x}"] = operations.run(operations.mufu(function), [words]).astype(np.uint32)
        np.savez_compressed(options.out / "halves.npz", **halves)
    for which in options.dumps:
        dump(operations, which, options.out)
        print("dump", which)


if __name__ == "__main__":
    main()
