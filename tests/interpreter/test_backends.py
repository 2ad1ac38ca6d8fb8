"""The LLVM and NumPy back ends agree bit for bit: memory, counts, events and lines, on real kernels."""

from __future__ import annotations

import numpy as np
import pytest
from kernels import DATA, NAMES, case

from interpreter.backends import llvm_engine
from interpreter.backends.llvm_engine import Engine
from interpreter.backends.llvm_machine import prepare
from interpreter.decode import load_program
from interpreter.isa import registry


def agree(first, second) -> None:
    a, b = first.machine.run(mode="trace"), second.machine.run(mode="trace")
    assert first.state() == second.state()
    for name in a.counts.dtype.names:
        assert (a.counts[name] == b.counts[name]).all(), name
    assert a.warp_instructions == b.warp_instructions
    assert (a.trace.events == b.trace.events).all()
    assert (a.trace.lines == b.trace.lines).all()
    assert (a.trace.warp_start == b.trace.warp_start).all() and (a.trace.line_start == b.trace.line_start).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_120a"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("sgemm", "histogram", "locked")])
def test_backends_agree(arch: str, name: str) -> None:
    agree(case(arch, name, "llvm"), case(arch, name, "numpy"))


@pytest.mark.parametrize("name", ["sgemm", "histogram"])
def test_backends_agree_on_one_cta(name: str) -> None:
    """The longer kernels, one CTA."""
    first, second = case("sm_90a", name, "llvm"), case("sm_90a", name, "numpy")
    results = [c.machine.run([1], mode="trace") for c in (first, second)]
    assert first.state() == second.state()
    assert (results[0].trace.events == results[1].trace.events).all()
    assert (results[0].counts == results[1].counts).all()


def test_every_row_has_a_handler_and_forms_are_shared() -> None:
    program = load_program((DATA / "cubins" / "hgemm_mma.sm_90a.cubin").read_bytes())
    lowered, _ = prepare(program)
    assert (lowered.rows["handler"] != 0).all()
    assert len({form.symbol for form in lowered.forms}) < len(program.instructions) / 3


def test_object_cache_spares_compilation(tmp_path, monkeypatch) -> None:
    """A second process (here: a second engine) compiles nothing; a lost object file is compiled again."""
    monkeypatch.setenv("FARM_CACHE", str(tmp_path))
    program = case("sm_90a", "transpose").program
    engines = [Engine() for _ in range(3)]

    def run(number: int) -> float:
        monkeypatch.setattr("interpreter.backends.llvm_machine.engine", lambda: engines[number])
        c = case("sm_90a", "transpose")
        c.machine.run()
        assert (c.buffers["out"] == c.buffers["in"].T).all()
        return engines[number].compile_seconds

    assert run(0) > 0
    assert run(1) == 0
    for path in tmp_path.rglob("forms_*"):
        path.unlink()
    assert run(2) > 0
    assert not list(tmp_path.rglob("tmp*")), "temporary files are left"
    assert program.name == "transpose"


def test_corrupt_cache_entries_are_ignored(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FARM_CACHE", str(tmp_path))
    engines = [Engine(), Engine()]
    for number in range(2):
        monkeypatch.setattr("interpreter.backends.llvm_machine.engine", lambda n=number: engines[n])
        c = case("sm_90a", "transpose")
        c.machine.run()
        assert (c.buffers["out"] == c.buffers["in"].T).all()
        for path in tmp_path.rglob("*"):
            if path.is_file():
                path.write_bytes(b"garbage")
    assert engines[1].compile_seconds > 0


def test_cache_can_be_switched_off(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FARM_CACHE", "")
    assert llvm_engine.cache_folder() is None
    monkeypatch.setenv("FARM_CACHE", str(tmp_path))
    assert llvm_engine.cache_folder() == tmp_path / "llvm"


def test_every_opcode_is_documented_and_timed() -> None:
    """Each entry names its pipe and latency, and its meaning says what it does."""
    for name, entry in registry.load().items():
        assert entry.latency, name
        assert entry.operands[0] <= entry.operands[1], name


def test_values_of_both_back_ends_are_lanes() -> None:
    """NumPy values always hold 32 elements of the kind's type (what its emitter asserts)."""
    c = case("sm_90a", "generic", "numpy")
    c.machine.run()
    assert c.buffers["global"].dtype == np.int32
