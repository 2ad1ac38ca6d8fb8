"""Target files: every number has a source, and what is wrong in a file is said clearly."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import yaml

from interpreter.isa import registry
from interpreter.isa.pipes import Pipe
from interpreter.program import CONTROL, Program
from timing.target import SOURCES, TARGETS, TargetError, check_architecture, load_target
from timing.target_report import report

DIRECTORY = Path(__file__).parents[2] / "timing" / "targets"


def test_the_eight_targets() -> None:
    assert set(TARGETS) == {"h100", "h200", "b200", "l40s", "rtx4090", "rtx5090", "orin", "thor"}
    assert {name: load_target(name).arch for name in TARGETS} == {
        "h100": "sm_90a", "h200": "sm_90a", "b200": "sm_100a", "l40s": "sm_89", "rtx4090": "sm_89",
        "rtx5090": "sm_120a", "orin": "sm_87", "thor": "sm_110a",
    }  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_every_number_has_a_source(name: str) -> None:
    target = load_target(name)
    assert target.sources.keys() == target.values.keys()
    assert len(target.values) > 150
    for path, source in target.sources.items():
        assert source.kind in SOURCES, path
        assert source.note or source.kind == "guess", path


@pytest.mark.parametrize("name", TARGETS)
def test_files_are_written_as_value_source_note(name: str) -> None:
    def walk(node: object, path: str) -> None:
        if isinstance(node, dict):
            for key, child in node.items():
                walk(child, f"{path}.{key}")
        else:
            assert isinstance(node, list) and node[1] in SOURCES, path

    data = yaml.safe_load((DIRECTORY / f"{name}.yaml").read_text(encoding="utf-8"))
    assert data["name"] == name
    for section, node in data.items():
        if section not in ("name", "full_name", "aliases", "sm", "arch", "extends", "measured"):
            walk(node, section)


@pytest.mark.parametrize("name", TARGETS)
def test_all_pipes_and_a_peak_that_matches_the_datasheet(name: str) -> None:
    """FP32 TFLOP/s at the datasheet's clock: 2 * 32 lanes / interval * 4 sub-cores * SMs."""
    target = load_target(name)
    assert set(target.pipes) == set(Pipe)
    peak = {
        "h100": (67.0, 1980), "h200": (67.0, 1980), "b200": (75.0, 1965), "l40s": (91.6, 2520), "rtx4090": (82.6, 2520),
        "rtx5090": (104.8, 2407), "orin": (5.3, 1300), "thor": (8.06, 1575),
    }  # fmt: skip
    tflops, mhz = peak[name]
    per_clk = 2 * 32 / target.pipes[Pipe.FMA].interval * target.limits.sub_cores * target.sm_count
    assert per_clk * mhz / 1e6 == pytest.approx(tflops, rel=0.05)


@pytest.mark.parametrize(
    ("name", "tflops", "mhz"), [("l40s", 362.0, 2490), ("rtx4090", 165.2, 2520), ("rtx5090", 209.5, 2407),
                                ("orin", 42.6, 1300)]
)  # fmt: skip
def test_tensor_interval_matches_the_datasheet(name: str, tflops: float, mhz: float) -> None:
    target = load_target(name)
    interval = target.class_timing("hmma_16816_f32").interval
    assert interval is not None
    per_clk = 2 * 16 * 8 * 16 / interval * target.limits.sub_cores * target.sm_count
    assert per_clk * mhz / 1e6 == pytest.approx(tflops, rel=0.03)


@pytest.mark.parametrize("name", TARGETS)
def test_every_latency_class_of_the_opcode_table_has_a_timing(name: str) -> None:
    target = load_target(name)
    named = {entry.latency for entry in registry.load().values() if isinstance(entry.latency, str)}
    assert len(named) > 20
    assert named <= set(target.classes)


def test_geforce_shares_one_double_precision_unit() -> None:
    assert load_target("rtx4090").pipes[Pipe.FP64].shared_per_sm
    assert load_target("rtx4090").pipes[Pipe.FP64].interval == 16
    assert not load_target("h200").pipes[Pipe.FP64].shared_per_sm
    assert load_target("h200").pipes[Pipe.FP64].interval == 2


@pytest.mark.parametrize(
    ("alias", "name"),
    [("H100-SXM", "h100"), ("4090", "rtx4090"), ("RTX 4090", "rtx4090"), ("rtx_5090", "rtx5090"), ("H200", "h200"),
     ("jetson-agx-orin", "orin"), ("Jetson Thor", "thor")],
)  # fmt: skip
def test_aliases(alias: str, name: str) -> None:
    assert load_target(alias).name == name


def test_unknown_target_lists_the_known_ones() -> None:
    with pytest.raises(TargetError) as caught:
        load_target("h201")
    assert all(name in str(caught.value) for name in TARGETS)
    assert "Did you mean 'h200'" in str(caught.value)


@pytest.mark.parametrize("name", ["mi300x", "MI250", "gfx942", "Radeon RX 7900", "rx7900xtx", "amd"])
def test_amd_is_not_modelled(name: str) -> None:
    with pytest.raises(TargetError, match="AMD GPUs are not modelled"):
        load_target(name)


def test_what_is_inherited() -> None:
    h200, h100 = load_target("h200"), load_target("h100")
    assert h100.classes == h200.classes and h100.limits == h200.limits
    assert h100.dram != h200.dram
    measured = [path for path, source in h200.sources.items() if source.kind == "measured"]
    assert measured
    for path in measured:  # a measurement on one GPU is not one on another
        assert h100.sources[path].kind != "measured", path


def test_targets_are_immutable_and_travel_to_workers() -> None:
    target = load_target("b200")
    again = pickle.loads(pickle.dumps(target))
    assert again == target
    with pytest.raises(AttributeError):
        target.name = "x"  # type: ignore[misc]


def test_with_values() -> None:
    target = load_target("h200")
    changed = target.with_values({"classes.ldg.latency": 40, "l2.bytes": 1 << 20}, "measured", "a test")
    assert changed.classes["ldg"].latency == 40 and changed.l2.bytes == 1 << 20
    assert changed.source("l2.bytes").kind == "measured"
    assert target.classes["ldg"].latency != 40
    with pytest.raises(TargetError, match=r"no number at 'classes\.ldq\.latency' \(close: .*classes\.ldg\.latency"):
        target.with_values({"classes.ldq.latency": 1})


def test_unknown_latency_class_names_target_and_close_ones() -> None:
    with pytest.raises(TargetError, match=r"target l40s: no latency class .hmma_16816_f33.*hmma_16816_f32"):
        load_target("l40s").class_timing("hmma_16816_f33")


def program(arch: str, sm: int) -> Program:
    return Program(
        name="k", sm=sm, arch=arch, instructions=[], control=np.zeros(0, CONTROL), registers=16, static_shared=0,
        stack=0, parameter_base=0x210, parameter_bytes=0, parameters=[], constants={}, barriers=0, max_threads=None,
        required_threads=None, cubin_sha="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "sm", "target", "runs"),
    [("sm_90a", 90, "h200", True), ("sm_90a", 90, "b200", False), ("sm_86", 86, "l40s", True),
     ("sm_80", 80, "orin", True), ("sm_89", 89, "orin", False), ("sm_89", 89, "rtx5090", False)],
)  # fmt: skip
def test_binary_compatibility(arch: str, sm: int, target: str, runs: bool) -> None:
    if runs:
        check_architecture(program(arch, sm), load_target(target))
    else:
        with pytest.raises(TargetError, match=f"compiled for {arch}, which {target} "):
            check_architecture(program(arch, sm), load_target(target))


# -- files of one's own ------------------------------------------------------------------------------------------------


def write(folder: Path, text: str, name: str = "mine.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


HEAD = """
name: mine
full_name: Mine
aliases: []
sm: 90
arch: sm_90a
extends: h200
"""
_H100 = yaml.safe_load((DIRECTORY / "h100.yaml").read_text(encoding="utf-8"))
BOARD = "".join(
    f"{section}:\n" + "".join(f"  {key}: {entry}\n" for key, entry in _H100[section].items())
    for section in ("gpu", "l2", "dram", "launch")
)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + BOARD + "measured: {classes.ldg.latency: [31, 'pointer chase']}\n")
    target = load_target(path)
    assert target.classes["ldg"].latency == 31
    assert target.source("classes.ldg.latency").kind == "measured"
    assert target.classes["ldg"].latency_64 == load_target("h200").classes["ldg"].latency_64
    assert target.source("pipes.TENSOR.interval").kind == "derived"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD, "mine.yaml: gpu.sm_count is missing"),
        (HEAD + BOARD + "sizes: {}\n", "unknown key 'sizes'"),
        (HEAD + BOARD + "l1: {unified_kb: 256}\n", "l1.unified_kb: a number without its source (256)"),
        (HEAD + BOARD + "l1: {unified_kb: [256, hearsay, x]}\n", "l1.unified_kb: source 'hearsay' is not known"),
        (HEAD + BOARD + "l1: {unified_kb: [256, vendor]}\n", "source 'vendor' needs a note"),
        (HEAD + BOARD + "l1: {unified_kb: [large, guess]}\n", "l1.unified_kb: must be a number of at least 0"),
        (HEAD + BOARD + "l1: {unified_kb: [-1, guess]}\n", "l1.unified_kb: must be a number of at least 0"),
        (HEAD + BOARD + "l1: {unified_kb: [2.5, guess]}\n", "l1.unified_kb: must be a whole number"),
        (HEAD + BOARD + "l1: {ways: [4, guess]}\n", "l1.ways is not known; allowed: unified_kb"),
        (HEAD + BOARD + "pipes: {MULTIPLIER: {interval: [2, guess]}}\n", "pipes.MULTIPLIER: no such pipe"),
        (HEAD + BOARD + "pipes: {ALU: {interval: [0, guess]}}\n", "intervals must be positive"),
        (HEAD + BOARD + "limits: {max_threads_per_sm: [1024, guess]}\n", "must be max_warps_per_sm * warp_size"),
        (HEAD + BOARD + "measured: {l1.bytes: [3, x]}\n", "measured: no number at 'l1.bytes'"),
        (HEAD + BOARD + "measured: {l1.unified_kb: 256}\n", "l1.unified_kb: write [value, note]"),
        (HEAD.replace("h200", "h300") + BOARD, "extends 'h300', but there is no h300.yaml"),
        (HEAD.replace("sm: 90", "sm: 89") + BOARD, "arch must start with sm_89"),
        (HEAD.replace("h200", "mine") + BOARD, "extends itself"),
        ("- a\n", "must be a mapping of sections"),
        ("a: [\n", "not valid YAML"),
        (HEAD + BOARD + "l1: {unified_kb: [256, guess], unified_kb: [128, guess]}\n", "'unified_kb' is there twice"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TargetError) as caught:
        load_target(write(tmp_path, text))
    assert "mine.yaml" in str(caught.value)
    assert words in str(caught.value)


def test_missing_file() -> None:
    with pytest.raises(TargetError, match=r"nowhere\.yaml: no such target file"):
        load_target("nowhere.yaml")


def test_the_table_in_the_documentation_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "targets.md"
    assert page.read_text(encoding="utf-8") == report(), "run: python -m timing.target_report > docs/targets.md"
