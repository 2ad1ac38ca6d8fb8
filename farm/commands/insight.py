"""Commands that look at results: show, explain, diff, gate, import, export."""

from __future__ import annotations

import typer

from farm.commands.diff import diff
from farm.commands.explain import explain
from farm.commands.gate import gate
from farm.commands.show import show


def register(app: typer.Typer) -> None:
    """Add them to the application."""
    for name, command in (("show", show), ("explain", explain), ("diff", diff), ("gate", gate)):
        app.command(name)(command)
