"""Writing results while the run goes on: a thread of its own, so that workers never wait for a disk or a bucket."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

import pyarrow as pa

from farm.observability.redact import redacted_table
from jobs.parts import Encoded

FLUSH_SECONDS = 2.0  # a kill loses at most this much finished work
FLUSH_ROWS = 200_000  # rows of `instructions` gathered into one part
FLUSH_RESULTS = 512
FLUSH_BYTES = 32 << 20  # of what comes encoded
JOINED_RESULTS = 32  # put into one table: a small one takes tens of KB of memory, however few its rows
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
        self._held: dict[str, list[pa.Table]] = {}  # joined ones
        self._small: dict[str, list[pa.Table]] = {}
        self._encoded: list[Encoded] = []
        self._results = 0  # held, and how many rows of `instructions` they have, and bytes of what is encoded
        self._rows = 0
        self._bytes = 0
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
                wait = max(0.0, self._written + FLUSH_SECONDS - time.monotonic()) if self._results else None
                try:
                    taken = self._queue.get(timeout=wait)
                except queue.Empty:
                    self._flush()
                    continue
                if taken is None:
                    self._flush()
                    return
                self._hold(*taken)
                overdue = time.monotonic() - self._written >= FLUSH_SECONDS
                full = self._rows >= FLUSH_ROWS or self._results >= FLUSH_RESULTS or self._bytes >= FLUSH_BYTES
                if full or overdue:
                    self._flush()
        except BaseException as error:
            self._error = error
            self._held.clear()
            self._small.clear()
            with self._queue.mutex:  # a driver that waits for room must hear of it
                self._queue.queue.clear()
                self._queue.not_full.notify_all()

    def _hold(self, tables: Tables, encoded: Sequence[Encoded]) -> None:
        self._results += 1
        self._encoded += encoded
        self._bytes += sum(len(part.content) for part in encoded)
        for name, table in tables.items():
            table = redacted_table(table)
            self.bytes_taken += table.nbytes
            if name == "instructions":
                self._rows += table.num_rows
            small = self._small.setdefault(name, [])
            small.append(table)
            if len(small) == JOINED_RESULTS:
                self._held.setdefault(name, []).append(_joined(self._small.pop(name)))

    def _flush(self) -> None:
        held, self._held = self._held, {}
        encoded, self._encoded = self._encoded, []
        for name, small in self._small.items():
            held.setdefault(name, []).extend(small)
        self._small.clear()
        written, self._bytes = self._bytes, 0
        self._rows = self._results = 0
        if held or encoded:
            # what is joined is let go: writing may merge parts, which needs memory of its own
            tables = {name: _joined(held.pop(name)) for name in list(held)}
            self._add(tables, *([encoded] if encoded else []))
        with self._written_some:
            self._waiting -= written
            self._written_some.notify_all()
        self._written = time.monotonic()


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
