"""Occupancy of one launch and what it would be with another block size, register count or amount of shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from timing.occupancy import CannotLaunch, Occupancy, occupancy, waves
from timing.target import Target


@dataclass(frozen=True, slots=True)
class Footprint:
    """What residency depends on: registers a thread, threads a CTA, shared memory in bytes, named barriers."""

    registers: int
    threads: int
    static_shared: int
    dynamic_shared: int
    barriers: int

    def on(self, target: Target, **changes: int) -> Occupancy | None:
        """Occupancy on a target with some of the numbers changed; None where a CTA does not fit."""
        f = replace(self, **changes)
        try:
            return occupancy(target, f.registers, f.threads, f.static_shared, f.dynamic_shared, f.barriers)
        except CannotLaunch:
            return None


def occupancy_panel(target: Target, footprint: Footprint, grid_ctas: int) -> dict[str, Any] | None:
    """Residency, what limits it, the three curves (x, warps an SM) and the waves; None where a CTA does not fit."""
    now = footprint.on(target)
    if now is None:
        return None
    limits = target.limits
    blocks = range(limits.warp_size, limits.max_threads_per_block + 1, limits.warp_size)
    registers = range(8, limits.max_registers_per_thread + 1, 8)
    # the kernel's own static part stays; what changes is the total
    step = 1024 if limits.shared_per_block_optin_bytes <= 128 * 1024 else 2048
    shared = range(0, limits.shared_per_block_optin_bytes + 1, step)
    spread = waves(max(grid_ctas, 1), target.sm_count, now.ctas_per_sm)
    return {
        "warps": now.warps_per_sm,
        "max_warps": limits.max_warps_per_sm,
        "ctas": now.ctas_per_sm,
        "limiter": now.limiter,
        "limits": now.limits,
        "detail": now.detail,
        "carveout_bytes": now.carveout_bytes,
        "l1_bytes": now.l1_bytes,
        "shared_per_cta": now.shared_per_cta_bytes,
        "registers_per_warp": now.registers_per_warp,
        "curves": {
            "block size": {
                "at": footprint.threads,
                "unit": "threads",
                "points": _curve(target, footprint, "threads", blocks),
            },
            "registers": {
                "at": footprint.registers,
                "unit": "a thread",
                "points": _curve(target, footprint, "registers", registers),
            },
            "shared memory": {
                "at": footprint.static_shared + footprint.dynamic_shared,
                "unit": "bytes a CTA",
                "points": [
                    [x, 0 if o is None else o.warps_per_sm]
                    for x in shared
                    for o in [footprint.on(target, static_shared=0, dynamic_shared=x)]
                ],
            },
        },
        "waves": {
            "waves": spread.waves,
            "full": spread.full,
            "tail": spread.tail_ctas,
            "slots": spread.slots,
            "busiest": spread.busiest_sm_ctas,
            "efficiency": spread.efficiency,
            "sms": target.sm_count,
        },
    }


def _curve(target: Target, footprint: Footprint, what: str, values: range) -> list[list[int]]:
    points = []
    for value in values:
        found = footprint.on(target, **{what: value})
        points.append([value, 0 if found is None else found.warps_per_sm])
    return points
