"""`--ray`, whose address may be left out: `farm submit --ray SWEEP` starts a Ray of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

LOCAL = "local"
_ADDRESS = re.compile(r"auto$|local$|ray://|[\w.-]+:\d+$|\[[0-9a-fA-F:]+\]:\d+$")


def complete_ray_option(arguments: Sequence[str]) -> list[str]:
    """The command line with the address of a bare `--ray` filled in (a folder is never taken for an address)."""
    completed: list[str] = []
    for place, word in enumerate(arguments):
        completed.append(word)
        if word == "--":
            return completed + list(arguments[place + 1 :])
        if word == "--ray" and not _ADDRESS.match("".join(arguments[place + 1 : place + 2])):
            completed.append(LOCAL)
    return completed
