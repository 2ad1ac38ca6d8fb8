"""Structured logs of a run on stderr: a line an event, as JSON or as text, with the run's and the variant's ids."""

from __future__ import annotations

import datetime
import json
import logging
import sys
from typing import Any

from farm.events import Event, Telemetry
from farm.observability.redact import redacted

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
LOGGER = logging.getLogger("farm.run")

_EVENT_LEVELS = {
    "retried": logging.WARNING,
    "set_aside": logging.WARNING,
    "worker_lost": logging.WARNING,
    "node_lost": logging.WARNING,
    "warning": logging.WARNING,
    "worker_started": logging.DEBUG,
}
_json = False


def configure(form: str, level: str) -> None:
    """Log to stderr from now on, as `form` (text or json), what is at least as grave as `level`."""
    global _json
    _json = form == "json"
    for old in list(LOGGER.handlers):
        LOGGER.removeHandler(old)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLine() if _json else _TextLine())
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level.upper())
    LOGGER.propagate = False


def reset() -> None:
    """Log nothing any more."""
    global _json
    _json = False
    for old in list(LOGGER.handlers):
        LOGGER.removeHandler(old)


def complain(message: str) -> None:
    """The one message of a command that failed: a line of the log where stderr is one, plain text otherwise."""
    if _json:
        log(logging.ERROR, "error", message.removeprefix("error: "))
    else:
        print(redacted(message), file=sys.stderr)


def log(level: int, event: str, message: str = "", **fields: Any) -> None:
    """One line."""
    LOGGER.log(level, message, extra={"farm": {"event": event, **fields}})


class RunLog:
    """A listener of `submit`: every event of the run becomes a line."""

    def __call__(self, telemetry: Telemetry) -> None:
        run = telemetry.progress.run

        def hear(event: Event) -> None:
            log(_level(event, telemetry), event.kind, event.text, run=run, **_plain(event.fields))

        telemetry.listen(hear)


def _level(event: Event, telemetry: Telemetry) -> int:
    if event.kind == "variant_finished":
        return logging.INFO if event.fields.get("failure") is None else logging.WARNING
    if event.kind == "run_finished" and telemetry.progress.state == "failed":
        return logging.ERROR
    return _EVENT_LEVELS.get(event.kind, logging.INFO)


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """An event's fields as JSON can say them; estimated times are in the tables."""
    return {
        key: round(value, 6) if isinstance(value, float) else value
        for key, value in fields.items()
        if key != "times" and value not in (None, "")
    }


class _JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": _time(record), "level": record.levelname.lower()}
        line |= getattr(record, "farm", {})
        if record.getMessage():
            line["message"] = record.getMessage()
        return redacted(json.dumps(line, default=str))


class _TextLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "farm", {})
        text = " ".join(f"{key}={_word(value)}" for key, value in fields.items())
        message = " ".join(record.getMessage().split())
        return redacted(f"{_time(record)} {record.levelname.lower():7} {text}{': ' + message if message else ''}")


def _time(record: logging.LogRecord) -> str:
    moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _word(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return json.dumps(text) if " " in text or not text else text
