"""What the whole chip's L2 and DRAM see, estimated from the CTAs that were executed on one SM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interpreter.isa.pipes import MemoryKind
from interpreter.trace import LOCAL_LINE, Trace

SECTOR_BYTES = 32
CTA_SHIFT = 44  # above any line number
SCATTER_BYTES = 8192  # coincidences below this could be chance
LINE_BYTES = 128
_POPCOUNT = np.array([bin(mask).count("1") for mask in range(16)], np.int64)


@dataclass(frozen=True, slots=True)
class Region:
    """One allocation: its lines and the traffic of the whole grid to it, in bytes."""

    first_line: int
    last_line: int
    read_bytes: float  # distinct bytes each SM reads, added over SMs
    read_unique: float  # distinct bytes the grid reads
    write_bytes: float  # all bytes of all sectors written, each time
    write_unique: float
    atomic_contention: float  # share of its atomics that the busiest L2 slice gets; 0: no line is shared by CTAs
    scatter: float  # CTAs read parts of it that look drawn at random: 1 / lines in a row of such a part; else 0


def access_table(rows: np.ndarray, trace: Trace) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(line, sector mask, memory kind, CTA position) of every global line access of a trace."""
    n = trace.events["lines"].astype(np.int64)
    kind = np.repeat(rows["memory"][trace.events["row"]], n)
    cta_of_warp = np.repeat(np.arange(len(trace.ctas)), trace.warps_per_cta)
    lines_of_warp = np.diff(trace.line_start)
    cta = np.repeat(cta_of_warp, lines_of_warp)
    line = (trace.lines >> np.uint64(4)).astype(np.int64)
    mask = (trace.lines & np.uint64(15)).astype(np.int64)
    near = line < LOCAL_LINE
    return line[near], mask[near], kind[near], cta[near]


def _distinct_bytes(line: np.ndarray, mask: np.ndarray) -> float:
    if line.size == 0:
        return 0.0
    order = np.argsort(line, kind="stable")
    line, mask = line[order], mask[order]
    starts = np.flatnonzero(np.r_[True, line[1:] != line[:-1]])
    merged = np.bitwise_or.reduceat(mask, starts)
    return float(_POPCOUNT[merged].sum() * SECTOR_BYTES)


def regions_of(rows: np.ndarray, trace: Trace, allocations: Sequence[tuple[int, int]], grid_ctas: int) -> list[Region]:
    """Traffic to each allocation (address, bytes), extrapolated from the trace's CTAs to `grid_ctas`.

    A sector that several CTAs of one SM read counts once for that SM (L1 or L2 keeps it); what the grid reads in all is
    at most the allocation's size.
    """
    line, mask, kind, cta = access_table(rows, trace)
    loads = np.isin(kind, (int(MemoryKind.LOAD_GLOBAL), int(MemoryKind.COPY_ASYNC)))
    stores = kind == int(MemoryKind.STORE_GLOBAL)
    atomics = np.isin(kind, (int(MemoryKind.ATOMIC_GLOBAL), int(MemoryKind.REDUCE_GLOBAL)))
    scale = grid_ctas / max(len(trace.ctas), 1)
    out = []
    for address, size in sorted(allocations):
        first, last = address // LINE_BYTES, (address + max(size, 1) - 1) // LINE_BYTES
        inside = (line >= first) & (line <= last)
        wanted = inside & loads
        distinct = _distinct_bytes(line[wanted], mask[wanted])
        read = distinct * scale
        scattered = _all_over(line[wanted], cta[wanted], last - first) and _scattered(
            _distinct_bytes(line[wanted] | cta[wanted] << CTA_SHIFT, mask[wanted]), distinct, size
        )
        unique = float(size) * -np.expm1(-read / size) if scattered else min(read, float(size))
        unique_written = _distinct_bytes(line[inside & stores], mask[inside & stores]) * scale
        written = float(_POPCOUNT[mask[inside & stores]].sum() * SECTOR_BYTES) * scale
        hot = inside & atomics
        scatter = _parts_per_line(line[wanted], cta[wanted]) if scattered else 0.0
        contention = _contention(line[hot], cta[hot], len(trace.ctas), grid_ctas)
        out.append(Region(first, last, read, unique, written, min(unique_written, float(size)), contention, scatter))
    return out


def _all_over(line: np.ndarray, cta: np.ndarray, lines: int) -> bool:
    """Do CTAs (ascending) each reach over most of an allocation of so many lines?"""
    if line.size == 0:
        return False
    starts = np.flatnonzero(np.r_[True, cta[1:] != cta[:-1]])
    reach = np.maximum.reduceat(line, starts) - np.minimum.reduceat(line, starts)
    return float(np.median(reach)) > 0.5 * lines


def _scattered(per_cta: float, together: float, size: int) -> bool:
    """Do CTAs read parts of an allocation as if drawn at random from all of it?

    `per_cta`: distinct bytes of each CTA, added; `together`: distinct bytes of all of them. Random draws of that many
    bytes coincide to a known extent; parts dealt out to CTAs do not coincide, and shared tiles do far more often.
    """
    if size <= 0 or per_cta <= 0.0:
        return False
    coincide = per_cta - together
    expected = per_cta - size * -np.expm1(-per_cta / size)
    return coincide >= SCATTER_BYTES and 0.5 * expected <= coincide <= 2.0 * expected


def _parts_per_line(line: np.ndarray, cta: np.ndarray) -> float:
    """1 / lines in a row that a CTA touches, on average."""
    touched = np.unique(line | cta << CTA_SHIFT)
    return float(1.0 - (np.diff(touched) == 1).sum() / len(touched))


def _contention(line: np.ndarray, cta: np.ndarray, ctas: int, grid_ctas: int) -> float:
    """Share of a region's atomics that the busiest L2 slice works on, when CTAs share its lines; else 0.

    With few lines it is the share of the busiest line. Many lines are hashed over the slices unevenly: histograms of
    256, 1024 and 4096 bins on an H200 show 1.0, 1.5 and 1.9 times the even share for 8, 32 and 128 lines.
    """
    if line.size == 0:
        return 0.0
    _, counts = np.unique(line, return_counts=True)
    pairs = np.unique(np.stack([line, cta]), axis=1).shape[1]
    shared = pairs > 1.2 * counts.size or (ctas == 1 and grid_ctas > 1)
    if not shared:
        return 0.0
    # a short sample makes even counts look uneven: allow for its scatter
    even = 1.0 / counts.size
    busiest = max(even, float((counts.max() - 2.0 * np.sqrt(counts.max())) / counts.sum()))
    return min(1.0, busiest * (1.0 + 0.2 * max(np.log2(counts.size / 8.0), 0.0)))


def local_bytes_per_warp(trace: Trace) -> float:
    """Mean bytes of local memory (stack, spills) that a traced warp touches."""
    line = trace.lines >> np.uint64(4)
    local = line >= np.uint64(LOCAL_LINE)
    if not local.any():
        return 0.0
    warp = np.repeat(np.arange(len(trace.line_start) - 1, dtype=np.uint64), np.diff(trace.line_start))
    keys = (warp[local] << np.uint64(32)) | (line[local] - np.uint64(LOCAL_LINE))
    return float(np.unique(keys).size * LINE_BYTES / max(len(trace.line_start) - 1, 1))
