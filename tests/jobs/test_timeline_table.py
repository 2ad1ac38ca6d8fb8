"""The table `timeline` between the estimate and the run: encoded, bounded, together with its row of `recordings`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from test_stream import plan_of, result, time_us

import jobs.parts
import jobs.timeline
from interpreter.decode import load_program
from interpreter.program import Program
from jobs.parts import Encoded, encode, sorted_table
from jobs.plan import Plan
from jobs.run_folder import RunFolder
from jobs.stream import SweepStream
from jobs.tables import Rows, from_rows
from jobs.timeline import encoded_timeline, recording_row
from jobs.work import KernelBuild, Recording, VariantResult, WorkItem, failed_result, finish
from timing.estimate import Estimate
from timing.stalls import STALLS, stall_name
from timing.timeline import RECORD, Timeline

CUBIN = Path(__file__).parents[1] / "data" / "cubins" / "kernels.sm_90a.cubin"


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(CUBIN.read_bytes(), "sgemm")


def item_of(variant: int, target: str = "h200") -> WorkItem:
    build = KernelBuild("sm_90a", None)
    return WorkItem("f", variant, (), (), build, (1, 1, 1), (32, 1, 1), 0, (), ((target, target),), ("sampled",))


def estimate_of(records: int, rows: int, target: str = "h200", until: int | None = None) -> Estimate:
    """As the cycle tier gives it: on some SMs, warps that go through the program again and again."""
    random = np.random.default_rng(records)
    made = np.zeros(records, RECORD)
    warp = np.arange(records) // 700
    made["row"] = np.arange(records) % 700 % rows
    made["stalled"] = random.choice([0, 0, 1, 4, 11, 400], records)
    made["cycle"] = np.arange(records) % 700 * 500 + np.minimum(made["stalled"], 400) + 3
    made["cta"], made["warp"], made["sub_core"] = warp // 8, warp % 8, warp % 4
    made["reason"] = np.where(made["stalled"] > 0, 1 + made["stalled"] % 15, 0)
    timeline = Timeline(made, (warp // 80).astype(np.int16), records + 5, until, int(warp.max(initial=0)) // 80 + 1)
    found = Estimate.__new__(Estimate)  # of which the table needs no more than this
    found.target, found.tier, found.timeline = target, "sampled", timeline
    return found


def rows_of(estimate: Estimate, variant: int, program: Program) -> tuple[list[Encoded], Rows]:
    item = item_of(variant, estimate.target)
    return list(encoded_timeline(item, estimate, program)), Rows(recordings=[recording_row(item, estimate)])


def test_every_record_comes_back(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs.timeline, "PART_ROWS", 1000)
    estimate = estimate_of(2500, len(program.instructions), until=99)
    parts, rows = rows_of(estimate, 3, program)
    assert [part.rows for part in parts] == [1000, 1000, 500] and {part.key for part in parts} == {("f", 3)}
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        written = folder.add(rows.tables(), parts)
        assert written > sum(len(part.content) for part in parts)
        folder.finish()
    table = RunFolder(tmp_path / "run").load().read("timeline")
    assert table.num_rows == 2500 and sorted_table("timeline", table).equals(table), "in order already"
    timeline = estimate.timeline
    assert timeline is not None
    for name in ("cycle", "cta", "warp", "sub_core", "stalled"):
        assert np.array_equal(table.column(name).to_numpy(), timeline.records[name])
    assert np.array_equal(table.column("sm").to_numpy(), timeline.sm)
    addresses = [program.instructions[row].address for row in timeline.records["row"]]
    assert table.column("pc").to_pylist() == addresses
    names = [
        stall_name(STALLS[r]) if s else None for r, s in zip(timeline.records["reason"], timeline.records["stalled"])
    ]
    assert table.column("reason").to_pylist() == names
    (recording,) = folder.read("recordings").to_pylist()
    assert recording["records"] == 2500 and recording["issued"] == 2505 and recording["until_cycle"] == 99
    assert recording["sms"] == timeline.sms


def test_a_row_takes_few_bytes(program: Program) -> None:
    (part,) = encoded_timeline(item_of(0), estimate_of(100_000, len(program.instructions)), program)
    assert len(part.content) / part.rows < 2.5
    metadata = pq.ParquetFile(pa.BufferReader(part.content)).metadata.row_group(0)
    chunks = [metadata.column(i) for i in range(metadata.num_columns)]
    columns = {chunk.path_in_schema: (chunk.compression, chunk.encodings) for chunk in chunks}
    for name in ("cycle", "pc", "cta"):
        assert columns[name][0] == "ZSTD" and "DELTA_BINARY_PACKED" in columns[name][1]


def test_the_same_timeline_is_the_same_part(program: Program, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        for _ in range(2):
            parts, rows = rows_of(estimate_of(500, len(program.instructions)), 0, program)
            folder.add(rows.tables(), parts)
    assert folder.read("timeline").num_rows == 500 and folder.read("recordings").num_rows == 1


def test_small_parts_are_merged_and_large_ones_left(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(jobs.parts.CLOSED_BYTES, "timeline", 20_000)
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        for variant in range(20):
            many = 40_000 if variant == 7 else 1400
            parts, rows = rows_of(estimate_of(many, len(program.instructions)), variant, program)
            folder.add(rows.tables(), parts)
        large = [part for part in folder.manifest.parts["timeline"] if part.rows == 40_000]
        folder.finish()
        assert large[0] in folder.manifest.parts["timeline"] and len(folder.manifest.parts["timeline"]) == 2
    counts = folder.read("timeline").group_by("variant").aggregate([("cycle", "count")]).to_pylist()
    assert {row["variant"]: row["cycle_count"] for row in counts} == {v: 40_000 if v == 7 else 1400 for v in range(20)}


def test_a_failed_estimate_takes_its_timeline_along(program: Program, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.writing():
        for variant in range(3):
            for target in ("h200", "h100"):
                parts, rows = rows_of(estimate_of(50, len(program.instructions), target), variant, program)
                status = "failed" if (variant, target) == (1, "h100") else "ok"
                rows.estimates = [
                    {"family": "f", "variant": variant, "target": target, "tier": "sampled", "status": status}
                ]
                folder.add(rows.tables(), parts)
        assert folder.drop(lambda row: row["status"] == "failed") == 1
    for name in ("estimates", "timeline", "recordings"):
        table = folder.read(name)
        left = set(zip(table.column("variant").to_pylist(), table.column("target").to_pylist()))
        assert left == {(v, t) for v in range(3) for t in ("h200", "h100")} - {(1, "h100")}, name


# ---- which work there is


def wishing(plan: Plan, tier: str = "sampled", variants: frozenset[int] = frozenset()) -> Plan:
    settings = dataclasses.replace(plan.settings, record=Recording(tier, 10), record_variants=variants)
    return dataclasses.replace(plan, settings=settings)


def known_of(plan: Plan, tiers: tuple[str, ...]) -> pa.Table:
    """Estimates of all that `plan` has."""
    stream = SweepStream(plan, tiers[-1], [], lambda _: None)
    excluded = {(v, t) for t, space in plan.variants.items() for v in plan.numbers if space[v].excluded}
    rows = [
        {
            "family": "toy", "variant": variant, "target": target, "tier": tier,
            "status": "ok" if us is not None else "failed", "time_us": us,
        }
        for variant in plan.numbers for target in plan.targets for tier in tiers
        for us in [None if (variant, target) in excluded else time_us(variant, target)]
    ]  # fmt: skip
    assert stream.remaining() > 0
    return from_rows("estimates", rows)


def recordings_of(pairs: list[tuple[int, str]], tier: str = "sampled") -> pa.Table:
    return from_rows("recordings", [{"family": "toy", "variant": v, "target": t, "tier": tier} for v, t in pairs])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel.cu").write_text("")
    return tmp_path


def test_estimates_without_a_timeline_are_made_again_for_it(folder: Path) -> None:
    plan = plan_of(folder)
    known = known_of(plan, ("static", "sampled"))
    there = [(0, "h200"), (0, "h100"), (1, "h100")]
    stream = SweepStream(wishing(plan), None, [known], lambda _: None, recorded=[recordings_of(there)])
    remaining = stream.remaining()
    items = list(stream.fresh())
    assert len(items) == remaining and stream.remaining() == 0
    assert all(item.record_only and item.tiers == ("sampled",) and item.record is not None for item in items)
    asked = {(item.variant, target) for item in items for target, _ in item.targets}
    ok = known.filter((pc.field("status") == "ok") & (pc.field("tier") == "sampled"))
    estimated = set(zip(ok.column("variant").to_pylist(), ok.column("target").to_pylist()))
    assert asked == estimated - set(there)
    # without the wish, or once all are there, nothing is left
    assert not list(SweepStream(plan, None, [known], lambda _: None).fresh())
    every = recordings_of(sorted(estimated))
    assert not list(SweepStream(wishing(plan), None, [known], lambda _: None, recorded=[every]).fresh())
    few = SweepStream(wishing(plan, variants=frozenset({1, 5})), None, [known], lambda _: None)
    assert {item.variant for item in few.fresh()} == {1, 5}


def test_new_work_brings_its_timeline_from_the_last_tier_only(folder: Path) -> None:
    plan = wishing(plan_of(folder, "funnel: {sampled: 50%, cycle: 2}\n"), "cycle")
    stream = SweepStream(plan, None, [], lambda _: None, cores=8)
    seen: dict[str, set[bool]] = {}
    waiting = list(stream.fresh())
    while waiting:
        for item in waiting:
            seen.setdefault(item.tiers[-1], set()).add(item.record is not None)
            stream.take(result(item))
        stream.settle(all_of_it=True)
        waiting = [item for p in stream.promotions() for item in stream.later_items(p.kind, p.variant)]
    assert seen == {"static": {False}, "sampled": {False}, "cycle": {True}}


def test_a_timeline_alone_brings_no_other_rows_and_its_failure_spoils_none(program: Program) -> None:
    item = dataclasses.replace(item_of(4), record=Recording("sampled", 10), record_only=True)
    done = VariantResult("f", 4)
    parts, rows = rows_of(estimate_of(10, len(program.instructions)), 4, program)
    done.rows, done.encoded = rows, parts
    done.rows.estimates.append({"family": "f", "variant": 4, "target": "h200", "tier": "sampled", "time_us": 2.0})
    finished = finish(item, done)
    assert list(finished.tables) == ["recordings"] and finished.encoded == parts and finished.times == {}
    failed = finish(item, failed_result(item, "timeout", "too long"))
    assert failed.tables == {} and failed.failure == "timeout" and failed.record_only


def test_a_timeline_that_fails_is_said(folder: Path) -> None:
    plan = plan_of(folder)
    known = known_of(plan, ("static", "sampled"))
    wish = wishing(plan, variants=frozenset({5}))
    stream = SweepStream(wish, None, [known], lambda _: None)
    failed_before = stream.variants_failed()
    for item in stream.fresh():
        stream.take(finish(item, failed_result(item, "timeout", "more than 1 s")))
    assert any("variant 5: more than 1 s" in note for note in stream.notes())
    assert stream.variants_failed() == failed_before


def test_encoding_is_that_of_parts(program: Program) -> None:
    """What travels is what would be written."""
    table = from_rows("estimates", [{"family": "f", "variant": 1, "target": "h200", "tier": "static"}])
    content = encode("estimates", table)
    assert content.key == ("f", 1) and content.rows == 1
    assert pq.read_table(pa.BufferReader(content.content)).equals(table)
