"""Expansion: the variants of real sweeps are the rows that were measured, in order; limits, arguments, empty spaces."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from test_sweep import BASE, SWEEPS, write

from jobs.plan import Settings, evenly, plan_sweep, target_limits
from jobs.sweep import SweepError, load_sweep
from jobs.variants import BufferSpec, FillSpec, ScalarSpec, expand
from timing.target import load_target


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.parent.name)
def test_variants_are_the_measured_rows(path: Path) -> None:
    sweep = load_sweep(path)
    variants = expand(sweep)
    with open(path.parent / "h200.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(variants) == len(rows)
    for row, variant in zip(rows, variants, strict=True):
        assert int(row["variant"]) == variant.number
        assert {name: int(row[name]) for name in sweep.parameters} == variant.parameters
        assert row["grid"] == "x".join(map(str, variant.grid))
        if sweep.kernel.language == "cuda":
            assert row["block"] == "x".join(map(str, variant.block))
            assert int(row["shared"]) == variant.shared


def test_names_are_what_nvcc_gets(tmp_path: Path) -> None:
    plan = plan_sweep(load_sweep(write(tmp_path, BASE)), Settings("warm", 1, 1, tmp_path, targets=("h200", "h100")))
    items, _ = plan.items(("static",), {"h200": [0, 1], "h100": [1]}, ())
    assert [item.variant for item in items] == [0, 1]
    assert items[0].build.macros == (("N", 1024), ("BLOCK", 64), ("BLOCKS", 16))
    assert items[0].build.flags == ("--use_fast_math",)
    assert [name for name, _ in items[1].targets] == ["h200", "h100"]  # one execution for both sm_90a targets
    assert [name for name, _ in items[0].targets] == ["h200"]


def test_arguments(tmp_path: Path) -> None:
    data, out, n, rate, tiny = expand(load_sweep(write(tmp_path, BASE)))[0].arguments
    assert data == BufferSpec("data", "float32", (1024,), FillSpec("integers", 0, 9), False)
    assert isinstance(data, BufferSpec) and data.bytes == 4096
    assert out == BufferSpec("out", "float32", (1024,), FillSpec("zeros"), True)
    assert n == ScalarSpec("n", "int32", 1024)
    assert rate == ScalarSpec("rate", "float32", 0.5)
    assert tiny == ScalarSpec("tiny", "float32", 1e-5)  # a string to YAML 1.1, which wants a point


def test_derived_names_may_replace_earlier_ones(tmp_path: Path) -> None:
    text = BASE.replace("  BLOCKS: ceildiv(N, BLOCK)", "  BLOCKS: ceildiv(N, BLOCK)\n  BLOCKS: 1").replace(
        "\n  BLOCKS: 1", ""
    )
    text = text.replace("derive:\n", "derive:\n  N: N * 2\n")
    variant = expand(load_sweep(write(tmp_path, text)))[0]
    assert variant.names["N"] == 2048 and variant.names["BLOCKS"] == 32 and variant.parameters == {"BLOCK": 64}


def test_large_blocks_are_left_out_and_numbers_stay_dense(tmp_path: Path) -> None:
    text = BASE.replace("BLOCK: [64, 128]", "BLOCK: [64, 2048, 128]")
    assert [(v.number, v.parameters["BLOCK"]) for v in expand(load_sweep(write(tmp_path, text)))] == [(0, 64), (1, 128)]


def test_an_empty_space_says_what_removed_how_many(tmp_path: Path) -> None:
    text = BASE.replace("BLOCK: [64, 128]", "BLOCK: [64, 2048, 128]").replace(
        "- BLOCK > 0", "- BLOCK != 64\n  - BLOCK > 999"
    )
    with pytest.raises(SweepError) as error:
        expand(load_sweep(write(tmp_path, text)))
    message = str(error.value)
    assert "no variant is left of 3 point(s)" in message
    assert (
        "1 by 'BLOCK != 64'" in message and "1 by 'BLOCK > 999'" in message and "1 by 'block of at most 1024" in message
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("ceildiv(N, BLOCK)", "N / (BLOCK - 64)", ["derive.BLOCKS", "division by zero", "at BLOCK=64"]),
        ("grid: [BLOCKS]", "grid: [BLOCKS - 16]", ["launch.grid: x is 0", "at BLOCK=64"]),
        ("block: [BLOCK]", "block: [BLOCK, BLOCK - 64]", ["launch.block", "below 1"]),
        ("shape: [N], output", "shape: [N - 2000], output", ["arguments.out.shape", "negative"]),
        ("value: N}", "value: N * 10000000}", ["arguments.n.value", "does not fit int32"]),
        ("value: N}", "value: 0.5}", ["arguments.n.value", "0.5 is not an integer"]),
        ("value: N}", "value: M}", ["arguments.n.value", "unknown name M"]),
    ],
)
def test_points_that_fail_are_named(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    with pytest.raises(SweepError) as error:
        expand(load_sweep(write(tmp_path, BASE.replace(old, new, 1))))
    for word in ["sweep.yaml:", *words]:
        assert word in str(error.value)


LIMITED = """\
name: limited
kernel: {language: cuda, source: kernel.cu, entry: small}
parameters: {KB: [16, 96, 160, 224]}
derive: {BYTES: KB * 1024}
constraints: ["KB != 16", "BYTES <= smem_per_block"]
launch: {grid: [2 * sm_count], block: [max_warps * 16], shared: BYTES}
"""


def test_target_limits_decide_per_target_without_renumbering(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path, LIMITED))
    with pytest.raises(SweepError, match="only a target gives"):
        expand(sweep)
    h200 = expand(sweep, target_limits(load_target("h200")))
    l40s = expand(sweep, target_limits(load_target("l40s")))
    assert [(v.number, v.parameters["KB"]) for v in h200] == [(v.number, v.parameters["KB"]) for v in l40s]
    assert [bool(v.excluded) for v in h200] == [False, False, False]
    assert [bool(v.excluded) for v in l40s] == [False, True, True]
    assert "BYTES=163840, smem_per_block=101376" in l40s[1].excluded
    assert h200[0].grid == (264, 1, 1) and h200[0].block == (1024, 1, 1)
    assert l40s[0].grid == (284, 1, 1) and l40s[0].block == (768, 1, 1)


def test_excluded_variants_become_results_without_work(tmp_path: Path) -> None:
    settings = Settings("warm", 1, 1, tmp_path, targets=("h200", "l40s"))
    plan = plan_sweep(load_sweep(write(tmp_path, LIMITED)), settings)
    items, excluded = plan.items(("static",), {"h200": [0, 1], "l40s": [0, 1]}, {(0, "h200")})
    assert [(item.variant, item.targets[0][0]) for item in items] == [(0, "l40s"), (1, "h200")]
    (row,) = [row for result in excluded for row in result.rows.estimates]
    assert (row["variant"], row["target"], row["failure"]) == (1, "l40s", "constraints")


def test_cubin_files_by_parameter_and_architecture(tmp_path: Path) -> None:
    text = LIMITED.replace("{language: cuda, source: kernel.cu, entry: small}", "{cubin: 'k_{KB}.{arch}.cubin'}")
    plan = plan_sweep(load_sweep(write(tmp_path, text)), Settings("warm", 1, 1, tmp_path, targets=("h200",)))
    items, _ = plan.items(("static",), {"h200": [0]}, ())
    assert items[0].build.cubin == tmp_path / "k_96.sm_90a.cubin"
    plan = plan_sweep(load_sweep(write(tmp_path, text.replace("{KB}", "{KV}"))), Settings("warm", 1, 1, tmp_path))
    with pytest.raises(SweepError, match="'KV' is not a name of this sweep"):
        plan.items(("static",), {name: [0] for name in plan.targets}, ())


def test_evenly() -> None:
    assert evenly(range(10), 3) == [0, 3, 6]
    assert list(evenly(range(3), 9)) == [0, 1, 2] and list(evenly(range(3), None)) == [0, 1, 2]
