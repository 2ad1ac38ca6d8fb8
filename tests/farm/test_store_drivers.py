"""Two drivers on one run: one writes, the other is told who; a driver that was only asleep cannot spoil anything."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from driver import start, wait_for_results
from s3_server import Fault, Proxy
from tables import contents

from farm.store import LocalStore, open_store
from jobs.blobs import Busy, StorageError
from jobs.run_folder import RunBusy
from jobs.tables import Rows


def estimate(variant: int, target: str = "h200") -> dict[str, Any]:
    return {"family": "f", "variant": variant, "target": target, "tier": "sampled", "status": "ok", "time_us": 1.5}


@pytest.mark.parametrize("clock", ["plain", "jump"])
def test_a_second_driver_is_refused_and_a_killed_one_is_followed(
    clock: str, toy: Path, fake: Path, s3: Proxy, reference, command
) -> None:
    store = open_store()
    first = start(toy, store.location, clock)
    try:
        wait_for_results(store, 1)
        code, out, err = command("submit", toy, "--run", "r")
        assert code == 2 and out == "" and f"process {first.pid}" in err and "Traceback" not in err, err
    finally:
        os.kill(first.pid, signal.SIGKILL)
        _, err = first.communicate()
    assert "Traceback" not in err
    assert not store.find("r").manifest.complete
    began = time.monotonic()
    code, _, err = command("submit", toy, "--run", "r")  # of this machine and dead: no waiting
    assert code == 0 and time.monotonic() - began < 20, err
    assert contents(store.find("r")) == reference


def test_a_silent_driver_elsewhere_is_followed_after_its_time(s3: Proxy) -> None:
    """What another machine held is taken once it has not been renewed for its seconds, whatever clocks say."""
    folder = open_store().folder("r")
    lease = {"epoch": 7, "seconds": 0.6, "beat": 3, "owner": {"host": "elsewhere", "pid": 1, "boot": "x"}}
    folder.blobs.write("lease.json", json.dumps(lease).encode())
    began = time.monotonic()
    with folder.writing():
        assert time.monotonic() - began >= 0.6
        assert folder.epoch == 8
    with open_store().folder("r").writing() as again:  # released: at once
        assert again.epoch == 9


def test_a_driver_that_slept_cannot_publish_or_delete(s3: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It wakes up inside `writing`, having lost the lease without knowing: the worst moment."""
    sleeper, other = open_store().folder("r"), open_store().folder("r")
    monkeypatch.setattr("farm.store.lease.Lease._renew", lambda self: None)  # stopped, as far as others can see
    monkeypatch.setattr("farm.store.lease._is_dead", lambda owner: False)
    writing = sleeper.writing()
    with writing:
        sleeper.add(Rows(estimates=[estimate(0)]).tables())
        with other.writing():
            other.add(Rows(estimates=[estimate(1)]).tables())
            late = sleeper.stage(Rows(estimates=[estimate(2)]).tables())
            for act in (
                lambda: sleeper.publish(late),
                lambda: sleeper.finish(),
                lambda: sleeper.drop(lambda row: True),
                lambda: sleeper.save(),
            ):
                with pytest.raises(RunBusy, match="taken over by process"):
                    act()
            other.add(Rows(estimates=[estimate(3)]).tables())
            sleeper._remove_orphans()
            other.finish()
    table = open_store().find("r").read("estimates")
    assert sorted(table.column("variant").to_pylist()) == [0, 1, 3]
    with open_store().folder("r").writing() as third:  # and what it staged is removed by the next
        assert set(third.blobs.names("parts/")) == third.manifest.named()


def test_the_holder_learns_that_it_lost_the_lease(s3: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARM_LEASE_SECONDS", "0.6")
    folder = open_store().folder("r")
    with folder.writing():
        state = {"epoch": 99, "seconds": 9, "beat": 1, "owner": {"host": "node3", "pid": 5, "user": "ada"}}
        folder.blobs.write("lease.json", json.dumps(state).encode())
        time.sleep(0.6)
        with pytest.raises(Busy, match="taken over by process 5 of ada on node3"):
            folder.save()


def test_a_store_that_ignores_conditions_is_refused(s3: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    from farm.store.s3_connection import Connection

    put = Connection.put_bytes
    monkeypatch.setattr(Connection, "put_bytes", lambda self, key, content, expected=None: put(self, key, content))
    with pytest.raises(StorageError, match="ignores the conditions"), open_store().folder("r").writing():
        pass
    monkeypatch.setenv("FARM_S3_UNGUARDED", "1")
    with open_store().folder("r").writing():
        pass


def test_lease_requests_that_fail_do_not_end_the_run(s3: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("FARM_LEASE_SECONDS", "0.6")
    folder = open_store().folder("r")
    with folder.writing():
        s3.plan = lambda request: Fault(status=500, code="InternalError") if "lease" in request.path else None
        time.sleep(1.0)
        folder.add(Rows(estimates=[estimate(0)]).tables())
        s3.plan = None
        time.sleep(0.5)
        folder.add(Rows(estimates=[estimate(1)]).tables())
    assert open_store().find("r").read("estimates").num_rows == 2


def test_a_clock_that_jumps_is_no_matter_for_a_folder(
    toy: Path, fake: Path, tmp_path: Path, reference, command
) -> None:
    store = LocalStore(tmp_path / "store")
    first = start(toy, store.location, "jump")
    try:
        wait_for_results(store, 1)
        code, _, err = command("submit", toy, "--run", "r", "--store", store.location)
        assert code == 2 and f"process {first.pid}" in err
        os.kill(first.pid, signal.SIGSTOP)  # even one that does nothing holds it
        code, _, err = command("submit", toy, "--run", "r", "--store", store.location)
        assert code == 2 and f"process {first.pid}" in err
        os.kill(first.pid, signal.SIGCONT)
        _, err = first.communicate(timeout=60)
        assert first.returncode == 0, err
    finally:
        first.kill()
        first.wait()
    assert contents(store.find("r")) == reference
