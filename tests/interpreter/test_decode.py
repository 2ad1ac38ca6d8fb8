"""Programs decoded from real cubins, checked against their encodings and nvdisasm's other output formats."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interpreter.architectures import GENERATIONS, layout_for, special_registers
from interpreter.compile import compile_cubin
from interpreter.cubin import DEFAULT_STACK_BYTES, CodeRelocation, parse_cubin
from interpreter.decode import build_program, control_fields, load_program, load_programs, prints_as, split_operands
from interpreter.disassembly import disassemble, write_atomically
from interpreter.errors import CubinError, ToolchainError, UnsupportedInstruction
from interpreter.operands import is_float_text, parse_operand
from interpreter.program import RZ, Instruction, OperandKind, Program
from interpreter.toolchain import Tool, find_tools

CUBINS = Path(__file__).parents[1] / "data" / "cubins"
FEATURES = ("features.sm_80", "features.sm_90a", "features.sm_100a", "features.sm_120a")
ALL = (*FEATURES, "hgemm_mma.sm_90a", "elementwise_triton.sm_90a")
K = OperandKind


def image(name: str) -> bytes:
    return (CUBINS / f"{name}.cubin").read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def programs(folder: Path) -> list[Program]:
    """Every kernel of every cubin here, decoded in one call."""
    requests = [(image(name), entry) for name in ALL for entry in parse_cubin(image(name)).kernels]
    return load_programs(requests, cache=folder)


def everything(programs: list[Program]) -> list[tuple[Program, Instruction]]:
    return [(program, instruction) for program in programs for instruction in program.instructions]


@cache
def json_listing(name: str) -> dict[str, list[dict[str, str]]]:
    """Kernel -> instructions of `nvdisasm -json`, which prints targets as offsets in the kernel."""
    tool = find_tools().require("nvdisasm")
    done = subprocess.run([tool.path, "-json", CUBINS / f"{name}.cubin"], capture_output=True, text=True, check=True)
    functions = json.loads(done.stdout)[1]
    return {function["function-name"]: function["sass-instructions"] for function in functions}


@pytest.mark.parametrize("name", ALL)
def test_batched_text_equals_nvdisasm_json(name: str, programs: list[Program]) -> None:
    """Of the kernels' own code; device functions behind it are listed apart, under names that kernels may share."""
    listing = json_listing(name)
    cubin = parse_cubin(image(name))
    for program in programs:
        if program.cubin_sha != cubin.sha:
            continue
        offsets = {function.name: function.offset for function in cubin.kernel(program.name).functions}
        entries = listing[program.name]
        assert len(entries) > 3
        for instruction, entry in zip(program.instructions, entries, strict=False):
            operands = entry.get("operands", "")
            if instruction.opcode in ("CALL", "RET"):  # the listing names functions
                for function, offset in offsets.items():
                    operands = re.sub(rf"`?\(?{re.escape(function)}\)?$", f"{offset:#x}", operands)
            if instruction.opcode in ("BRX", "CALL", "RET"):  # text separates their register by a blank
                operands = operands.replace(",", "")
            expected = entry.get("predicate", "") + entry["opcode"] + operands
            assert re.sub(r"\s", "", instruction.text) == re.sub(r"\s", "", expected)


def test_control_fields_agree_with_printed_reuse_flags(programs: list[Program]) -> None:
    flags = 0
    for program in programs:
        for instruction, control in zip(program.instructions, program.control, strict=True):
            printed = sum(operand.reuse for operand in instruction.operands)
            assert printed == int(control["reuse"]).bit_count(), instruction.text
            flags += printed
    assert flags > 100


def test_guards_agree_with_the_encoding(programs: list[Program]) -> None:
    guarded = 0
    for _, instruction in everything(programs):
        number, negated = instruction.low >> 12 & 7, bool(instruction.low >> 15 & 1)
        if instruction.guard is None:
            assert (number, negated) == (7, False), instruction.text
        else:
            assert (instruction.guard.index, instruction.guard.invert) == (number, negated), instruction.text
            guarded += 1
    assert guarded > 100


def test_destinations_agree_with_the_encoding(programs: list[Program]) -> None:
    checked = 0
    for _, instruction in everything(programs):
        if instruction.opcode in ("FFMA", "FADD", "FMUL", "IMAD", "LOP3", "MOV", "LDG", "S2R", "DFMA", "HFMA2", "SHF"):
            first = next(operand for operand in instruction.operands if operand.kind == K.REGISTER)
            assert first.index == instruction.low >> 16 & 0xFF, instruction.text
            checked += 1
    assert checked > 500


def test_branch_targets_agree_with_the_encoding(programs: list[Program]) -> None:
    """Up to sm_89 the displacement is [81:34] * 4; from sm_90 {[81:34], [23:16]} * 4, from the next instruction."""
    branches = 0
    for program, instruction in everything(programs):
        if instruction.opcode != "BRA":
            continue
        word = instruction.low | instruction.high << 64
        field, width = word >> 34 & ((1 << 48) - 1), 48
        if program.sm >= 90:
            field, width = field << 8 | word >> 16 & 0xFF, 56
        displacement = (field - (1 << width) if field >> (width - 1) else field) * 4
        target = instruction.operands[-1]
        assert target.kind == K.TARGET
        assert target.value * 16 == instruction.address + 16 + displacement, instruction.text
        branches += 1
    assert branches > 50


def test_float_immediates_are_the_encoded_bits(programs: list[Program]) -> None:
    seen = set()
    for _, instruction in everything(programs):
        floats = [o for o in instruction.operands if o.kind == K.IMMEDIATE and is_float_text(o.text)]
        for operand in floats:
            assert operand.value == instruction.low >> 32
            assert ("PACKED" in operand.modifiers) == (len(floats) == 2)
            seen.add(instruction.opcode[0] + ("2" if len(floats) == 2 else ""))
    assert {"F", "D", "H2"} <= seen


def test_integer_immediates_of_alu_forms_equal_the_encoded_field(programs: list[Program]) -> None:
    checked = 0
    for _, instruction in everything(programs):
        if instruction.opcode in ("IADD3", "IMAD", "ISETP", "LOP3", "LEA", "SEL") and instruction.low >> 9 & 7 == 4:
            immediates = [o.value for o in instruction.operands if o.kind == K.IMMEDIATE]
            assert instruction.low >> 32 in immediates, instruction.text
            checked += 1
    assert checked > 100


def test_halves_are_printed_high_first(programs: list[Program]) -> None:
    texts = {}
    for _, instruction in everything(programs):
        for operand in instruction.operands:
            if "PACKED" in operand.modifiers and instruction.opcode == "HADD2":
                texts[tuple(o.text for o in instruction.operands if "PACKED" in o.modifiers)] = operand.value
    assert texts[("5", "2")] == 0x45004000  # __floats2half2_rn(2, 5): 2 is the low half


def test_a_64_bit_move_keeps_its_64_bits(programs: list[Program]) -> None:
    moves = [i for _, i in everything(programs) if i.opcode in ("MOV", "UMOV") and i.has("64")]
    values = [o.value for i in moves for o in i.operands if o.kind == K.IMMEDIATE]
    assert any(value >> 32 for value in values)
    assert all(o.text == f"{o.value:#x}" for i in moves for o in i.operands if o.kind == K.IMMEDIATE)


@pytest.mark.parametrize("name", FEATURES)
def test_jump_tables_lead_to_instructions_that_nothing_falls_into(name: str, folder: Path) -> None:
    program = load_program(image(name), "jump_table", cache=folder)
    branches = {i.row for i in program.instructions if i.opcode == "BRX"}
    assert branches and set(program.indirect_targets) == branches
    for row, targets in program.indirect_targets.items():
        assert all(0 <= target < len(program.instructions) for target in targets)
        # the printed displacement is minus the address behind the branch: the table holds offsets in the kernel
        displacement = program.instructions[row].operands[1].value
        assert displacement == -(row + 1) * 16 & 0xFFFFFFFF


@pytest.mark.parametrize("name", FEATURES)
def test_calls_and_returns(name: str, folder: Path) -> None:
    program = load_program(image(name), "calls", cache=folder)
    calls = [i for i in program.instructions if i.opcode == "CALL"]
    returns = [i for i in program.instructions if i.opcode == "RET"]
    assert calls and returns
    function = next(f for f in parse_cubin(image(name)).kernel("calls").functions if "recursive" in f.name)
    assert all(call.operands[-1].value == function.offset // 16 for call in calls)
    assert all(r.operands[0].kind == K.REGISTER and r.operands[1].kind == K.TARGET for r in returns)
    assert all(r.operands[1].value == 0 for r in returns)  # the register holds an offset in the kernel
    assert program.stack == DEFAULT_STACK_BYTES  # recursion: the compiler cannot know the depth


def test_program_resources_and_constants(folder: Path) -> None:
    program = load_program(image("hgemm_mma.sm_90a"), cache=folder)
    assert (program.name, program.sm, program.arch) == ("hgemm_mma", 90, "sm_90a")
    assert (program.registers, program.static_shared, program.stack) == (126, 0, 0)
    assert program.parameter_base == layout_for(90).parameter_base
    assert program.code_bytes == 16 * len(program.instructions)
    assert any(i.mnemonic == "HMMA.16816.F32" for i in program.instructions)
    loads = [i for i in program.instructions if i.opcode == "LDGSTS"]
    assert loads and all(i.operands[-1].descriptor != RZ or len(i.operands) > 2 for i in loads)


def test_stack_pointer_and_parameters_are_where_the_layout_says(programs: list[Program]) -> None:
    for program in programs:
        layout = layout_for(program.sm)
        assert program.parameter_base == layout.parameter_base
        reads = {
            operand.value
            for instruction in program.instructions
            for operand in instruction.operands
            if operand.kind == K.CONSTANT and operand.bank == 0 and operand.index == RZ
        }
        known = {layout.stack_pointer, layout.memory_descriptor, *layout.block_dim, *layout.grid_dim}
        known |= {layout.local_window, layout.local_window + 4}  # 64-bit
        below = {offset for offset in reads if offset < layout.parameter_base}
        assert below <= known, (program.name, program.arch, [hex(o) for o in below - known])
        if program.stack:
            assert layout.stack_pointer in reads


def test_special_registers_are_known(programs: list[Program]) -> None:
    for program, instruction in everything(programs):
        for operand in instruction.operands:
            if operand.kind == K.SPECIAL:
                assert operand.name in special_registers(program.sm)


def test_generations() -> None:
    assert "SR_CgaCtaId" in special_registers(90) and "SR_CgaCtaId" not in special_registers(89)
    assert len({sm for generation in GENERATIONS for sm in generation.sms}) == sum(len(g.sms) for g in GENERATIONS)
    with pytest.raises(CubinError, match=r"sm_70 is not modelled; known: 80"):
        layout_for(70)


def test_source_lines(folder: Path, tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "examples" / "reduce" / "kernel.cu"
    macros = {"COUNT": 1 << 26, "BLOCK": 128, "ITEMS": 4, "VEC": 1, "TREE": 0, "FINISH": 0, "BLOCKS": 131072}
    if find_tools().nvcc is None:
        pytest.skip("needs nvcc")
    cubin = compile_cubin(source, "sm_86", macros, ["-lineinfo"], folder).cubin
    program = load_program(cubin, cache=folder, lines=True)
    text = source.read_text().splitlines()
    assert {Path(i.source_file).name for i in program.instructions if i.source_line} == {"kernel.cu"}
    for opcode, what in [("SHFL", "shfl"), ("RED", "atomicAdd"), ("BAR", "syncthreads")]:
        lines = [text[i.source_line - 1] for i in program.instructions if i.opcode == opcode]
        assert lines and all(what in line for line in lines)
    assert all(i.source_line == 0 for i in load_program(cubin, cache=folder).instructions)
    bare = load_program(image("hgemm_mma.sm_90a"), cache=folder, lines=True)
    assert all(i.source_line == 0 for i in bare.instructions)


def sample(form: str) -> str:
    """An operand list of the survey with numbers put in: "R,[R.64-I]" becomes "R4, [R4.64+-0x10]"."""
    for pattern, text in [
        (r"\{5,IMM,IMM,IMM,IMM,0\}", "{5,4,3,2,1,0}"),
        (r"\bFIMM\b", "1.5"),
        (r"\bIMM\b", "0x10"),
        (r"\b(UR|R|UP|P|B)\b", r"\g<1>4"),
        (r"(?<=\w)-I\b", "+-0x10"),
        (r"\bI\b", "0x10"),
        (r",(?![^{]*\})", ", "),
    ]:
        form = re.sub(pattern, text, form)
    return form


def test_every_operand_list_of_the_survey_parses() -> None:
    """The distinct operand lists among 13,223 forms (architecture, opcode, operands) of a large corpus of kernels."""
    with (CUBINS.parent / "operand_forms.csv").open(newline="") as file:
        forms = list(csv.DictReader(file))
    assert len(forms) > 700
    for form in forms:
        parts = split_operands(sample(form["operands"]))
        operands = [parse_operand(part) for part in parts]
        bare = re.sub(r"\{[^}]*\}", "list", form["operands"]).replace("c[I] [", "c[I][")
        assert len(operands) == len(re.findall(r"[^, ]+", bare))
        assert all(operand.text == part for operand, part in zip(operands, parts, strict=True))


CONTROL_WIDTHS = {"stall": 4, "yield_": 1, "write_barrier": 3, "read_barrier": 3, "wait_mask": 6, "reuse": 3}


@given(
    st.fixed_dictionaries({n: st.integers(0, (1 << w) - 1) for n, w in CONTROL_WIDTHS.items()}),
    st.integers(0, 2**41 - 1),
)
def test_control_fields_round_trip(fields: dict[str, int], rest: int) -> None:
    word, at = rest, 41  # bit 105 of the instruction
    for name, width in CONTROL_WIDTHS.items():
        value = fields[name] ^ 1 if name == "yield_" else fields[name]
        word |= value << at
        at += width
    cut = control_fields(np.array([word], dtype=np.uint64))[0]
    assert {name: int(cut[name]) for name in CONTROL_WIDTHS} == fields


def test_splitting() -> None:
    assert split_operands("") == []
    assert split_operands("R2, c[0x0] [0x160].H0_H0, {1,2}") == ["R2", "c[0x0] [0x160].H0_H0", "{1,2}"]
    assert split_operands("R2 0x1800") == ["R2", "0x1800"]
    assert split_operands("R2, -INF , PT") == ["R2", "-INF", "PT"]


def test_what_an_immediate_prints_as() -> None:
    assert prints_as(0x3F800000, ("1",)) and prints_as(0x3FF80000, ("1.5",))  # binary32; high word of binary64
    assert prints_as(0x3C004000, ("1", "2")) and prints_as(0x3F80C000, ("1", "-2"))  # binary16; bfloat16
    assert prints_as(0x7FC12345, ("+QNAN",)) and prints_as(0x7F800000, ("+INF",))
    assert not prints_as(0x3F800000, ("2",)) and not prints_as(0x3C004000, ("2", "1"))


def test_text_is_cached_and_a_damaged_entry_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = parse_cubin(image("elementwise_triton.sm_90a")).kernel()
    first = disassemble([(kernel.name, kernel.code)], "sm_90a", tmp_path)
    (entry,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    entry.write_text("EXIT\nbroken")
    assert disassemble([(kernel.name, kernel.code)], "sm_90a", tmp_path) == first

    def no_run(*_: object, **__: object) -> None:
        raise AssertionError("nvdisasm must not run when the text is cached")

    monkeypatch.setattr("interpreter.disassembly._raw", no_run)
    assert disassemble([(kernel.name, kernel.code)], "sm_90a", tmp_path) == first


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(tmp_path / "a" / "b", b"data")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("position", [0, 7])
def test_an_illegal_word_is_named_and_the_batch_is_searched(position: int, tmp_path: Path) -> None:
    code = parse_cubin(image("elementwise_triton.sm_90a")).kernel().code
    bad = bytearray(code)
    bad[0x50:0x58] = b"\0" * 8
    kernels = [(f"kernel{n}", code + b"" if n != position else bytes(bad)) for n in range(8)]
    with pytest.raises(CubinError, match=rf"kernel{position}: the word 0x.* at address 0x0050 is not an sm_90a instr"):
        disassemble(kernels, "sm_90a", tmp_path)


def test_an_architecture_nvdisasm_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="does not know sm_129a"):
        disassemble([("k", b"\0" * 16)], "sm_129a", tmp_path)
    with pytest.raises(CubinError, match="unknown architecture 'Hopper'"):
        disassemble([("k", b"\0" * 16)], "Hopper", tmp_path)


def test_a_disassembler_that_fails_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "nvdisasm"
    script.write_text('#!/bin/sh\n[ "$1" = --version ] && echo V13.0.1 && exit 0\nkill -9 $$\n')
    script.chmod(0o755)
    with pytest.raises(ToolchainError, match="killed by signal 9"):
        load_program(image("hgemm_mma.sm_90a"), cache=tmp_path, nvdisasm=Tool("nvdisasm", script, "argument"))


def test_errors_of_building_name_kernel_address_and_text(folder: Path) -> None:
    cubin = parse_cubin(image("elementwise_triton.sm_90a"))
    kernel = cubin.kernel()
    (texts,) = disassemble([(kernel.name, kernel.code)], "sm_90a", folder)
    for row, text, message in [
        (3, "FOO R1, <what>", "no known form"),
        (3, "FADD R1, R2, 3.5", "is not the printed immediate|expected 2 or 4"),
        (3, "BRA 0x7fff0", "outside the kernel"),
        (3, "BRA 0x8", "no multiple of 16"),
    ]:
        changed = [*texts[:row], text, *texts[row + 1 :]]
        with pytest.raises(CubinError, match=rf"0x0030: {text.split()[0]}.*({message})"):
            build_program(cubin, kernel, changed)
    with pytest.raises(CubinError, match="lines of disassembly"):
        build_program(cubin, kernel, texts[:-1])
    kernel.relocations = [CodeRelocation(0x40, 0x38, "helper", 0)]
    with pytest.raises(UnsupportedInstruction, match=r"0x0040: relocation 0x38 against helper"):
        build_program(cubin, kernel, texts)


def test_entry_not_found(folder: Path) -> None:
    with pytest.raises(CubinError, match="no kernel 'nope'"):
        load_program(image("hgemm_mma.sm_90a"), "nope", cache=folder)
