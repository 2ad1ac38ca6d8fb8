"""Runs the microbenchmarks on the GPU of this machine and writes what they found.

    python -m timing.calibrate.run --out h200.json [--groups core,memory,caches,slices,lives,grid] [--raw raw.npz]

Every number is a median with its spread and the number of repeats; cycles are of the SM clock.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from interpreter.errors import FarmError
from timing.calibrate.build import compile_all, find_nvcc
from timing.calibrate.caches import Caches
from timing.calibrate.core import Core
from timing.calibrate.driver import Gpu
from timing.calibrate.grid import Grid, smi
from timing.calibrate.lives import Lives
from timing.calibrate.memory import Memory
from timing.calibrate.record import Results
from timing.calibrate.slices import Slices
from timing.target import check_gpu_is, load_target

SCHEMA = 1
GROUPS = ("core", "memory", "caches", "slices", "lives", "grid")
STEPS = [
    "grid.placement",
    "grid.launches",
    "core.chains",
    "core.barriers",
    "core.rates",
    "core.conflicts",
    "core.l1",
    "core.control",
    "core.fetch",
    "core.first_pass",
    "core.slots",
    "core.subcores",
    "core.priority",
    "core.bursts",
    "core.async_copies",
    "core.single_sm_stores",
    "memory.chase",
    "memory.l2_map",
    "memory.bandwidth",
    "memory.active_sms",
    "memory.capacity",
    "memory.scatter",
    "memory.loaded",
    "memory.atomics",
    "caches.first_touch",
    "caches.shared_lines",
    "caches.sharing",
    "caches.rows",
    "caches.waves",
    "caches.constants",
    "caches.fences",
    "slices.hot",
    "slices.pairs",
    "lives.turnaround",
    "lives.touches",
    "lives.spread",
    "lives.many_lines",
    "lives.loads_and_stores",
    "lives.batches",
    "lives.mixed_loads",
    "lives.tiles",
    "lives.groups",
    "lives.shifts",
    "lives.rounds",
    "lives.drift",
    "grid.clocks",
]


def calibrate(
    out: Path,
    groups: Sequence[str] = GROUPS,
    nvcc: str | None = None,
    arch: str | None = None,
    cache: Path = Path(".farm-cache/calibrate"),
    raw: Path | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Results:
    """Measure the first GPU of this machine and write `out` (JSON); `raw` gets the per-SM and per-CTA tables (npz).

    Raises DriverError without a GPU, ToolchainError without nvcc, CompileError when a source does not compile.
    """
    unknown = [group for group in groups if group not in GROUPS and group not in STEPS]
    if unknown:
        raise FarmError(f"no measurement named {unknown[0]!r}: there are {', '.join((*GROUPS, *STEPS))}")
    gpu = Gpu()
    attributes = gpu.attributes
    if arch is None:
        arch = f"sm_{attributes['capability_major']}{attributes['capability_minor']}"
        arch += "a" if attributes["capability_major"] >= 9 else ""
    cubins = compile_all(find_nvcc(nvcc), arch, cache)
    results = Results()
    maps: dict[str, np.ndarray] = {}
    failures: list[str] = []
    meta = {
        "schema": SCHEMA,
        "gpu": gpu.name,
        "arch": arch,
        "date": datetime.date.today().isoformat(),
        "driver_api": gpu.driver_api,
        "attributes": attributes,
        "smi": smi("name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit,temperature.gpu"),
        "command": "python -m timing.calibrate.run --groups " + ",".join(groups),
    }

    def write() -> None:
        document = {**meta, "failures": failures, "rows": [row.row() for row in results.rows]}
        text = json.dumps(document, indent=None, separators=(", ", ": "))
        out.write_text(text.replace('{"group"', '\n{"group"') + "\n")
        if raw is not None:
            np.savez_compressed(raw, **maps)

    maps_of: list[dict[str, np.ndarray]] = []
    wanted = [name for name in STEPS if any(name == group or name.startswith(group + ".") for group in groups)]
    sections: dict[str, Core | Memory | Caches | Slices | Lives | Grid] = {}
    makers: dict[str, Callable[[Gpu, dict[str, bytes], Results], Core | Memory | Caches | Slices | Lives | Grid]]
    makers = {"core": Core, "memory": Memory, "caches": Caches, "slices": Slices, "lives": Lives, "grid": Grid}
    for kind, make in makers.items():
        if any(name.startswith(kind + ".") for name in wanted):
            sections[kind] = make(gpu, cubins, results)
            maps_of.append(getattr(sections[kind], "maps", {}))
    for name in wanted:
        start = time.monotonic()
        section, _, method = name.partition(".")
        try:
            getattr(sections[section], method)()
        except Exception as error:  # one step that fails must not lose what the others found; it is written down
            failures.append(f"{name}: {type(error).__name__}: {error}")
            log(f"{name} stopped: {type(error).__name__}: {error}")
        for some in maps_of:
            maps.update(some)
        log(f"{name}: {len(results.rows)} rows, {time.monotonic() - start:.1f} s")
        write()
    return results


def calibrate_target(
    name: str, out: Path, groups: Sequence[str], nvcc: str | None, log: Callable[[str], None]
) -> Results:
    """`calibrate`, after checking that the machine's GPU is the target `name`. Raises FarmError when it is another."""
    check_gpu_is(load_target(name), Gpu().name)
    return calibrate(out, groups, nvcc, log=log)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument(
        "--groups", default=",".join(GROUPS), help="what to measure, comma-separated: " + ", ".join(GROUPS)
    )
    parser.add_argument("--nvcc", help="path of nvcc (default: CUDA_HOME, PATH, /usr/local/cuda)")
    parser.add_argument("--arch", help="architecture to compile for (default: the GPU's)")
    parser.add_argument(
        "--cache", type=Path, default=Path(".farm-cache/calibrate"), help="folder that keeps the cubins"
    )
    parser.add_argument("--raw", type=Path, help="npz file for per-SM and per-CTA tables")
    options = parser.parse_args()
    try:
        calibrate(
            options.out,
            options.groups.split(","),
            options.nvcc,
            options.arch,
            options.cache,
            options.raw,
            lambda line: print(line, file=sys.stderr, flush=True),
        )
    except FarmError as error:
        print(f"calibrate: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
