"""Runs in S3 or what speaks its language: s3://bucket/prefix holds a folder of keys a run."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from farm.store import Store
from farm.store.lease import held
from farm.store.s3_connection import Connection
from interpreter.errors import FarmError
from jobs.blobs import TEMPORARY, Blobs, Expected, Lock, disk_errors
from jobs.run_folder import MANIFEST, RunFolder

LEASE = "lease.json"


class S3Store(Store):
    """Runs below a prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str = "") -> None:
        self.location = f"s3://{bucket}/{prefix}".rstrip("/")
        self._connection = Connection(bucket)
        self._prefix = f"{prefix}/" if prefix else ""

    def open(self, run: str) -> RunFolder:
        return RunFolder(S3Blobs(self._connection, f"{self._prefix}{run}/", run))

    def runs(self) -> list[str]:
        return self.runs_beginning("")

    def runs_beginning(self, text: str) -> list[str]:
        names = [name for name in self._folders(text) if name]
        with ThreadPoolExecutor(8) as pool:
            times = list(pool.map(lambda name: self._connection.modified(f"{self._prefix}{name}/{MANIFEST}"), names))
        return [name for _, name in sorted((time, name) for time, name in zip(times, names) if time is not None)]

    def _folders(self, text: str) -> list[str]:
        prefix = self._prefix + text
        return [text + name for name in self._connection.folders(prefix)]


class S3Blobs:
    """One run's objects. See `jobs.blobs.Blobs`."""

    def __init__(self, connection: Connection, prefix: str, name: str) -> None:
        self.name = name
        self.location = f"s3://{connection.bucket}/{prefix}".rstrip("/")
        self._connection = connection
        self._prefix = prefix

    def read(self, name: str) -> tuple[bytes, str]:
        return self._connection.get(self._prefix + name)

    def write(self, name: str, content: bytes, expected: Expected = None) -> str:
        return self._connection.put_bytes(self._prefix + name, content, expected)

    def modified(self, name: str) -> float | None:
        return self._connection.modified(self._prefix + name)

    def scratch(self) -> Path:
        folder = Path(tempfile.gettempdir()) / f"farm-{os.getuid()}"
        with disk_errors(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _sweep_scratch(self) -> None:
        """Remove what killed processes of this machine left in the scratch folder."""
        for path in self.scratch().glob(f".*{TEMPORARY}"):
            pid = path.name.rsplit("-", 2)[-2]
            with contextlib.suppress(OSError):
                if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                    path.unlink()

    def publish(self, file: Path, name: str) -> None:
        with disk_errors(file), open(file, "rb") as content:
            digest = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).digest()
            content.seek(0)
            self._connection.put(self._prefix + name, content, file.stat().st_size, digest)
            file.unlink()

    def names(self, prefix: str) -> list[str]:
        return [prefix + entry.name for entry in self._connection.objects(self._prefix + prefix)]

    def delete(self, names: Iterable[str]) -> None:
        self._connection.delete(self._prefix + name for name in names)

    def filesystem(self) -> tuple[Any, str]:
        return self._connection.arrow(), f"{self._connection.bucket}/{self._prefix}".rstrip("/")

    def local_path(self, name: str) -> Path | None:
        return None

    def explain(self, error: OSError) -> FarmError:
        return self._connection.explain_arrow(error, self._prefix)

    def recipe(self) -> Callable[[], Blobs]:
        return functools.partial(_opened, self._connection.bucket, self._prefix, self.name)

    def locked(self) -> contextlib.AbstractContextManager[Lock]:
        self._sweep_scratch()
        return held(self._connection, self._prefix + LEASE, self.name)


def _opened(bucket: str, prefix: str, name: str) -> S3Blobs:
    return S3Blobs(Connection(bucket), prefix, name)
