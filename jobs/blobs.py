"""Where one run's files are kept: named blobs, published whole, and a lock for the one process that may write them.

`Blobs` is what a run asks of its storage; `LocalBlobs` keeps it in a folder. Other storage (farm/store) gives the same.
Nothing here knows what the blobs hold.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import getpass
import itertools
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from interpreter.errors import FarmError

LOCK = "lock"
TEMPORARY = ".tmp"  # ends the name of a file that is not published yet; the name begins with a dot
_COUNTER = itertools.count()
_FULL = {errno.ENOSPC: "no space left", errno.EDQUOT: "over the disk quota", errno.EFBIG: "over the file size limit"}


class StorageError(FarmError):
    """The storage does not work: disk full, no such bucket, no permission, no answer. Not the input's fault."""


class Busy(FarmError):
    """Another process is writing the run; the message says which."""


class Conflict(Exception):
    """A conditional write found other content than expected."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Expectation of a conditional write: the blob does not exist yet."""


Expected = str | Absent | None  # the tag last seen, or that nothing is there, or whatever is there


class Lock(Protocol):
    """The right to write a run. `epoch` is larger than that of every earlier holder."""

    epoch: int

    def check(self) -> None:
        """Raises StorageError when the right may have passed to another process."""


class Blobs(Protocol):
    """One run's blobs. Names are relative, with `/`. Failures of the storage raise StorageError."""

    name: str  # the run's
    location: str  # for messages: never holds credentials

    def read(self, name: str) -> tuple[bytes, str]:
        """Content and tag of a blob. Raises FileNotFoundError."""

    def write(self, name: str, content: bytes, expected: Expected = None) -> str:
        """Replace a blob at once, return its tag. Raises Conflict when it is not what was `expected`."""

    def modified(self, name: str) -> float | None:
        """When a blob was written, in seconds since 1970 by the storage's clock; None when there is none."""

    def scratch(self) -> Path:
        """A local folder for files that `publish` will take."""

    def publish(self, file: Path, name: str) -> None:
        """Make a local file, from `scratch`, the blob `name`: whole or not at all. The file is gone afterwards."""

    def names(self, prefix: str) -> list[str]:
        """Names of the blobs that begin with `prefix`."""

    def delete(self, names: Iterable[str]) -> None:
        """Remove blobs; those that are not there are no error."""

    def filesystem(self) -> tuple[Any, str]:
        """(pyarrow filesystem, path of the run's folder in it), for reading Parquet files."""

    def local_path(self, name: str) -> Path | None:
        """The blob's file where it is one on this machine, else None."""

    def explain(self, error: OSError) -> FarmError:
        """The error to report for one that `filesystem()` raised."""

    def locked(self) -> contextlib.AbstractContextManager[Lock]:
        """Hold the run's lock. Raises Busy at once when another process does."""

    def recipe(self) -> Callable[[], Blobs]:
        """What makes these blobs again in another process of this machine: it can be pickled, and holds no credentials,
        which are found there as they were here."""


def owner_text() -> dict[str, Any]:
    """Who this process is, for others to read: host, process id, user."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "user": _user()}


def describe_owner(owner: dict[str, Any]) -> str:
    """'process 17 of ada on node3'."""
    user = f" of {owner['user']}" if owner.get("user") else ""
    host = f" on {owner['host']}" if owner.get("host") else ""
    return f"process {owner.get('pid', '?')}{user}{host}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as containers have them
        return str(os.getuid())


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what a disk may do to a write into a StorageError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(
                f"{path}: {_FULL[error.errno]}; what was finished before is kept. "
                "Make room and give the same command again"
            ) from None
        if isinstance(error, FileNotFoundError):
            raise
        raise StorageError(f"{path}: {error.strerror or error}") from None


class LocalLock:
    """flock on a file: the system releases it when the process dies, however it dies, and no clock is involved."""

    def __init__(self, path: Path) -> None:
        self.epoch = 1
        self._path = path

    def check(self) -> None:
        if not self._path.exists():
            raise StorageError(f"{self._path.parent}: the run was deleted while it was written")


class LocalBlobs:
    """Blobs as files of a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.location = str(path)

    def read(self, name: str) -> tuple[bytes, str]:
        try:
            return (self.path / name).read_bytes(), ""
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(str(self.path / name)) from None
        except OSError as error:
            raise StorageError(f"{self.path / name}: {error.strerror or error}") from None

    def write(self, name: str, content: bytes, expected: Expected = None) -> str:
        path = self.path / name
        with disk_errors(path):
            write_atomically(path, content)
        return ""

    def modified(self, name: str) -> float | None:
        try:
            return (self.path / name).stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def scratch(self) -> Path:
        folder = self.path / "parts"
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def publish(self, file: Path, name: str) -> None:
        final = self.path / name
        with disk_errors(final):
            final.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "rb+") as opened:
                os.fsync(opened.fileno())
            os.replace(file, final)
            _sync_folder(final.parent)

    def names(self, prefix: str) -> list[str]:
        folder = self.path / prefix.rpartition("/")[0]
        if not folder.is_dir():
            return []
        found = [path.relative_to(self.path).as_posix() for path in folder.iterdir() if path.is_file()]
        return sorted(name for name in found if name.startswith(prefix))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with disk_errors(self.path / name):
                (self.path / name).unlink(missing_ok=True)

    def filesystem(self) -> tuple[Any, str]:
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem(use_mmap=True), str(self.path.absolute())

    def local_path(self, name: str) -> Path | None:
        return self.path / name

    def explain(self, error: OSError) -> FarmError:
        return StorageError(f"{self.path}: {error}")

    def recipe(self) -> Callable[[], Blobs]:
        return functools.partial(LocalBlobs, self.path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[Lock]:
        path = self.path / LOCK
        with disk_errors(path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = open(path, "ab+", buffering=0)  # noqa: SIM115 - held until the end of the block
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if not isinstance(error, BlockingIOError):
                    raise StorageError(f"{path}: file locks do not work here: {error.strerror}") from None
                lock.seek(0)
                owner = _holder(lock.read())
                raise Busy(f"run {self.name}: being written by {owner}; wait for it or choose another --run") from None
            with disk_errors(path):
                lock.seek(0)
                lock.truncate()
                lock.write(json.dumps(owner_text()).encode())
            yield LocalLock(path)


def _holder(text: bytes) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        return describe_owner(json.loads(text))
    return "another process"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers see the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}-{os.getpid()}{TEMPORARY}"
    for attempt in itertools.count():
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            break
        except FileNotFoundError:  # taken for a leftover by a process that has just become the run's writer
            if attempt == 2:
                raise
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """Make a rename survive a power cut."""
    with contextlib.suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def temporary_file(folder: Path, name: str) -> Iterator[Path]:
    """A path for a new hidden file in `folder`, removed afterwards unless it was published."""
    path = folder / f".{name}-{os.getpid()}-{next(_COUNTER)}{TEMPORARY}"
    try:
        with disk_errors(folder):
            yield path
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
