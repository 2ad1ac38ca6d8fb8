"""Where a baseline comes from: a checkout of a git ref, a Parquet file, or a run in a store."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from farm.analysis.variant import Line, Variant, VariantTable
from farm.database import RunDatabase
from farm.gate.config import Gate, GateError
from farm.gate.evaluate import Side, key_of
from farm.output import writing_to
from farm.store import open_store
from interpreter.errors import FarmError
from jobs.tables import STALL_COLUMNS

FORMAT = 1
_KEY = b"farm.gate"
_LINE = pa.struct(
    [
        ("pc", pa.int32()),
        ("sass", pa.string()),
        ("source_line", pa.int32()),
        ("source_file", pa.string()),
        ("executed", pa.float64()),
        ("thread_executed", pa.float64()),
        ("sectors", pa.float64()),
        ("wavefronts", pa.float64()),
        ("sectors_ideal", pa.float64()),
        ("wavefronts_ideal", pa.float64()),
        ("stalls", pa.list_(pa.float32(), len(STALL_COLUMNS))),
    ]
)
_ROW = [
    ("status", pa.string()), ("failure", pa.string()), ("message", pa.string()), ("tier", pa.string()),
    ("l2", pa.string()), ("time_us", pa.float64()), ("bound", pa.string()), ("confidence", pa.string()),
    ("grid_dim", pa.string()), ("block_dim", pa.string()), ("registers", pa.int32()), ("stack_bytes", pa.int32()),
    ("spill_store_bytes", pa.int32()), ("spill_load_bytes", pa.int32()), ("static_shared_bytes", pa.int32()),
    ("dynamic_shared_bytes", pa.int64()), ("code_bytes", pa.int32()), ("ctas_per_sm", pa.int32()),
    ("warps_per_sm", pa.int32()), ("occupancy", pa.float64()), ("limiter", pa.string()), ("waves", pa.float64()),
    ("memory", pa.map_(pa.string(), pa.float64())),
]  # fmt: skip
SCHEMA = pa.schema(
    [
        ("family", pa.string()),
        ("variant", pa.int32()),
        ("parameters", pa.map_(pa.string(), pa.int64())),
        ("target", pa.string()),
        ("source", pa.string()),
        *_ROW,
        ("lines", pa.list_(_LINE)),
    ]
)
_NONE = {"measured_us": None}


class GitError(FarmError):
    """A ref that git does not know, or a folder that is no repository."""


@contextlib.contextmanager
def checkout(folder: Path, ref: str, scratch: Path) -> Iterator[tuple[Path, str]]:
    """(the counterpart of `folder`, commit) in a temporary worktree at the merge base of HEAD and `ref`.

    Without a common ancestor it is `ref` itself. Hooks do not run. Raises GitError; OSError when git is not there.
    """
    try:
        top = Path(_git(folder, "rev-parse", "--show-toplevel").strip())
    except GitError as error:
        raise GitError(f"baseline git {ref}: {folder} is in no git repository ({error})") from None
    try:
        commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip()
    except GitError:
        raise GitError(
            f"git ref {ref}: not in {top} (in CI fetch the history: actions/checkout with fetch-depth: 0)"
        ) from None
    with contextlib.suppress(GitError):
        commit = _git(folder, "merge-base", "HEAD", commit).strip()
    tree = scratch / "baseline"
    _git(folder, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--force", "--detach", str(tree), commit)
    try:
        yield tree / folder.resolve().relative_to(top.resolve()), commit
    finally:
        with contextlib.suppress(GitError):
            _git(folder, "worktree", "remove", "--force", str(tree))


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=600)
    except FileNotFoundError:
        raise OSError("git is not installed: a git baseline needs it") from None
    except subprocess.TimeoutExpired:
        raise OSError(f"git {arguments[0]}: no answer after 10 minutes") from None
    if done.returncode != 0:
        if "No space left" in done.stderr or "Input/output error" in done.stderr:
            raise OSError(f"git {arguments[0]}: {done.stderr.strip()}")
        raise GitError(f"git {' '.join(arguments)}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return done.stdout


def write_baseline(path: Path, side: Side, gate: Gate) -> None:
    """The current estimates as a Parquet file to commit. Written under another name first, then renamed."""
    rows = [
        _as_row(variant)
        for _, variant in sorted(side.variants.items(), key=lambda item: (item[0][0], item[1].number, item[0][2]))
    ]
    about = {"format": FORMAT, "model": side.model, "l2": gate.l2, "tier": gate.last_tier()}
    schema = SCHEMA.with_metadata({_KEY: json.dumps(about, sort_keys=True).encode()})
    table = pa.Table.from_pylist(rows, schema=schema)
    temporary = path.with_name(f".{path.name}.tmp")
    with writing_to(f"--write-baseline {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, temporary, compression="zstd", compression_level=9)
        temporary.replace(path)


def _as_row(variant: Variant) -> dict[str, Any]:
    lines = [
        {
            **{name: getattr(line, name) for name in _LINE.names if name != "stalls"},
            "source_file": Path(line.source_file).name,
            "stalls": line.stalls.astype(np.float32).tolist(),
        }
        for line in variant.lines
    ]
    return {
        "family": variant.family,
        "variant": variant.number,
        "parameters": list(variant.parameters.items()),
        "target": variant.target,
        "source": variant.source,
        **{name: variant.row.get(name) for name, _ in _ROW},
        "lines": lines,
    }


def read_baseline(path: Path, gate: Gate) -> Side:
    """A file that `write_baseline` made. Raises GateError."""
    try:
        file = pq.ParquetFile(path)
        table = file.read()
    except FileNotFoundError:
        raise GateError(f"{path}: no such baseline; make it with farm gate --write-baseline {path}") from None
    except pa.ArrowInvalid as error:
        raise GateError(f"{path}: not a Parquet file: {str(error).splitlines()[0]}") from None
    except (pa.ArrowException, OSError) as error:
        if path.is_dir():
            raise GateError(f"{path}: is a folder, not a Parquet file") from None
        if isinstance(error, OSError) and error.errno:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
        reason = str(error).splitlines()[0].rstrip(".")
        raise GateError(f"{path}: damaged: {reason}. Restore it, or write it again with --write-baseline") from None
    try:
        about = json.loads((table.schema.metadata or {})[_KEY])
        if set(SCHEMA.names) - set(table.column_names):
            raise KeyError(_KEY)
    except (KeyError, ValueError):
        raise GateError(f"{path}: not a baseline of a gate (write one with farm gate --write-baseline)") from None
    if about.get("format") != FORMAT:
        raise GateError(
            f"{path}: baseline of format {about.get('format')}, this program reads {FORMAT}: write it again"
        )
    for name, wanted in (("l2", gate.l2), ("tier", gate.last_tier())):
        if about.get(name) != wanted:
            raise GateError(
                f"{path}: baseline with {name} {about.get(name)}, the gate has {name} {wanted}: write it again"
            )
    side = Side(model=about.get("model", ""), label=str(path))
    for row in table.to_pylist():
        variant = Variant(
            path.name, row["family"], row["variant"], row["target"], {**row, **_NONE},
            [_as_line(line) for line in row["lines"]], dict(row["parameters"]), row["source"] or "",
        )  # fmt: skip
        side.variants[key_of(variant)] = variant
    return side


def _as_line(row: dict[str, Any]) -> Line:
    return Line(**{**row, "stalls": np.array(row["stalls"], float)})


def stored_baseline(uri: str, run: str, gate: Gate) -> Side:
    """A run of a store. Raises GateError when it was made for other conditions."""
    database = RunDatabase(open_store(uri).find(run))
    side = Side(label=f"{uri}#{database.folder.manifest.run}")
    for family in database.folder.manifest.families.values():
        side.model = family.identity.get("model", "")
        if family.identity.get("l2", gate.l2) != gate.l2:
            raise GateError(f"run {run}: made with --l2 {family.identity['l2']}, the gate has l2: {gate.l2}")
    for row in database.rows("SELECT DISTINCT family, target FROM variants ORDER BY ALL"):
        for variant in VariantTable(database, row["family"], row["target"], gate.last_tier()):
            side.variants[key_of(variant)] = variant
    return side
