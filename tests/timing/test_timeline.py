"""Timelines: a record an issued instruction, waits that add up to the stall table, and nothing else changed by it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
from test_cycle_tier import H200, Case, histogram, reduce, sgemm, transpose

from timing import timeline
from timing.estimate import Estimate
from timing.sampled import TraceSource, sampled_estimate
from timing.sm_state import INFINITE
from timing.stalls import N_STALLS, Stall
from timing.timeline import RECORD, ChipTimeline, Timeline, in_order

ALL = 10_000_000
KERNELS = {"sgemm": lambda: sgemm(128), "transpose": lambda: transpose(512), "reduce": reduce, "histogram": histogram}


def sampled(case: Case, records: int = 0) -> Estimate:
    traces = TraceSource(case.machine, case.warps, len(case.program.instructions))
    return sampled_estimate(case.program, case.launch, H200, traces, case.allocations, records=records)


TIERS: dict[str, Callable[[Case, int], Estimate]] = {
    "sampled": sampled,
    "cycle": lambda case, records: case.cycle(records=records),
}


@lru_cache
def recorded(kernel: str, tier: str) -> Estimate:
    return TIERS[tier](KERNELS[kernel](), ALL)


def timeline_of(estimate: Estimate) -> Timeline:
    assert estimate.timeline is not None
    return estimate.timeline


@pytest.mark.parametrize("tier", list(TIERS))
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_records_agree_with_the_stall_table(kernel: str, tier: str) -> None:
    estimate = recorded(kernel, tier)
    found = timeline_of(estimate)
    assert estimate.stalls is not None
    assert len(found.records) == found.issued and found.until is None
    if tier == "cycle":
        assert found.issued == estimate.warp_instructions
    rows = len(estimate.stalls)
    issues = np.bincount(found.records["row"], minlength=rows)
    assert np.array_equal(issues, estimate.stalls[:, Stall.SELECTED])
    waits = np.bincount(found.records["row"], found.records["stalled"], rows)
    # drain is after a warp's last issue: no record waits for it
    others = estimate.stalls.sum(axis=1) - estimate.stalls[:, Stall.SELECTED] - estimate.stalls[:, Stall.DRAIN]
    assert np.array_equal(waits, others)
    # what a record gives as its reason has cycles in the table at that row
    waited = found.records[found.records["stalled"] > 0]
    assert (estimate.stalls[waited["row"], waited["reason"]] > 0).all()
    assert (found.records["reason"][found.records["stalled"] == 0] == Stall.SELECTED).all()


@pytest.mark.parametrize("tier", list(TIERS))
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_each_warp_is_issuing_or_waiting_and_a_sub_core_issues_once_a_cycle(kernel: str, tier: str) -> None:
    found = timeline_of(recorded(kernel, tier))
    records, sm = found.records, found.sm.astype(np.int64)
    warp = np.stack([sm, records["cta"], records["warp"]])
    same = (warp[:, 1:] == warp[:, :-1]).all(axis=0)
    gaps = np.diff(records["cycle"])[same] - 1
    assert np.array_equal(gaps, records["stalled"][1:][same])
    changes = np.count_nonzero(~same) + 1
    assert changes == len(np.unique(warp, axis=1)[0]), "a warp's records lie together"
    slots = sm << 48 | records["cycle"] << 2 | records["sub_core"]
    assert len(np.unique(slots)) == len(slots)
    assert (records["sub_core"] < 4).all() and (records["cycle"] >= 0).all()


def test_the_sampled_sm_is_the_one_whose_ctas_are_timed() -> None:
    for kernel in (lambda: transpose(2048), lambda: sgemm(256)):  # several fillings of the chip; one
        found = timeline_of(sampled(kernel(), ALL))
        assert found.sms == 1 and len(set(found.sm.tolist())) == 1
        first = found.records["cta"][np.argmin(found.records["cycle"])]
        assert first % H200.sm_count == found.sm[0]


def test_ctas_and_warps_are_those_of_the_grid() -> None:
    records = timeline_of(recorded("reduce", "cycle")).records
    assert set(records["cta"].tolist()) == set(range(300)) and set(records["warp"].tolist()) == set(range(8))
    first = records[(records["cta"] == 7) & (records["warp"] == 3)]
    assert first["row"][0] == 0
    alone = timeline_of(recorded("reduce", "sampled"))
    assert set(alone.records["cta"].tolist()) < set(range(300)) and len(set(alone.sm.tolist())) == 1


@pytest.mark.parametrize("tier", list(TIERS))
@pytest.mark.parametrize("kernel", ["sgemm", "reduce"])
def test_recording_changes_no_result(kernel: str, tier: str) -> None:
    off, on = TIERS[tier](KERNELS[kernel](), 0), recorded(kernel, tier)
    assert off.timeline is None
    assert off.cycles == on.cycles and off.time_us == on.time_us and off.memory == on.memory
    assert np.array_equal(off.stalls, on.stalls)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [ALL, 3000])
def test_threads_change_no_record(limit: int) -> None:
    one = timeline_of(reduce().cycle(records=limit, threads=1))
    for threads in (2, 3):
        other = timeline_of(reduce().cycle(records=limit, threads=threads))
        assert np.array_equal(one.records, other.records) and np.array_equal(one.sm, other.sm)
        assert one.until == other.until and one.issued == other.issued


@pytest.mark.parametrize("tier", list(TIERS))
@pytest.mark.parametrize("kernel", ["sgemm", "histogram"])
def test_a_limit_cuts_all_sms_at_one_cycle(kernel: str, tier: str) -> None:
    whole = timeline_of(recorded(kernel, tier))
    limit = len(whole.records) // 3
    cut = timeline_of(TIERS[tier](KERNELS[kernel](), limit))
    assert cut.until is not None and 0 < len(cut.records) <= limit and cut.issued == whole.issued
    before = whole.records["cycle"] < cut.until
    assert np.array_equal(cut.records, whole.records[before]) and np.array_equal(cut.sm, whole.sm[before])
    at = np.count_nonzero(whole.records["cycle"] == cut.until)
    assert len(cut.records) + max(at, 4) >= limit - 4, "no more is cut off than the limit asks for"


def test_chosen_sms_only() -> None:
    whole = timeline_of(recorded("sgemm", "cycle"))
    some = timeline_of(KERNELS["sgemm"]().cycle(records=ALL, record_sms=(3, 40, 500)))
    wanted = np.isin(whole.sm, (3, 40))
    assert some.sms == 2 and some.issued == len(some.records)
    assert np.array_equal(some.records, whole.records[wanted]) and np.array_equal(some.sm, whole.sm[wanted])
    none = timeline_of(KERNELS["sgemm"]().cycle(records=ALL, record_sms=(500,)))
    assert none.sms == 0 and none.issued == 0 and len(none.records) == 0 and none.until is None


def test_what_an_sm_that_lags_behind_has_not_issued_yet_ends_the_timeline() -> None:
    chip = ChipTimeline(2, limit=3)
    chip.begin(0, 10)
    assert chip.on and chip.room.tolist() == [44, 44]
    chip.records["cycle"][0, :3], chip.records["cycle"][1, :2] = [1, 5, 9], [2, 3]
    chip.count[:, timeline.WRITTEN] = 3, 2
    chip.take(4)  # the second SM goes on there
    assert not chip.on and chip.until == 4 and chip.room.tolist() == [0, 0]
    found = chip.result(np.zeros((2, 1), np.int64), np.array([3, 9]))
    assert found.records["cycle"].tolist() == [1, 2, 3] and found.until == 4 and found.issued == 12


def test_a_stretch_without_room_ends_the_timeline() -> None:
    chip = ChipTimeline(1, limit=100)
    chip.begin(0, 1)
    chip.records["cycle"][0, :8] = range(8)
    chip.count[0] = 8, 6
    chip.take(INFINITE)
    assert not chip.on and chip.until == 6
    assert chip.result(np.zeros((1, 1), np.int64), np.array([9])).records["cycle"].tolist() == list(range(6))


def test_room_is_bounded_however_long_a_stretch() -> None:
    chip = ChipTimeline(132, limit=100)
    chip.begin(0, 50_000_000)
    assert chip.records.nbytes == 132 * timeline.MOST_ROOM * RECORD.itemsize


def test_a_record_is_small_and_holds_every_reason() -> None:
    assert RECORD.itemsize == 24 and N_STALLS < 256
    assert len(in_order(np.zeros(0, RECORD), np.zeros(0, np.int16), 0, INFINITE, 0).records) == 0
