"""sweep.yaml: what loads, and that errors name file, line, key, value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import jsonschema_lite
import pytest
import yaml

from jobs.sweep import SweepError, json_schema, keep_count, load_sweep
from timing.target import TARGETS

ROOT = Path(__file__).parents[2]
SWEEPS = sorted([*ROOT.glob("examples/*/sweep.yaml"), *ROOT.glob("tests/data/sweeps/*/sweep.yaml")])

BASE = """\
name: small
kernel: {language: cuda, source: kernel.cu, entry: small, flags: [--use_fast_math]}
problem: {N: 1024}
parameters:
  BLOCK: [64, 128]
derive:
  BLOCKS: ceildiv(N, BLOCK)
constraints:
  - BLOCK > 0
launch:
  grid: [BLOCKS]
  block: [BLOCK]
arguments:
  - {name: data, dtype: float32, shape: [N], fill: {integers: [0, 9]}}
  - {name: out, dtype: float32, shape: [N], output: true}
  - {name: n, dtype: int32, value: N}
  - {name: rate, dtype: float32, value: 0.5}
  - {name: tiny, dtype: float32, value: 1e-5}
"""


def write(folder: Path, text: str) -> Path:
    (folder / "kernel.cu").write_text("// nothing\n")
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", SWEEPS, ids=lambda p: p.parent.name)
def test_real_sweeps_load(path: Path) -> None:
    sweep = load_sweep(path)
    assert sweep.name == path.parent.name
    assert sweep.targets == ["h200"]
    jsonschema_lite.check(json_schema(), yaml.safe_load(path.read_text()))


def test_defaults(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path, BASE))
    assert sweep.targets == list(TARGETS) and len(TARGETS) >= 8
    assert keep_count(sweep.funnel.sampled, 17) == 17
    assert load_sweep(tmp_path).digest() == sweep.digest()  # the folder means its sweep.yaml


def test_targets_by_alias(tmp_path: Path) -> None:
    assert load_sweep(write(tmp_path, BASE + "targets: ['4090', H200]\n")).targets == ["rtx4090", "h200"]


def test_the_digest_follows_what_decides_the_code(tmp_path: Path) -> None:
    path = write(tmp_path, BASE)
    first = load_sweep(path).digest()
    path.write_text(BASE + "targets: [h100]\n")
    assert load_sweep(path).digest() == first
    path.write_text(BASE.replace("1024", "2048"))
    assert load_sweep(path).digest() != first
    path.write_text(BASE)
    (tmp_path / "helper.cuh").write_text("#define X 1\n")
    assert load_sweep(path).digest() != first


def test_cubin_kernels(tmp_path: Path) -> None:
    (tmp_path / "k.cubin").write_bytes(b"\x7fELF")
    text = BASE.replace(
        "{language: cuda, source: kernel.cu, entry: small, flags: [--use_fast_math]}", "{cubin: k.cubin}"
    )
    kernel = load_sweep(write(tmp_path, text)).kernel
    assert (kernel.language, kernel.cubin, kernel.entry) == ("cubin", "k.cubin", None)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("constraints:", "constrants:", [":8: constrants: unknown key", "did you mean constraints?"]),
        ("entry: small", "entri: small", [":2: kernel.entri: unknown key", "did you mean entry?"]),
        ("  grid:", "  gird:", [":11: launch.gird: unknown key", "grid, block, shared"]),
        ("name: data,", "nam: data,", [":14: arguments.0.nam: unknown key", "did you mean name?"]),
        ("name: small\n", "", ["name: missing"]),
        ("kernel.cu,", "kernel.cpp,", ["kernel.source: no such file", "did you mean kernel.cu?"]),
        ("language: cuda", "language: opencl", ["kernel.language", "'cuda', 'cubin' or 'triton'", "opencl"]),
        ("BLOCK: [64, 128]", "BLOCK: [64, fast]", ["parameters.BLOCK.1: should be an integer", "'fast'"]),
        ("BLOCK: [64, 128]", "BLOCK: [true]", ["write 1"]),
        ("BLOCK: [64, 128]", "BLOCK: []", ["parameters.BLOCK"]),
        ("BLOCK: [64, 128]", "BLOCK: [64, 64]", ["parameters.BLOCK: a value is given twice"]),
        ("BLOCK: [64, 128]", "N: [64, 128]", [":5: parameters.N: also given under problem"]),
        ("problem: {N: 1024}", "problem: {sm_count: 4}", ["problem.sm_count", "target's limit"]),
        ("problem: {N: 1024}", "problem: {2N: 4}", ["problem.2N"]),
        ("float32, shape", "float33, shape", ["arguments.0.dtype", "'float33'"]),
        ("fill: {integers: [0, 9]}", "fill: random", [":14: arguments.0.fill", "normal, uniform, zeros"]),
        ("fill: {integers: [0, 9]}", "fill: {integers: [9, 0]}", ["needs low < high"]),
        ("value: N}", "value: N, shape: [N]}", ["argument n: give either `value`"]),
        ("dtype: int32, value", "value", ["argument n: dtype is missing"]),
        ("name: out", "name: data", ["arguments: data is given twice"]),
        ("  block: [BLOCK]\n", "", ["launch.block: missing"]),
        ("launch:", "funnel: {sampled: 150%}\nlaunch:", ["'150%' is neither a count nor a share"]),
        ("launch:", "rank_within: [BLOC]\nlaunch:", ["BLOC is not a parameter, did you mean BLOCK?"]),
        ("launch:", "targets: [h2000]\nlaunch:", [":10: targets", "h2000", "h200"]),
        ("launch:", "targets: [mi300x]\nlaunch:", ["AMD GPUs are not modelled"]),
        ("launch:", "name: again\nlaunch:", [":10: name: given twice"]),
        ("launch:", "launch: [\n", ["not YAML"]),
        ("BLOCK > 0", "BLOCK >", ["'BLOCK >': not an expression"]),
    ],
)
def test_errors_name_place_and_remedy(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    from jobs.variants import expand

    assert old in BASE
    path = write(tmp_path, BASE.replace(old, new, 1))
    with pytest.raises(SweepError) as error:
        expand(load_sweep(path))
    message = str(error.value)
    assert message.startswith(str(path)) and "\n" not in message
    for word in words:
        assert word in message


def test_not_a_mapping_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="no such file"):
        load_sweep(tmp_path / "none.yaml")
    path = tmp_path / "list.yaml"
    path.write_text("- 1\n")
    with pytest.raises(SweepError, match="a mapping of keys"):
        load_sweep(path)
    path.write_text("a: &a [*a]\n")  # refers to itself
    with pytest.raises(SweepError):
        load_sweep(path)


def test_files_outside_the_folder_need_leave(tmp_path: Path) -> None:
    (tmp_path / "outside.cu").write_text("// nothing\n")
    (tmp_path / "in").mkdir()
    path = write(tmp_path / "in", BASE.replace("kernel.cu", "../outside.cu"))
    with pytest.raises(SweepError, match="--allow-outside"):
        load_sweep(path)
    assert load_sweep(path, allow_outside=True).kernel.source == "../outside.cu"
    (tmp_path / "in" / "link.cu").symlink_to(tmp_path / "outside.cu")
    path.write_text(BASE.replace("kernel.cu", "link.cu"))
    with pytest.raises(SweepError, match="outside the sweep's folder"):
        load_sweep(path)


@pytest.mark.parametrize(("share", "kept"), [("50%", 5), ("1%", 1), ("0%", 0), ("100%", 10), (3, 3), (99, 10), (0, 0)])
def test_funnel_shares(share: int | str, kept: int) -> None:
    assert keep_count(share, 10) == kept
