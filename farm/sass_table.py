"""A variant's SASS on the terminal, in colour: the columns of Nsight Compute's source page."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from farm.analysis.causes import CONFLICT, SCATTER, scatter_of, ways_of
from farm.analysis.variant import REASONS, Line, Variant

BAR = 16  # cells of the stall bar of the costliest line
SASS_COLUMNS = 72
# Okabe and Ito's colours, which stay apart for colour-blind people; the rest shares grey
COLOURS = {
    "selected": "#009e73",
    "not_selected": "#999999",
    "wait": "#56b4e9",
    "long_scoreboard": "#d55e00",
    "short_scoreboard": "#e69f00",
    "math_pipe_throttle": "#0072b2",
    "mio_throttle": "#cc79a7",
    "lg_throttle": "#882255",
    "barrier": "#f0e442",
}
_OTHER = "#777777"


def print_sass(console: Console, variant: Variant, measured: Mapping[int, float] | None = None) -> None:
    """The SASS table and a legend. `measured` maps addresses to their share of a profiler's samples, if any."""
    total = variant.total_cycles or 1.0
    largest = max((line.cycles for line in variant.lines), default=0.0) or 1.0
    lines = any(line.source_line for line in variant.lines)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("address", justify="right", no_wrap=True)
    if lines:
        table.add_column("line", justify="right", no_wrap=True, style="dim")
    table.add_column("stalls", justify="right", no_wrap=True)
    if measured is not None:
        table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("by reason", no_wrap=True, min_width=BAR)
    table.add_column("executed", justify="right", no_wrap=True)
    table.add_column("SASS", no_wrap=True)
    table.add_column("N-way", justify="right", no_wrap=True)
    table.add_column("sectors", justify="right", no_wrap=True)
    table.add_column("main reasons")
    for line in _without_padding(variant.lines):
        cells: list[str | Text] = [f"{line.pc:#06x}"]
        if lines:
            cells.append(str(line.source_line or ""))
        share = line.cycles / total
        cells.append(Text(f"{100 * share:.1f} %" if line.cycles else "", "bold" if share >= 0.05 else ""))
        if measured is not None:
            cells.append(f"{100 * measured[line.pc]:.1f} %" if measured.get(line.pc) else "")
        cells += [_bar(line, largest), f"{line.executed:.0f}", _sass(line), _ways(line), _sectors(line)]
        cells.append(_reasons(line) if share >= 0.005 else "")
        table.add_row(*cells)
    console.print(table)
    _legend(console, variant)


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


def _sass(line: Line) -> Text:
    style = "dim" if not line.executed else ""
    access = line.access
    if access is not None and line.executed:
        style = {"global": "cyan", "shared": "magenta", "local": "red"}[access.space]
    return Text(line.sass[:SASS_COLUMNS], style)


def _ways(line: Line) -> Text:
    if not line.wavefronts or not line.executed:
        return Text("")
    return Text(f"{line.wavefronts / line.executed:.3g}", "bold red" if ways_of(line) >= CONFLICT else "")


def _sectors(line: Line) -> Text:
    if not line.sectors or not line.executed:
        return Text("")
    return Text(f"{line.sectors / line.executed:.3g}", "bold red" if scatter_of(line) >= SCATTER else "")


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
    text.append("(warp-cycles, simulated; N-way: wavefronts a request, sectors: of 32 bytes a request)", "dim")
    console.print(text, soft_wrap=True)
