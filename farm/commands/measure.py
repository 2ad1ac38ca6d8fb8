"""`farm measure`: real times of a sweep's variants on this machine's GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from interpreter.errors import FarmError


def measure(
    sweep: Annotated[Path, typer.Argument(help="sweep.yaml, or its folder.", metavar="SWEEP")],
    gpu: Annotated[str, typer.Option("--gpu", help="Target that this machine's GPU is, e.g. h200.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV to write (default: TARGET.csv beside the sweep).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="That many variants, spread over the sweep.")] = None,
) -> None:
    """Measure a sweep's variants on the GPU of this machine; the CSV is what `measured:` in a sweep.yaml names."""
    from farm.measure import measure_sweep

    outcome = measure_sweep(sweep, gpu, out, limit, log=lambda line: print(line, file=sys.stderr))
    print(f"{outcome.path}: {outcome.rows} variants measured, {outcome.failed} of them without a time")
    if outcome.wrong:
        numbers = ", ".join(map(str, outcome.wrong))
        raise FarmError(f"results differ from the first variant's by more than rounding: variants {numbers}")
