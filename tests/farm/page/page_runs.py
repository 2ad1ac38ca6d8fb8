"""Runs made for the page's tests and benchmark: real SASS, invented times. Nothing is compiled or simulated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interpreter.decode import load_program
from jobs.evaluate import control_words
from jobs.run_folder import Family, RunFolder
from jobs.tables import STALL_COLUMNS, Rows, from_rows
from timing.target import load_target

CUBINS = Path(__file__).parents[2] / "data" / "cubins"
TARGETS = ("h200", "rtx4090")


def real_code(cubin: str = "kernels.sm_90a.cubin", entry: str | None = "sgemm") -> tuple[list[str], np.ndarray]:
    """SASS and control words of a kernel of tests/data/cubins."""
    program = load_program((CUBINS / cubin).read_bytes(), entry)
    return [instruction.text for instruction in program.instructions], control_words(program)


def long_code(lines: int) -> tuple[list[str], np.ndarray]:
    """At least `lines` lines: a tensor-core kernel over and over, each copy with its own branch targets."""
    texts, control = real_code("hgemm_mma.sm_90a.cubin", None)
    out: list[str] = []
    words: list[np.ndarray] = []
    while len(out) < lines:
        out += [_moved(text, 16 * len(out)) for text in texts]
        words.append(control)
    return out[:lines], np.concatenate(words)[:lines]


def _moved(text: str, offset: int) -> str:
    """A line of SASS `offset` bytes further down: branch targets are addresses within the kernel."""
    if not re.search(r"\b(BRA|BSSY)\b", text):
        return text
    return re.sub(r"0x([0-9a-f]+)$", lambda m: hex(int(m[1], 16) + offset), text)


def instruction_block(
    family: str, variant: int, target: str, texts: Sequence[str], control: np.ndarray, seed: int = 0
) -> dict[str, Any]:
    """A block of `instructions` with invented counts and stalls: loads wait, some lines conflict."""
    rng = np.random.default_rng(seed + variant)
    n = len(texts)
    executed = np.where(np.arange(n) < 0.95 * n, 1024.0 * (1 + np.arange(n) // 100 % 7), 0.0)
    stalls = np.zeros((n, len(STALL_COLUMNS)), np.float32)
    stalls[:, 0] = executed / 64
    place = {name.removeprefix("stall_"): k for k, name in enumerate(STALL_COLUMNS)}
    for name in ("not_selected", "wait", "dispatch_stall", "long_scoreboard", "short_scoreboard", "barrier"):
        stalls[:, place[name]] = executed / 64 * rng.exponential(0.4, n) * (rng.random(n) < 0.4)
    hot = rng.choice(n, max(1, n // 40), replace=False)
    stalls[hot, place["long_scoreboard"]] += (executed[hot] / 64 * rng.exponential(40, len(hot))).astype(np.float32)
    shared = np.array([bool(re.search(r"\b(LDS|STS|LDSM)\b", text)) for text in texts])
    far = np.array([bool(re.search(r"\b(LDG|STG)\b", text)) for text in texts])
    return {
        "family": family, "variant": variant, "target": target, "tier": "sampled",
        "pc": np.arange(n, dtype=np.int32) * 16, "sass": list(texts), "control": control.astype(np.int32),
        "source_line": (np.arange(n) // 6 + 1).astype(np.int32), "source_file": ["kernel.cu"] * n,
        "executed": executed, "thread_executed": executed * 32,
        "sectors": executed * 16 * far, "sectors_ideal": executed * 4 * far,
        "wavefronts": executed * 4 * shared, "wavefronts_ideal": executed * 2 * shared,
        **{name: stalls[:, k] for k, name in enumerate(STALL_COLUMNS)},
    }  # fmt: skip


def make_run(
    folder: Path,
    *,
    family: str = "sgemm",
    parameters: Sequence[str] = ("BM", "BN", "STAGES"),
    candidates: int = 24,
    targets: Sequence[str] = TARGETS,
    kernel: str = "sgemm",
    message: str = "kernel.cu(1): error: expected a ;",
    code: tuple[list[str], np.ndarray] | None = None,
    detailed: Iterable[int] = (0, 1, 2),
    measured: bool = True,
    spills: int = 0,
    bare: bool = False,
    compiled: bool = True,
) -> RunFolder:
    """A finished run. Variant 3 fails to compile (`message`), `detailed` ones have SASS, the H200 has measurements.

    Unless `compiled`, nothing is known of variant 3, as when nvcc refuses it.
    `bare`: as the static tier alone and earlier versions leave it: no stalls, control fields, ideal counts, lines.
    """
    rng = np.random.default_rng(7)
    texts, control = code or real_code()
    wanted = set(detailed)
    rows = Rows()
    measurements: list[dict[str, Any]] = []
    for variant in range(candidates):
        values = [(name, int(2 ** rng.integers(0, 8))) for name in parameters]
        registers = int(rng.integers(3, 30) * 8)
        base = float(np.exp(rng.normal(4.5, 0.6)))
        for target in targets:
            failed = variant == 3
            key = {"family": family, "variant": variant, "target": target}
            status = {"status": "failed", "failure": "compile", "message": message} if failed else {"status": "ok"}
            gpu = load_target(target)
            rows.variants.append({
                **key, **status, "arch": gpu.arch, "parameters": values, "names": [*values, ("N", 1024)],
                "grid_dim": "16x16x1", "block_dim": "128x1x1", "dynamic_shared_bytes": 0, "kernel": kernel,
                "cubin_sha": f"{variant:064x}", "compiler": "ptxas 13.0.88",
                "command": f"nvcc -arch={gpu.arch} -DBM={variant}",
                "registers": registers, "static_shared_bytes": 8192 * (1 + variant % 4), "stack_bytes": 0,
                "spill_store_bytes": spills, "spill_load_bytes": spills, "code_bytes": 16 * len(texts),
                "compile_seconds": 0.5, "barriers": 1,
            })  # fmt: skip
            if failed and not compiled:
                facts = "kernel cubin_sha compiler command registers static_shared_bytes stack_bytes spill_store_bytes"
                facts += " spill_load_bytes code_bytes compile_seconds barriers"
                rows.variants[-1] |= dict.fromkeys(facts.split())
            time_us = base * (0.8 if target == "rtx4090" else 1.0) * float(np.exp(rng.normal(0, 0.05)))
            for tier in ("static",) if bare else ("static", "sampled"):
                rows.estimates.append({
                    **key, **status, "tier": tier, "l2": "warm", "simulation_seconds": 0.05,
                    **({} if failed else {
                        "time_us": time_us * (0.9 if tier == "static" else 1.0), "cycles": time_us * gpu.clock_mhz,
                        "clock_mhz": gpu.clock_mhz, "bound": "lsu" if variant % 3 else "latency", "ctas_per_sm": 4,
                        "warps_per_sm": 16, "occupancy": 16 / gpu.limits.max_warps_per_sm, "limiter": "registers",
                        "waves": 0.48, "warp_instructions": 1e6 + 1e4 * variant, "executed_share": 0.02,
                        "expected_error": 0.01, "confidence": "high" if target == "h200" else "medium",
                        "coverage": [("measured", 0.9), ("quoted", 0.06), ("guessed", 0.04)],
                        "bounds_us": [("lsu", time_us * 0.7), ("issue", time_us * 0.4), ("dram", time_us * 0.1)],
                        "memory": [("l1_hit_share", 0.3), ("l2_hit_share", 0.9), ("l2_read_bytes", 2.7e8),
                                   ("l2_write_bytes", 8.4e6), ("dram_read_bytes", 2.7e7), ("dram_write_bytes", 4e6)],
                    }),
                })  # fmt: skip
            if not failed and variant in wanted:
                block = instruction_block(family, variant, target, texts, control)
                if bare:
                    kept = ("family", "variant", "target", "pc", "sass", "executed", "thread_executed")
                    block = {name: block[name] for name in kept} | {"tier": "static"}
                rows.instructions.append(block)
            if measured and target == "h200" and not failed:
                measurements.append({
                    **key, "time_us": time_us * float(np.exp(rng.normal(0, 0.08))), "min_us": time_us * 0.9,
                    "spread": 0.01, "used": True, "l2": "warm", "clock_mhz": 1980.0, "source": "h200.csv",
                })  # fmt: skip
    run = RunFolder(folder)
    with run.writing():
        run.manifest.families[family] = Family(
            name=family, identity={"sweep": "0", "model": "0123456789abcdef", "l2": "warm"},
            parameters=list(parameters), rank_within=[], targets=list(targets), path=str(folder / "sweep.yaml"),
            sweep={}, variants=candidates * 2, planned=candidates,
        )  # fmt: skip
        run.add({**rows.tables(), **({"measurements": from_rows("measurements", measurements)} if measured else {})})
        run.finish()
    return RunFolder(folder).load()
