"""A stand-in for the simulator whose estimates follow the kernel's source: each `slow` costs 3 %, each `register` 8
registers, `broken` does not compile, `endless` is not executed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jobs.work import VariantResult, WorkItem, failed_result, variant_row
from timing.occupancy import occupancy
from timing.target import load_target


def evaluate_batch(items: list[WorkItem]) -> Iterator[tuple[str, int, VariantResult | None]]:
    for index, item in enumerate(items):
        yield "begin", index, None
        yield "done", index, _result(item)


def _result(item: WorkItem) -> VariantResult:
    assert item.build.source is not None
    text = item.build.source.read_text()
    if "broken" in text:
        return failed_result(item, "compile", "kernel.cu(1): error: this is broken")
    slow, registers = text.count("slow"), 32 + 8 * text.count("register")
    known = {"registers": registers, "static_shared_bytes": 0, "stack_bytes": 0, "spill_store_bytes": 0,
             "spill_load_bytes": 0, "code_bytes": 64, "kernel": "toy", "cubin_sha": "ab" * 32}  # fmt: skip
    if "endless" in text:
        return failed_result(item, "timeout", "more than 20000 instructions", known)
    threads = item.block[0]
    sass = ["LDG.E R2, [R2.64]", *["STS [R0], R2"] * slow, "FADD R2, R2, R3", "EXIT"]
    result = VariantResult(item.family, item.variant)
    for target, _ in item.targets:
        result.rows.variants.append({**variant_row(item, target), **known})
        for tier in item.tiers:
            result.rows.estimates.append(
                {
                    "family": item.family, "variant": item.variant, "target": target, "tier": tier, "l2": item.l2,
                    "status": "ok", "time_us": (10.0 + dict(item.names).get("BLOCK", 64) / 64) * (1 + 0.03 * slow),
                    "bound": "latency", "occupancy": 0.5, "limiter": "registers", "warp_instructions": 1000.0,
                    "ctas_per_sm": occupancy(load_target(target), registers, threads).ctas_per_sm,
                    "warps_per_sm": 8, "waves": 1.0, "confidence": "high",
                    "simulation_seconds": 0.1, "bounds_us": [("issue", 1.0)], "memory": [("l2_read_bytes", 1e6)],
                }
            )  # fmt: skip
        count = len(sass)
        stall = np.full(count, 10.0, np.float32)
        stall[-2] += 30.0 * slow
        result.rows.instructions.append(
            {
                "family": item.family, "variant": item.variant, "target": target, "tier": item.tiers[-1],
                "pc": np.arange(count, dtype=np.int32) * 16, "sass": sass,
                "source_line": np.arange(count, dtype=np.int32) + 3,
                "executed": np.full(count, 100.0), "thread_executed": np.full(count, 3200.0),
                "sectors": np.zeros(count), "wavefronts": np.zeros(count),
                "stall_selected": np.full(count, 1.0, np.float32), "stall_long_scoreboard": stall,
            }
        )  # fmt: skip
    return result
