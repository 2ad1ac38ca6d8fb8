"""How many CTAs of a kernel are resident on one SM, what limits them, and how shared memory and L1 split.

The rules are those of NVIDIA's occupancy header (CUDA 13.5), with the numbers of `Target.limits`. Which carve-out the
driver picks is not documented; the rule here describes 60 of 63 launches profiled on an H200 (see `carveout`).
"""

from __future__ import annotations

from dataclasses import dataclass

from interpreter.errors import FarmError
from timing.target_model import Limits, Target

MAX_NAMED_BARRIERS = 16  # barrier ids of a CTA (PTX ISA, bar)


class CannotLaunch(FarmError):
    """A CTA that no SM of the target can hold. `resource` is "threads", "registers", "shared_memory" or "barriers"."""

    def __init__(self, message: str, *, resource: str, needed: int, limit: int) -> None:
        super().__init__(message)
        self.resource = resource
        self.needed = needed
        self.limit = limit

    def __reduce__(self) -> tuple[object, ...]:  # keyword arguments survive the way back from a worker process
        return (_rebuild, (str(self), self.resource, self.needed, self.limit))


def _rebuild(message: str, resource: str, needed: int, limit: int) -> CannotLaunch:
    return CannotLaunch(message, resource=resource, needed=needed, limit=limit)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Residency of one kernel on one SM.

    `limiter` is "warps", "blocks", "registers", "shared_memory" or "barriers" (the first in this order among equals);
    `limits` maps each to the CTAs it allows. `carveout_bytes` is the shared-memory part of the unified L1,
    `l1_bytes` what is left to the L1 cache. `detail` says the same in words.
    """

    ctas_per_sm: int
    warps_per_sm: int
    fraction: float  # of the warps an SM can hold
    limiter: str
    carveout_bytes: int
    l1_bytes: int
    warps_per_cta: int
    shared_per_cta_bytes: int  # as allocated, reserved bytes included
    registers_per_warp: int  # as allocated
    limits: dict[str, int]
    detail: str


def occupancy(
    target: Target,
    registers: int,
    threads: int,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    barriers: int = 0,
    prefer_shared: bool = False,
) -> Occupancy:
    """Resident CTAs an SM of `target`.

    `registers` per thread as the cubin states them, `threads` a CTA, shared memory in bytes without the reserved part,
    `barriers` named barriers used. `prefer_shared` stands for the cache preference "shared", which some launchers set
    and which gives the largest carve-out. Raises CannotLaunch with the arithmetic when a CTA does not fit at all, and
    ValueError for negative sizes.
    """
    if min(registers, threads, static_shared, dynamic_shared, barriers) < 0:
        raise ValueError("registers, threads, shared memory and barriers must not be negative")
    limits = target.limits
    _check_fits(target, registers, threads, static_shared, dynamic_shared, barriers)

    warps = -(-threads // limits.warp_size)
    per_warp = _round_up(max(registers, 1) * limits.warp_size, limits.register_unit_per_warp)
    warps_per_sub_core = limits.registers_per_sm // limits.sub_cores // per_warp
    shared = shared_allocated(limits, static_shared + dynamic_shared)
    allowed = {
        "warps": limits.max_warps_per_sm // warps,
        "blocks": limits.max_blocks_per_sm,
        "registers": limits.sub_cores * warps_per_sub_core // warps,
        "shared_memory": limits.shared_per_sm_bytes // shared,
    }
    if limits.named_barriers_per_sm and barriers:
        allowed["barriers"] = limits.named_barriers_per_sm // barriers
    limiter = min(allowed, key=lambda name: allowed[name])
    ctas = allowed[limiter]
    if prefer_shared:
        split = limits.shared_carveouts_kb[-1] * 1024
    else:
        fitting = min(count for name, count in allowed.items() if name != "shared_memory")
        split = carveout(limits, ctas, fitting, shared, allowed["warps"], static_shared + dynamic_shared)
    words = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in allowed.items())
    return Occupancy(
        ctas_per_sm=ctas,
        warps_per_sm=ctas * warps,
        fraction=ctas * warps / limits.max_warps_per_sm,
        limiter=limiter,
        carveout_bytes=split,
        l1_bytes=target.l1.unified_kb * 1024 - split,
        warps_per_cta=warps,
        shared_per_cta_bytes=shared,
        registers_per_warp=per_warp,
        limits=allowed,
        detail=f"CTAs an SM allowed by {words}: {ctas} resident, limited by {limiter.replace('_', ' ')}",
    )


def shared_allocated(limits: Limits, requested: int) -> int:
    """Shared memory bytes a CTA takes of the carve-out for `requested` bytes of its own."""
    return _round_up(requested + limits.shared_reserved_per_block_bytes, limits.shared_unit_bytes)


def carveout(limits: Limits, ctas: int, fitting: int, shared: int, by_warps: int, requested: int) -> int:
    """Bytes of the carve-out the driver picks for `ctas` resident CTAs of `shared` allocated bytes.

    Without a preference the driver takes more than residency needs: room for twice the CTAs that the other resources
    allow (`fitting`), as long as that stays within `limits.carveout_headroom_kb`. A kernel that asks for no shared
    memory (`requested` 0) gets room for the reserved bytes of four times the CTAs that warps allow (`by_warps`).
    Observed on an H200: 60 of 63 launches of 16 kernel families without a cache preference.
    """
    most = limits.max_blocks_per_sm
    if requested == 0:
        wanted = min(most, 4 * by_warps)
        return max(_smallest(limits, wanted * shared), _smallest(limits, ctas * shared))
    needed = _smallest(limits, ctas * shared)
    generous = _smallest(limits, min(2 * fitting, most) * shared)
    return max(needed, min(generous, limits.carveout_headroom_kb * 1024))


def _smallest(limits: Limits, wanted: int) -> int:
    """The smallest carve-out of at least `wanted` bytes, else the largest there is."""
    for kb in limits.shared_carveouts_kb:
        if kb * 1024 >= wanted:
            return kb * 1024
    return limits.shared_carveouts_kb[-1] * 1024


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _check_fits(
    target: Target, registers: int, threads: int, static_shared: int, dynamic_shared: int, barriers: int
) -> None:
    limits = target.limits

    def refuse(resource: str, needed: int, limit: int, words: str) -> None:
        raise CannotLaunch(f"cannot launch on {target.name}: {words}", resource=resource, needed=needed, limit=limit)

    if threads < 1:
        refuse("threads", threads, limits.max_threads_per_block, "a block needs at least 1 thread")
    if threads > limits.max_threads_per_block:
        refuse(
            "threads", threads, limits.max_threads_per_block,
            f"{threads:,} threads a block, the limit is {limits.max_threads_per_block:,}",
        )  # fmt: skip
    if registers > limits.max_registers_per_thread:
        refuse(
            "registers", registers, limits.max_registers_per_thread,
            f"{registers:,} registers a thread, the limit is {limits.max_registers_per_thread:,}",
        )  # fmt: skip
    warps = -(-threads // limits.warp_size)
    per_warp = _round_up(max(registers, 1) * limits.warp_size, limits.register_unit_per_warp)
    counted = _round_up(warps, limits.warp_allocation_granularity)
    if per_warp * counted > limits.registers_per_sm:
        refuse(
            "registers", per_warp * counted, limits.registers_per_sm,
            f"{registers:,} registers a thread x {threads:,} threads need {per_warp * counted:,} registers a block "
            f"({per_warp:,} a warp x {counted} warps), the limit is {limits.registers_per_sm:,}",
        )  # fmt: skip
    if static_shared > limits.shared_static_per_block_bytes:
        refuse(
            "shared_memory", static_shared, limits.shared_static_per_block_bytes,
            f"needs {static_shared:,} B static shared memory a block, the limit is "
            f"{limits.shared_static_per_block_bytes:,} B (more has to be dynamic)",
        )  # fmt: skip
    shared = static_shared + dynamic_shared
    if shared > limits.shared_per_block_optin_bytes:
        split = f" ({static_shared:,} static + {dynamic_shared:,} dynamic)" if static_shared and dynamic_shared else ""
        refuse(
            "shared_memory", shared, limits.shared_per_block_optin_bytes,
            f"needs {shared:,} B shared memory a block{split}, the limit is {limits.shared_per_block_optin_bytes:,} B",
        )  # fmt: skip
    if barriers > MAX_NAMED_BARRIERS:
        refuse(
            "barriers", barriers, MAX_NAMED_BARRIERS,
            f"{barriers} named barriers a block, the limit is {MAX_NAMED_BARRIERS}",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Waves:
    """How a grid fills the GPU when every CTA takes equally long.

    `waves` is CTAs / slots (fractional), `full` the whole ones, `tail_ctas` those of a last, partial wave,
    `busiest_sm_ctas` the CTAs the busiest SM runs, `efficiency` the mean SM's share of the busiest SM's work.
    """

    waves: float
    full: int
    tail_ctas: int
    slots: int
    busiest_sm_ctas: int
    efficiency: float


def waves(grid_ctas: int, sm_count: int, ctas_per_sm: int) -> Waves:
    """Wave and tail arithmetic of `grid_ctas` CTAs on `sm_count` SMs of `ctas_per_sm` slots each."""
    if min(grid_ctas, sm_count, ctas_per_sm) < 1:
        raise ValueError("grid, SM count and CTAs an SM must be at least 1")
    slots = sm_count * ctas_per_sm
    full, tail = divmod(grid_ctas, slots)
    busiest = full * ctas_per_sm + -(-tail // sm_count)
    return Waves(
        waves=grid_ctas / slots,
        full=full,
        tail_ctas=tail,
        slots=slots,
        busiest_sm_ctas=busiest,
        efficiency=grid_ctas / (busiest * sm_count),
    )
