"""Nsight Compute's source and raw pages of an estimate, with its own column and metric names, and their CSV.

Scripts that read `ncu --page source --csv` read this. What an estimate does not have (samples taken while nothing
issued, cache policies) is left out. The cell behind the kernel's name says that the numbers are simulated.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from farm.analysis.causes import ideal_sectors, ideal_wavefronts
from farm.analysis.sass import GLOBAL, SHARED, access_of, parts
from farm.analysis.variant import Line, Variant
from timing.occupancy import CannotLaunch, occupancy
from timing.stalls import N_STALLS, NSIGHT_SHORT, STALLS, Stall, stall_name

ADDRESS_SPACES = {"global": "Global", "shared": "Shared", "local": "Local"}
_OPERATIONS = {"load": "Load", "store": "Store", "atomic": "Atomic", "copy": "Load"}
_GENERIC = ("LD", "ST", "ATOM")

STALL_NAMES = sorted(f"stall_{short}" for short in NSIGHT_SHORT.values())
_STALL_AT = {f"stall_{short}": int(stall) for stall, short in NSIGHT_SHORT.items()}

COLUMNS = (
    "Address", "Source", "Warp Stall Sampling (All Samples)", "# Samples", "Instructions Executed",
    "Thread Instructions Executed", "Avg. Threads Executed", "Address Space", "Access Operation", "Access Size",
    "L1 Conflicts Shared N-Way", "L1 Wavefronts Shared Excessive", "L1 Wavefronts Shared",
    "L1 Wavefronts Shared Ideal", "L2 Theoretical Sectors Global Excessive", "L2 Theoretical Sectors Global",
    "L2 Theoretical Sectors Global Ideal", *STALL_NAMES,
)  # fmt: skip


def source_rows(variant: Variant) -> list[dict[str, Any]]:
    """A row a SASS line, keys as COLUMNS. Samples are warp-cycles of the simulated part, rounded."""
    return [_row(line) for line in variant.lines]


def _row(line: Line) -> dict[str, Any]:
    access = access_of(line.sass)
    opcode = parts(line.sass)[0]
    shared = access is not None and (access.space == SHARED or access.kind == "copy")
    wavefronts = line.wavefronts if shared else 0.0
    wavefronts_ideal = ideal_wavefronts(line) * line.executed if shared and wavefronts else 0.0
    sectors = line.sectors if access is not None and access.space == GLOBAL else 0.0
    sectors_ideal = ideal_sectors(line) * line.executed if sectors else 0.0
    samples = [round(float(value)) for value in line.stalls]
    space = "Generic" if opcode in _GENERIC else ADDRESS_SPACES[access.space] if access is not None else "-"
    row: dict[str, Any] = {
        "Address": f"{line.pc:#x}",
        "Source": line.sass,
        "Warp Stall Sampling (All Samples)": sum(samples),
        "# Samples": sum(samples),
        "Instructions Executed": round(line.executed),
        "Thread Instructions Executed": round(line.thread_executed),
        "Avg. Threads Executed": round(line.thread_executed / line.executed) if line.executed else 0,
        "Address Space": space,
        "Access Operation": _OPERATIONS[access.kind] if access is not None else "-",
        "Access Size": 8 * access.width if access is not None else "-",
        "L1 Conflicts Shared N-Way": round(wavefronts / line.executed) if line.executed and wavefronts else 0,
        "L1 Wavefronts Shared Excessive": max(0, round(wavefronts - wavefronts_ideal)),
        "L1 Wavefronts Shared": round(wavefronts),
        "L1 Wavefronts Shared Ideal": round(wavefronts_ideal),
        "L2 Theoretical Sectors Global Excessive": max(0, round(sectors - sectors_ideal)),
        "L2 Theoretical Sectors Global": round(sectors),
        "L2 Theoretical Sectors Global Ideal": round(sectors_ideal),
    }
    return row | {name: samples[_STALL_AT[name]] for name in STALL_NAMES}


def source_csv(variant: Variant) -> str:
    """The source page as `ncu --page source --csv` prints it: the kernel's name, column names, then the lines."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["Kernel Name", variant.row["kernel"] or variant.family, _provenance(variant)])
    writer.writerow(COLUMNS)
    for row in source_rows(variant):
        writer.writerow([row[name] for name in COLUMNS])
    return text.getvalue()


def _provenance(variant: Variant) -> str:
    return f"simulated by farm ({variant.target}, {variant.row['tier']} tier)"


def raw_metrics(variant: Variant) -> dict[str, tuple[str, Any]]:
    """Metric name -> (unit, value) of the raw page, as far as an estimate knows them."""
    row, memory = variant.row, variant.map("memory")
    block = [int(part) for part in row["block_dim"].split("x")]
    grid = [int(part) for part in row["grid_dim"].split("x")]
    found: dict[str, tuple[str, Any]] = {
        "dram__bytes_read.sum": ("byte", memory.get("dram_read_bytes")),
        "dram__bytes_write.sum": ("byte", memory.get("dram_write_bytes")),
        "gpu__time_duration.sum": ("ns", row["time_us"] * 1000.0 if row["time_us"] is not None else None),
        "launch__registers_per_thread": ("register/thread", row["registers"]),
        "launch__shared_mem_per_block_static": ("byte/block", row["static_shared_bytes"]),
        "launch__shared_mem_per_block_dynamic": ("byte/block", row["dynamic_shared_bytes"]),
        "launch__thread_count": ("thread", variant.threads * variant.ctas),
        "launch__waves_per_multiprocessor": ("", row["waves"]),
        "launch__block_size": ("", variant.threads),
        "launch__grid_size": ("", variant.ctas),
    }
    for name, sizes in (("block", block), ("grid", grid)):
        found |= {f"launch__{name}_dim_{axis}": ("", size) for axis, size in zip("xyz", sizes, strict=True)}
    found |= _occupancy(variant)
    for name, column in (
        ("l1tex__t_sector_hit_rate.pct", "l1_hit_share"),
        ("lts__t_sector_hit_rate.pct", "l2_hit_share"),
    ):
        share = memory.get(column)
        found[name] = ("%", None if share is None else 100.0 * share)
    found["smsp__inst_executed.sum"] = ("inst", row["warp_instructions"])
    found["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"] = ("", sum(line.wavefronts for line in variant.lines))
    found |= _stall_ratios(variant)
    return {name: value for name, value in sorted(found.items()) if value[1] is not None}


def _occupancy(variant: Variant) -> dict[str, tuple[str, Any]]:
    model, row = variant.model(), variant.row
    if model is None or row["registers"] is None:
        return {}
    shared = row["static_shared_bytes"] or 0, row["dynamic_shared_bytes"] or 0
    try:
        found = occupancy(model, row["registers"], variant.threads, *shared, row.get("barriers") or 0)
    except CannotLaunch:
        return {}
    names = {
        "blocks": "blocks",
        "registers": "registers",
        "shared_memory": "shared_mem",
        "warps": "warps",
        "barriers": "barriers",
    }
    limits = {f"launch__occupancy_limit_{names[key]}": ("block", value) for key, value in found.limits.items()}
    return {
        **limits,
        "launch__sm_count": ("SM", model.sm_count),
        "sm__maximum_warps_per_active_cycle_pct": ("%", 100.0 * found.fraction),
    }


def _stall_ratios(variant: Variant) -> dict[str, tuple[str, Any]]:
    """Warps in each state per issued instruction, from warp-cycles."""
    totals = np.sum([line.stalls for line in variant.lines], axis=0) if variant.lines else np.zeros(N_STALLS)
    issued = float(totals[Stall.SELECTED])
    if not issued:
        return {}
    return {
        f"smsp__average_warps_issue_stalled_{stall_name(stall)}_per_issue_active.ratio": (
            "inst",
            float(totals[stall] / issued),
        )
        for stall in STALLS
    }


_ABOUT = ("ID", "Kernel Name", "Block Size", "Grid Size", "Device")


def raw_csv(variants: Sequence[Variant]) -> str:
    """The raw page as `ncu --page raw --csv` prints it: names, units, then a row a kernel."""
    metrics = [raw_metrics(variant) for variant in variants]
    names = list(dict.fromkeys(name for found in metrics for name in found))
    units = {name: unit for found in metrics for name, (unit, _) in found.items()}
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*_ABOUT, "Provenance", *names])
    writer.writerow([*("" for _ in _ABOUT), "", *(units[name] for name in names)])
    for number, (variant, found) in enumerate(zip(variants, metrics, strict=True)):
        about = [
            number,
            variant.row["kernel"] or variant.family,
            _tuple(variant.row["block_dim"]),
            _tuple(variant.row["grid_dim"]),
            variant.target,
        ]
        writer.writerow([*about, _provenance(variant), *(found[name][1] if name in found else "" for name in names)])
    return text.getvalue()


def _tuple(dimensions: str) -> str:
    """ "(256, 1, 1)", as Nsight writes sizes."""
    return "(" + ", ".join(dimensions.split("x")) + ")"
