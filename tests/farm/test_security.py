"""Nothing listens beyond loopback unless asked, and credentials stay where they are, through a run on Ray into S3."""

from __future__ import annotations

import contextlib
import html
import io
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import processes
import pyarrow.parquet as pq
import pytest
import s3_server

import farm.submit
from farm.database import RunDatabase
from farm.executors.interface import Batch
from farm.observability.redact import HIDDEN, redacted, secrets_of
from farm.store import open_store
from farm.submit import plan_all
from farm.submit_options import Options
from jobs.bundle import sweep_bundle

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDPLANTED12",
    "AWS_SECRET_ACCESS_KEY": "planted+secret/access0key",
    "AWS_SESSION_TOKEN": "planted-session-token-of-the-run",
    "GITHUB_TOKEN": "planted-github-token",
    "REGISTRY_PASSWORD": "planted-registry-password",
}

DRIVER = """
import sys
sys.path.insert(0, sys.argv[1])
import farm.submit, farm.cli
farm.submit.EVALUATOR = "farm_fakes:evaluate_slowly"
farm.submit.is_compiled = lambda _chip: True
sys.argv = ["farm", *sys.argv[2:]]
farm.cli.main()
"""


@pytest.fixture
def secrets(s3: s3_server.Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def ray_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fr", dir="/tmp"))  # short: sockets are made in it
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_a_run_on_ray_into_s3(
    toy: Path, s3: s3_server.Proxy, secrets: None, ray_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"FARM_TEST_MARK={uuid.uuid4().hex}"
    monkeypatch.setenv(*mark.split("="))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]))
    monkeypatch.setenv("FARM_CACHE", str(tmp_path / "cache"))
    port = _free_port()
    said = tmp_path / "stdout", tmp_path / "stderr"
    with open(said[0], "wb") as out, open(said[1], "wb") as err:
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(Path(__file__).parent), "submit", str(toy), "--ray", "--jobs", "2",
             "--run", "r", "--metrics", str(port), "--log-format", "json", "--log-level", "debug"],
            stdout=out, stderr=err, start_new_session=True,
        )  # fmt: skip
    try:
        scraped, seen = _watch(driver, mark, port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        _end(mark)
    assert driver.returncode == 0, said[1].read_text()

    found = processes.Listener("0.0.0.0", 1, processes.Process(1, "", b""))
    assert not found.loopback  # the check itself can fail
    assert seen and any(listener.port == port for listener in seen)
    assert any("gcs_server" in listener.process.command for listener in seen), "Ray's own daemons are looked at"
    outside = {f"{s.address}:{s.port} {s.process.command[:150]}" for s in seen if not s.loopback}
    assert not outside

    workers = [p for p in scraped.processes if "farm.executors.worker" in p.command]
    assert workers, "workers are looked at"
    for process in workers:
        assert not [name for name in SECRETS if name.encode() in process.environment]
    texts = {f"arguments of {p.pid}": p.command for p in scraped.processes}
    texts |= {"stdout": said[0].read_text(), "stderr": said[1].read_text(), "metrics": scraped.metrics}
    texts |= dict(_files(ray_folder)) | dict(_files(tmp_path / "cache")) | dict(_objects(s3))
    assert any(name.endswith("progress.json") for name in texts) and any(".parquet" in name for name in texts)
    for name, text in texts.items():
        for secret in SECRETS.values():
            assert secret not in text, f"{secret} is in {name}"
    assert 'farm_work_items_total{arch="sm_90a",result="ok",tier="sampled"}' in scraped.metrics


class _Scraped:
    def __init__(self) -> None:
        self.metrics = ""
        self.processes: list[processes.Process] = []


def _watch(driver: subprocess.Popen[bytes], mark: str, port: int) -> tuple[_Scraped, list[processes.Listener]]:
    """Look at the run until it ends: its processes, where they listen, its metrics."""
    scraped, seen, deadline = _Scraped(), {}, time.monotonic() + 120
    while driver.poll() is None:
        assert time.monotonic() < deadline, "the run does not end"
        mine = processes.marked(mark)
        for listener in processes.listeners(mine):
            seen[listener.address, listener.port] = listener
        known = {process.pid for process in scraped.processes}
        # a process that has just been forked still looks like its parent
        scraped.processes += [p for p in mine if p.pid not in known and "fork" not in p.command]
        with contextlib.suppress(OSError):
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
            scraped.metrics = text if "farm_work_items_total{" in text else scraped.metrics
        time.sleep(0.2)
    return scraped, list(seen.values())


def _end(mark: str) -> None:
    """End what the run has left behind: nothing, unless the test failed."""
    deadline = time.monotonic() + 10
    while (left := processes.marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield str(path), path.read_bytes().decode("latin-1")


def _objects(s3: s3_server.Proxy) -> Iterator[tuple[str, str]]:
    """Everything in the bucket, in the clear."""
    client = boto3.client("s3", endpoint_url=s3.url)
    for entry in client.list_objects_v2(Bucket=s3.bucket)["Contents"]:
        content = client.get_object(Bucket=s3.bucket, Key=entry["Key"])["Body"].read()
        yield entry["Key"], content.decode("latin-1")
        if entry["Key"].endswith(".parquet"):
            table = pq.read_table(io.BytesIO(content))
            yield entry["Key"] + " rows", str(table.to_pylist()) + str(table.schema.metadata)
        elif entry["Key"].endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                yield from ((f"{entry['Key']}/{n}", archive.read(n).decode("latin-1")) for n in archive.namelist())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_task_arguments_hold_no_secrets(toy: Path, secrets: None) -> None:
    (plan,) = plan_all([toy], Options())
    items, _ = plan.items(("static", "sampled"), {name: range(6) for name in plan.targets}, ())
    sent = pickle.dumps((Batch(1, tuple(items)), sweep_bundle(plan)))
    assert b"toy" in sent and len(items) == 12
    assert not [name for name, value in SECRETS.items() if value.encode() in sent or name.encode() in sent]


def test_pages_hold_no_secrets(
    command: Callable[..., tuple[int, str, str]],
    toy: Path,
    s3: s3_server.Proxy,
    secrets: None,
    fake: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tables and pages are published: nothing of the environment gets into them, whatever a failure's message says."""
    monkeypatch.setattr(farm.submit, "EVALUATOR", "farm_fakes:evaluate_with_a_telltale")
    assert command("submit", toy, "--run", "r", "--jobs", "1")[0] == 0
    (row,) = RunDatabase(open_store().find("r")).rows("SELECT DISTINCT message FROM estimates WHERE status <> 'ok'")
    assert HIDDEN in row["message"] and not [secret for secret in SECRETS.values() if secret in row["message"]]
    assert command("page", "r", "--all", "-o", tmp_path / "pages")[0] == 0
    assert command("overview", "--pages", "-o", tmp_path / "site")[0] == 0
    assert command("page", "r:1", "-o", tmp_path / "one.html")[0] == 0
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 8 and any(HIDDEN in path.read_text() for path in pages)
    for path in pages:
        text = path.read_text()
        assert not [name for name, secret in SECRETS.items() if secret in text or secret in html.unescape(text)], path


def test_errors_hold_no_secrets(
    command: Callable[..., tuple[int, str, str]], toy: Path, s3: s3_server.Proxy, secrets: None, fake: Path
) -> None:
    s3.plan = lambda _request: s3_server.Fault(status=403, code="InvalidAccessKeyId")
    for arguments in (
        ["status", "--store", f"s3://{s3.bucket}/x"],
        ["submit", toy, "--store", f"s3://{s3.bucket}/x"],
        ["status", "--store", f"s3://{SECRETS['AWS_ACCESS_KEY_ID']}:{SECRETS['AWS_SECRET_ACCESS_KEY']}@host/bucket"],
    ):
        code, out, err = command(*arguments)
        assert code in (2, 3) and err.startswith("error: ")
        assert not [value for value in SECRETS.values() if value in out + err]


def test_redacted() -> None:
    environment = {
        "AWS_SECRET_ACCESS_KEY": "abc/def+ghi",
        "MY_TOKEN": "tok-12345",
        "PIN_PASSWORD": "abc",
        "HOME": "/root",
    }
    assert secrets_of(environment) == ["abc/def+ghi", "tok-12345"]
    assert secrets_of({"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token"}) == []
    text = "PUT https://user:pass@host/x?X-Amz-Signature=1234&a=1 with abc/def+ghi and tok-12345, AKIAIOSFODNN7EXAMPLE"
    shown = redacted(text, environment)
    for secret in ("user:pass", "1234&", "abc/def+ghi", "tok-12345", "AKIAIOSFODNN7EXAMPLE"):
        assert secret not in shown
    assert shown.startswith(f"PUT https://{HIDDEN}@host/x?X-Amz-Signature={HIDDEN}&a=1 with")
    plain = "toy variant 3 (sm_90a): kernel.cu(1): error: expected a ; at https://host/path"
    assert redacted(plain, environment) == plain
    assert (
        redacted("password = hunter22 secret_access_key: xyz", {}) == f"password = {HIDDEN} secret_access_key: {HIDDEN}"
    )


def test_only_runs_listen(
    command: Callable[..., tuple[int, str, str]], toy: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was not asked for metrics has no socket at all."""
    seen: list[Any] = []
    import farm.drive

    real = farm.drive.Drive._keep

    def keep(self: Any, *arguments: Any) -> None:
        seen.append(processes.listeners([processes.Process(os.getpid(), "", b"")]))
        real(self, *arguments)

    monkeypatch.setattr(farm.drive.Drive, "_keep", keep)
    before = {(s.address, s.port) for s in processes.listeners([processes.Process(os.getpid(), "", b"")])}
    assert command("submit", toy, "--jobs", 1)[0] == 0
    assert seen and all({(s.address, s.port) for s in found} <= before for found in seen)
