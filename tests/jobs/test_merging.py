"""Merges in a process of their own: the same parts, whatever becomes of it, and nothing of it after the driver."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs import merging, parts
from jobs.blobs import LocalBlobs, StorageError
from jobs.run_folder import RunFolder
from jobs.tables import STALL_COLUMNS, Rows

LINES = 500


def flush(number: int, of: int) -> dict[str, pa.Table]:
    """Rows of five variants, spread over the whole sweep."""
    rows = Rows()
    for variant in range(number, 5 * of, of):
        key = {"family": "f", "variant": variant, "target": "h200", "tier": "sampled"}
        rows.estimates.append({**key, "status": "ok", "time_us": float(variant + 1)})
        sass = [f"FFMA R{n}, R{variant % 255}, R2, R3" for n in range(LINES)]
        stalls = {STALL_COLUMNS[0]: np.arange(LINES, dtype=np.float32) * variant}
        rows.instructions.append({**key, "pc": np.arange(LINES, dtype=np.int32) * 16, "sass": sass, **stalls})
    return rows.tables()


def written(path: Path, flushes: int = 30) -> RunFolder:
    """A run whose parts are merged while they are added, and at the end."""
    folder = RunFolder(path)
    with folder.writing():
        for number in range(flushes):
            folder.add(flush(number, flushes))
        folder.finish()
    return folder


def files(folder: RunFolder) -> dict[str, list[str]]:
    """The names of a run's parts, which say what they hold, without the epochs."""
    return {name: sorted(part.file.split(".")[0] for part in found) for name, found in folder.manifest.parts.items()}


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "LARGE_GROUPS", 10**9)
        return files(written(tmp_path_factory.mktemp("reference") / "run"))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Every merge is large; the tables of those that a process has merged."""
    monkeypatch.setattr(merging, "LARGE_GROUPS", 0)
    seen: list[list[str]] = []
    real = merging._in_child

    def noted(*arguments: Any) -> dict[str, list[parts.Part]]:
        found = real(*arguments)
        seen.append(sorted(found))
        return found

    monkeypatch.setattr(merging, "_in_child", noted)
    return seen


def child_that(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Have processes do something of their own first."""
    monkeypatch.setattr(
        merging, "COMMAND", [*merging.COMMAND[:-1], f"{merging.COMMAND[-1].rpartition(';')[0]}; {code}"]
    )


def test_a_process_merges_to_the_same_bytes(tmp_path: Path, answers: list[list[str]], in_process) -> None:
    folder = written(tmp_path / "run")
    assert files(folder) == in_process
    assert answers[0] == answers[-1] == ["estimates", "instructions"], "one process for all tables of a merge"
    assert {path.name for path in (tmp_path / "run" / "parts").iterdir()} == {
        part.file for found in folder.manifest.parts.values() for part in found
    }


def test_small_merges_start_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """75,000 rows of `instructions` are more than two row groups, 60,000 are not, nor are 150 of `estimates`."""
    group = [parts.Part(f"instructions-{n}.1.parquet", 2500, 9, ("f", n), ("f", n)) for n in range(30)]
    assert merging.is_large("instructions", group) and not merging.is_large("instructions", group[:24])
    assert not merging.is_large("instructions", [parts.Part("a", 10**6, 9, ("f", 1), ("f", 2))]), (
        "nothing to merge with"
    )
    monkeypatch.setattr(merging, "COMMAND", ["/nonexistent"])
    monkeypatch.setattr(merging._LOG, "warning", lambda *_, **__: pytest.fail("a process for few rows"))
    assert written(tmp_path / "run", 20).manifest.complete


KILLED = (  # when the part is written and has no name yet
    "import os, signal; from jobs import parts; "
    "parts._digest = lambda path: os.kill(os.getpid(), signal.SIGKILL); from jobs.merging import main; main()"
)
HALF = (  # when the first of the tables is published
    "import os, signal; from jobs import parts; real = parts.merge; names = []\n"
    "def dying(*given):\n names.append(given[2])\n"
    " return real(*given) if len(names) == 1 else os.kill(os.getpid(), signal.SIGKILL)\n"
    "parts.merge = dying\nfrom jobs.merging import main; main()"
)
NO_MEMORY = (
    "from jobs import parts\ndef full(*_): raise MemoryError('none left')\n"
    "parts.merge = full\nfrom jobs.merging import main; main()"
)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KILLED, "killed by signal 9"),
        (HALF, "killed by signal 9"),
        (NO_MEMORY, "MemoryError: none left"),
        ("raise SystemExit('no such thing')", "exit code 1: no such thing"),
        ("print('{}x')", "exit code 0"),
        (None, "not started: No such file or directory"),
    ],
)
def test_a_failed_process_costs_nothing(
    code: str | None, said: str, tmp_path: Path, answers: list[list[str]], in_process,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    if code is None:
        monkeypatch.setattr(merging, "COMMAND", ["/nonexistent/python"])
    else:
        child_that(monkeypatch, code)
    monkeypatch.setattr(logging.getLogger("farm.run"), "propagate", True)
    folder = RunFolder(tmp_path / "run")
    monkeypatch.setattr(parts, "LAST_FAN_IN", 100)  # one merge at the end is enough here
    monkeypatch.setattr(parts, "FAN_IN", 100)
    with folder.writing():
        for number in range(30):
            folder.add(flush(number, 30))
        folder.finish()
    assert not answers, "no process has answered"
    assert said in caplog.text and "merged by the driver itself" in caplog.text
    assert files(folder) == in_process
    assert {path.name for path in (tmp_path / "run" / "parts").iterdir()} == {
        part.file for found in folder.manifest.parts.values() for part in found
    } | {path.rpartition("/")[2] for path in folder._going}, "nothing half written stays"


def test_what_the_storage_does_is_said_as_by_the_driver(
    tmp_path: Path, answers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        for number in range(3):
            folder.add(flush(number, 3))
        before = files(folder)
        part = folder.manifest.parts["estimates"][1]
        path, content = tmp_path / "run" / part.blob, (tmp_path / "run" / part.blob).read_bytes()
        for spoil in (lambda: path.write_bytes(content[:-9]), path.unlink):
            spoil()
            said = []
            for limit in (0, 10**9):
                monkeypatch.setattr(merging, "LARGE_GROUPS", limit)
                with pytest.raises(StorageError) as error:
                    folder.finish()
                said.append(str(error.value))
            assert said[0] == said[1] and ("damaged" in said[0] or "missing" in said[0])
        assert RunFolder(tmp_path / "run").load().manifest.parts.keys() == before.keys()
        path.write_bytes(content)
        monkeypatch.setattr(merging, "LARGE_GROUPS", 0)
        folder.finish()
    assert folder.read("instructions").num_rows == 15 * LINES and answers


def test_rows_lost_by_a_process_are_noticed(tmp_path: Path, answers, monkeypatch: pytest.MonkeyPatch) -> None:
    child_that(
        monkeypatch,
        "from jobs import parts; real = parts.merge; "
        "parts.merge = lambda b, e, n, group: real(b, e, n, group[1:]); from jobs.merging import main; main()",
    )
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        for number in range(3):
            folder.add(flush(number, 3))
        with pytest.raises(StorageError, match="lost some; nothing was replaced"):
            folder.finish()
    assert RunFolder(tmp_path / "run").load().read("instructions").num_rows == 15 * LINES


DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from jobs import merging
from jobs.run_folder import RunFolder
from test_merging import flush
merging.LARGE_GROUPS = 0
merging.COMMAND[-1] = merging.COMMAND[-1].rpartition(";")[0] + '''
import os, time
from jobs import parts
def slow(path):
    print(os.getpid(), file=open(os.environ["MARK"] + ".tmp", "w"))
    os.replace(os.environ["MARK"] + ".tmp", os.environ["MARK"])
    time.sleep(60)
parts._digest = slow
from jobs.merging import main; main()'''
folder = RunFolder(Path(sys.argv[2]))
with folder.writing():
    for number in range(3):
        folder.add(flush(number, 3))
    folder.finish()
"""


def test_a_killed_driver_takes_the_process_with_it(tmp_path: Path) -> None:
    """Killed while the process is about to publish: it ends, and the run goes on from what its manifest names."""
    mark, run = tmp_path / "mark", tmp_path / "run"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(Path(__file__).parent), str(run)], env={**os.environ, "MARK": str(mark)}
    )
    pid = int(_wait_for(lambda: mark.read_text() if mark.exists() else None, 20))
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    _wait_for(lambda: not _alive(pid), 5)
    found = {path.name for path in (run / "parts").iterdir()}
    named = {part.file for parts_ in RunFolder(run).load().manifest.parts.values() for part in parts_}
    assert named < found and all(name.startswith(".") for name in found - named), "published after the driver's end"
    folder = RunFolder(run)
    with folder.writing():
        assert {path.name for path in (run / "parts").iterdir()} == named
        folder.finish()
    assert folder.read("instructions").num_rows == 15 * LINES and folder.manifest.complete


def _alive(pid: int) -> bool:
    try:  # one that nobody has waited for yet is over too
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _wait_for(what: Any, seconds: float) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s")


def test_a_folder_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    LocalBlobs(tmp_path / "run").write("x", b"content")
    again = pickle.loads(pickle.dumps(LocalBlobs(Path("run")).recipe()))()
    assert again.name == "run" and again.read("x")[0] == b"content"
