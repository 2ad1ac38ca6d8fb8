"""Small notes in a run's folder, by which a driver and other shells or machines talk about the run.

progress.json     the driver's latest snapshot (farm.events.Progress)
cancel.json       somebody asks the driver to stop; the driver removes it when it has
submission.json   what was submitted, for `farm resume`
inputs.zip        the sweeps' files, for `farm resume` where the originals are not
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from farm.events import Progress
from jobs.run_folder import RunFolder, write_atomically

PROGRESS, CANCEL, SUBMISSION, INPUTS = "progress.json", "cancel.json", "submission.json", "inputs.zip"


class Board:
    """The notes of one run."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def write(self, name: str, content: bytes) -> None:
        """Put a note in place of an older one, whole or not at all."""
        write_atomically(self._path(name), content)

    def read(self, name: str) -> bytes | None:
        """A note's content, None when there is none."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path(name).unlink()

    def progress(self) -> Progress | None:
        """The latest snapshot; None when there is none, or none that this version can read."""
        content = self.read(PROGRESS)
        if content is None:
            return None
        try:
            return Progress.from_json(content)
        except (ValueError, KeyError, TypeError):
            return None

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A note that is a JSON object; None when there is none."""
        content = self.read(name)
        if content is None:
            return None
        try:
            found = json.loads(content)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def _path(self, name: str) -> Path:
        return self._folder.path / name
