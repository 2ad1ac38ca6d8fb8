"""Names of bounds and stall reasons in plain words."""

from __future__ import annotations

BOUNDS = {
    "dram": "DRAM bandwidth",
    "l2": "L2 bandwidth",
    "l1": "L1 bandwidth",
    "issue": "the issue slots (one instruction a cycle and sub-core)",
    "cta_launch": "the rate at which CTAs are launched",
    "launch": "the rate at which CTAs are launched",
    "lsu": "the load/store unit (shared memory and L1 wavefronts)",
    "alu": "the ALU pipe (integer, logic, comparisons)",
    "fma": "the FMA pipe (FP32)",
    "fma_heavy": "the heavy half of the FMA pipe (IMAD)",
    "fp16": "the FP16 pipe",
    "fp64": "the FP64 pipe",
    "xu": "the XU pipe (special functions, conversions)",
    "uniform": "the uniform datapath",
    "tensor": "the tensor cores",
    "constant": "the constant cache (LDC)",
    "special": "reads of special registers (S2R)",
    "async": "the TMA unit",
    "atomic": "atomics at L2",
    "shared": "shared memory",
}

REASONS = {
    "selected": "issuing",
    "not_selected": "ready, while the sub-core issues another warp",
    "wait": "waiting for a fixed-latency result",
    "no_instruction": "waiting for instruction fetch",
    "branch_resolving": "waiting for a branch target",
    "dispatch_stall": "waiting for register read ports",
    "math_pipe_throttle": "waiting for a busy math pipe",
    "mio_throttle": "waiting for room in the MIO queue (shared memory, shuffles, special functions)",
    "lg_throttle": "waiting for room in the queue to L1 (global and local memory)",
    "short_scoreboard": "waiting for a result of shared memory, a shuffle or a special function",
    "long_scoreboard": "waiting for data from global or local memory",
    "barrier": "waiting for other warps at a barrier",
    "membar": "waiting for a memory fence",
    "imc_miss": "waiting for the constant cache",
    "drain": "waiting for stores to leave before exit",
    "sleeping": "asleep",
    "tex_throttle": "waiting for room in the texture queue",
    "misc": "stalled otherwise",
}

LIMITERS = {
    "warps": "the SM's warp slots",
    "blocks": "the SM's CTA slots",
    "registers": "registers",
    "shared_memory": "shared memory",
    "barriers": "named barriers",
}


def bound_words(name: str) -> str:
    return BOUNDS.get(name, name.replace("_", " "))


def reason_words(name: str) -> str:
    return REASONS.get(name, name.replace("_", " "))


def percent(value: float) -> str:
    """A share: whole percents, a digit more below 10 %."""
    return f"{100 * value:.0f} %" if abs(value) >= 0.0995 else f"{100 * value:.1f} %"


def amount(value: float) -> str:
    """A count with a short suffix: 33.5 M."""
    for size, suffix in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= size:
            return f"{value / (1e3 if suffix == ' k' else size):.1f}{suffix}"
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def byte_count(value: float) -> str:
    """Bytes in decimal units, as DRAM bandwidths are given."""
    for size, suffix in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= size:
            return f"{value / size:.1f} {suffix}"
    return f"{value:.0f} B"
