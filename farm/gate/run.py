"""Running a gate: both sides evaluated, judged, and the baseline's checkout removed whatever happens."""

from __future__ import annotations

import tempfile
from pathlib import Path

from farm.gate.baseline import checkout, read_baseline, stored_baseline, write_baseline
from farm.gate.config import Baseline, Gate, GateError
from farm.gate.evaluate import Evaluation, Side, evaluate
from farm.gate.judge import Result, judge


def parse_baseline(text: str, base: Path) -> Baseline:
    """`git:REF`, a .parquet file, or STORE#RUN; anything else is a git ref. Files are relative to `base`."""
    if text.startswith("git:"):
        return Baseline(git=text.removeprefix("git:"))
    if text.endswith(".parquet"):
        return Baseline(parquet=str((base / text).resolve()))
    store, separator, run = text.rpartition("#")
    if separator:
        return Baseline(store=store, run=run)
    if "://" in text:
        raise GateError(f"--baseline {text}: name the run as well: {text}#RUN")
    return Baseline(git=text)


def run_gate(gate: Gate, how: Evaluation, written: Path | None = None) -> Result | None:
    """The gate's result; with `written` the current estimates are written there as a baseline instead, and no result.

    Raises FarmError for what the user can put right, OSError for the machine's faults.
    """
    with tempfile.TemporaryDirectory(prefix="farm-gate-") as folder:
        scratch = Path(folder)
        if written is not None:
            write_baseline(written, evaluate(gate, gate.folder, scratch / "now", how), gate)
            return None
        if gate.baseline is None:
            raise GateError(
                f"{gate.path}: no baseline: give --baseline REF|FILE.parquet|STORE#RUN, or a section `baseline` with "
                "one of git, parquet, store"
            )
        before = _before(gate, gate.baseline, scratch, how)
        after = evaluate(gate, gate.folder, scratch / "now", how)
        return judge(gate, before, after)


def _before(gate: Gate, baseline: Baseline, scratch: Path, how: Evaluation) -> Side:
    if baseline.parquet is not None:
        side = read_baseline(gate.folder / baseline.parquet, gate)
        side.label = baseline.parquet
        return side
    if baseline.store is not None and baseline.run is not None:
        return stored_baseline(baseline.store, baseline.run, gate)
    assert baseline.git is not None
    with checkout(gate.folder.resolve(), baseline.git, scratch) as (folder, commit):
        side = evaluate(gate, folder, scratch / "before", how, lenient=True)
        side.label = f"{baseline.git} ({commit[:12]})"
        return side
