"""What one sampled estimate costs: of an sgemm variant, on one core, from nothing cached and then from warm caches.

    python benchmarks/estimate.py
    python benchmarks/estimate.py --variants 14 50 87 --target h200

Three processes in turn: "first run" starts with an empty cache folder, so it also compiles the simulator's own loops
(once a version and machine); "new kernel" finds those but not the kernel; "again" finds everything. After its first
estimate each process makes `--variants` further ones (default: three), which gives the steady cost of a variant.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import common


def one(number: int, target) -> dict[str, float]:  # type: ignore[no-untyped-def]
    """Seconds of each step of one variant's estimate."""
    from timing.sampled import TraceSource, sampled_estimate

    began = time.perf_counter()
    variant, compiled, entry = common.compile_variant(common.SGEMM, number, target.arch)
    made = time.perf_counter()
    ready = common.prepare(variant, compiled, entry)
    prepared = time.perf_counter()
    warps = -(-variant.threads // 32)
    traces = TraceSource(ready.machine, warps, len(ready.program.instructions))
    estimate = sampled_estimate(ready.program, ready.launch, target, traces, ready.allocations)
    ended = time.perf_counter()
    executed = int(traces.counts["instructions_executed"].sum())
    ready.memory.close()
    return {
        "variant": number,
        "nvcc": made - began,
        "decode and lower": prepared - made,
        "execute": traces.seconds,
        "time": ended - prepared - traces.seconds,
        "instructions": executed,
        "estimate_us": estimate.time_us,
    }


def child(options: argparse.Namespace) -> None:
    began = time.perf_counter()
    from timing.target import load_target
    from timing.warm_up import compile_engine

    imported = time.perf_counter() - began
    engine = compile_engine()
    target = load_target(options.target)
    estimates = [one(number, target) for number in (options.first, *options.variants)]
    print(json.dumps({"import": imported, "engine": engine, "estimates": estimates}))


def show(step: str, wall: float, result: dict) -> None:
    first, *others = result["estimates"]
    engine = result["engine"]
    print(f"{step}: process {wall:.2f} s; imports {result['import']:.2f}, SM engine compiled or loaded {engine:.2f}")
    for e in (first, *others):
        total = e["nvcc"] + e["decode and lower"] + e["execute"] + e["time"]
        steps = ", ".join(f"{key} {e[key]:.3f}" for key in ("nvcc", "decode and lower", "execute", "time"))
        print(
            f"  variant {e['variant']}: {total:.3f} s ({steps}); without nvcc {total - e['nvcc']:.3f} s; "
            f"{e['instructions'] / 1e6:.2f}M warp instructions executed, {e['estimate_us']:.1f} us estimated"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=4)
    parser.add_argument("--variants", type=int, nargs="*", default=[14, 50, 87])
    parser.add_argument("--target", default="h200")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    common.use_one_core()
    if options.child:
        child(options)
        return
    print(common.heading())
    with tempfile.TemporaryDirectory() as cache:
        environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | {"FARM_CACHE": cache}
        command = [sys.executable, __file__, *sys.argv[1:], "--child"]
        for step in ("first run", "new kernel", "again"):
            if step == "new kernel":  # keep the simulator's own compiled loops, drop what belongs to kernels
                for folder in os.listdir(cache):
                    if folder != "numba":
                        subprocess.run(["rm", "-r", os.path.join(cache, folder)], check=True)
            began = time.perf_counter()
            text = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
            show(step, time.perf_counter() - began, json.loads(text))


if __name__ == "__main__":
    main()
