"""Runs in S3: the same commands, the same tables as in a folder, and what goes wrong is retried or said plainly."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from rich.console import Console
from s3_server import KEY, SECRET, Fault, Proxy, Request
from tables import contents

from farm.store import open_store
from farm.store.s3_connection import Connection
from farm.submit import Options, submit
from jobs import merging
from jobs.blobs import StorageError
from jobs.run_folder import RunFolder
from jobs.tables import Rows

QUIET = Console(quiet=True)


def test_every_command_works_and_the_tables_are_those_of_a_folder(
    toy: Path, fake: Path, s3: Proxy, command, reference
) -> None:
    code, run, err = command("submit", toy)
    assert code == 0, err
    run = run.strip()
    assert contents(open_store().find(run)) == reference
    fake.write_text("")
    code, again, err = command("submit", toy)
    assert code == 0 and again.strip() == run and fake.read_text() == "" and "results were there already" in err
    for arguments, words in (
        (("status",), ["complete", run]),
        (("rank", run[:5]), ["BLOCK", "h200"]),
        (("rank", run, "--csv"), ["time_us"]),
        (("show", f"{run}:3", "--target", "h200"), ["LDG.E"]),
        (("query", "SELECT target, count(*) FROM instructions GROUP BY 1"), ["rtx4090"]),
        (("doctor",), [f"s3://{s3.bucket}/some/where, 1 run(s)"]),
    ):
        code, out, err = command(*arguments)
        assert code == 0 and all(word in out for word in words), (arguments, out, err)
    code, _, err = command("rank", "nothing")
    assert code == 2 and run in err


def test_small_parts_are_merged_into_few_objects(toy: Path, fake: Path, s3: Proxy) -> None:
    folder = submit([toy], Options(run="r"), open_store(), QUIET).folder
    names = folder.blobs.names("")
    assert sorted(name.split("-")[0] for name in names) == [
        "inputs.zip", "lease.json", "manifest.json", "parts/estimates", "parts/instructions", "parts/variants",
        "progress.json", "submission.json",
    ]  # fmt: skip


FAULTS = [
    Fault(status=500, code="InternalError"),
    Fault(lose=True),  # the store has done it, the answer is lost: a conditional write fails on its own success
    Fault(cut=40),
    Fault(delay=0.2),
    Fault(drop=True),
    Fault(status=503, code="SlowDown"),
]


def test_what_may_pass_is_retried(toy: Path, fake: Path, s3: Proxy, reference, command, flush_every) -> None:
    """Every third request meets with a fault, each kind in turn, reads and writes."""
    flush_every(0.2)
    s3.plan = lambda request: FAULTS[request.number // 3 % len(FAULTS)] if request.number % 3 == 1 else None
    code, _, err = command("submit", toy, "--run", "r", "--jobs", 1)
    assert code == 0, err
    code, out, err = command("rank", "r", "--csv")
    assert code == 0 and out.count("h200") == 6, err
    hit = [request for request in s3.requests if request.number % 3 == 1]
    assert len(hit) > 12 and {"GET", "PUT"} <= {request.method for request in hit}
    s3.plan = None
    assert contents(open_store().find("r")) == reference


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(status=503, code="SlowDown"), "slow down"),
        (Fault(status=500, code="InternalError"), "the store fails"),
        (Fault(status=400, code="ExpiredToken"), "credentials have expired"),
        (Fault(status=403, code="AccessDenied"), "no permission"),
        (Fault(status=403, code="RequestTimeTooSkewed"), "clock"),
        (Fault(status=507, code="InsufficientStorage"), "store is full"),
        (Fault(drop=True), "no answer"),
    ],
)
def test_what_does_not_pass_is_said(fault: Fault, words: str, s3: Proxy, command, monkeypatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    s3.plan = lambda _: fault
    code, out, err = command("status", "r")
    assert code == 3 and out == "" and words in err and "Traceback" not in err
    assert err.count("error:") == 1 and SECRET not in err and KEY not in err


def test_credentials_that_expire_midway_lose_nothing(
    toy: Path, fake: Path, s3: Proxy, reference, command, flush_every
) -> None:
    flush_every(0.0)
    expired = Fault(status=400, code="ExpiredToken")
    writes = 0

    def plan(request: Request) -> Fault | None:
        nonlocal writes
        writes += request.method == "PUT" and "/parts/" in request.path
        return expired if writes > 6 else None

    s3.plan = plan
    code, out, err = command("submit", toy, "--run", "r", "--jobs", 1)
    assert code == 3 and out == "" and "credentials have expired" in err and "same command again" in err
    s3.plan = None
    kept = len(open_store().find("r").done("toy", "sampled"))
    assert 0 < kept < 12
    fake.write_text("")
    flush_every(2.0)
    code, _, err = command("submit", toy, "--run", "r")
    assert code == 0, err
    assert len(fake.read_text().splitlines()) == 12 - kept
    assert contents(open_store().find("r")) == reference


def test_reading_that_fails_says_why(
    toy: Path, fake: Path, s3: Proxy, command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("submit", toy, "--run", "r")[0] == 0
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    s3.plan = lambda r: Fault(status=400, code="ExpiredToken") if "parquet" in r.path or "list-type" in r.path else None
    code, out, err = command("query", "SELECT count(*) FROM instructions", "--run", "r")
    assert code == 3 and out == "" and "Traceback" not in err and SECRET not in err, err
    assert "credentials have expired" in err or "reading failed" in err


def test_unusable_stores_are_named(toy: Path, fake: Path, s3: Proxy, command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    code, _, err = command("submit", toy, "--store", "s3://not-there-at-all/x")
    assert code == 3 and "no such bucket" in err
    code, _, err = command("status", "--store", "s3://UPPER/x")
    assert code == 2 and "not a bucket's name" in err
    code, _, err = command("status", "--store", f"s3://key:{SECRET}@bucket/x")
    assert code == 2 and "do not belong in the address" in err and SECRET not in err
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    code, _, err = command("status")
    assert code == 3 and "no answer from http://127.0.0.1:9" in err
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    code, _, err = command("status")
    assert code == 3 and "no credentials found" in err


def test_secrets_are_nowhere_in_the_store(toy: Path, fake: Path, s3: Proxy) -> None:
    folder = submit([toy], Options(run="r"), open_store(), QUIET).folder
    for name in folder.blobs.names(""):
        assert SECRET.encode() not in folder.blobs.read(name)[0]


def test_a_part_that_is_missing_is_an_error_not_an_empty_table(toy: Path, fake: Path, s3: Proxy) -> None:
    folder = submit([toy], Options(run="r"), open_store(), QUIET).folder
    (part,) = folder.manifest.parts["estimates"]
    folder.blobs.delete([part.blob])
    with pytest.raises((StorageError, FileNotFoundError)):
        open_store().find("r").read("estimates")


def test_the_bucket_s_own_region_is_found(s3: Proxy) -> None:
    import boto3

    name = f"{s3.bucket}-eu"
    boto3.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-3"})
    assert Connection(name).region() == "eu-west-3" and Connection(s3.bucket).region() == "us-east-1"


def test_credentials_that_are_renewed_reach_the_reader(s3: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection(s3.bucket)
    first = connection.arrow()
    assert connection.arrow() is first
    renewed = connection._session.get_credentials()
    monkeypatch.setattr(renewed, "token", "another")
    assert connection.arrow() is not first


def test_a_process_of_its_own_merges_in_s3(s3: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the bucket and the credentials as the driver does, and its errors are those of the driver."""
    monkeypatch.setattr(merging, "LARGE_GROUPS", 0)
    monkeypatch.setattr(merging._LOG, "warning", lambda *words, **_: pytest.fail(words[0] % words[1:]))
    folder = open_store().folder("r")
    recipe = pickle.dumps(folder.blobs.recipe())
    assert SECRET.encode() not in recipe and KEY.encode() not in recipe
    rows = [{"family": "f", "variant": n, "target": "h200", "tier": "static", "time_us": 1.0} for n in range(6)]
    with folder.writing():
        for row in rows:
            folder.add(Rows(estimates=[row]).tables())
        s3.plan = lambda request: (
            Fault(status=403, code="AccessDenied") if request.method == "PUT" and "/parts/" in request.path else None
        )
        with pytest.raises(StorageError, match="no permission; the credentials need"):
            folder.finish()
        s3.plan = None
        folder.finish()
        assert len(folder.manifest.parts["estimates"]) == 1
    assert set(folder.blobs.names("parts/")) == folder.manifest.named()
    local = RunFolder(tmp_path / "local")
    monkeypatch.setattr(merging, "LARGE_GROUPS", 10**9)
    with local.writing():
        for row in rows:
            local.add(Rows(estimates=[row]).tables())
        local.finish()
    assert local.manifest.parts["estimates"][0].same_content(folder.manifest.parts["estimates"][0])
