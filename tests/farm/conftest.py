"""Fixtures of the farm tests: a small sweep, a fake simulator, and the command run in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import farm_fakes
import pytest

import farm.cli
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
