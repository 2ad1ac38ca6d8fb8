"""Compiling: byte identity with measured cubins, the cache, and errors."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from interpreter.compile import CompileRequest, compile_cubin, compile_many, source_files
from interpreter.cubin import parse_cubin
from interpreter.errors import CompileError, CubinError, ToolchainError
from interpreter.toolchain import Tool, find_tools

DATA = Path(__file__).parents[1] / "data"
EXAMPLES = Path(__file__).parents[2] / "examples"
RESERVED = 1024  # the driver's static shared memory on sm_90 counts the reserved kilobyte

pytestmark = pytest.mark.skipif(find_tools().nvcc is None, reason="needs nvcc: pip install 'farm[nvcc]'")


def family_source(family: str) -> Path:
    """kernel.cu of a family, which is either an example or only test data."""
    example = EXAMPLES / family / "kernel.cu"
    return example if example.exists() else DATA / "sweeps" / family / "kernel.cu"


def measured() -> list[dict[str, str]]:
    with (DATA / "measured_cubins.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source" / "kernel.cu"
    path.parent.mkdir()
    path.write_text('extern "C" __global__ void k(float* p) { p[threadIdx.x] *= FACTOR; }\n')
    return path


@pytest.fixture
def counted(tmp_path: Path) -> tuple[Tool, Path]:
    """nvcc behind a script that logs each compilation."""
    real = find_tools().require("nvcc").path
    log = tmp_path / "log"
    log.touch()
    script = tmp_path / "bin" / "nvcc"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo "$@" >> {log}\nexec {real} "$@"\n')
    script.chmod(0o755)
    return Tool("nvcc", script, "argument"), log


def runs(log: Path) -> int:
    return len(log.read_text().splitlines())


def failing(tmp_path: Path, text: str, status: str = "exit 1") -> Tool:
    script = tmp_path / "bin" / "nvcc"
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && echo V13.0.88 && exit 0\ncat >&2 <<'END'\n{text}\nEND\n{status}\n"
    )
    script.chmod(0o755)
    return Tool("nvcc", script, "argument")


def test_cubins_are_those_measured_on_an_h200(cache: Path) -> None:
    """At least two variants of each family, byte for byte, and the resources the driver reported."""
    tool = find_tools().require("nvcc")
    if tool.version != "13.0.88":
        pytest.skip(f"the cubins were made with nvcc 13.0.88, this is {tool.version}")
    rows = measured()
    assert len({row["family"] for row in rows}) == 12
    requests = [
        CompileRequest(family_source(row["family"]), "sm_90a", dict(item.split("=") for item in row["macros"].split()))
        for row in rows
    ]
    for row, compiled in zip(rows, compile_many(requests, 2, cache), strict=True):
        assert not isinstance(compiled, CompileError)
        assert compiled.sha.startswith(row["sha"]), row
        (resources,) = compiled.resources.values()
        assert compiled.registers == int(row["registers"])
        assert resources.stack == int(row["stack"])
        assert resources.static_shared == max(int(row["static_shared"]) - RESERVED, 0)
        assert (compiled.spill_store_bytes > 0) == (resources.stack > 0)
        assert (compiled.spill_load_bytes > 0) == (resources.stack > 0)


def test_the_second_time_comes_from_the_cache(source: Path, tmp_path: Path, counted: tuple[Tool, Path]) -> None:
    tool, log = counted
    first = compile_cubin(source, "sm_80", {"FACTOR": 2}, [], tmp_path / "c", nvcc=tool)
    again = compile_cubin(source, "sm_80", {"FACTOR": 2}, [], tmp_path / "c", nvcc=tool)
    assert (first.cached, again.cached, runs(log)) == (False, True, 1)
    assert (first.cubin, first.sha, first.resources, first.command) == (
        again.cubin,
        again.sha,
        again.resources,
        again.command,
    )
    assert first.command == [
        *("nvcc", "-cubin", "-arch=sm_80", "-std=c++17", "-O3", "-DFACTOR=2", "-o", "kernel.cubin", "kernel.cu")
    ]
    assert parse_cubin(first.cubin).kernel("k").registers == first.registers


def test_what_the_key_covers(source: Path, tmp_path: Path, counted: tuple[Tool, Path]) -> None:
    tool, log = counted
    (source.parent / "sub").mkdir()
    (source.parent / "sub" / "deep.h").write_text("#define UNUSED 1\n")
    (source.parent / "factor.h").write_text('#include "sub/deep.h"\n#include <cstdint>\n')
    source.write_text('#include "factor.h"\n' + source.read_text())
    request = CompileRequest(source, "sm_80", {"FACTOR": 2}, ["-Isub"])

    def compile_now(request: CompileRequest) -> int:
        compile_cubin(request.source, request.arch, request.macros, request.flags, tmp_path / "c", nvcc=tool)
        return runs(log)

    assert compile_now(request) == 1
    assert compile_now(replace(request, macros={"FACTOR": 3})) == 2
    assert compile_now(replace(request, arch="sm_86")) == 3
    assert compile_now(replace(request, flags=["-Isub", "--use_fast_math"])) == 4
    (source.parent / "sub" / "deep.h").write_text("#define UNUSED 2\n")
    assert compile_now(request) == 5
    assert compile_now(request) == 5
    source.touch()
    assert compile_now(request) == 5  # content counts, not time


def test_include_files_found(tmp_path: Path) -> None:
    for name in ("a.h", "inc/b.h", "inc/c.h", "made.h", "opt.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "inc" / "b.h").write_text('#include "c.h"\n')
    source = tmp_path / "k.cu"
    source.write_text('# include "a.h"\n#include <b.h>\n#include <cstdio>\n#include "missing.h"\n// #include "no.h"\n')
    tool = find_tools().require("nvcc")
    files = source_files(CompileRequest(source, "sm_80", {}, ["-I", "inc", "--options-file", "opt.txt"]), tool)
    assert set(files) == {"k.cu", "a.h", "inc/b.h", "inc/c.h", "opt.txt"}
    source.write_text("#define NAME <made.h>\n#include NAME\n")
    assert set(source_files(CompileRequest(source, "sm_80", {}, ["-I."]), tool)) == {"k.cu", "made.h"}


def test_errors_are_cut_to_the_point_and_cached(source: Path, tmp_path: Path, counted: tuple[Tool, Path]) -> None:
    tool, log = counted
    source.write_text("\n".join(f"__global__ void k{n}() {{ undefined{n}(); }}" for n in range(6)))
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            compile_cubin(source, "sm_80", {"FACTOR": 2}, [], tmp_path / "c", nvcc=tool)
        assert f'{source} for sm_80 with FACTOR=2: kernel.cu(1): error: identifier "undefined0"' in str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.stderr.count("error: ") == 3
        assert "and 3 more errors" in caught.value.stderr
    assert runs(log) == 1


def test_static_assertions_and_bad_flags_are_compile_errors(source: Path, cache: Path) -> None:
    source.write_text('static_assert(TILE % 32 == 0, "TILE must be a multiple of the warp");\n')
    with pytest.raises(CompileError, match="TILE must be a multiple of the warp"):
        compile_cubin(source, "sm_80", {"TILE": 33}, [], cache)
    with pytest.raises(CompileError, match="--no-such-flag"):
        compile_cubin(source, "sm_80", {"TILE": 32}, ["--no-such-flag"], cache)
    with pytest.raises(CompileError, match="Unsupported gpu architecture"):
        compile_cubin(source, "sm_30", {"TILE": 32}, [], cache)
    with pytest.raises(CompileError, match=r"unknown architecture 'h200'.*sm_90a"):
        compile_cubin(source, "h200", {}, [], cache)
    with pytest.raises(CompileError, match="no such source file"):
        compile_cubin(source.with_name("absent.cu"), "sm_80", {}, [], cache)


def test_too_much_shared_memory_is_ptxas_speaking(source: Path, cache: Path) -> None:
    source.write_text(
        'extern "C" __global__ void k(float* p) { __shared__ float t[N]; t[threadIdx.x] = p[threadIdx.x];\n'
        "__syncthreads(); p[threadIdx.x] = t[N - 1 - threadIdx.x]; }\n"
    )
    with pytest.raises(CompileError, match="uses too much shared data"):
        compile_cubin(source, "sm_80", {"N": 20000}, [], cache)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "exit 9"),
        ("ptxas fatal   : Memory allocation failure, out of memory", "exit 1"),
        ("kernel.cu(1): catastrophic error: cannot write: No space left on device", "exit 1"),
        ("gcc: No such file or directory", "exit 1"),
        ("sh: 1: gcc: not found", "exit 127"),
        ("kernel.cu(1): error: half an answer", "kill -9 $$"),
        ("", "exit 1"),
        ("no cubin written", "exit 0"),
    ],
)
def test_trouble_is_not_a_verdict_and_never_cached(source: Path, tmp_path: Path, text: str, status: str) -> None:
    tool = failing(tmp_path, text, status)
    with pytest.raises(ToolchainError, match=r"kernel\.cu"):
        compile_cubin(source, "sm_80", {"FACTOR": 2}, [], tmp_path / "c", nvcc=tool)
    assert not [path for path in (tmp_path / "c").rglob("*") if path.is_file()]


def test_a_compilation_that_takes_too_long(source: Path, tmp_path: Path) -> None:
    tool = failing(tmp_path, "", "exec sleep 60")
    with pytest.raises(CompileError, match=r"did not finish .*kernel.cu for sm_80 in 0.5 s"):
        compile_cubin(source, "sm_80", {"FACTOR": 2}, [], tmp_path / "c", nvcc=tool, timeout=0.5)
    assert not (tmp_path / "c").exists()


def test_a_damaged_entry_is_made_anew(source: Path, tmp_path: Path) -> None:
    first = compile_cubin(source, "sm_80", {"FACTOR": 2}, [], tmp_path / "c")
    (entry,) = [path for path in (tmp_path / "c").rglob("*") if path.is_file()]
    whole = entry.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], whole[:-1] + b"\1", b"{}\n"):
        entry.write_bytes(damaged)
        again = compile_cubin(source, "sm_80", {"FACTOR": 2}, [], tmp_path / "c")
        assert (again.cached, again.sha) == (False, first.sha)


def test_many_keep_their_order_and_one_refusal_stops_nothing(source: Path, cache: Path) -> None:
    factors = [2, "nonsense", 3, 2]
    results = compile_many([CompileRequest(source, "sm_80", {"FACTOR": f}) for f in factors], 2, cache)
    assert isinstance(results[1], CompileError) and "nonsense" in str(results[1])
    shas = [result.sha for result in results if not isinstance(result, CompileError)]
    assert len(shas) == 3 and shas[0] == shas[2] != shas[1]


def test_several_kernels_have_resources_by_name(cache: Path) -> None:
    compiled = compile_cubin(DATA / "sources" / "features.cu", "sm_80", {}, [], cache)
    assert set(compiled.resources) == {"jump_table", "calls", "no_parameters", "immediates"}
    assert compiled.resources["jump_table"].stack > 0
    assert compiled.resources["jump_table"].spill_store_bytes == 0  # a stack frame for printf's arguments, no spills
    with pytest.raises(CubinError, match="4 kernels"):
        _ = compiled.registers


def test_flags_in_the_environment_do_not_reach_nvcc(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = compile_cubin(source, "sm_80", {"FACTOR": 2}, [], tmp_path / "c")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-Xptxas=-v")
    assert compile_cubin(source, "sm_80", {"FACTOR": 2}, [], tmp_path / "d").sha == plain.sha
