"""`farm show`'s SASS table: the page's columns, also where the terminal is narrow."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console
from test_explain_words import line, variant

from farm.analysis.variant import Variant
from farm.sass_table import print_sass


def spilling() -> Variant:
    lines = [
        dataclasses.replace(line(0, "LDS R16, [R15]", selected=100), wavefronts=32000.0, wavefronts_ideal=1000.0),
        line(16, "STL [R1+0x8], R16", 1e5, short_scoreboard=5000),
        dataclasses.replace(line(32, "LDG.E R4, desc[UR4][R2.64]"), sectors=16000.0, sectors_ideal=4000.0),
        dataclasses.replace(line(48, "LDL R4, [R1+0x8]", 1e5), thread_executed=16e5),
        line(64, "FADD R5, R4, R16"),
        line(80, "EXIT"),
    ]
    return variant(lines, {"lsu": 0.9}, spill_store_bytes=4, spill_load_bytes=4)


def printed(width: int) -> list[str]:
    out = Console(file=io.StringIO(), width=width)
    print_sass(out, spilling())
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_the_page_s_columns() -> None:
    lines = printed(200)
    names = (
        "address", "stalls", "by reason", "executed", "lanes", "live", "SASS", "sect/req", "wavef/req", "conflicts",
        "main reasons",
    )  # fmt: skip
    head = next(text for text in lines if "address" in text)
    assert [name for name in names if name not in head] == []
    (shared,) = [text for text in lines if "LDS" in text]
    assert "32 / 1" in shared and "31.0 k" in shared
    (spill,) = [text for text in lines if "STL" in text]
    assert "STL [R1+0x8], R16  spill" in spill and "98.0 %" in spill and "short_scoreboard 100%" in spill
    (refill,) = [text for text in lines if "LDL" in text]
    assert "LDL R4, [R1+0x8]  refill" in refill and " 16 " in refill
    (load,) = [text for text in lines if "LDG" in text]
    assert "16 / 4" in load


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_narrow_terminal_goes_without_columns_rather_than_squeezing_them(width: int) -> None:
    lines = [text for text in printed(width) if "0x00" in text or "address" in text]
    assert all(len(text) <= width for text in lines) and len(lines) == 7
    assert "main reasons" not in lines[0] and "executed" in lines[0]
    assert "0x0010" in lines[2] and "98.0 %" in lines[2] and "STL" in lines[2]
    assert not any("…" in text.split("  S")[0] for text in lines[1:3])
