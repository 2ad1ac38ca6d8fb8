"""The driver's side of a run's board: a thread that publishes snapshots and looks whether the run is to be cancelled.

A slow or failing store never holds up the run: a snapshot that cannot be written is dropped, and the next one tried.
"""

from __future__ import annotations

import contextlib
import threading
import time

from farm.board import CANCEL, PROGRESS, Board
from farm.events import Telemetry

INTERVAL_SECONDS = 1.0


class Announcer:
    """Publishes `telemetry.progress` on the run's board. Use as a context manager."""

    def __init__(self, board: Board, telemetry: Telemetry, interval: float = INTERVAL_SECONDS) -> None:
        self._board = board
        self._telemetry = telemetry
        self._interval = interval
        self._latest: bytes | None = None
        self._cancelled: str | None = None
        self._over = threading.Event()
        self._changed = threading.Event()
        self._taken = 0.0
        self._thread = threading.Thread(target=self._publish, name="farm-announcer", daemon=True)

    def __enter__(self) -> Announcer:
        self._board.remove(CANCEL)  # a wish about an earlier submission
        self.tick(now=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._changed.set()
        self._thread.join()
        self.tick(now=True)
        with contextlib.suppress(Exception):
            self._write()
            self._board.remove(CANCEL)

    def tick(self, now: bool = False) -> None:
        """Take a snapshot if it is time for one."""
        moment = time.monotonic()
        if now or moment - self._taken >= self._interval:
            self._taken = moment
            self._telemetry.progress.sequence += 1
            self._latest = self._telemetry.progress.to_json().encode()
            self._changed.set()

    def cancelled(self) -> str | None:
        """Who asked for the run to be cancelled, in words; None while nobody has."""
        return self._cancelled

    def _publish(self) -> None:
        while not self._over.is_set():
            self._changed.wait(self._interval)
            self._changed.clear()
            with contextlib.suppress(Exception):
                self._write()
            with contextlib.suppress(Exception):
                wish = self._board.read_json(CANCEL)
                if wish is not None:
                    self._cancelled = f"cancelled by {wish.get('by', 'somebody')}"
            self._over.wait(self._interval)

    def _write(self) -> None:
        latest, self._latest = self._latest, None
        if latest is not None:
            self._board.write(PROGRESS, latest)
