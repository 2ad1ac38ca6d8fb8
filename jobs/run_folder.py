"""A run: Parquet parts named by their content, and a manifest that says which of them count.

Layout: `manifest.json`, `parts/<table>-<hash>.<epoch>.parquet`, a lock. Parts are published whole; then the manifest is
replaced at once. So whatever a kill leaves behind, the manifest names whole files only, and what it does not name never
happened: the next submission removes it and does that work again.

Each process that takes the lock has a larger epoch than those before it, and claims the manifest with it before it
writes anything. Where a lock can be lost (a lease in object storage), the manifest is replaced only if it is still the
one this process wrote last: one that has lost the lock without knowing cannot publish anything. It cannot delete what
its successor needs either: parts carry the epoch for which they were written, and orphans are removed only when they
are of earlier epochs than one's own.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from interpreter.errors import FarmError
from jobs import merging, parts
from jobs.blobs import (
    TEMPORARY,
    Absent,
    Blobs,
    Busy,
    Conflict,
    LocalBlobs,
    Lock,
    StorageError,
    describe_owner,
    owner_text,
)
from jobs.parts import Encoded, Part, first_key, variant_starts
from jobs.tables import EVALUATED, SCHEMA_VERSION, SCHEMAS

MANIFEST = "manifest.json"


class RunError(FarmError):
    """A run that is not there, is being written by another process, or was made from something else."""


class NoRun(RunError):
    """There is no run of that name."""


class RunBusy(RunError, Busy):
    """Another process is writing the run."""


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
    epoch: int = 0  # of the process that wrote it
    revision: int = 0  # counts its replacements
    writer: dict[str, Any] = field(default_factory=dict)  # host, process id, user
    families: dict[str, Family] = field(default_factory=dict)
    parts: dict[str, list[Part]] = field(default_factory=dict)

    def to_json(self) -> str:
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        content["families"] = {name: _as_dict(family) for name, family in self.families.items()}
        content["parts"] = {name: [part.to_json() for part in found] for name, found in self.parts.items()}
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        content = json.loads(text)
        content["families"] = {name: Family(**family) for name, family in content["families"].items()}
        content["parts"] = {name: [Part.from_json(part) for part in found] for name, found in content["parts"].items()}
        return cls(**content)

    def named(self) -> set[str]:
        """Blobs of the parts that count."""
        return {part.blob for found in self.parts.values() for part in found}


def _as_dict(family: Family) -> dict[str, Any]:
    return {name: getattr(family, name) for name in Family.__dataclass_fields__}


class RunFolder:
    """One run in a folder or in other storage. Reading needs no lock; `writing()` takes it."""

    def __init__(self, where: Path | Blobs) -> None:
        self.blobs: Blobs = LocalBlobs(where) if isinstance(where, Path) else where
        self.name = self.blobs.name
        self.manifest = Manifest(run=self.name)
        self.epoch = 0  # while writing: larger than that of every earlier writer
        self._tag: str | Absent = Absent()
        self._lock: Lock | None = None
        self._going: set[str] = set()  # blobs no longer named, to be deleted

    @property
    def path(self) -> Path:
        """Where it is, for messages; a folder of this machine only where the store is one."""
        return Path(self.blobs.location)

    @property
    def exists(self) -> bool:
        try:
            self.blobs.read(MANIFEST)
        except FileNotFoundError:
            return False
        return True

    @property
    def modified(self) -> float | None:
        """When the manifest was written last, in seconds since 1970; None when there is no run."""
        return self.blobs.modified(MANIFEST)

    def load(self) -> RunFolder:
        """Read the manifest. Raises RunError when there is none or it is of another schema version."""
        where = self.blobs.location
        try:
            text, tag = self.blobs.read(MANIFEST)
        except FileNotFoundError:
            raise NoRun(f"{where}: no run here (no {MANIFEST})") from None
        try:
            found = json.loads(text).get("schema_version")
            if found != SCHEMA_VERSION:
                raise RunError(
                    f"{where}: tables of schema version {found}, this program reads {SCHEMA_VERSION}; submit again"
                )
            self.manifest = Manifest.from_json(text)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{where}/{MANIFEST}: not a manifest: {error}") from None
        self._tag = tag
        return self

    @contextlib.contextmanager
    def writing(self) -> Iterator[RunFolder]:
        """Hold the run's lock: one writer at a time, whose `epoch` is larger than any before.

        Raises RunBusy when another process has it, StorageError when the storage fails.
        """
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(self.blobs.locked())
            except Busy as error:
                raise RunBusy(str(error)) from None
            self._lock = lock
            stack.callback(self._unlocked)
            with contextlib.suppress(FileNotFoundError):
                self.blobs.read(MANIFEST)
                self.load()
            self.epoch = max(lock.epoch, self.manifest.epoch + 1)
            self.manifest.writer = owner_text()
            self.save()
            self._remove_orphans()
            yield self
            self._discard(())

    def _unlocked(self) -> None:
        self._lock = None
        self.epoch = 0

    # ---- reading

    def read(self, table: str, columns: list[str] | None = None) -> pa.Table:
        """All rows of `table`, empty when it has none. In memory: for tables as large as `instructions`, see `scan`."""
        found = list(self.scan(table, columns))
        if found:
            return pa.concat_tables(found)
        empty = SCHEMAS[table].empty_table()
        return empty.select(columns) if columns else empty

    def scan(
        self,
        table: str,
        columns: list[str] | None = None,
        family: str | None = None,
        variant: int | None = None,
        batch: Callable[[pa.Table], pa.Table] | None = None,
    ) -> Iterator[pa.Table]:
        """The rows of `table` as Arrow tables, a batch at a time, of one family or variant where given.

        `batch` is applied to each. Parts that cannot hold the variant are not opened.
        """
        seen = 0
        try:
            for rows in self._scan(table, columns, family, variant):
                seen += 1
                yield batch(rows) if batch else rows
        except FileNotFoundError:  # a writer has merged parts since the manifest was read
            if seen:
                raise RunError(f"run {self.name}: was changed while it was read; try again") from None
            if self._lock is None:  # the writer, in another thread, has renewed its manifest itself
                self.load()
            try:
                for rows in self._scan(table, columns, family, variant):
                    yield batch(rows) if batch else rows
            except FileNotFoundError as error:  # named by the latest manifest too: lost
                raise self.blobs.explain(error) from None

    def _scan(
        self, table: str, columns: list[str] | None, family: str | None, variant: int | None
    ) -> Iterator[pa.Table]:
        wanted = [name for name, value in (("family", family), ("variant", variant)) if value is not None]
        read = None if columns is None else list(dict.fromkeys([*columns, *wanted]))
        for part in list(self.manifest.parts.get(table, [])):
            if not _may_hold(part, family, variant):
                continue
            try:
                for rows in parts.batches(self.blobs, part, read):
                    if family is not None:
                        rows = rows.filter(pc.equal(rows.column("family"), family))
                    if variant is not None:
                        rows = rows.filter(pc.equal(rows.column("variant"), variant))
                    if rows.num_rows:
                        yield rows.select(columns) if columns is not None else rows
            except ValueError as error:
                raise RunError(f"run {self.name}: {error}") from None

    def done(self, family: str, tier: str) -> set[tuple[int, str]]:
        """(variant, target) pairs of `family` that have a result of `tier`, failed ones too."""
        found: set[tuple[int, str]] = set()
        for rows in self.scan("estimates", ["variant", "target", "tier"], family=family):
            rows = rows.filter(pc.equal(rows.column("tier"), tier))
            found.update(zip(rows.column("variant").to_pylist(), rows.column("target").to_pylist(), strict=True))
        return found

    # ---- writing: only under the lock

    def add(self, tables: Mapping[str, pa.Table], encoded: Iterable[Encoded] = ()) -> int:
        """Write tables, and what comes encoded, as new parts, then the manifest that names them all at once.

        Small parts are merged when there are many. Returns the bytes of the new parts.
        """
        staged = [self.stage(tables), *(parts.stage_encoded(self.blobs, self.epoch, part) for part in encoded)]
        self.publish(*staged)
        _give_back_memory()
        return sum(part.bytes for group in staged for part in group.values())

    def stage(self, tables: Mapping[str, pa.Table]) -> dict[str, Part]:
        """Write tables as parts that do not count yet."""
        return parts.stage(self.blobs, self.epoch, tables)

    def publish(self, staged: Mapping[str, Part], *more: Mapping[str, Part]) -> None:
        """Name parts in the manifest: from now on they count. Workers may have staged them with `jobs.parts.stage`."""
        for group in (staged, *more):
            for name, part in group.items():
                known = self.manifest.parts.setdefault(name, [])
                if not any(part.same_content(other) for other in known):  # the same rows again, after an interruption
                    known.append(part)
        self.save()
        self._merge({name: found for name in self.manifest.parts if (found := parts.due(self.manifest.parts[name]))})

    def replace(self, name: str, table: pa.Table) -> None:
        """Make `table` the only part of `name` (or none, when it is empty)."""
        old = self.manifest.parts.get(name, [])
        self.manifest.parts[name] = list(self.stage({name: table}).values())
        self.save()
        self._discard(old)

    def finish(self) -> None:
        """Merge small parts into large ones, sorted by variant, and mark the run complete."""
        for name in list(self.manifest.parts):
            while len(small := parts.unmerged(self.manifest.parts[name])) > parts.LAST_FAN_IN:
                smallest = sorted(small, key=lambda part: (part.bytes, part.file))[: parts.LAST_FAN_IN]
                self._merge({name: smallest})
        self.manifest.complete = True
        merged = self._merge({name: parts.unmerged(found) for name, found in self.manifest.parts.items()})
        if not merged:
            self.save()
        self._discard(())

    def drop(self, rejected: Callable[[dict[str, Any]], bool]) -> int:
        """Remove results whose estimate row `rejected` picks, from all tables; returns how many estimates went."""
        gone: dict[tuple[str, int], set[str]] = {}
        columns = ["family", "variant", "target", "tier", "status", "failure"]
        for rows in self.scan("estimates", columns):
            for row in rows.to_pylist():
                if rejected(row):
                    gone.setdefault((row["family"], row["variant"]), set()).add(row["target"])
        if not gone:
            return 0

        def kept(rows: pa.Table) -> pa.Table:
            """Of the rows of whole variants, as a merge gives them."""
            pieces = []
            for start, end in itertools.pairwise(variant_starts(rows).tolist()):
                piece = rows.slice(start, end - start)
                targets = gone.get(first_key(piece))
                if targets is not None:
                    names = piece.column("target").cast(pa.string())
                    piece = piece.filter(pc.invert(pc.is_in(names, pa.array(sorted(targets)))))
                pieces.append(piece)
            return pa.concat_tables(pieces) if pieces else rows

        touched = {
            name: [
                part
                for part in self.manifest.parts.get(name, [])
                if any(_may_hold(part, family, variant) for family, variant in gone)
            ]
            for name in EVALUATED
        }
        self._merge(touched, kept)
        return sum(len(targets) for targets in gone.values())

    def save(self) -> None:
        """Replace the manifest. Raises RunBusy when another process has taken the run over."""
        if self._lock is not None:
            self._lock.check()
            self.manifest.epoch = self.epoch
        self.manifest.revision += 1
        try:
            self._tag = self.blobs.write(MANIFEST, self.manifest.to_json().encode(), self._tag)
        except Conflict:
            raise self._taken_over() from None

    def _taken_over(self) -> FarmError:
        try:
            owner = Manifest.from_json(self.blobs.read(MANIFEST)[0]).writer
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return StorageError(f"run {self.name}: its manifest was removed while it was written")
        return RunBusy(
            f"run {self.name}: taken over by {describe_owner(owner)} while this process did not answer; "
            "nothing of it is lost, and the other goes on with it"
        )

    def _merge(self, groups: Mapping[str, list[Part]], keep: Callable[[pa.Table], pa.Table] | None = None) -> bool:
        """Replace each group of parts by its merged rows; returns whether there was anything to do."""
        old: list[Part] = []
        with self._none_missing():
            # many rows by a process of their own; not when some are dropped, which is once, at a run's start
            merged = merging.merge_large(self.blobs, self.epoch, groups) if keep is None else {}
        for name, group in groups.items():
            if not group:
                continue
            _give_back_memory()
            with self._none_missing():
                new = merged[name] if name in merged else parts.merge(self.blobs, self.epoch, name, group, keep)
            rows = sum(part.rows for part in group)
            if keep is None and sum(part.rows for part in new) != rows:
                raise StorageError(f"run {self.name}: merging {rows} rows of {name} lost some; nothing was replaced")
            replaced = {part.file for part in group}
            self.manifest.parts[name] = [p for p in self.manifest.parts[name] if p.file not in replaced] + new
            old += group
        if old:
            self.save()
            self._discard(old)
            _give_back_memory()
        return bool(old)

    @contextlib.contextmanager
    def _none_missing(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise StorageError(f"run {self.name}: a part that its manifest names is missing: {error}") from None

    def _discard(self, old: Iterable[Part]) -> None:
        """Have parts that the manifest named until now deleted with the next ones, so that those who read them can."""
        going, self._going = self._going, {part.blob for part in old}
        self.blobs.delete(sorted(going - self.manifest.named()))

    def _remove_orphans(self) -> None:
        """Delete what processes that were killed left behind: parts of earlier epochs that the manifest does not name,
        and files that were never published."""
        named = self.manifest.named()
        found = self.blobs.names(f"{parts.FOLDER}/")
        orphans = []
        for blob in found:
            epoch = parts.epoch_of(blob.rpartition("/")[2])
            if blob not in named and (epoch is None or epoch < self.epoch):
                orphans.append(blob)
        self.blobs.delete(orphans)
        self.blobs.delete(name for name in self.blobs.names(".") if name.endswith(TEMPORARY))


def _give_back_memory() -> None:
    """Return what freed tables have left in the heap: a merge needs more than all that comes before the next one.

    Takes some milliseconds, and a flush comes every second or so.
    """
    pa.default_memory_pool().release_unused()


def _may_hold(part: Part, family: str | None, variant: int | None) -> bool:
    """Whether a part may have rows of a family, or of one of its variants."""
    if family is None:
        return variant is None or part.first[0] != part.last[0] or part.first[1] <= variant <= part.last[1]
    if variant is None:
        return part.first[0] <= family <= part.last[0]
    return part.first <= (family, variant) <= part.last
