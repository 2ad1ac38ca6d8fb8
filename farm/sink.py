"""Writing results while the run goes on: a thread of its own, so that workers never wait for a disk or a bucket."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

import pyarrow as pa

from jobs.parts import Encoded

FLUSH_SECONDS = 2.0  # a kill loses at most this much finished work
FLUSH_ROWS = 200_000  # rows of `instructions` gathered into one part
FLUSH_RESULTS = 512  # a small table takes tens of KB of memory, however few its rows
FLUSH_BYTES = 32 << 20  # of what comes encoded
QUEUED = 64  # results that may wait for the writer; beyond that the driver waits, and memory stays bounded
QUEUED_BYTES = 256 << 20  # of what they bring encoded

Tables = dict[str, pa.Table]


class Sink:
    """Gathers tables, and parts that come encoded, and gives them to `add` (a run folder's) now and then.

    Errors show at the next call.
    """

    def __init__(self, add: Callable[..., object]) -> None:
        self._add = add
        self._queue: queue.Queue[tuple[Tables, Sequence[Encoded]] | None] = queue.Queue(QUEUED)
        self._held: dict[str, list[pa.Table]] = {}
        self._encoded: list[Encoded] = []
        self._waiting = 0  # bytes of what is encoded and not written yet
        self._written_some = threading.Condition()
        self._error: BaseException | None = None
        self._written = time.monotonic()
        self.bytes_taken = 0  # of Arrow memory, before compression
        self._thread = threading.Thread(target=self._write, name="farm-sink", daemon=True)
        self._thread.start()

    def take(self, tables: Tables, encoded: Sequence[Encoded] = ()) -> None:
        """Results to be written, all at once or none. Raises what writing raised."""
        size = sum(len(part.content) for part in encoded)
        with self._written_some:
            while size and self._waiting + size > max(QUEUED_BYTES, size):
                self._raise()
                self._written_some.wait(timeout=1.0)
            self._waiting += size
        while True:
            self._raise()
            try:
                self._queue.put((tables, encoded), timeout=1.0)
                return
            except queue.Full:
                continue

    def close(self) -> None:
        """Write what is left. Raises what writing raised."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _write(self) -> None:
        try:
            while True:
                holds = self._held or self._encoded
                wait = max(0.0, self._written + FLUSH_SECONDS - time.monotonic()) if holds else None
                try:
                    taken = self._queue.get(timeout=wait)
                except queue.Empty:
                    self._flush()
                    continue
                if taken is None:
                    self._flush()
                    return
                tables, encoded = taken
                self._encoded += encoded
                for name, table in tables.items():
                    self._held.setdefault(name, []).append(table)
                    self.bytes_taken += table.nbytes
                rows = sum(table.num_rows for table in self._held.get("instructions", ()))
                held = max(map(len, self._held.values()), default=0)
                full = rows >= FLUSH_ROWS or sum(len(part.content) for part in self._encoded) >= FLUSH_BYTES
                if full or held >= FLUSH_RESULTS or time.monotonic() - self._written >= FLUSH_SECONDS:
                    self._flush()
        except BaseException as error:
            self._error = error
            self._held.clear()
            with self._queue.mutex:  # a driver that waits for room must hear of it
                self._queue.queue.clear()
                self._queue.not_full.notify_all()

    def _flush(self) -> None:
        held, self._held = self._held, {}
        encoded, self._encoded = self._encoded, []
        if held or encoded:
            tables = {
                name: pa.concat_tables(parts).unify_dictionaries().combine_chunks() for name, parts in held.items()
            }
            self._add(tables, *([encoded] if encoded else []))
        with self._written_some:
            self._waiting -= sum(len(part.content) for part in encoded)
            self._written_some.notify_all()
        self._written = time.monotonic()
