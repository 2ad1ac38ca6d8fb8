"""A variant's SASS on the terminal, in colour: the columns of the page (docs/page.md), which are Nsight Compute's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from farm.analysis.causes import CONFLICT, SCATTER, ideal_sectors, ideal_wavefronts, scatter_of, ways_of
from farm.analysis.variant import REASONS, Line, Variant
from farm.analysis.words import amount
from farm.page.code import analyse

BAR = 16  # cells of the stall bar of the costliest line
SASS_COLUMNS = 72
GAP = 3  # between columns
SASS_NEEDED = 36  # columns of code that a narrow terminal shows at least
# Okabe and Ito's colours, which stay apart for colour-blind people, as the page has them; the rest shares grey
COLOURS = {
    "selected": "#aab6c3",
    "not_selected": "#7a8797",
    "wait": "#8fa3b8",
    "no_instruction": "#f0e442",
    "branch_resolving": "#d55e00",
    "math_pipe_throttle": "#e69f00",
    "mio_throttle": "#009e73",
    "lg_throttle": "#9fd0ee",
    "short_scoreboard": "#56b4e9",
    "long_scoreboard": "#0072b2",
    "barrier": "#cc79a7",
}
_OTHER = "#777777"
_SPILLS = {1: "spill", 2: "refill"}  # as Listing.local_accesses numbers them


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its cell of a row, and whether a terminal that is too narrow goes without it (the highest first)."""

    name: str
    cell: Callable[[int, Line], str | Text]
    right: bool = True
    dispensable: int = 0
    style: str = ""


def print_sass(console: Console, variant: Variant, measured: Mapping[int, float] | None = None) -> None:
    """The SASS table and a legend. `measured` maps addresses to their share of a profiler's samples, if any."""
    lines = _without_padding(variant.lines)
    columns = _columns(variant, lines, measured)
    texts = [[_text(column.cell(row, line)) for column in columns] for row, line in enumerate(lines)]
    widths = [max([len(column.name), *(cells[k].cell_len for cells in texts)]) for k, column in enumerate(columns)]
    kept = list(range(len(columns)))
    room = console.width - 2
    needed = [min(w, SASS_NEEDED) if c.name == "SASS" else w for c, w in zip(columns, widths, strict=True)]
    for k in sorted(kept, key=lambda k: -columns[k].dispensable):
        if columns[k].dispensable and sum(needed[n] + GAP for n in kept) > room:
            kept.remove(k)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for k in kept:
        column = columns[k]
        justify: JustifyMethod = "right" if column.right else "left"
        # what is left is the code's: cut off rather than squeezing every number
        others = sum(widths[n] + GAP for n in kept if n != k)
        width = min(widths[k], max(20, room - others - GAP)) if column.name == "SASS" else widths[k]
        table.add_column(column.name, justify=justify, no_wrap=True, width=width, style=column.style or None)
    for cells in texts:
        table.add_row(*(cells[k] for k in kept))
    console.print(table)
    _legend(console, variant)


def _text(cell: str | Text) -> Text:
    return Text(cell) if isinstance(cell, str) else cell


def _columns(variant: Variant, lines: list[Line], measured: Mapping[int, float] | None) -> list[_Column]:
    """The columns that this variant has something to show in."""
    total = variant.total_cycles or 1.0
    largest = max((line.cycles for line in lines), default=0.0) or 1.0
    words = [line.control for line in variant.lines]
    known = [word for word in words if word is not None]
    listing = analyse([line.sass for line in variant.lines], known if len(known) == len(words) else None)
    live, local = listing.live_registers(), listing.local_accesses()
    spilled = bool(variant.row["spill_store_bytes"] or variant.row["spill_load_bytes"])

    def share(_row: int, line: Line) -> Text:
        bold = "bold" if line.cycles / total >= 0.05 else ""
        return Text(f"{100 * line.cycles / total:.1f} %" if line.cycles else "", bold)

    columns = [_Column("address", lambda _, line: f"{line.pc:#06x}")]
    if any(line.source_line for line in lines):
        columns.append(_Column("line", lambda _, line: str(line.source_line or ""), style="dim"))
    columns.append(_Column("stalls", share))
    if measured is not None:
        columns.append(
            _Column("measured", lambda _, line: f"{100 * measured[line.pc]:.1f} %" if measured.get(line.pc) else "")
        )
    columns.append(_Column("by reason", lambda _, line: _bar(line, largest), right=False, dispensable=2))
    columns.append(_Column("executed", lambda _, line: f"{line.executed:.0f}"))
    if any(line.executed and line.thread_executed and line.lanes < 31.95 for line in lines):
        columns.append(_Column("lanes", lambda _, line: f"{line.lanes:.3g}" if line.executed else "", dispensable=3))
    columns.append(_Column("live", lambda row, _: str(live[row] or ""), dispensable=4))
    columns.append(
        _Column("SASS", lambda row, line: _sass(line, _SPILLS.get(local[row], "") if spilled else ""), right=False)
    )
    if any(line.sectors for line in lines):
        columns.append(_Column("sect/req", lambda _, line: _sectors(line)))
    if any(line.wavefronts for line in lines):
        columns.append(_Column("wavef/req", lambda _, line: _ways(line)))
    if any(_conflicts(line) for line in lines):
        columns.append(_Column("conflicts", lambda _, line: _conflict_count(line), dispensable=5))
    columns.append(
        _Column(
            "main reasons",
            lambda _, line: _reasons(line) if line.cycles / total >= 0.005 else "",
            right=False, dispensable=6,
        )
    )  # fmt: skip
    return columns


def _without_padding(lines: list[Line]) -> list[Line]:
    """The lines up to the last that is no NOP: what follows pads the code to a whole cache line."""
    last = max((i for i, line in enumerate(lines) if line.sass.strip() != "NOP"), default=-1)
    return lines[: last + 1]


def _bar(line: Line, largest: float) -> Text:
    """Cells in the reasons' colours, as long as the line's cycles; largest remainders fill up."""
    cells = round(BAR * line.cycles / largest)
    if line.cycles <= 0 or cells == 0:
        return Text("")
    shares = [float(value) / line.cycles * cells for value in line.stalls]
    counts = [int(share) for share in shares]
    for reason in sorted(range(len(shares)), key=lambda r: -(shares[r] - counts[r]))[: cells - sum(counts)]:
        counts[reason] += 1
    bar = Text()
    for reason in sorted(range(len(counts)), key=lambda r: -line.stalls[r]):
        bar.append("█" * counts[reason], COLOURS.get(REASONS[reason], _OTHER))
    return bar


def _sass(line: Line, spill: str) -> Text:
    style = "dim" if not line.executed else ""
    access = line.access
    if access is not None and line.executed:
        style = {"global": "cyan", "shared": "magenta", "local": "red"}[access.space]
    text = Text(line.sass[:SASS_COLUMNS], style)
    return text.append(f"  {spill}", "bold red") if spill else text


def _ways(line: Line) -> Text:
    if not line.wavefronts or not line.executed:
        return Text("")
    return _ratio(line.wavefronts / line.executed, ideal_wavefronts(line), ways_of(line) >= CONFLICT)


def _sectors(line: Line) -> Text:
    if not line.sectors or not line.executed:
        return Text("")
    return _ratio(line.sectors / line.executed, ideal_sectors(line), scatter_of(line) >= SCATTER)


def _ratio(value: float, ideal: float, too_much: bool) -> Text:
    """A count a request, with what it would be without waste behind a slash where there is waste."""
    text = Text(f"{value:.3g}", "bold red" if too_much else "")
    return text.append(f" / {ideal:.3g}", "dim") if too_much and ideal else text


def _conflict_count(line: Line) -> Text:
    return Text(amount(_conflicts(line)) if _conflicts(line) else "", "bold red")


def _conflicts(line: Line) -> float:
    """Wavefronts that bank conflicts add, of the whole grid."""
    ways = ways_of(line)
    return round(line.wavefronts * (1 - 1 / ways)) if ways > 1 else 0.0


def _reasons(line: Line) -> str:
    order = sorted(range(len(REASONS)), key=lambda r: (-line.stalls[r], r))[:3]
    named = [(REASONS[r], line.stalls[r] / line.cycles) for r in order if line.cycles]
    return ", ".join(f"{name} {100 * share:.0f}%" for name, share in named if share >= 0.1)


def _legend(console: Console, variant: Variant) -> None:
    mix = variant.mix()
    if not mix:
        return
    text = Text("  ")
    for reason, share in mix.items():
        if share >= 0.005:
            text.append("█ ", COLOURS.get(reason, _OTHER))
            text.append(f"{reason} {100 * share:.1f} %   ")
    text.append(
        "(warp-cycles, simulated; live: registers held; sectors and wavefronts a request / without waste)",
        "dim",
    )
    console.print(text, soft_wrap=True)
