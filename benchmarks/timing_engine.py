"""How fast the SM engine replays a trace: warp instructions a second, engine warm, one core.

    python benchmarks/timing_engine.py
    python benchmarks/timing_engine.py --variant 50 --target h200 --repeats 50
    python benchmarks/timing_engine.py --timeline              recording every instruction

The trace is that of the CTAs which a sampled estimate of the sgemm example executes. Timed are the engine's own calls
(`timing.sm_engine.run_sm`), not execution, decoding or set-up; the first replay loads compiled code and is left out.
"""

from __future__ import annotations

import argparse
import time

import common


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", type=int, default=50)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--timeline", action="store_true")
    options = parser.parse_args()
    common.use_one_core()
    print(common.heading())

    from timing import sampled
    from timing.target import load_target

    target = load_target(options.target)
    variant, compiled, entry = common.compile_variant(common.SGEMM, options.variant, target.arch)
    ready = common.prepare(variant, compiled, entry)
    warps = -(-variant.threads // 32)
    traces = sampled.TraceSource(ready.machine, warps, len(ready.program.instructions))

    seconds: list[float] = []
    issued: list[int] = []
    engine = sampled.run_sm

    def timed(*arguments):  # type: ignore[no-untyped-def]
        began = time.perf_counter()
        result = engine(*arguments)
        seconds.append(time.perf_counter() - began)
        issued.append(int(result[1]))
        return result

    sampled.run_sm = timed
    for _ in range(1 + options.repeats):
        estimate = sampled.sampled_estimate(
            ready.program, ready.launch, target, traces, ready.allocations, records=1 << 26 if options.timeline else 0
        )
    count = issued[-1]
    per_cta = int(traces.counts["instructions_executed"].sum()) // traces.executed_ctas
    assert issued == [count] * (1 + options.repeats) and count % per_cta == 0, "every replay issues whole CTAs"
    replays = seconds[1:]
    print(f"sgemm variant {options.variant}: {' '.join(f'{k}={v}' for k, v in ready.parameters.items())}")
    resident = estimate.occupancy.ctas_per_sm
    print(f"{count} warp instructions of {count // per_cta} CTAs of {warps} warps, {resident} CTAs an SM")
    print(f"estimate {estimate.time_us:.1f} us, bound by {estimate.bound}")
    best, middle = min(replays), sorted(replays)[len(replays) // 2]
    print(f"first replay {seconds[0]:.2f} s, then best of {len(replays)} {best:.3f} s, median {middle:.3f} s")
    print(f"engine: {count / best / 1e6:.2f} million warp instructions/s (median {count / middle / 1e6:.2f})")


if __name__ == "__main__":
    main()
