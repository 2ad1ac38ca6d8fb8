"""Runs are resumable: nothing finished is done again, and no kill leaves a broken run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import farm_fakes
import pytest
from rich.console import Console

import farm.submit
from farm.store import LocalStore
from farm.submit import Options, submit
from jobs.run_folder import RunError, RunFolder

QUIET = Console(quiet=True)


def log_lines(log: Path) -> list[str]:
    return sorted(log.read_text().splitlines())


def test_the_same_command_again_evaluates_nothing(toy: Path, fake: Path, command) -> None:
    _, first, _ = command("submit", toy)
    done = log_lines(fake)
    assert len(done) == 12  # six variants on two architectures
    code, second, err = command("submit", toy)
    assert code == 0 and second == first
    assert log_lines(fake) == done
    assert "12 results were there already" in err


def test_a_run_grows_by_targets_limit_and_tier(toy: Path, fake: Path, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    submit([toy], Options(targets=("h200",), tier="static", limit=3), store, QUIET)
    assert log_lines(fake) == ["0 sm_90a static", "2 sm_90a static", "4 sm_90a static"]
    fake.write_text("")
    submit([toy], Options(targets=("h200",), limit=3), store, QUIET)
    assert log_lines(fake) == ["0 sm_90a sampled", "2 sm_90a sampled", "4 sm_90a sampled"]
    fake.write_text("")
    outcome = submit([toy], Options(targets=("h200", "h100")), store, QUIET)
    table = outcome.folder.read("estimates")
    keys = [tuple(row[k] for k in ("variant", "target", "tier")) for row in table.to_pylist()]
    assert len(keys) == len(set(keys)) == 6 * 2 * 2
    variants = outcome.folder.read("variants").to_pylist()
    assert len({(row["variant"], row["target"]) for row in variants}) == len(variants) == 12


def test_the_funnel_takes_the_share_asked_for(toy: Path, fake: Path, tmp_path: Path) -> None:
    toy.write_text(farm_fakes.SWEEP + "funnel: {sampled: 50%}\n")
    outcome = submit([toy], Options(targets=("h200",)), LocalStore(tmp_path / "store"), QUIET)
    sampled = [line for line in log_lines(fake) if line.endswith(" sampled")]
    assert sampled == ["0 sm_90a sampled", "2 sm_90a sampled", "3 sm_90a sampled"]  # the fastest of the five that work
    assert any("funnel takes 3 of 6" in note for note in outcome.notes)


def test_the_cycle_tier_gets_what_the_funnel_or_the_option_sends(toy: Path, fake: Path, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    toy.write_text(farm_fakes.SWEEP + "funnel: {cycle: 2}\n")
    submit([toy], Options(targets=("h200",), tier="sampled"), store, QUIET)
    assert not [line for line in log_lines(fake) if line.endswith(" cycle")]
    outcome = submit([toy], Options(targets=("h200",)), store, QUIET)
    best = [line for line in log_lines(fake) if line.endswith(" cycle")]
    assert best == ["0 sm_90a cycle", "2 sm_90a cycle"]  # the fastest by the sampled tier
    assert any("takes 2 of 6" in note and "cycle tier" in note for note in outcome.notes)
    submit([toy], Options(targets=("h200",), tier="cycle"), store, QUIET)
    assert [line for line in log_lines(fake) if line.endswith(" cycle")] == best
    fake.write_text("")
    toy.write_text(farm_fakes.SWEEP)
    submit([toy], Options(targets=("h200",), tier="cycle"), store, QUIET)
    # without a funnel all that the sampled tier has an estimate for; the run has two of them already
    assert [line.split()[0] for line in log_lines(fake) if line.endswith(" cycle")] == ["3", "4", "5"]


def test_retry_redoes_failures_only(toy: Path, fake: Path, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    submit([toy], Options(targets=("h200",)), store, QUIET)
    fake.write_text("")
    submit([toy], Options(targets=("h200",), retry=True), store, QUIET)
    assert log_lines(fake) == ["1 sm_90a static+sampled"]


def test_a_run_of_another_sweep_or_model_is_refused(toy: Path, fake: Path, tmp_path: Path, monkeypatch) -> None:
    store = LocalStore(tmp_path / "store")
    submit([toy], Options(run="mine"), store, QUIET)
    with pytest.raises(RunError, match="--l2 warm"):
        submit([toy], Options(run="mine", l2="cold"), store, QUIET)
    (toy.parent / "kernel.cu").write_text("// changed\n")
    with pytest.raises(RunError, match="toy or its source has changed"):
        submit([toy], Options(run="mine"), store, QUIET)
    farm_fakes.write_sweep(toy.parent)
    monkeypatch.setattr(farm.submit, "model_digest", lambda: "another")
    with pytest.raises(RunError, match="simulator has changed"):
        submit([toy], Options(run="mine"), store, QUIET)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with first.writing(), pytest.raises(RunError, match=f"process {os.getpid()}"), second.writing():
        pass


def _start(toy: Path, tmp_path: Path, log: Path) -> subprocess.Popen[str]:
    """A submission in its own process group, slow enough to be stopped."""
    code = (
        # whoever runs the tests in the background hands an ignored SIGINT down
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "import sys; sys.path.insert(0, sys.argv[1]); import farm.submit, farm.cli;"
        "farm.submit.EVALUATOR = 'farm_fakes:evaluate_slowly'; import farm.sink; farm.sink.FLUSH_SECONDS = 0.1;"
        "farm.submit.model_digest = lambda: 'fake model';"
        "sys.argv = ['farm', 'submit', sys.argv[2], '--jobs', '1', '--run', 'r']; farm.cli.main()"
    )
    environment = {**os.environ, "FARM_STORE": str(tmp_path / "store"), "FARM_TEST_LOG": str(log)}
    return subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(toy)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def _wait_for_results(folder: RunFolder, count: int) -> None:
    for _ in range(600):
        if folder.exists and len(folder.load().done("toy", "sampled")) >= count:
            return
        time.sleep(0.05)
    raise AssertionError("no results in 30 s")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopped_midway_and_continued(toy: Path, fake: Path, tmp_path: Path, how: signal.Signals) -> None:
    process = _start(toy, tmp_path, fake)
    folder = RunFolder(tmp_path / "store" / "r")
    _wait_for_results(folder, 2)
    os.kill(process.pid, how)
    _, err = process.communicate(timeout=20)
    if how == signal.SIGINT:
        assert process.returncode == 130, err
        assert "same command again" in err and "Traceback" not in err
    done = folder.load().done("toy", "sampled")
    assert 2 <= len(done) < 12
    (folder.path / "parts" / ".estimates-1.tmp").write_bytes(b"half a file")  # as a kill within a write leaves
    fake.write_text("")
    store = LocalStore(tmp_path / "store")
    submit([toy], Options(run="r"), store, QUIET)
    assert len(log_lines(fake)) == 12 - len(done)
    assert len(folder.load().done("toy", "sampled")) == 12 and folder.manifest.complete
    assert {path.name for path in (folder.path / "parts").iterdir()} == {
        part.file for parts in folder.manifest.parts.values() for part in parts
    }
