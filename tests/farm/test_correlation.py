"""The correlation views against values computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from farm.database import RunDatabase
from jobs.run_folder import Family, RunFolder
from jobs.tables import from_rows


def database(
    tmp_path: Path,
    estimated: list[float],
    measured: list[float | None],
    spreads: list[float] | None = None,
    groups: list[int] | None = None,
    instructions: list[float] | None = None,
) -> RunDatabase:
    """A run of one family on h200 with these estimates and measurements (None: not measured)."""
    folder = RunFolder(tmp_path / "run")
    groups = groups or [0] * len(estimated)
    keys = [{"family": "f", "variant": n, "target": "h200"} for n in range(len(estimated))]
    variants = [{**k, "parameters": [("SIZE", g)], "status": "ok"} for k, g in zip(keys, groups, strict=True)]
    estimates = []
    for n, (key, time_us) in enumerate(zip(keys, estimated, strict=True)):
        common = {**key, "status": "ok", "occupancy": 0.5, "warp_instructions": (instructions or estimated)[n]}
        estimates.append({**common, "tier": "sampled", "time_us": time_us})
        estimates.append({**common, "tier": "static", "time_us": 1.0})
    measurements = [
        {**key, "time_us": m, "spread": (spreads or [0.0] * 99)[n], "used": (spreads or [0.0] * 99)[n] <= 0.05}
        for n, (key, m) in enumerate(zip(keys, measured, strict=True))
        if m is not None
    ]
    with folder.writing():
        folder.manifest.families["f"] = Family(
            "f", {}, ["SIZE"], ["SIZE"] if len(set(groups)) > 1 else [], ["h200"], "", {}, len(keys), len(keys)
        )
        folder.add(
            {
                "variants": from_rows("variants", variants),
                "estimates": from_rows("estimates", estimates),
                "measurements": from_rows("measurements", measurements),
            }
        )
    return RunDatabase(folder)


def sampled(base: RunDatabase) -> dict[str, float]:
    (row,) = base.rows("SELECT * FROM correlation WHERE model = 'sampled'")
    return row


def test_perfect_and_reversed_orders(tmp_path: Path) -> None:
    row = sampled(database(tmp_path / "a", [1, 2, 3, 4], [10, 20, 30, 40]))
    assert (row["n"], row["kendall"], row["top1_loss"]) == (4, 1.0, 0.0)
    assert row["spearman"] == pytest.approx(1.0)
    row = sampled(database(tmp_path / "b", [4, 3, 2, 1], [10, 20, 30, 40]))
    assert (row["spearman"], row["kendall"]) == (pytest.approx(-1.0), -1.0)
    assert row["top1_loss"] == pytest.approx(3.0)  # picks the 40, the best is 10


def test_one_exchanged_pair(tmp_path: Path) -> None:
    row = sampled(database(tmp_path, [1, 3, 2, 4], [10, 20, 30, 40]))
    assert row["spearman"] == pytest.approx(1 - 6 * 2 / (4 * 15))  # 1 - 6 sum(d^2) / (n (n^2 - 1)), d = 1, 1
    assert row["kendall"] == pytest.approx((5 - 1) / 6)


def test_ties_in_the_estimates(tmp_path: Path) -> None:
    row = sampled(database(tmp_path, [1, 1, 2], [10, 20, 30]))
    # ranks 1.5, 1.5, 3 against 1, 2, 3: covariance 1.5, variances 1.5 and 2
    assert row["spearman"] == pytest.approx(1.5 / math.sqrt(1.5 * 2))
    assert row["kendall"] == pytest.approx(2 / math.sqrt(2 * 3))  # one of three pairs tied in the estimates


def test_measured_times_within_their_noise_are_ties(tmp_path: Path) -> None:
    # intervals of the first two: 100 +- 1 and 101 +- 1.01 overlap, so their wrong order costs nothing
    row = sampled(database(tmp_path, [2, 1, 3], [100, 101, 200], spreads=[0.02, 0.02, 0.0]))
    assert row["kendall"] == pytest.approx(2 / math.sqrt(2 * 3))
    row = sampled(database(tmp_path / "b", [2, 1, 3], [100, 103, 200], spreads=[0.02, 0.02, 0.0]))
    assert row["kendall"] == pytest.approx((2 - 1) / 3)


def test_disturbed_measurements_are_left_out(tmp_path: Path) -> None:
    row = sampled(database(tmp_path, [1, 2, 3, 4], [10, 20, 30, 5], spreads=[0.0, 0.0, 0.05, 0.06]))
    assert row["n"] == 3 and row["spearman"] == pytest.approx(1.0)


def test_groups_are_averaged_not_pooled(tmp_path: Path) -> None:
    # within each group the order is wrong, between groups right: pooled it would look good
    row = sampled(database(tmp_path, [2, 1, 20, 10], [1, 2, 100, 200], groups=[7, 7, 9, 9]))
    assert row["groups"] == 2 and row["spearman"] == pytest.approx(-1.0) and row["kendall"] == -1.0


def test_losses_and_errors(tmp_path: Path) -> None:
    estimated = [1.0, 2, 3, 4, 5, 6]
    measured = [12.0, 11, 14, 15, 16, 10]
    row = sampled(database(tmp_path, estimated, measured))
    assert row["top1_loss"] == pytest.approx(0.2)  # 12 over 10
    assert row["top5_loss"] == pytest.approx(0.1)  # 11 over 10
    errors = sorted(abs(e / m - 1) for e, m in zip(estimated, measured, strict=True))
    assert row["median_error"] == pytest.approx((errors[2] + errors[3]) / 2)
    assert row["p90_error"] == pytest.approx((errors[4] + errors[5]) / 2)  # linear interpolation at 4.5


def test_a_constant_model_orders_nothing(tmp_path: Path) -> None:
    base = database(tmp_path, [1, 2, 3], [10, 20, 30])
    rows = {row["model"]: row for row in base.rows("SELECT * FROM correlation")}
    for model in ("occupancy", "static bound"):
        assert rows[model]["spearman"] == 0.0 and rows[model]["kendall"] == 0.0
    assert (
        rows["warp instructions"]["spearman"] == pytest.approx(1.0)
        and rows["warp instructions"]["median_error"] is None
    )


def test_equal_measured_times_cannot_be_ordered(tmp_path: Path) -> None:
    row = sampled(database(tmp_path, [1, 2], [10, 10]))
    assert row["spearman"] is None and row["kendall"] is None and row["top1_loss"] == 0.0


def test_families_weigh_the_same_in_the_mean(tmp_path: Path) -> None:
    base = database(tmp_path, [1, 2, 3], [10, 20, 30])
    assert base.rows("SELECT * FROM overall_correlation") == []  # one family is its own mean
    folder = base.folder
    with folder.writing():
        folder.manifest.families["g"] = Family("g", {}, ["SIZE"], [], ["h200"], "", {}, 2, 2)
        keys = [{"family": "g", "variant": n, "target": "h200"} for n in range(2)]
        result = {"status": "ok", "tier": "sampled", "occupancy": 0.5, "warp_instructions": 1.0}
        folder.add(
            {
                "variants": from_rows("variants", [{**k, "parameters": [("SIZE", 1)], "status": "ok"} for k in keys]),
                "estimates": from_rows("estimates", [{**k, **result, "time_us": t} for k, t in zip(keys, [2.0, 1.0])]),
                "measurements": from_rows(
                    "measurements", [{**k, "time_us": t, "used": True} for k, t in zip(keys, [1.0, 2.0])]
                ),
            }
        )
    (row,) = RunDatabase(folder).rows("SELECT * FROM overall_correlation WHERE model = 'best tier'")
    assert row["family"] == "mean of 2 families" and row["n"] == 5
    assert row["spearman"] == pytest.approx(0.0)  # 1 and -1


def test_unmeasured_variants_do_not_count(tmp_path: Path) -> None:
    assert sampled(database(tmp_path, [1, 2, 3], [10, None, 30]))["n"] == 2
