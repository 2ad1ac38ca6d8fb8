"""How fast the interpreter starts and runs: cold and warm start of one kernel, warp instructions a second in each mode.

    python benchmarks/interpreter.py
    python benchmarks/interpreter.py --cubin k.cubin --entry f --grid 32,32 --block 256 --arguments 4096f,4096f,1024

Without --cubin: the 16x16-tile sgemm of tests/data, n = 1024. An argument ending in f is a buffer of so many bytes of
normal float32, in z one of zeros; others are integers. One process, one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def numbers(text: str) -> tuple[int, int, int]:
    parts = [int(n) for n in text.split(",")]
    return tuple((parts + [1, 1, 1])[:3])  # type: ignore[return-value]


def machine(options: argparse.Namespace):  # type: ignore[no-untyped-def]
    """(machine, seconds to decode, seconds to make the machine)."""
    started = time.perf_counter()
    from interpreter.decode import load_program
    from interpreter.launch import Launch, pack_arguments
    from interpreter.machine import Machine
    from interpreter.memory import Fill, Memory

    program = load_program(Path(options.cubin).read_bytes(), options.entry)
    decoded = time.perf_counter()
    memory = Memory()
    values = []
    for k, text in enumerate(options.arguments.split(",")):
        if text[-1] in "fz":
            kind = "normal" if text[-1] == "f" else "zeros"
            values.append(memory.allocate(f"argument{k}", int(text[:-1]), Fill(kind, "float32")))
        else:
            values.append(int(text))
    launch = Launch(numbers(options.grid), numbers(options.block), options.shared, pack_arguments(program, values))
    made = Machine(program, memory, launch, options.backend)
    return made, decoded - started, time.perf_counter() - decoded


def start(options: argparse.Namespace) -> None:
    """One process's life up to its first result; prints seconds as JSON."""
    began = time.perf_counter()
    made, decode, lower = machine(options)
    made.run([0], mode="trace")
    print(json.dumps({"decode": decode, "machine": lower, "all": time.perf_counter() - began}))


def starts(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "FARM_CACHE": cache}
        command = [sys.executable, __file__, *sys.argv[1:], "--start"]
        for name in ("cold", "warm"):
            began = time.perf_counter()
            text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
            wall = time.perf_counter() - began
            s = json.loads(text)
            print(
                f"{name} start: process {wall:.2f} s, of it decode {s['decode']:.2f} s, lower and compile "
                f"{s['machine']:.2f} s, "
                f"to the first traced CTA {s['all']:.2f} s"
            )


def rates(options: argparse.Namespace) -> None:
    made, _, _ = machine(options)
    for mode in ("plain", "count", "trace"):
        made.run([0], mode=mode)
        ctas, seconds, best = 1, 0.0, 0.0
        while seconds < 1.0 and ctas <= made.launch.ctas:
            began = time.perf_counter()
            issued = made.run(range(ctas), mode=mode).warp_instructions
            seconds = time.perf_counter() - began
            best = max(best, issued / seconds)
            ctas *= 2
        print(f"{mode:>6}: {best / 1e6:6.1f} million warp instructions/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cubin", default=str(ROOT / "tests/data/cubins/kernels.sm_90a.cubin"))
    parser.add_argument("--entry", default="sgemm")
    parser.add_argument("--grid", default="64,64")
    parser.add_argument("--block", default="16,16")
    parser.add_argument("--shared", type=int, default=0)
    parser.add_argument("--arguments", default="4194304f,4194304f,4194304z,1024")
    parser.add_argument("--backend", default="llvm")
    parser.add_argument("--start", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.start:
        start(options)
    else:
        starts(options)
        rates(options)


if __name__ == "__main__":
    main()
