"""The lock of a run in object storage: a lease object, replaced only by conditional writes.

No clock is compared with another's. The holder replaces the lease every third of `seconds`, each time with a new
content. Another process that wants the run watches it: when it has not changed for `seconds` of the watcher's own
monotonic time, the holder is taken to be dead and the lease is replaced, on the condition that it is still the one
watched. So a jumping wall clock has no effect, and a holder that was only stopped finds the lease changed. What such a
holder might still write is refused by the manifest's own condition (jobs/run_folder.py).

A released lease stays, without an owner, so that epochs go on rising.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from farm.store.s3_connection import Connection
from jobs.blobs import Absent, Busy, Conflict, Expected, StorageError, describe_owner, owner_text

SECONDS = 30.0  # FARM_LEASE_SECONDS wins
_log = logging.getLogger("farm.store")


class Lease:
    """The right to write a run, held by this process. See `held`."""

    def __init__(self, connection: Connection, key: str, run: str, seconds: float) -> None:
        self.epoch = 0
        self._connection = connection
        self._key = key
        self._run = run
        self._seconds = seconds
        self._owner = {**owner_text(), **_identity(), "token": uuid.uuid4().hex}
        self._beats = 0
        self._tag: str = ""
        self._lost: str | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def check(self) -> None:
        """Raises Busy when another process has taken the run over."""
        if self._lost is not None:
            raise Busy(self._lost)

    def acquire(self) -> None:
        """Take the lease. Raises Busy when its holder is alive, which takes up to `seconds` to find out."""
        state, expected = self._read()
        if state.get("owner"):
            expected = self._wait_for(state, expected)
        self.epoch = int(state.get("epoch", 0)) + 1
        try:
            self._tag = self._write(self._owner, expected)
        except Conflict:
            raise Busy(self._held_by(self._read()[0])) from None
        self._refuse_unconditional()
        self._thread = threading.Thread(target=self._renew, name="farm-lease", daemon=True)
        self._thread.start()

    def release(self, say_so: bool = True) -> None:
        """Give it up; `say_so` in the store, so that the next process need not wait. Failing at it is no error."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
            say_so = say_so and not self._thread.is_alive()
        if self._lost is None and say_so:
            with contextlib.suppress(Conflict, StorageError, FileNotFoundError):
                self._write(None, self._tag)

    def _read(self) -> tuple[dict[str, Any], Expected]:
        try:
            text, tag = self._connection.get(self._key)
        except FileNotFoundError:
            return {}, Absent()
        try:
            state = json.loads(text)
            if not isinstance(state, dict):
                raise ValueError("not an object")
        except ValueError:
            raise StorageError(f"store s3://{self._connection.bucket}/{self._key}: not a lease; remove it") from None
        return state, tag

    def _write(self, owner: dict[str, Any] | None, expected: Expected) -> str:
        self._beats += 1
        state = {"epoch": self.epoch, "owner": owner, "seconds": self._seconds, "beat": self._beats}
        return self._connection.put_bytes(self._key, (json.dumps(state) + "\n").encode(), expected)

    def _wait_for(self, state: dict[str, Any], tag: Expected) -> Expected:
        """Watch a held lease until its holder turns out alive (Busy) or has been silent for its `seconds`."""
        if _is_dead(state["owner"]):
            return tag
        patience = float(state.get("seconds", self._seconds))
        _log.warning(
            "run %s: held by %s; seeing whether it is alive (up to %.0f s)",
            self._run, describe_owner(state["owner"]), patience,
        )  # fmt: skip
        began = time.monotonic()
        while time.monotonic() - began < patience:
            time.sleep(min(1.0, patience / 10))
            now, current = self._read()
            if current != tag:
                if not now.get("owner"):
                    state["epoch"] = now.get("epoch", 0)
                    return current
                raise Busy(self._held_by(now))
        return tag

    def _held_by(self, state: dict[str, Any]) -> str:
        owner = describe_owner(state["owner"]) if state.get("owner") else "another process"
        return f"run {self._run}: being written by {owner}; wait for it or choose another --run"

    def _refuse_unconditional(self) -> None:
        """Find out whether the store keeps to conditions at all: without them nothing keeps two drivers apart."""
        try:
            self._tag = self._write(self._owner, '"00000000000000000000000000000000"')
        except Conflict:
            return
        if not os.environ.get("FARM_S3_UNGUARDED"):
            raise StorageError(
                f"store s3://{self._connection.bucket}: ignores the conditions of writes (If-Match), so two "
                "submissions to one run could spoil it. Where only one ever runs, FARM_S3_UNGUARDED=1 goes on without"
            )

    def _renew(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            try:
                self._tag = self._write(self._owner, self._tag)
            except Conflict:
                with contextlib.suppress(StorageError):
                    state = self._read()[0]
                    owner = describe_owner(state["owner"]) if state.get("owner") else "another process"
                    self._lost = f"run {self._run}: taken over by {owner} while this process did not answer"
                    return
            except StorageError as error:  # tried again; the manifest's condition guards the run meanwhile
                _log.warning("run %s: lease not renewed: %s", self._run, error)


@contextlib.contextmanager
def held(connection: Connection, key: str, run: str) -> Iterator[Lease]:
    """Hold the lease at `key` of a run. Raises Busy when another process has it."""
    lease = Lease(connection, key, run, _seconds())
    lease.acquire()
    try:
        yield lease
    except StorageError:  # the store has been asked long enough
        lease.release(say_so=False)
        raise
    except BaseException:
        lease.release()
        raise
    lease.release()


def _seconds() -> float:
    text = os.environ.get("FARM_LEASE_SECONDS", "")
    try:
        value = float(text or SECONDS)
    except ValueError:
        value = 0.0
    if not 0.3 <= value <= 3600:
        raise StorageError(f"FARM_LEASE_SECONDS={text}: should be seconds, 0.3 to 3600")
    return value


def _identity() -> dict[str, Any]:
    """What tells this process from every other one that this machine ever had: boot, namespace, id, start."""
    with contextlib.suppress(OSError):
        return {
            "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "namespace": os.readlink("/proc/self/ns/pid"),
            "start": _start_of(os.getpid()),
        }
    return {}


def _start_of(pid: int) -> str:
    """When a process started, in clock ticks since boot, as the kernel says. Raises OSError when there is none."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        raise ProcessLookupError(pid)
    return fields[19]


def _is_dead(owner: dict[str, Any]) -> bool:
    """Whether the owner was a process of this machine that has ended. False when that cannot be known."""
    mine = _identity()
    if not mine or any(owner.get(name) != mine[name] for name in ("boot", "namespace")):
        return False
    try:
        return _start_of(int(owner["pid"])) != owner.get("start")
    except (ProcessLookupError, FileNotFoundError):
        return True
    except (OSError, KeyError, ValueError):
        return False
