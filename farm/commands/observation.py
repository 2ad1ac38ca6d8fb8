"""Options by which a run lets the outside see it (`--metrics`, `--log-format`, `--log-level`), and what they do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.console import Console

from farm.events import Telemetry
from interpreter.errors import FarmError

MetricsOption = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        envvar="FARM_METRICS",
        metavar="[HOST:]PORT",
        help="Serve Prometheus metrics meanwhile, on 127.0.0.1 unless HOST says otherwise (off by default).",
    ),
]
LogFormatOption = Annotated[
    str,
    typer.Option("--log-format", envvar="FARM_LOG_FORMAT", help="What stderr gets: text, or json (a line an event)."),
]
LogLevelOption = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        envvar="FARM_LOG_LEVEL",
        help="Log lines from this level on: debug, info, warning, error (json: info; text: none, only the usual).",
    ),
]


@dataclass(slots=True)
class Observation:
    """How a run is to be observed, as asked for on the command line."""

    metrics: str | None = None
    log_format: str = "text"
    log_level: str | None = None
    listeners: list[Callable[[Telemetry], None]] = field(default_factory=list)

    @property
    def lines_only(self) -> bool:
        """Whether stderr is for log lines alone."""
        return self.log_format == "json"

    def __post_init__(self) -> None:
        from farm.observability.logs import FORMATS, LEVELS

        if self.log_format not in FORMATS:
            raise FarmError(f"--log-format {self.log_format}: one of {', '.join(FORMATS)}")
        if self.log_level is not None and self.log_level not in LEVELS:
            raise FarmError(f"--log-level {self.log_level}: one of {', '.join(LEVELS)}")
        if self.metrics is not None:
            from farm.observability.metrics import parse_address

            parse_address(self.metrics)
        if self.lines_only:  # from now on, also for what is wrong with the input
            from farm.observability import logs

            logs.configure("json", self.log_level or "info")

    def say(self, console: Console, text: str) -> None:
        """Something for the user: on the console, or in the log where there is none."""
        if self.lines_only:
            import logging

            from farm.observability.logs import log

            log(logging.INFO, "note", text)
        else:
            console.print(f"  {text}", highlight=False, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def active(self, console: Console) -> Iterator[Observation]:
        """Logs and metrics on, meanwhile. Raises MetricsError when the address cannot be had."""
        from farm.observability import logs

        with contextlib.ExitStack() as stack:
            if self.lines_only or self.log_level is not None:
                logs.configure(self.log_format, self.log_level or "info")
                self.listeners.append(logs.RunLog())
            if self.metrics is not None:
                try:
                    from farm.observability.metrics import RunMetrics, is_loopback, served
                except ImportError as error:
                    raise FarmError(f"--metrics: pip install 'farm[metrics]' ({error})") from None

                metrics = RunMetrics()
                self.listeners.append(metrics)
                host, port = stack.enter_context(served(metrics.registry, self.metrics))
                shown = f"[{host}]" if ":" in host else host
                reach = "" if is_loopback(host) else ", to whoever reaches this machine: there is no password"
                self.say(console, f"metrics: http://{shown}:{port}/metrics{reach}")
            yield self
