"""Merges of many rows in a process of their own, which ends with each: its heap is not left to the driver.

The memory that a merge holds at a time is bounded, but what it leaves in the heap grows with the number of row groups
it has passed through, and a driver lives as long as its run. The child only writes parts that no manifest names: the
driver names them, as it does with its own. So it may die at any point; the driver then merges by itself.

It is told what to do on its stdin, which stays open until it has answered: when the driver dies, however it dies, the
child sees the end of it and ends as well.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from jobs import parts
from jobs.blobs import TEMPORARY, Blobs, StorageError
from jobs.parts import Part

# Row groups of a merge from which on a process is started for it, which takes half a second: about as long as such a
# merge itself. Small runs never have one.
LARGE_GROUPS = 2
COMMAND = [sys.executable, "-c", "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
           "from jobs.merging import main; main()"]  # fmt: skip
_LOG = logging.getLogger("farm.run.merging")


class ChildFailed(Exception):
    """The process ended without an answer, or with one that says nothing of the storage."""


def is_large(name: str, group: Sequence[Part]) -> bool:
    """Whether merging these parts of a table is worth a process of its own."""
    return len(group) > 1 and sum(part.rows for part in group) > LARGE_GROUPS * parts.row_group(name)


def merge_large(blobs: Blobs, epoch: int, groups: Mapping[str, Sequence[Part]]) -> dict[str, list[Part]]:
    """Of each group the new parts, which no manifest names yet, where one of the groups is large.

    Nothing where none is, or when the process failed, which is logged: the caller merges then. Raises as
    `jobs.parts.merge` does.
    """
    if not any(is_large(name, group) for name, group in groups.items()):
        return {}
    given = {name: list(group) for name, group in groups.items() if group}  # small ones too: the process is there
    try:
        return _in_child(blobs, epoch, given)
    except ChildFailed as error:
        rows = sum(part.rows for group in given.values() for part in group)
        _LOG.warning(
            "run %s: the process that merged %d rows failed (%s); they are merged by the driver itself",
            blobs.name, rows, error, extra={"farm": {"event": "merged_here", "run": blobs.name}},
        )  # fmt: skip
        return {}


def _in_child(blobs: Blobs, epoch: int, groups: Mapping[str, Sequence[Part]]) -> dict[str, list[Part]]:
    request = pickle.dumps((blobs.recipe(), epoch, dict(groups)))
    with tempfile.TemporaryFile() as complaints:
        try:
            child = subprocess.Popen(
                [*COMMAND, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                process_group=0,  # Ctrl-C on a terminal is for the driver, which lets the merge end
            )
        except OSError as error:
            raise ChildFailed(f"not started: {error.strerror or error}") from None
        assert child.stdin is not None and child.stdout is not None
        try:
            with contextlib.suppress(OSError):  # that it is dead shows in its answer
                child.stdin.write(request)
                child.stdin.flush()
            answer = child.stdout.read()
        finally:  # it has answered or died, or this thread is being stopped: then it must not go on
            with contextlib.suppress(OSError):
                child.stdin.close()
            if child.poll() is None:
                child.kill()
            code = child.wait()
            child.stdout.close()
        try:
            content = json.loads(answer)
        except ValueError:
            _remove_leftovers(blobs, child.pid)
            complaints.seek(0)
            last = complaints.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise ChildFailed(f"{_ended(code)}{': ' + last if last else ''}") from None
    return _answered(content)


def _answered(content: dict[str, Any]) -> dict[str, list[Part]]:
    if "storage" in content:
        raise StorageError(content["storage"])
    if "missing" in content:
        raise FileNotFoundError(content["missing"])
    if "error" in content:
        raise ChildFailed(content["error"])
    return {name: [Part.from_json(part) for part in found] for name, found in content["parts"].items()}


def _ended(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _remove_leftovers(blobs: Blobs, pid: int) -> None:
    """The part that it was writing, of which a killed process leaves a file."""
    with contextlib.suppress(OSError, StorageError):
        for path in blobs.scratch().glob(f".*-{pid}-*{TEMPORARY}"):
            path.unlink(missing_ok=True)


# ---- in the child


def main() -> None:
    """Merge what stdin says, answer on stdout, end."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    recipe, epoch, groups = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    content = json.dumps(_answer(recipe, epoch, groups)).encode()
    with open(answers, "wb") as file:
        file.write(content)
    sys.stderr.flush()
    os._exit(0)  # nothing is left to do, and a thread still waits for stdin


def _answer(recipe: Any, epoch: int, groups: Mapping[str, Sequence[Part]]) -> dict[str, Any]:
    try:
        blobs = recipe()
        merged = {name: parts.merge(blobs, epoch, name, group) for name, group in groups.items()}
    except StorageError as error:
        return {"storage": str(error)}
    except FileNotFoundError as error:
        return {"missing": str(error)}
    except Exception as error:  # no memory, or a fault here: the driver tries by itself, and says what it meets
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    return {"parts": {name: [part.to_json() for part in found] for name, found in merged.items()}}


def _end_with_the_driver() -> None:
    # not through sys.stdin, whose lock this would hold; the driver sends nothing more
    with contextlib.suppress(OSError):
        os.read(0, 1)
    os._exit(1)
