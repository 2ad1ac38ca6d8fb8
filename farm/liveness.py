"""Whether a run's driver is at work, seen from another shell or machine."""

from __future__ import annotations

import os
import socket

from farm.board import Board
from farm.events import Progress
from jobs.run_folder import RunFolder

SILENT_SECONDS = 20.0  # without a new snapshot, as the watcher's own clock counts, before a driver counts as gone


def driver_state(folder: RunFolder, progress: Progress | None = None) -> str:
    """`complete`, `running`, `cancelled`, `interrupted`, `failed`, `gone` (killed), or `unfinished` when not known.

    A driver on another machine is believed to run when it said so last: `farm watch` sees whether it still does.
    """
    progress = progress or Board(folder).progress()
    if progress is None:
        return "complete" if folder.manifest.complete else "unfinished"
    if progress.state == "complete":
        return "complete" if folder.manifest.complete else "unfinished"
    if progress.over:
        return progress.state
    return "gone" if surely_dead(progress) else "running"


def surely_dead(progress: Progress) -> bool:
    """Whether the driver was on this machine and its process is no more."""
    if progress.host != socket.gethostname():
        return False
    try:
        os.kill(progress.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
