"""The data of one candidate's page: figures, panels and SASS on each target, listings shared where the code is."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from farm.database import RunDatabase
from farm.observability.redact import redacted
from farm.page.code import Listing, analyse
from farm.page.flow import members
from farm.page.index_data import compact
from farm.page.register_use import register_name
from farm.page.sources import source_texts
from farm.page.what_if import Footprint, occupancy_panel
from farm.page.work_done import roofline, traffic
from interpreter.errors import FarmError
from jobs.tables import STALL_COLUMNS
from timing.target import Target, load_target

_FIGURES = (
    "tier", "l2", "time_us", "cycles", "clock_mhz", "bound", "ctas_per_sm", "warps_per_sm", "occupancy", "limiter",
    "waves", "warp_instructions", "executed_share", "expected_error", "confidence", "simulation_seconds",
)  # fmt: skip
_CODE = (
    "arch", "kernel", "grid_dim", "block_dim", "dynamic_shared_bytes", "cubin_sha", "command", "compiler", "registers",
    "static_shared_bytes", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "code_bytes", "compile_seconds",
    "barriers",
)  # fmt: skip


def candidate_data(database: RunDatabase, family: str, variant: int) -> dict[str, Any]:
    """Everything the page of one candidate shows, as plain data for JSON. Raises FarmError when there is none."""
    rows = database.rows(
        """
        SELECT v.* EXCLUDE (status, failure, message), g."group", m.time_us AS measured_us, m.min_us AS measured_min_us,
               m.spread, m.used, m.clock_mhz AS measured_clock_mhz, m.l2 AS measured_l2, m.source AS measured_source
        FROM variants v JOIN groups g USING (family, variant) LEFT JOIN measurements m USING (family, variant, target)
        WHERE v.family = ? AND v.variant = ?
        """,
        [family, variant],
    )
    known = database.folder.manifest.families.get(family)
    if known is None or not rows:
        raise FarmError(f"run {database.folder.manifest.run}: no variant {variant} of {family}")
    rows.sort(key=lambda row: known.targets.index(row["target"]))
    places = {
        row["target"]: row
        for row in database.rows(
            """
            SELECT target, place, "of", best_us, best_variant FROM (
                SELECT target, variant, place, count(*) FILTER (status = 'ok') OVER w AS "of",
                       min(time_us) FILTER (status = 'ok') OVER w AS best_us,
                       arg_min(variant, time_us) FILTER (status = 'ok') OVER w AS best_variant
                FROM best_ranking WHERE family = ? WINDOW w AS (PARTITION BY target, "group", tier)
            ) WHERE variant = ?
            """,
            [family, variant],
        )
    }
    estimates = database.rows(
        "SELECT * FROM estimates WHERE family = ? AND variant = ? ORDER BY tier <> 'cycle', tier <> 'sampled'",
        [family, variant],
    )
    codes: dict[str, Any] = {}
    listings: dict[str, Listing] = {}
    targets: dict[str, Any] = {}
    for row in rows:
        mine = [e for e in estimates if e["target"] == row["target"]]
        lines = _lines(database, family, variant, row["target"], mine)
        code = None
        if lines is not None:
            texts = lines["sass"]
            code = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
            if code not in codes:
                listings[code] = analyse(texts, lines["control"])
                codes[code] = listing_data(lines, listings[code])
        targets[row["target"]] = _on_target(row, mine, places.get(row["target"]), code, lines, listings)
    return {
        "family": family,
        "variant": variant,
        "group": rows[0]["group"],
        "parameters": dict(rows[0]["parameters"] or []),
        "names": dict(rows[0]["names"] or []),
        "targets": targets,
        "codes": codes,
        "sources": source_texts(database.folder, known, (name for code in codes.values() for name in code["files"])),
    }


def _lines(
    database: RunDatabase, family: str, variant: int, target: str, estimates: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """Columns of the table `instructions` for the best tier that has them, in order of pc."""
    for estimate in estimates:
        table = database.table(
            "SELECT * FROM instructions WHERE family = ? AND variant = ? AND target = ? AND tier = ? ORDER BY pc",
            [family, variant, target, estimate["tier"]],
        )
        if table.num_rows:
            columns: dict[str, Any] = {"tier": estimate["tier"], "sass": table.column("sass").to_pylist()}
            for name in (
                "source_line", "executed", "thread_executed", "sectors", "wavefronts", "sectors_ideal",
                "wavefronts_ideal", *STALL_COLUMNS,
            ):  # fmt: skip
                values = table.column(name).cast("float64").to_numpy(zero_copy_only=False)
                columns[name] = np.nan_to_num(values)
            columns["source_file"] = table.column("source_file").to_pylist()
            columns["has_ideal"] = table.column("sectors_ideal").null_count == 0
            columns["has_stalls"] = any(table.column(name).null_count == 0 for name in STALL_COLUMNS)
            control = table.column("control")
            columns["control"] = None if control.null_count else control.to_numpy()
            return columns
    return None


def listing_data(lines: dict[str, Any], listing: Listing) -> dict[str, Any]:
    """A kernel's code for the page. Lists have one entry a row; `deps` and `waits` are flat lists of numbers:
    producer row and register, setter row and 2 * scoreboard + (1 when for the result)."""
    files = sorted({f for f in lines["source_file"] if f})
    previous = 0
    changes = []
    for mask in listing.live:
        mask &= (1 << 256) - 1
        changes.append([members(mask & ~previous), members(previous & ~mask)])
        previous = mask
    registers = sorted({r for row in listing.producers for _, r in row})
    return {
        "sass": lines["sass"],
        "line": [int(n) for n in lines["source_line"]],
        "files": files,
        "file": [files.index(f) if f else -1 for f in lines["source_file"]] if len(files) > 1 else [],
        "control": None if lines["control"] is None else [int(c) for c in lines["control"]],
        "live": listing.live_registers(),
        "uniform": listing.live_uniforms(),
        "changes": changes,
        "deps": [[n for pair in row for n in pair] for row in listing.producers],
        "waits": [[n for w in row for n in (w.setter, 2 * w.number + w.result)] for row in listing.waits],
        "names": {register: register_name(register) for register in registers},
        "branches": [list(branch) for branch in listing.branches],
        "local": [[row, kind] for row, kind in enumerate(listing.local_accesses()) if kind],
    }


def _on_target(
    row: dict[str, Any],
    estimates: list[dict[str, Any]],
    place: dict[str, Any] | None,
    code: str | None,
    lines: dict[str, Any] | None,
    listings: dict[str, Listing],
) -> dict[str, Any]:
    """One target's part of the page."""
    target = _target(row["target"])
    block, grid = _product(row["block_dim"]), _product(row["grid_dim"])
    good = [e for e in estimates if e["status"] == "ok"]
    failed = [e for e in estimates if e["status"] != "ok"]
    found: dict[str, Any] = {
        "gpu": None if target is None else _gpu(target),
        "code": {name: compact(row[name]) for name in _CODE},
        "launch": {"ctas": grid, "threads": block},
        "listing": code,
        "tiers": [{name: compact(e[name]) for name in _FIGURES} for e in good],
        "failures": [
            {"tier": e["tier"], "failure": e["failure"], "message": redacted(e["message"] or "")} for e in failed
        ],
        "place": place and {name: compact(place[name]) for name in ("place", "of", "best_us", "best_variant")},
    }
    if row["measured_us"] is not None:
        names = (
            "measured_us", "measured_min_us", "spread", "used", "measured_clock_mhz", "measured_l2", "measured_source",
        )  # fmt: skip
        found["measured"] = {name.removeprefix("measured_"): compact(row[name]) for name in names}
    if not good:
        return found
    best = good[0]
    found["coverage"] = _map(best["coverage"])
    found["bounds"] = _map(best["bounds_us"])
    found["memory"] = _map(best["memory"])
    if target is not None and row["registers"] is not None and block:
        footprint = Footprint(
            row["registers"], block, row["static_shared_bytes"] or 0, row["dynamic_shared_bytes"] or 0,
            row["barriers"] or 0,
        )  # fmt: skip
        found["occupancy"] = occupancy_panel(target, footprint, grid)
    if lines is None or code is None:
        return found
    stalls = np.column_stack([lines[name] for name in STALL_COLUMNS])
    found["lines"] = {
        "tier": lines["tier"],
        "executed": _counts(lines["executed"]),
        "threads": _counts(lines["thread_executed"]),
        "sectors": _counts(lines["sectors"]),
        "wavefronts": _counts(lines["wavefronts"]),
        "sectors_ideal": _counts(lines["sectors_ideal"]) if lines["has_ideal"] else None,
        "wavefronts_ideal": _counts(lines["wavefronts_ideal"]) if lines["has_ideal"] else None,
        "stalls": _sparse(stalls) if lines["has_stalls"] else None,
    }
    if target is not None:
        instructions = listings[code].instructions
        found["roofline"] = _compacted(
            roofline(
                instructions, lines["executed"], lines["thread_executed"], target, best["time_us"],
                dict(best["memory"] or []),
            )
        )  # fmt: skip
        found["traffic"] = _compacted(
            traffic(instructions, lines["executed"], lines["sectors"], lines["wavefronts"], target.sm)
        )
    return found


def _target(name: str) -> Target | None:
    """The target's data; None for one described by a file that is not at hand."""
    try:
        return load_target(name)
    except FarmError:
        return None


def _gpu(target: Target) -> dict[str, Any]:
    return {
        "name": target.full_name,
        "arch": target.arch,
        "sms": target.sm_count,
        "clock_mhz": target.clock_mhz,
        "l2_bytes": target.l2.bytes,
        "l1_kb": target.l1.unified_kb,
        "dram_gb_s": target.dram.gb_per_s,
        "max_warps": target.limits.max_warps_per_sm,
        "max_registers": target.limits.max_registers_per_thread,
        "l2_gb_s": compact(target.l2.bytes_per_clk * target.clock_mhz / 1e3),
    }


def _map(pairs: list[tuple[str, float]] | None) -> dict[str, Any]:
    return {name: compact(value) for name, value in pairs or []}


def _product(dim: str | None) -> int:
    total = 1
    for part in (dim or "0").split("x"):
        total *= int(part)
    return total


def _counts(values: np.ndarray) -> list[Any]:
    """Counts as whole numbers where they are (extrapolated ones need not be)."""
    return [int(v) if v == int(v) else compact(v) for v in values.tolist()]


def _sparse(stalls: np.ndarray) -> list[list[Any]]:
    """Each row as reason, warp-cycles, reason, warp-cycles, ..."""
    rows: list[list[Any]] = []
    for row in stalls:
        flat: list[Any] = []
        for reason in np.flatnonzero(row > 0).tolist():
            flat += [reason, compact(float(f"{row[reason]:.4g}"))]
        rows.append(flat)
    return rows


def _compacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _compacted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_compacted(inner) for inner in value]
    return compact(value)
