"""A large run made from a small real one: as many variants and targets as asked for, through the ordinary writer.

    python benchmarks/make_run.py STORE/RUN STORE/BIG [--variants 5000] [--rows 40000000]

Every (variant, target) gets the instruction rows of a real result, drawn at random and shifted so that no two are the
same: counts are scaled and every stall figure changed by up to 20 %, which also keeps the tables from compressing
better than real ones. Times are shifted alike, and every target gets measured times, so correlations are computed in
full.
Prints rows a second, sizes and the memory that writing took.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time
from typing import Any

import common
import numpy as np
import pyarrow as pa

from farm.store import open_store
from jobs.run_folder import Family, RunFolder
from jobs.tables import SCHEMAS, STALL_COLUMNS, Rows, from_rows
from timing.target import TARGETS

CHUNK = 25  # variants written at a time, about what a submission gathers in two seconds
COUNTS = ("executed", "thread_executed", "sectors", "wavefronts")


def main() -> None:
    options = _options()
    print(common.heading())
    source = _open(options.source).load()
    target_run = _open(options.run)
    blocks, variants, estimates = _real(source)
    lines = max(1, round(options.rows / (options.variants * len(TARGETS))))
    rng = np.random.default_rng(1)
    began, written = time.perf_counter(), 0
    with target_run.writing() as folder:
        folder.manifest.families["big"] = _family(options.variants, list(variants[0]["parameters"]))
        for first in range(0, options.variants, CHUNK):
            rows = Rows()
            for number in range(first, min(first + CHUNK, options.variants)):
                for target in TARGETS:
                    _add(rows, number, target, lines, blocks, variants, estimates, rng)
            written += sum(len(block["pc"]) for block in rows.instructions)
            folder.add(rows.tables())
        folder.replace("measurements", from_rows("measurements", _measured(options.variants, rng)))
        added = time.perf_counter() - began
        before = {name: len(parts) for name, parts in folder.manifest.parts.items()}
        folder.finish()
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{written:,} instruction rows in {added:.0f} s ({written / added / 1e6:.2f} M rows/s), finished in "
        f"{seconds - added:.0f} s more; peak memory {memory} MiB"
    )
    for name, parts in folder.manifest.parts.items():
        size, rows_ = sum(p.bytes for p in parts), sum(p.rows for p in parts)
        print(f"{name:13} {rows_:>11,} rows, {size / 2**20:8.1f} MiB, {size / rows_:6.2f} B/row, "
              f"{before[name]} parts before finishing, {len(parts)} after")  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a finished run: STORE/RUN")
    parser.add_argument("run", help="where the large one goes: STORE/RUN (a folder or s3://bucket/...)")
    parser.add_argument("--variants", type=int, default=5000)
    parser.add_argument("--rows", type=int, default=40_000_000, help="of the table `instructions`")
    return parser.parse_args()


def _open(text: str) -> RunFolder:
    store, _, run = text.rstrip("/").rpartition("/")
    return open_store(store or ".").folder(run)


def _real(source: RunFolder) -> tuple[list[pa.Table], list[dict[str, Any]], list[dict[str, Any]]]:
    """Instruction rows a (variant, target), rows of `variants`, and of `estimates` that are all right."""
    table = source.read("instructions").unify_dictionaries().combine_chunks()
    keys = list(zip(*(table.column(c).to_pylist() for c in ("family", "variant", "target", "tier")), strict=True))
    cuts = [0, *(i for i in range(1, len(keys)) if keys[i] != keys[i - 1]), len(keys)]
    blocks = [table.slice(a, b - a) for a, b in itertools.pairwise(cuts) if keys[a][3] == "sampled"]
    estimates = [row for row in source.read("estimates").to_pylist() if row["status"] == "ok"]
    return blocks, source.read("variants").to_pylist(), estimates


def _family(variants: int, parameters: list[Any]) -> Family:
    return Family(
        name="big", identity={}, parameters=["TILE", "STAGES", "UNROLL"], rank_within=[], targets=list(TARGETS),
        path="generated", sweep={}, variants=variants, planned=variants,
    )  # fmt: skip


def _add(
    rows: Rows, number: int, target: str, lines: int, blocks: list[pa.Table], variants: list[dict[str, Any]],
    estimates: list[dict[str, Any]], rng: np.random.Generator,
) -> None:  # fmt: skip
    """One variant on one target: `lines` instruction rows from as many real results as that takes."""
    key = {"family": "big", "variant": number, "target": target}
    parameters = [("TILE", 8 << number % 6), ("STAGES", number // 6 % 5), ("UNROLL", number // 30)]
    rows.variants.append({**variants[number % len(variants)], **key, "parameters": parameters, "status": "ok"})
    shift = float(rng.lognormal(0, 0.5))
    estimate = estimates[int(rng.integers(len(estimates)))]
    for tier in ("static", "sampled"):
        factor = shift * (1.0 if tier == "sampled" else float(rng.uniform(0.4, 1.0)))
        rows.estimates.append({**estimate, **key, "tier": tier, "time_us": (estimate["time_us"] or 1.0) * factor})
    left, pc = lines, 0
    while left > 0:
        block = blocks[int(rng.integers(len(blocks)))]
        taken = block.slice(0, min(left, block.num_rows))
        length = taken.num_rows
        piece: dict[str, Any] = {**key, "tier": "sampled", "pc": np.arange(pc, pc + length, dtype=np.int32) * 16}
        piece["sass"] = taken.column("sass").combine_chunks()
        piece["source_line"] = taken.column("source_line").to_numpy()
        for name in COUNTS:
            piece[name] = np.rint(taken.column(name).to_numpy() * shift)
        jitter = rng.uniform(0.8, 1.2, length).astype(np.float32)
        for name in STALL_COLUMNS:
            piece[name] = np.rint(taken.column(name).to_numpy() * jitter)
        rows.instructions.append(piece)
        left, pc = left - length, pc + length


def _measured(variants: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    times = rng.lognormal(5, 0.6, (variants, len(TARGETS)))
    return [
        {"family": "big", "variant": number, "target": target, "time_us": float(times[number, place]), "spread": 0.01,
         "used": True, "l2": "warm", "source": "generated"}
        for number in range(variants)
        for place, target in enumerate(TARGETS)
    ]  # fmt: skip


if __name__ == "__main__":
    assert set(STALL_COLUMNS) <= set(SCHEMAS["instructions"].names)
    main()
