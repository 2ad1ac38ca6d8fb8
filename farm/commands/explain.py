"""`farm explain`: a variant in plain words."""

from __future__ import annotations

import sys
import textwrap
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from farm.commands.names import FamilyOption, JsonOption, StoreOption, TargetOption, console, open_variant


def explain(
    variant: Annotated[str, typer.Argument(help="RUN:N, or the run's name followed by N.", metavar="RUN:N")],
    number: Annotated[int | None, typer.Argument(help="Number of the variant.", metavar="[N]")] = None,
    target: TargetOption = None,
    family: FamilyOption = None,
    json_output: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """What bounds a variant, its three costliest lines, and what would relieve them, each with its number."""
    from farm.analysis.explain import explain as explanation_of
    from farm.render import as_json

    explained = explanation_of(open_variant(variant, number, target, family, store))
    if json_output:
        sys.stdout.write(as_json(explained.as_dict()))
    else:
        print_explanation(console(), explained)


def print_explanation(out: Console, e: Any) -> None:
    """Text for people: the verdict, the costliest lines, then what would relieve them."""
    from farm.analysis.words import percent
    from farm.render import microseconds

    def say(text: str, style: str | None = None, indent: int = 0) -> None:
        margin = " " * indent
        width = out.width if out.is_terminal else 100_000  # a pipe gets whole sentences, for grep
        hanging = margin + "  " * text.startswith("- ")
        for piece in textwrap.wrap(text, width, initial_indent=margin, subsequent_indent=hanging):
            out.print(Text(piece, style=style or ""), highlight=False, soft_wrap=True)

    values = " ".join(f"{name}={value}" for name, value in e.parameters.items())
    measured = f", measured {microseconds(e.measured_us)} us" if e.measured_us is not None else ""
    out.print(
        f"[bold]{escape(e.run)}:{e.variant}[/bold] {escape(e.family)} on [bold]{escape(e.target)}[/bold] "
        f"{escape(values)}: "
        f"[bold]{microseconds(e.time_us)} us[/bold] simulated ({e.tier} tier, confidence {e.confidence}){measured}",
        highlight=False,
    )
    for sentence in e.summary:
        say(sentence, indent=2)
    if e.lines:
        out.print("\nCostliest lines (share of all warp-cycles, simulated)", style="bold")
        for place, line in enumerate(e.lines, 1):
            say(f"{place}. {percent(line.share):>5}  {line.place}  {line.sass}", "yellow", 2)
            say(line.text, indent=12)
            if line.relief:
                say(f"relief: {line.relief}", "green", 12)
    out.print("\nWhat costs time" if e.findings else "\nNothing else stands out in the tables.", style="bold")
    for finding in e.findings:
        say(f"- {finding.text}", indent=2)
        say(f"relief: {finding.relief}", "green", 4)
