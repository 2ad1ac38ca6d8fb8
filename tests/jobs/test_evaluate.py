"""Evaluation of real kernels: estimates for what works, one clear reason for what does not, and the rest goes on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from interpreter.errors import ToolchainError
from interpreter.toolchain import find_tools
from jobs.evaluate import evaluate, evaluate_batch
from jobs.plan import Settings, plan_sweep
from jobs.sweep import load_sweep
from jobs.variants import BufferSpec, ScalarSpec
from jobs.work import KernelBuild, VariantResult, WorkItem

BAD = Path(__file__).parents[1] / "data" / "bad" / "sweep.yaml"


def _nvcc() -> bool:
    try:
        return find_tools().nvcc is not None
    except ToolchainError:
        return False


pytestmark = pytest.mark.skipif(not _nvcc(), reason="needs nvcc (pip install '.[nvcc]')")


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> list[WorkItem]:
    settings = Settings("warm", 60.0, 50_000, tmp_path_factory.mktemp("cache"), targets=("h200", "h100"))
    plan = plan_sweep(load_sweep(BAD), settings)
    items, _ = plan.items(("static", "sampled"), dict.fromkeys(plan.targets, plan.numbers), ())
    return items


@pytest.fixture(scope="module")
def results(items: list[WorkItem]) -> list[VariantResult]:
    """The whole sweep in one batch, as a worker does it."""
    found = {index: result for kind, index, result in evaluate_batch(items) if kind == "done" and result is not None}
    assert sorted(found) == list(range(len(items)))
    return [found[index] for index in range(len(items))]


def test_a_kernel_that_works_is_estimated_on_both_targets(results: list[VariantResult]) -> None:
    result = results[0]
    assert result.failure is None
    estimates = result.rows.estimates
    assert [(row["target"], row["tier"]) for row in estimates] == [
        ("h200", "static"), ("h200", "sampled"), ("h100", "static"), ("h100", "sampled"),
    ]  # fmt: skip
    assert all(row["status"] == "ok" and 0.5 < row["time_us"] < 50 for row in estimates)
    assert all(row["warp_instructions"] > 32 * 5 for row in estimates)  # 8 CTAs of 4 warps, a handful of instructions
    row = result.rows.variants[0]
    assert len(row["cubin_sha"]) == 64 and row["registers"] >= 8 and row["spill_store_bytes"] == 0
    assert "-DCASE=0" in row["command"] and "-arch=sm_90a" in row["command"]
    block = result.rows.instructions[0]
    assert any("STG" in text for text in block["sass"]) and len(block["executed"]) == len(block["pc"])


@pytest.mark.parametrize(
    ("case", "failure", "words"),
    [
        (1, "runtime", ["STG", "data"]),  # out of bounds: where, and the nearest allocation
        (2, "timeout", ["instructions"]),
        (3, "runtime", ["barrier"]),
        (4, "runtime", ["not modelled", "TLD"]),
        (5, "compile", ["no_such_name", "CASE=5"]),
        (6, "runtime", ["align"]),
    ],
)
def test_each_mishap_is_named(results: list[VariantResult], case: int, failure: str, words: list[str]) -> None:
    result = results[case]
    assert result.failure == failure, result.message
    for word in words:
        assert word in str(result.message)
    assert {row["status"] for row in result.rows.estimates} == {"failed"}
    assert {row["target"] for row in result.rows.variants} == {"h200", "h100"}


def test_wrong_argument_count(items: list[WorkItem]) -> None:
    extra = dataclasses.replace(items[0], arguments=(*items[0].arguments, ScalarSpec("more", "int32", 1)))
    result = evaluate(extra)
    assert result.failure == "runtime" and "argument" in str(result.message) and "3" in str(result.message)


def test_entry_not_in_the_cubin(items: list[WorkItem]) -> None:
    build = dataclasses.replace(items[0].build, entry="god")
    result = evaluate(dataclasses.replace(items[0], build=build))
    assert result.failure == "compile" and "god" in str(result.message) and "bad" in str(result.message)


def test_cubins_as_they_are(items: list[WorkItem], results: list[VariantResult], tmp_path: Path) -> None:
    from interpreter.compile import compile_cubin

    build = items[0].build
    assert build.source is not None
    image = compile_cubin(build.source, build.arch, dict(build.macros), build.flags, items[0].cache).cubin
    (tmp_path / "k.cubin").write_bytes(image)
    (tmp_path / "cut.cubin").write_bytes(image[: len(image) // 2])

    def from_file(name: str) -> VariantResult:
        return evaluate(dataclasses.replace(items[0], build=KernelBuild(build.arch, None, cubin=tmp_path / name)))

    assert from_file("k.cubin").rows.estimates[1]["time_us"] == results[0].rows.estimates[1]["time_us"]
    cut = from_file("cut.cubin")
    assert cut.failure == "compile" and "truncated" in str(cut.message)
    missing = from_file("none.cubin")
    assert missing.failure == "compile" and "none.cubin" in str(missing.message)


def test_a_target_that_cannot_launch_fails_alone(items: list[WorkItem]) -> None:
    """150 KiB of shared memory: an A100-class SM has them, sm_86 and sm_89 ones do not."""
    large = dataclasses.replace(
        items[0],
        shared=150 * 1024,
        build=dataclasses.replace(items[0].build, arch="sm_80"),
        targets=(("orin", "orin"), ("l40s", "l40s")),
    )
    result = evaluate(large)
    status = {row["target"]: (row["status"], row["message"]) for row in result.rows.variants if "message" in row}
    assert result.failure is None
    assert list(status) == ["l40s"]
    assert "153,600" in str(status["l40s"][1]) and "cannot launch on l40s" in str(status["l40s"][1])


def test_the_same_item_gives_the_same_times(items: list[WorkItem], results: list[VariantResult]) -> None:
    again = evaluate(items[0])
    assert [row["time_us"] for row in again.rows.estimates] == [row["time_us"] for row in results[0].rows.estimates]


def test_a_time_limit_ends_a_variant(items: list[WorkItem]) -> None:
    endless = dataclasses.replace(items[2], seconds=0.5, instructions=1 << 60)
    result = evaluate(endless)
    assert result.failure == "timeout" and "0.5 s" in str(result.message)


def test_memory_beyond_the_budget_is_the_variants_failure(items: list[WorkItem]) -> None:
    """A kernel with buffers of 3 GB, of which its worker may have one."""
    large = dataclasses.replace(
        items[0],
        memory=1 << 30,
        arguments=tuple(
            dataclasses.replace(argument, shape=(3 << 28,)) if isinstance(argument, BufferSpec) else argument
            for argument in items[0].arguments
        ),
    )
    result = evaluate(large)
    assert result.failure == "runtime" and result.message == "more than 1 GiB of memory (raise it with --memory)"
    assert evaluate(items[0]).failure is None  # the limit is lifted afterwards
