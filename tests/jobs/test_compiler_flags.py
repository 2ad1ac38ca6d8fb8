"""Options that a sweep may give the compiler: none that runs a program, reads elsewhere or writes a file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from interpreter.toolchain import find_tools
from jobs.bundle import check_inside
from jobs.compiler_flags import Named, Refused, examine, plain_name
from jobs.plan import Settings, kernel_build, plan_sweep
from jobs.sweep import SweepError, load_sweep
from timing.target import load_target

SWEEP = """\
name: small
kernel: {language: cuda, source: kernel.cu, entry: small}
parameters: {BLOCK: [64, 128]}
launch: {grid: [4], block: [BLOCK]}
arguments: [{name: out, dtype: float32, shape: [1024], output: true}]
targets: [h200]
"""
SETTINGS = Settings(l2="warm", seconds=None, instructions=1000, cache=Path("."))
KERNEL = 'extern "C" __global__ void small(float* out) { out[threadIdx.x] = 1.0f; }\n'

# each of these has nvcc run `touch FILE` (shown by `test_what_is_refused_would_have_run`), or is meant to
HOSTILE = [
    ["-DX=`touch FILE`"],
    ["-DX=$(touch FILE)"],
    ["-D", "X=$(touch FILE)"],
    ["-Iab`touch FILE`"],
    ["-include=`touch FILE`"],
]
REFUSED = [
    *HOSTILE,
    ["-ccbin", "./evil"],
    ["--compiler-bindir=/tmp"],
    ["-run"],
    ["-o", "/tmp/elsewhere"],
    ["-o/tmp/elsewhere"],
    ["--output-directory", "/tmp"],
    ["-keep", "-keep-dir", "/tmp"],
    ["-optf", "options.txt"],
    ["-Xcompiler", "-fplugin=evil.so"],
    ["-Xcompiler=-wrapper,sh"],
    ["-Xptxas", "-o,/tmp/elsewhere"],
    ["-Xptxas=--options-file=x"],
    ["-Xptxas", "-v;touch FILE"],
    ["--ptxas-options"],
    ["other.cu"],
    ["-DX=\\"],
    ['-DX="; touch FILE; "'],
    ["-DX='a'"],
    ["-DX=a\ntouch FILE"],
    ["-std=c++17;touch FILE"],
    ["-maxrregcount"],
    [""],
]
ALLOWED = [
    ["--use_fast_math"],
    ["-use_fast_math"],
    ["-maxrregcount=32"],
    ["--maxrregcount", "64"],
    ["-O2"],
    ["-lineinfo"],
    ["-DTYPE=unsigned int"],
    ["-D", "N=4", "-UDEBUG"],
    ["-DF(x)=((x)*2)"],
    ["-fmad=false"],
    ["-ftz=true", "-prec-div=false"],
    ["-Xptxas", "-v,-dlcm=cg"],
    ["-Xptxas=-O3"],
    ["--ptxas-options=--warn-on-spills"],
    ["--expt-relaxed-constexpr", "--extended-lambda"],
    ["-std=c++20", "-diag-suppress", "177"],
]


def test_harmless_options_are_taken() -> None:
    for flags in ALLOWED:
        assert [found for found in examine(flags) if isinstance(found, Refused)] == [], flags
    assert list(examine(["-I", "include", "-isystem=other,third"])) == [
        Named(1, "include"),
        Named(2, "other"),
        Named(2, "third"),
    ]


@pytest.mark.parametrize("flags", REFUSED, ids=str)
def test_others_are_refused(flags: list[str], tmp_path: Path) -> None:
    assert any(isinstance(found, Refused) for found in examine(flags))
    quoted = ", ".join(json.dumps(flag) for flag in flags)
    with pytest.raises(SweepError, match=r"sweep\.yaml:2: kernel\.flags: ") as error:
        load_sweep(write(tmp_path, SWEEP.replace("entry: small", f"entry: small, flags: [{quoted}]")))
    assert "--allow-outside" in str(error.value)


def test_what_is_refused_would_have_run(tmp_path: Path) -> None:
    """The compiler's shell is no invention: without the check these do what they say."""
    nvcc = find_tools().nvcc
    if nvcc is None:
        pytest.skip("no nvcc")
    (tmp_path / "kernel.cu").write_text(KERNEL)
    flags = [flag.replace("FILE", "witness") for flag in HOSTILE[0]]
    subprocess.run([nvcc.path, "-cubin", "-arch=sm_90a", *flags, "kernel.cu"], cwd=tmp_path, capture_output=True)
    assert (tmp_path / "witness").exists()


def test_source_names_that_a_shell_would_read() -> None:
    assert plain_name("kernel-2 (copy).cu") is False and plain_name("kernel v2.cu") and plain_name("a_b+c.cu")
    assert not plain_name("k`touch x`.cu") and not plain_name("$(x).cu") and not plain_name("-run.cu")


def test_a_source_named_as_a_command(tmp_path: Path) -> None:
    (tmp_path / "k`touch x`.cu").write_text(KERNEL)
    path = write(tmp_path, SWEEP.replace("kernel.cu", '"k`touch x`.cu"'))
    with pytest.raises(SweepError, match=r"kernel\.source.*--allow-outside"):
        load_sweep(path)


def test_include_folders_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "in" / "include").mkdir(parents=True)
    text = SWEEP.replace("entry: small", "entry: small, flags: [FLAG]")
    load_sweep(write(tmp_path / "in", text.replace("FLAG", "-Iinclude")))
    (tmp_path / "in" / "away").symlink_to("/usr/include")
    for flag in ("-I..", "-isystem=/usr/include", "-Iaway"):
        path = write(tmp_path / "in", text.replace("FLAG", flag))
        with pytest.raises(SweepError, match="outside the sweep's folder"):
            load_sweep(path)
        assert load_sweep(path, allow_outside=True).kernel.flags == [flag]


def test_yaml_tags_run_nothing(tmp_path: Path) -> None:
    for tag in ("object/apply:os.system ['touch witness']", "name:os.system ''", "tuple [1]"):
        with pytest.raises(SweepError, match=r"sweep\.yaml"):
            load_sweep(write(tmp_path, SWEEP.replace("[64, 128]", f"!!python/{tag}")))
    assert not (tmp_path / "witness").exists() and not Path("witness").exists()


def test_expressions_are_arithmetic_only(tmp_path: Path) -> None:
    for text in (
        "__import__('os').system('true')",
        "BLOCK.__class__",
        "(lambda: 1)()",
        "[x for x in (1,)]",
        "open('x')",
    ):
        sweep = SWEEP.replace("grid: [4]", f'grid: ["{text}"]')
        with pytest.raises(SweepError, match="launch"):
            plan_sweep(load_sweep(write(tmp_path, sweep)), SETTINGS)


def test_a_target_file_is_for_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("secret: 1\n")
    with pytest.raises(SweepError, match=r"targets: .*--target"):
        load_sweep(write(tmp_path, SWEEP.replace("[h200]", f"[{tmp_path}/own.yaml]")))


def test_cubins_by_pattern_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "outside.cubin").write_bytes(b"\x7fELF")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "k_64.cubin").symlink_to(tmp_path / "outside.cubin")
    text = SWEEP.replace("{language: cuda, source: kernel.cu, entry: small}", '{cubin: "k_{BLOCK}.cubin"}')
    path = write(folder, text)
    with pytest.raises(SweepError, match=r"k_64\.cubin' lies outside"):
        plan = plan_sweep(load_sweep(path), SETTINGS)
        kernel_build(plan.sweep, plan.variants["h200"][0], load_target("h200"))


def test_headers_and_includes_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "secret.h").write_text("// private\n")
    folder = tmp_path / "in"
    path = write(folder, SWEEP)
    check_inside(plan_sweep(load_sweep(path), SETTINGS))
    (folder / "own.h").symlink_to(tmp_path / "secret.h")
    with pytest.raises(SweepError, match=r"takes in .*own\.h|takes in .*secret\.h"):
        check_inside(plan_sweep(load_sweep(path), SETTINGS))
    (folder / "own.h").unlink()
    if find_tools().nvcc is not None:
        (folder / "kernel.cu").write_text('#include "../secret.h"\n' + KERNEL)
        with pytest.raises(SweepError, match=r"takes in .*secret\.h"):
            check_inside(plan_sweep(load_sweep(path), SETTINGS))
        check_inside(plan_sweep(load_sweep(path, allow_outside=True), SETTINGS))


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.cu").write_text(KERNEL)
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path
