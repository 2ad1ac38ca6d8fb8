"""`--timeline` of `farm submit`, and the options that go with it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from interpreter.errors import FarmError

DEFAULT_RECORDS = 4_000_000  # timing.timeline's, which takes long to load: a test compares them
MOST_RECORDS = 64_000_000

TimelineOption = Annotated[
    bool,
    typer.Option("--timeline", help="Record each issued warp instruction of the last tier's estimates (large)."),
]
TimelineLimitOption = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_RECORDS, help="With --timeline: records an estimate may have (default: 4 million)."),
]
TimelineVariantsOption = Annotated[
    str | None, typer.Option(metavar="N,N-N", help="With --timeline: only of these variants.")
]
TimelineSmsOption = Annotated[
    str | None, typer.Option(metavar="N,N-N", help="With --timeline and the cycle tier: only of these SMs.")
]


def timeline_options(on: bool, limit: int | None, variants: str | None, sms: str | None) -> dict[str, Any]:
    """The fields of farm.submit_options.Options. Raises FarmError."""
    for name, value in (("limit", limit), ("variants", variants), ("sms", sms)):
        if value is not None and not on:
            raise FarmError(f"--timeline-{name} goes with --timeline")
    return {
        "timeline": (limit or DEFAULT_RECORDS) if on else 0,
        "timeline_variants": numbers_of("--timeline-variants", variants) if variants is not None else (),
        "timeline_sms": numbers_of("--timeline-sms", sms) if sms is not None else (),
    }


def numbers_of(option: str, text: str) -> tuple[int, ...]:
    """ "0,4-6" as 0, 4, 5, 6. Raises FarmError."""
    found: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        try:
            low = int(first)
            high = int(last) if dash else low
        except ValueError:
            raise FarmError(f"{option} {text}: numbers and ranges, as in 0,4-6") from None
        if not 0 <= low <= high or high - low > 1_000_000:
            raise FarmError(f"{option} {text}: {piece.strip()} is not a range of numbers")
        found += range(low, high + 1)
    return tuple(dict.fromkeys(found))
