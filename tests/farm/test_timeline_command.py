"""`farm submit --timeline` and `farm timeline` with the real simulator, and what is wrong with asking for them."""

from __future__ import annotations

import csv
import io
import itertools
import json
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from same_tables import contents

from farm.commands import timeline_options
from farm.commands.timeline_options import numbers_of
from farm.sink import Sink
from interpreter.errors import FarmError, ToolchainError
from interpreter.toolchain import find_tools
from jobs.parts import Encoded
from jobs.run_folder import RunFolder
from timing import timeline as engine

KERNEL = """\
extern "C" __global__ void small(const float* data, float* out, int n) {
    __shared__ float kept[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    kept[threadIdx.x] = i < n ? data[i] : 0.0f;
    __syncthreads();
    if (i < n) out[i] = kept[BLOCK - 1 - threadIdx.x] * 2.0f;
}
"""
SWEEP = """\
name: small
kernel: {language: cuda, source: kernel.cu, entry: small}
problem: {N: 40000}
parameters: {BLOCK: [64, 128]}
launch: {grid: ["ceildiv(N, BLOCK)"], block: [BLOCK]}
arguments:
  - {name: data, dtype: float32, shape: [N], fill: uniform}
  - {name: out, dtype: float32, shape: [N], output: true}
  - {name: n, dtype: int32, value: N}
targets: [h200, h100]
"""


def _nvcc() -> bool:
    try:
        return find_tools().nvcc is not None
    except ToolchainError:
        return False


needs_nvcc = pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FARM_STORE", str(tmp_path / "store"))
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "kernel.cu").write_text(KERNEL)
    (folder / "sweep.yaml").write_text(SWEEP)
    return folder


def _query(command: Any, sql: str) -> list[dict[str, str]]:
    code, out, err = command("query", "--run", "r", "--csv", sql)
    assert code == 0, err
    return list(csv.DictReader(io.StringIO(out)))


@needs_nvcc
def test_a_timeline_with_the_run_later_and_from_processes_and_tiers(command: Any, small: Path, tmp_path: Path) -> None:
    code, _, err = command("submit", small, "--run", "r", "--jobs", 1, "--timeline")
    assert code == 0, err
    assert "timelines of at most 4 estimates of the sampled tier" in err and "4 timeline(s) of the sampled tier" in err
    rows = _query(
        command,
        """
        SELECT i.variant, i.target, i.pc, any_value(i.stall_selected) AS issued, count(*) AS records,
               any_value(i.stall_barrier) AS barrier, sum(t.stalled) FILTER (t.reason = 'barrier') AS waited
        FROM instructions i JOIN timeline t USING (family, variant, target, tier, pc)
        WHERE i.tier = 'sampled' GROUP BY ALL
        """,
    )
    assert {(row["variant"], row["target"]) for row in rows} == {(v, t) for v in "01" for t in ("h200", "h100")}
    assert all(float(row["issued"]) == float(row["records"]) for row in rows)
    assert any(float(row["waited"] or 0) > 0 for row in rows)

    # a run without timelines gets them afterwards, and then holds the same
    store = tmp_path / "store"
    code, _, err = command("submit", small, "--run", "later", "--jobs", 1)
    assert code == 0 and not RunFolder(store / "later").load().read("recordings").num_rows
    code, _, err = command("timeline", "later:0")
    assert code == 2 and "farm resume later --timeline --timeline-variants 0" in err
    code, _, err = command("resume", "later", "--jobs", 1, "--timeline", "--timeline-variants", 0)
    assert code == 0 and "1 evaluations" in err and "2 timeline(s)" in err
    code, _, err = command("submit", small, "--run", "later", "--jobs", 1, "--timeline")
    assert code == 0 and "1 evaluations" in err
    assert contents(RunFolder(store / "later").load()) == contents(RunFolder(store / "r").load())
    code, _, err = command("submit", small, "--run", "later", "--jobs", 1, "--timeline")
    assert code == 0 and "0 evaluations" in err

    # the cycle tier's beside them, of some SMs and cut off
    arguments = ["--tier", "cycle", "--timeline", "--timeline-sms", "0-1,7", "--timeline-limit", 60]
    code, _, err = command("submit", small, "--run", "r", "--target", "h200", "--jobs", 1, *arguments)
    assert code == 0 and "2 of them end early" in err, err
    rows = _query(command, "SELECT * FROM recordings WHERE tier = 'cycle'")
    assert [row["sms"] for row in rows] == ["3", "3"] and all(int(row["records"]) <= 60 for row in rows)
    (ends,) = _query(
        command, "SELECT max(cycle) AS last, list_sort(list(DISTINCT sm)) AS sms FROM timeline "
        "WHERE tier = 'cycle' AND variant = 0"
    )  # fmt: skip
    assert int(ends["last"]) < int(rows[0]["until_cycle"]) and json.loads(ends["sms"]) == [0, 1, 7]


@needs_nvcc
def test_trace_events(command: Any, small: Path, tmp_path: Path) -> None:
    code, _, err = command("submit", small, "--run", "r", "--jobs", 1, "--target", "h200", "--timeline")
    assert code == 0, err
    trace = tmp_path / "trace.json"
    code, out, err = command("timeline", "r", 1, "-o", trace)
    assert code == 0 and not out, err
    (counted,) = _query(command, "SELECT count(*) AS n, max(cycle) AS last FROM timeline WHERE variant = 1")
    document = json.loads(trace.read_text())
    events = document["traceEvents"]
    assert document["otherData"]["unit"] == "1 us is 1 SM cycle"
    assert f"{int(counted['n']):,} records" in err
    threads: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        assert event["ph"] in ("X", "M") and event["pid"] > 0 and event["tid"] > 0 and event["name"]
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    issues = [event for event in events if event.get("cat") == "issue"]
    assert len(issues) == int(counted["n"]) and all(event["dur"] == 1 for event in issues)
    assert {"BAR.SYNC.DEFER_BLOCKING", "EXIT", "LDS"} <= {event["name"] for event in issues}
    assert any(event["name"] == "barrier" for event in events if event.get("cat") == "stall")
    assert "BAR.SYNC" in next(e["args"]["line"] for e in issues if e["name"].startswith("BAR"))
    named = {event["args"]["name"] for event in events if event["name"] in ("process_name", "thread_name")}
    assert "sub-core 3 warp 0" in named and any(name.startswith("SM ") for name in named)
    for spans in threads.values():
        spans.sort()
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans)), "a warp does one thing at a time"

    # a window: waits are cut at its edges, and the limit says where it ends
    middle = int(counted["last"]) // 2
    code, out, err = command("timeline", "r:1", "--cycles", f"{middle}:{middle + 100}")
    assert code == 0
    inside = [event for event in json.loads(out)["traceEvents"] if event["ph"] == "X"]
    assert inside and all(middle <= e["ts"] and e["ts"] + e["dur"] <= middle + 100 for e in inside)
    assert any(event["cat"] == "stall" and event["ts"] == middle for event in inside)
    code, out, err = command("timeline", "r:1", "--limit", 20)
    assert code == 0 and "there is more" in err
    assert sum(event.get("cat") == "issue" for event in json.loads(out)["traceEvents"]) <= 20
    code, out, err = command("timeline", "r:1", "--sm", "131")
    assert code == 0 and json.loads(out)["traceEvents"] == [] and "0 records" in err

    for arguments, words in [
        (["r:1", "--cycles", "9:5"], "FROM:TO"),
        (["r:1", "--cycles", "x"], "FROM:TO"),
        (["r:1", "--sm", "a"], "numbers and ranges"),
        (["r:1", "--tier", "static"], "one of sampled, cycle"),
        (["r:1", "--tier", "cycle"], "no estimate of the cycle tier"),
        (["r:9"], "no variant 9"),
        (["r"], "name it RUN:N"),
        (["r:1", "-o", tmp_path / "none" / "t.json"], "no folder"),
    ]:
        code, _, err = command("timeline", *arguments)
        assert code == 2 and words in err and len(err.strip().splitlines()) == 1, err
    assert not list(tmp_path.glob("none*"))


@needs_nvcc
def test_in_object_storage(command: Any, small: Path, s3: Any) -> None:
    code, _, err = command("submit", small, "--run", "r", "--jobs", 1, "--target", "h200", "--timeline")
    assert code == 0, err
    (row,) = _query(command, "SELECT sum(records) AS records, (SELECT count(*) FROM timeline) AS n FROM recordings")
    assert row["records"] == row["n"] != "0"
    code, out, err = command("timeline", "r:0", "--limit", 10)
    assert code == 0 and json.loads(out)["traceEvents"], err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--timeline-limit", 5], "--timeline-limit goes with --timeline"),
        (["--timeline-variants", "1"], "--timeline-variants goes with --timeline"),
        (["--timeline-sms", "1"], "--timeline-sms goes with --timeline"),
        (["--timeline", "--tier", "static"], "the static tier has none"),
        (["--timeline", "--timeline-sms", "1"], "goes with --tier cycle"),
        (["--timeline", "--tier", "cycle", "--timeline-sms", "132"], "SMs 0 to 131"),
        (["--timeline", "--timeline-variants", "6"], "variants 0 to 5"),
        (["--timeline", "--limit", 2, "--timeline-variants", "1"], "--limit leaves"),
        (["--timeline", "--timeline-variants", "3-1"], "not a range"),
        (["--timeline", "--timeline-variants", ""], "numbers and ranges"),
    ],
)
def test_what_cannot_be_recorded_is_said(
    command: Any, toy: Path, fake: Path, arguments: list[object], words: str
) -> None:
    code, out, err = command("submit", toy, *arguments)
    assert code == 2 and words in err and not out, err
    assert len(err.strip().splitlines()) == 1 and not fake.read_text()


def test_a_run_remembers_what_to_record(command: Any, toy: Path, fake: Path) -> None:
    """The fake records nothing: so a resumed run asks for it again."""
    arguments = ["--run", "r", "--target", "h200", "--timeline", "--timeline-variants", "0,3-4", "--jobs", 1]
    code, _, err = command("submit", toy, *arguments)
    assert code == 0, err
    fake.write_text("")
    code, _, err = command("resume", "r", "--jobs", 1)
    assert code == 0, err
    asked = sorted(fake.read_text().splitlines())
    assert asked == ["0 sm_90a sampled", "3 sm_90a sampled", "4 sm_90a sampled"]


def test_numbers() -> None:
    assert numbers_of("--x", "0, 4-6,5") == (0, 4, 5, 6)
    for text in ("-1", "1-", "a", "1,,2", "5-4", "0-99999999"):
        with pytest.raises(FarmError):
            numbers_of("--x", text)


def test_the_command_knows_the_engines_limits() -> None:
    assert timeline_options.DEFAULT_RECORDS == engine.DEFAULT_RECORDS
    assert timeline_options.MOST_RECORDS == engine.MOST_RECORDS


def test_what_waits_to_be_written_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("farm.sink.QUEUED_BYTES", 1000)
    monkeypatch.setattr("farm.sink.FLUSH_BYTES", 1)
    go, most, held = threading.Event(), [0], [0]
    lock = threading.Lock()

    def add(_tables: object, encoded: list[Encoded]) -> None:
        go.wait(10)
        with lock:
            held[0] -= sum(len(part.content) for part in encoded)

    sink = Sink(add)

    def driver() -> None:
        for _ in range(20):
            sink.take({}, [Encoded("timeline", ("f", 0), 1, b"x" * 400)])
            with lock:
                held[0] += 400
                most[0] = max(most[0], held[0])

    thread = threading.Thread(target=driver)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "the driver waits for the writer"
    go.set()
    thread.join(10)
    sink.close()
    assert most[0] <= 1200 and held[0] == 0
