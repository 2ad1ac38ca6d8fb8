"""What the benchmarks share: the machine's name, one core, and a variant of the sgemm example ready to run."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SGEMM = ROOT / "examples" / "sgemm" / "sweep.yaml"


def machine_name() -> str:
    """The CPU as /proc/cpuinfo gives it, with family and model where the name alone says little."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        return platform.processor() or platform.machine()
    name = fields.get("model name", platform.machine())
    return f"{name} (family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}), {os.cpu_count()} CPUs"


def heading() -> str:
    """One line to print first: machine, Python, cores used."""
    return f"{machine_name()}; Python {platform.python_version()}; 1 core"


def use_one_core() -> None:
    """Bind this process, and what it starts, to one CPU."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@dataclass(slots=True)
class Ready:
    """A decoded kernel with its memory, launch, machine and (address, bytes) of its buffers."""

    program: object
    memory: object
    launch: object
    machine: object
    allocations: list[tuple[int, int]]
    parameters: dict[str, int]
    sha: str


def compile_variant(sweep_file: Path, number: int, arch: str):  # type: ignore[no-untyped-def]
    """(variant, Compiled, entry) of a sweep's variant."""
    from interpreter.compile import compile_cubin
    from jobs.sweep import load_sweep
    from jobs.variants import expand

    sweep = load_sweep(sweep_file)
    variants = expand(sweep)
    if not 0 <= number < len(variants):
        raise SystemExit(f"{sweep_file}: variant {number} of {len(variants)}")
    variant = variants[number]
    source = sweep_file.parent / sweep.kernel.source
    return variant, compile_cubin(source, arch, variant.names, sweep.kernel.flags), sweep.kernel.entry


def prepare(variant, compiled, entry: str) -> Ready:  # type: ignore[no-untyped-def]
    """Decode the kernel, allocate its buffers and compile its instructions for this CPU."""
    from interpreter.decode import load_program
    from interpreter.launch import Launch, pack_arguments
    from interpreter.machine import Machine
    from interpreter.memory import Memory
    from jobs.arguments import argument_values

    program = load_program(compiled.cubin, entry)
    memory = Memory()
    values, allocations = argument_values(memory, variant.arguments)
    launch = Launch(variant.grid, variant.block, variant.shared, pack_arguments(program, values))
    machine = Machine(program, memory, launch)
    return Ready(program, memory, launch, machine, allocations, variant.parameters, compiled.sha)
