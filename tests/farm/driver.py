"""A submission as a process of its own, slow enough to be met midway, with a clock that jumps or a death in a write."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

DRIVER = """
import sys, time
sys.path.insert(0, sys.argv[1])
if sys.argv[4] == "jump":
    real, calls = time.time, [0]
    def jumping():
        calls[0] += 1
        return real() + (86400 if calls[0] % 2 else -86400)
    time.time = jumping
kind, _, count = sys.argv[4].partition(":")
if kind in ("write", "rename", "remove", "full"):  # die at that call, or have no room from then on
    import os, resource, signal
    import pyarrow.parquet
    owner, name = {
        "write": (pyarrow.parquet.ParquetWriter, "write_table"), "rename": (os, "replace"), "full": (os, "replace"),
        "remove": (__import__("pathlib").Path, "unlink"),
    }[kind]
    real_call, left = getattr(owner, name), [int(count)]
    def dying(*arguments, **named):
        left[0] -= 1
        if left[0] == 0 and kind == "full":  # no file may grow beyond that
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        elif left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real_call(*arguments, **named)
    setattr(owner, name, dying)
import farm.submit, farm.cli, farm.sink
farm.submit.EVALUATOR = "farm_fakes:evaluate_slowly"
farm.sink.FLUSH_SECONDS = 0.1
farm.submit.model_digest = lambda: "fake model"
farm.submit.is_compiled = lambda _chip: True
sys.argv = ["farm", "submit", sys.argv[2], "--jobs", "1", "--run", "r", "--store", sys.argv[3]]
farm.cli.main()
"""


def start(toy: Path, store: str, mode: str = "plain", **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(Path(__file__).parent), str(toy), store, mode],
        env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def wait_for_results(store: Any, count: int) -> None:
    for _ in range(300):
        folder = store.folder("r")
        if folder.exists and len(folder.load().done("toy", "sampled")) >= count:
            return
        time.sleep(0.1)
    raise AssertionError("no results in 30 s")
