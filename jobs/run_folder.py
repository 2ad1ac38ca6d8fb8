"""A run's folder: Parquet parts named by their content, and a manifest that says which of them count.

Layout: `manifest.json`, `parts/<table>-<hash>.parquet`, `lock`. A part is written under a temporary name and renamed;
then the manifest is replaced the same way. So whatever a kill leaves behind, the manifest names whole files only, and
what it does not name never happened: the next submission removes it and does that work again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from interpreter.errors import FarmError
from jobs.tables import SCHEMA_VERSION, SCHEMAS, read_table, write_table

MANIFEST = "manifest.json"
MERGED_BYTES = 64 << 20  # parts are merged up to this size: few files, and a merge fits memory


class RunError(FarmError):
    """A run that is not there, is being written by another process, or was made from something else."""


@dataclass(slots=True)
class Family:
    """What a run knows of one sweep. `identity` decides whether a resubmission is the same work."""

    name: str
    identity: dict[str, str]  # sweep digest, model digest, l2
    parameters: list[str]
    rank_within: list[str]
    targets: list[str]
    path: str
    sweep: dict[str, Any]
    variants: int  # in the whole sweep
    planned: int  # variants asked for so far


@dataclass(slots=True)
class Manifest:
    run: str
    complete: bool = False
    schema_version: int = SCHEMA_VERSION
    families: dict[str, Family] = field(default_factory=dict)
    parts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # table -> [{file, rows, bytes}]

    def to_json(self) -> str:
        content = {
            "run": self.run,
            "complete": self.complete,
            "schema_version": self.schema_version,
            "families": {name: _as_dict(family) for name, family in self.families.items()},
            "parts": self.parts,
        }
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        content = json.loads(text)
        content["families"] = {name: Family(**family) for name, family in content["families"].items()}
        return cls(**content)


def _as_dict(family: Family) -> dict[str, Any]:
    return {name: getattr(family, name) for name in Family.__dataclass_fields__}


class RunFolder:
    """One run on disk. Reading needs no lock; `writing()` takes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = Manifest(run=path.name)

    @property
    def exists(self) -> bool:
        return (self.path / MANIFEST).is_file()

    def load(self) -> RunFolder:
        """Read the manifest. Raises RunError when there is none or it is of another schema version."""
        try:
            text = (self.path / MANIFEST).read_text()
        except OSError:
            raise RunError(f"{self.path}: no run here (no {MANIFEST})") from None
        try:
            found = json.loads(text).get("schema_version")
            if found != SCHEMA_VERSION:
                raise RunError(
                    f"{self.path}: tables of schema version {found}, this program reads {SCHEMA_VERSION}; submit again"
                )
            self.manifest = Manifest.from_json(text)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{self.path}/{MANIFEST}: not a manifest: {error}") from None
        return self

    @contextlib.contextmanager
    def writing(self) -> Any:
        """Hold the run's lock: one writer at a time. The system releases it when the process dies, however it dies."""
        (self.path / "parts").mkdir(parents=True, exist_ok=True)
        with open(self.path / "lock", "a+") as lock:
            _take(lock, self.path)
            if self.exists:
                self.load()
            self._remove_orphans()
            yield self

    def files(self, table: str) -> list[Path]:
        """The parts of `table` that count."""
        return [self.path / "parts" / part["file"] for part in self.manifest.parts.get(table, [])]

    def read(self, table: str, columns: list[str] | None = None) -> pa.Table:
        """All rows of `table`, empty when it has none."""
        try:
            try:
                found = [read_table(path, columns) for path in self.files(table)]
            except FileNotFoundError:  # a writer has merged parts since the manifest was read
                found = [read_table(path, columns) for path in self.load().files(table)]
        except (OSError, ValueError) as error:
            raise RunError(f"run {self.manifest.run}: {error}") from None
        if found:
            return pa.concat_tables(found)
        empty = SCHEMAS[table].empty_table()
        return empty.select(columns) if columns else empty

    def done(self, family: str, tier: str) -> set[tuple[int, str]]:
        """(variant, target) pairs of `family` that have a result of `tier`, failed ones too."""
        table = self.read("estimates", ["family", "variant", "target", "tier"])
        rows = zip(*(table.column(name).to_pylist() for name in ("family", "variant", "target", "tier")), strict=True)
        return {(variant, target) for name, variant, target, of in rows if name == family and of == tier}

    # ---- writing: only under the lock

    def add(self, tables: dict[str, pa.Table]) -> None:
        """Write tables as new parts, then the manifest that names them."""
        for name, table in tables.items():
            part = self._write_part(name, table)
            if part not in self.manifest.parts.setdefault(name, []):  # the same rows again, after an interruption
                self.manifest.parts[name].append(part)
        self.save()

    def replace(self, name: str, table: pa.Table) -> None:
        """Make `table` the only part of `name` (or none, when it is empty)."""
        self.manifest.parts[name] = [self._write_part(name, table)] if table.num_rows else []
        self.save()
        self._remove_orphans()

    def finish(self) -> None:
        """Merge small parts into larger ones and mark the run complete."""
        for name, parts in list(self.manifest.parts.items()):
            merged = []
            for group in _groups(parts):
                if len(group) == 1:
                    merged += group
                    continue
                table = pa.concat_tables([read_table(self.path / "parts" / part["file"]) for part in group])
                merged.append(self._write_part(name, table.unify_dictionaries().combine_chunks()))
            self.manifest.parts[name] = merged
        self.manifest.complete = True
        self.save()
        self._remove_orphans()

    def drop(self, rejected: Callable[[dict[str, Any]], bool]) -> int:
        """Remove results whose estimate row `rejected` picks, from all tables; returns how many estimates went."""
        rows = self.read("estimates", ["family", "variant", "target", "tier", "status", "failure"]).to_pylist()
        gone = {(r["family"], r["variant"], r["target"]) for r in rows if rejected(r)}
        if not gone:
            return 0
        for name in ("variants", "estimates", "instructions"):
            table = self.read(name)
            keys = zip(*(table.column(c).to_pylist() for c in ("family", "variant", "target")), strict=True)
            kept = table.filter(pa.array([key not in gone for key in keys], type=pa.bool_()))
            self.manifest.parts[name] = [self._write_part(name, kept)] if kept.num_rows else []
        self.save()
        self._remove_orphans()
        return len(gone)

    def save(self) -> None:
        """Replace the manifest."""
        write_atomically(self.path / MANIFEST, self.manifest.to_json().encode())

    def _write_part(self, name: str, table: pa.Table) -> dict[str, Any]:
        folder = self.path / "parts"
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{name}-{os.getpid()}.tmp"
        write_table(table, temporary)
        content = temporary.read_bytes()
        final = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.parquet"
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, final)
        return {"file": final.name, "rows": table.num_rows, "bytes": len(content)}

    def _remove_orphans(self) -> None:
        """Delete parts the manifest does not name: leftovers of a killed process."""
        named = {part["file"] for parts in self.manifest.parts.values() for part in parts}
        for path in (self.path / "parts").glob("*"):
            if path.name not in named:
                path.unlink(missing_ok=True)
        for path in self.path.glob(f".{MANIFEST}*"):
            path.unlink(missing_ok=True)


def _groups(parts: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Parts in their order, gathered up to MERGED_BYTES."""
    groups: list[list[dict[str, Any]]] = []
    size = 0
    for part in parts:
        if not groups or size + part["bytes"] > MERGED_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += part["bytes"]
    return groups


def _take(lock: IO[str], path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        owner = lock.read().strip() or "unknown"
        raise RunError(
            f"run {path.name}: being written by process {owner}; wait for it or choose another --run"
        ) from None
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}-{os.getpid()}.tmp"
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
