"""Killed in the middle of a write, or out of space: the run goes on afterwards and holds what it would have."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from driver import start
from s3_server import Fault, Proxy, Request
from tables import contents

from farm.store import LocalStore, open_store


@pytest.mark.parametrize("where", ["write:4", "rename:1", "rename:9", "remove:2"])
def test_killed_within_a_write_to_a_folder(
    where: str, toy: Path, fake: Path, tmp_path: Path, reference, command
) -> None:
    """In the middle of a part, before a part or a manifest gets its name, before what was merged is removed."""
    store = LocalStore(tmp_path / "store")
    process = start(toy, store.location, where)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    if store.folder("r").exists:
        contents(store.find("r"))  # readable as it was left
    code, _, err = command("submit", toy, "--run", "r", "--store", store.location)
    assert code == 0, err
    folder = store.find("r")
    assert contents(folder) == reference and folder.manifest.complete
    assert {path.name for path in (folder.path / "parts").iterdir()} == {
        part.file for parts in folder.manifest.parts.values() for part in parts
    }
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "inputs.zip", "lock", "manifest.json", "parts", "progress.json", "submission.json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "text", "number", "fault"),
    [
        ("PUT", "parts/instructions", 2, Fault(drop=True)),
        ("PUT", "manifest", 4, Fault(drop=True)),
        ("PUT", "manifest", 4, Fault(lose=True)),  # the manifest is replaced, the driver never hears of it
        ("DELETE", "parts/", 3, Fault(drop=True)),
    ],
)
def test_killed_within_a_request_to_s3(
    method: str, text: str, number: int, fault: Fault, toy: Path, fake: Path, s3: Proxy, reference, command
) -> None:
    left, process = number, None

    def plan(request: Request) -> Fault | None:
        nonlocal left
        left -= request.method == method and text in request.path
        if left > 0 or process is None:
            return None
        os.kill(process.pid, signal.SIGKILL)
        return fault

    s3.plan = plan
    process = start(toy, open_store().location)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    s3.plan = None
    code, _, err = command("submit", toy, "--run", "r")
    assert code == 0, err
    folder = open_store().find("r")
    assert contents(folder) == reference
    assert set(folder.blobs.names("parts/")) == folder.manifest.named()


def test_a_full_disk_is_said_and_costs_nothing(toy: Path, fake: Path, tmp_path: Path, reference, command) -> None:
    store = LocalStore(tmp_path / "store")
    process = start(toy, store.location, "full:12")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3 and out == "", err
    assert "over the file size limit" in err and "same command again" in err and "Traceback" not in err
    assert str(tmp_path / "store" / "r") in err
    kept = contents(store.find("r"))
    assert len(kept["estimates"]) > 0
    assert not [path for path in (tmp_path / "store" / "r").rglob(".*")]  # nothing half written stays
    fake.write_text("")
    code, _, err = command("submit", toy, "--run", "r", "--store", store.location)
    assert code == 0, err
    assert contents(store.find("r")) == reference


def test_no_room_on_a_real_small_disk(toy: Path, fake: Path, tmp_path: Path, reference, command) -> None:
    """ENOSPC from a file system of 64 KiB, where this user may mount one."""
    import subprocess

    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("may not mount a file system")
    try:
        code, out, err = command("submit", toy, "--run", "r", "--store", disk / "store")
        if code == 0:  # it fitted: fill the rest and extend the run
            (disk / "filler").write_bytes(b"")
            with pytest.raises(OSError), open(disk / "filler", "wb", buffering=0) as file:
                while file.write(b"x" * 4096) == 4096:
                    pass
                raise OSError
            code, out, err = command("submit", toy, "--run", "second", "--store", disk / "store")
        assert code == 3 and out == "" and "no space left" in err and "Traceback" not in err
        subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
        run = "second" if (disk / "filler").exists() else "r"
        code, _, err = command("submit", toy, "--run", run, "--store", disk / "store")
        assert code == 0, err
        assert contents(LocalStore(disk / "store").find(run)) == reference
    finally:
        subprocess.run(["umount", disk], check=True)
