"""Where tools are looked for, and what is said when they are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from interpreter.errors import ToolchainError
from interpreter.toolchain import TOOL_NAMES, find_tools


def make_tool(folder: Path, name: str, version: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version[:4]}, V{version}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No tool anywhere."""
    for name in ("FARM_CUDA", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr("sys.path", [str(tmp_path / "site")])
    return tmp_path


def test_order_is_argument_environment_wheels_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tool(bare / "path", "nvcc", "1.0.1")
    monkeypatch.setenv("PATH", str(bare / "path"))
    assert find_tools().require("nvcc").origin == "PATH"
    make_tool(bare / "site" / "nvidia" / "cu13" / "bin", "nvcc", "13.0.88")
    assert find_tools().require("nvcc").origin == "wheel"
    make_tool(bare / "home" / "bin", "nvcc", "12.4.1")
    monkeypatch.setenv("CUDA_HOME", str(bare / "home"))
    assert find_tools().require("nvcc").version == "12.4.1"
    make_tool(bare / "farm" / "bin", "nvcc", "12.5.1")
    monkeypatch.setenv("FARM_CUDA", str(bare / "farm"))
    assert find_tools().require("nvcc").version == "12.5.1"
    make_tool(bare / "given", "nvcc", "12.6.1")
    assert find_tools(bare / "given").require("nvcc").version == "12.6.1"


def test_tools_may_come_from_different_places(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tool(bare / "home" / "bin", "nvcc", "12.4.1")
    monkeypatch.setenv("CUDA_HOME", str(bare / "home"))
    make_tool(bare / "site" / "nvidia" / "cu13" / "bin", "nvdisasm", "13.5.37")
    tools = find_tools()
    assert (tools.require("nvcc").origin, tools.require("nvdisasm").origin) == ("CUDA_HOME", "wheel")
    assert tools.cuobjdump is None


def test_triton_s_copies_come_after_the_wheels(bare: Path) -> None:
    make_tool(bare / "site" / "triton" / "backends" / "nvidia" / "bin", "nvdisasm", "12.8.90")
    assert find_tools().require("nvdisasm").version == "12.8.90"
    make_tool(bare / "site" / "nvidia" / "cu13" / "bin", "nvdisasm", "13.5.37")
    assert find_tools().require("nvdisasm").version == "13.5.37"


@pytest.mark.parametrize("name", TOOL_NAMES)
def test_a_missing_tool_says_how_to_get_it(bare: Path, name: str) -> None:
    with pytest.raises(ToolchainError, match=rf"{name} not found.*(pip install|CUDA_HOME)"):
        find_tools().require(name)


def test_a_folder_without_tools_is_an_error(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolchainError, match=r"argument names .*empty"):
        find_tools(bare / "empty")
    monkeypatch.setenv("FARM_CUDA", str(bare / "empty"))
    with pytest.raises(ToolchainError, match=r"FARM_CUDA names .*empty"):
        find_tools()


def test_a_tool_that_does_not_run_or_tells_no_version(bare: Path) -> None:
    broken = make_tool(bare / "a", "nvcc", "1.0.1")
    broken.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(ToolchainError, match="does not run"):
        _ = find_tools(bare / "a").require("nvcc").version
    silent = make_tool(bare / "b", "nvcc", "1.0.1")
    silent.write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(ToolchainError, match=r"names no version.*hello"):
        _ = find_tools(bare / "b").require("nvcc").version


def test_installed_disassembler_is_found() -> None:
    assert int(find_tools().require("nvdisasm").version.split(".")[0]) >= 13
