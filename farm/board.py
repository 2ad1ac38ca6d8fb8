"""Small notes in a run's folder, by which a driver and other shells or machines talk about the run.

progress.json     the driver's latest snapshot (farm.events.Progress)
cancel.json       somebody asks the driver to stop; the driver removes it when it has
submission.json   what was submitted, for `farm resume`
inputs.zip        the sweeps' files, for `farm resume` where the originals are not
"""

from __future__ import annotations

import json
from typing import Any

from farm.events import Progress
from jobs.run_folder import RunFolder

PROGRESS, CANCEL, SUBMISSION, INPUTS = "progress.json", "cancel.json", "submission.json", "inputs.zip"


class Board:
    """The notes of one run."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def write(self, name: str, content: bytes) -> None:
        """Put a note in place of an older one, whole or not at all."""
        self._folder.blobs.write(name, content)

    def read(self, name: str) -> bytes | None:
        """A note's content, None when there is none."""
        try:
            return self._folder.blobs.read(name)[0]
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Take a note away, if it is there."""
        self._folder.blobs.delete([name])

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
