"""Fixtures of the farm tests: a small sweep, a fake simulator, and the command run in this process."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import farm_fakes
import pytest
import s3_server
import tables
from rich.console import Console

import farm.cli
import farm.sink
import farm.store
import farm.submit


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return farm_fakes.write_sweep(tmp_path / "toy")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Evaluations by the fake simulator; returns the file that notes them."""
    log = tmp_path / "evaluations.log"
    log.touch()
    monkeypatch.setattr(farm.submit, "EVALUATOR", "farm_fakes:evaluate_batch")
    monkeypatch.setattr(farm.submit, "model_digest", lambda: "fake model")
    monkeypatch.setattr(farm.submit, "is_compiled", lambda _chip: True)  # the fake needs no engine
    monkeypatch.setenv("FARM_TEST_LOG", str(log))
    monkeypatch.setenv("FARM_STORE", str(tmp_path / "store"))
    return log


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tables.Contents:
    """The tables of the toy sweep's run by the fake simulator, undisturbed, in a folder."""
    folder = tmp_path_factory.mktemp("reference")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(farm.submit, "EVALUATOR", "farm_fakes:evaluate_batch")
        patch.setattr(farm.submit, "is_compiled", lambda _chip: True)
        toy = farm_fakes.write_sweep(folder / "toy")
        store = farm.store.LocalStore(folder / "store")
        return tables.contents(
            farm.submit.submit([toy], farm.submit.Options(run="r"), store, Console(quiet=True)).folder
        )


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run `farm` with arguments: (exit code, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["farm", *map(str, arguments)])
        capfd.readouterr()
        code = 0
        try:
            farm.cli.main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def flush_every(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Set how often a submission in this process writes what is finished, in seconds."""
    return lambda seconds: monkeypatch.setattr(farm.sink, "FLUSH_SECONDS", seconds)


@pytest.fixture(scope="session")
def moto_address() -> Iterator[tuple[str, int]]:
    with s3_server.moto() as address:
        yield address


@pytest.fixture
def s3(moto_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[s3_server.Proxy]:
    """A bucket `farm-test` of its own behind a proxy, and the environment to use it."""
    with s3_server.Proxy(moto_address).running() as proxy:
        for name in list(os.environ):
            if name.startswith("AWS_"):
                monkeypatch.delenv(name)
        for name, value in s3_server.environment(proxy).items():
            monkeypatch.setenv(name, value)
        proxy.bucket = f"farm-test-{uuid.uuid4().hex[:8]}"
        s3_server.make_bucket(moto_address, proxy.bucket)
        monkeypatch.setenv("FARM_STORE", f"s3://{proxy.bucket}/some/where")
        yield proxy
