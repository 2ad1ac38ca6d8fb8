"""What runs on a cluster's nodes: one Ray actor a CPU, with one worker process of its own.

The actor never touches a kernel: its process does, and whatever becomes of that, the actor lives on and tells which
item was to blame. A sweep's files come from Ray's object store, fetched and unpacked once a node; cubins compiled and
kernels decoded on another node come from that node's cache. Nothing here knows the store of the run, nor anybody's
credentials.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

import jobs
from farm.executors.child import Child
from farm.executors.interface import Batch, Done, Ended, ExecutorError
from interpreter.compile import CompileRequest, cache_entry, cached_cubin
from interpreter.decode import cached_decoding
from interpreter.disassembly import cache_directory, write_atomically
from interpreter.errors import FarmError
from jobs.bundle import Bundle, localised
from jobs.plan import model_digest
from jobs.work import Finished, WorkItem


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker that is ready, and where it is."""

    node: str  # Ray's id of the node
    host: str
    pid: int
    child: int
    code: str  # code_digest there


@functools.lru_cache(maxsize=1)
def code_digest() -> str:
    """SHA-256 (hex) of all that makes rows on a node: the model, and the sources of `jobs` and of the executors.

    The model's own digest (`jobs.plan.model_digest`) does not say how its estimates become rows: two nodes could agree
    in it and yet write other tables.
    """
    digest = hashlib.sha256(model_digest().encode())
    assert jobs.__file__ is not None
    for folder in (Path(jobs.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{folder.name}/{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(slots=True)
class Report:
    """What became of a batch. `tables` holds the rows of all its results; `broken` says that a tool or worker is."""

    ended: Ended
    done: list[tuple[int, Finished]] = field(default_factory=list)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    broken: str = ""


class RayWorker:
    """The actor. `bundles` maps a family to the object that holds its files."""

    def __init__(self, evaluator: str, bundles: Mapping[str, list[Any]]) -> None:
        self._evaluator = evaluator
        self._bundles = bundles  # in a list each: Ray hands references inside containers over as references
        self._unpacked: dict[str, tuple[str, Path]] = {}
        self._cache = cache_directory(None)
        self._child: Child | None = None

    def hello(self) -> Hello:
        """Start the worker process and say so when it is ready. Raises ExecutorError."""
        import ray

        child = self._ready()
        node = ray.get_runtime_context().get_node_id()
        return Hello(node, socket.gethostname(), os.getpid(), child.process.pid, code_digest())

    def run(
        self, pickled: bytes, cubins: Mapping[str, bytes] = MappingProxyType({}), donors: Sequence[Any] = ()
    ) -> Report:
        """Evaluate a batch. `cubins` are files by their path on the submitting machine; `donors` workers on nodes that
        have compiled the items before."""
        batch: Batch = pickle.loads(pickled)
        try:
            items = tuple(self._here(item, cubins) for item in batch.items)
            if donors:
                self._fetch(items, donors)
            return self._run(Batch(batch.number, items))
        except ExecutorError as error:
            return Report(Ended(batch.number, tuple(range(len(batch.items))), cause="lost"), broken=str(error))

    def cached(self, names: list[str]) -> dict[str, bytes]:
        """Cubins and decoded kernels of this node's cache, by their paths in it; those it has."""
        found: dict[str, bytes] = {}
        root = self._cache.resolve()
        for name in names:
            path = (root / name).resolve()
            with contextlib.suppress(OSError):
                if any(path.is_relative_to(root / kind) for kind in ("cubins", "disassembly")):
                    found[name] = path.read_bytes()
        return found

    def at(self) -> tuple[str, float] | None:
        """The item that is evaluated now and what share of it is done, if the evaluator says."""
        child = self._child
        share = None if child is None or child.batch is None else child.share
        return None if child is None or share is None else (child.label, share)

    def _run(self, batch: Batch) -> Report:
        child = self._ready()
        report = Report(Ended(batch.number))
        parts: dict[str, list[pa.Table]] = {}
        child.hand(batch)
        over = False
        while not over:
            wait([child.pipe], timeout=min(1.0, child.seconds_left()))
            answers = list(child.receive()) if not child.gone and child.pipe.poll() else []
            if not child.gone and child.batch is not None:
                answers += child.check()
            for answer in answers:
                if isinstance(answer, Done):
                    for name, table in answer.result.tables.items():
                        parts.setdefault(name, []).append(table)
                    answer.result.tables = {}
                    report.done.append((answer.index, answer.result))
                elif isinstance(answer, Ended):
                    report.ended, over = answer, True
        if child.gone:
            self._child = None
        report.tables = {
            name: pa.concat_tables(tables).unify_dictionaries().combine_chunks() for name, tables in parts.items()
        }
        return report

    def _ready(self) -> Child:
        """The worker process, started and ready."""
        if self._child is not None and self._child.process.poll() is not None:
            self._child.stop()
            self._child = None
        if self._child is None:
            self._child = Child(self._evaluator)
        child = self._child
        while not child.ready:
            wait([child.pipe], timeout=1.0)
            if child.pipe.poll():
                for _ in child.receive():
                    pass
            if child.gone:
                self._child = None
                raise ExecutorError(f"the worker process ends before it is ready ({child.exit_reason()})")
            for _ in child.check():
                pass
        return child

    def _here(self, item: WorkItem, cubins: Mapping[str, bytes]) -> WorkItem:
        import ray

        if item.family not in self._unpacked:
            bundle: Bundle = ray.get(self._bundles[item.family][0])
            self._unpacked[item.family] = bundle.root, bundle.unpack(self._cache / "inputs")
        paths: dict[str, Path] = {}
        own = str(item.build.cubin)
        if own in cubins:
            path = self._cache / "inputs" / f"{hashlib.sha256(cubins[own]).hexdigest()[:32]}.cubin"
            if not path.is_file():
                write_atomically(path, cubins[own])
            paths[own] = path
        root, here = self._unpacked[item.family]
        return localised(item, root, here, self._cache, paths)

    def _fetch(self, items: tuple[WorkItem, ...], donors: Sequence[Any]) -> None:
        """Take what other nodes have compiled, then what they have decoded; what cannot be had is made again."""
        compiled: list[tuple[WorkItem, Path]] = []  # and where this node's cache has or will have the cubin
        for item in items:
            with contextlib.suppress(FarmError, OSError):  # what is wrong with it, its evaluation says
                compiled.append((item, _cubin_place(item)))
        self._take([path for item, path in compiled if path != item.build.cubin], donors)
        decoded: list[Path] = []
        for item, path in compiled:
            with contextlib.suppress(FarmError, OSError):
                image = path.read_bytes() if path == item.build.cubin else cached_cubin(path)
                if image is not None:
                    decoded.append(cached_decoding(image, item.build.entry, cache=item.cache))
        self._take(decoded, donors)

    def _take(self, wanted: list[Path], donors: Sequence[Any]) -> None:
        """Ask the donors, one after the other, for the files that this cache lacks."""
        import ray

        missing = {path.relative_to(self._cache).as_posix(): path for path in wanted if not path.is_file()}
        for donor in donors:
            if not missing:
                return
            with contextlib.suppress(ray.exceptions.RayError):  # type: ignore[attr-defined]
                for name, content in ray.get(donor.cached.remote(list(missing)), timeout=20).items():
                    write_atomically(missing.pop(name), content)


def _cubin_place(item: WorkItem) -> Path:
    """The cubin of an item that is not compiled, or the file of the cache for the one that is."""
    build = item.build
    if build.cubin is not None:
        return build.cubin
    assert build.source is not None
    return cache_entry(CompileRequest(build.source, build.arch, dict(build.macros), build.flags), item.cache)
