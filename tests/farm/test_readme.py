"""The README's commands, as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interpreter.errors import ToolchainError
from interpreter.toolchain import find_tools

ROOT = Path(__file__).parents[2]


def _nvcc() -> bool:
    try:
        return find_tools().nvcc is not None
    except ToolchainError:
        return False


def commands_under(heading: str, file: str = "README.md") -> list[str]:
    """The indented lines of a section, without what installs farm."""
    text = (ROOT / file).read_text()
    section = re.split(r"^## ", text.partition(f"## {heading}\n")[2], flags=re.MULTILINE)[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    return [line for line in lines if not line.startswith("pip install")]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")
def test_results_in_s3(tmp_path: Path) -> None:
    """Word for word, but for the server's port, and a wait until it listens."""
    lines = commands_under("Results in S3")
    assert any(line.startswith("moto_server") for line in lines) and any("farm submit" in line for line in lines)
    shutil.copytree(ROOT / "examples" / "reduce", tmp_path / "examples" / "reduce")
    port = free_port()
    wait = f"for _ in $(seq 300); do (: < /dev/tcp/127.0.0.1/{port}) 2>/dev/null && break; sleep 0.1; done"
    steps = [line.replace("5000", str(port)) + ("\n" + wait if line.endswith("&") else "") for line in lines]
    script = "\n".join(steps)
    # `farm` and `moto_server` of this environment, whatever is on the path
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, call in (("farm", "farm.cli"), ("moto_server", "moto.server")):
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable} -c "from {call} import main; main()" "$@"\n')
        (tools / name).chmod(0o755)
    (tools / "python").symlink_to(sys.executable)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "FARM_STORE"))}
    environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    with subprocess.Popen(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as shell:  # fmt: skip
        try:
            assert shell.wait(timeout=300) == 0, shell.stdout and os.read(shell.stdout.fileno(), 100_000).decode()
        finally:
            os.killpg(shell.pid, signal.SIGKILL)  # the server too
    best = pq.read_table(tmp_path / "best.parquet")
    assert best.num_rows >= 8 and set(best.column("status").to_pylist()) == {"ok"}
    assert not (tmp_path / "farm-runs").exists(), "nothing is kept here"
