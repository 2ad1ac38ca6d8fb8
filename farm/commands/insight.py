"""Commands that look at results: show, explain, timeline, diff, gate, import, export."""

from __future__ import annotations

import typer

from farm.commands.diff import diff
from farm.commands.explain import explain
from farm.commands.export import export
from farm.commands.gate import gate
from farm.commands.import_ import import_
from farm.commands.show import show
from farm.commands.timeline import timeline


def register(app: typer.Typer) -> None:
    """Add them to the application."""
    app.command("show")(show)
    app.command("explain")(explain)
    app.command("timeline")(timeline)
    app.command("diff")(diff)
    app.command("gate")(gate)
    app.command("import")(import_)
    app.command("export")(export)
