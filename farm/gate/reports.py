"""A gate's result for people and for other tools: text, Markdown, annotations, JSON, and benchmark formats."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from typing import Any

from farm.gate.judge import BROKEN, FASTER, MORE, OK, SLOWER, Result, Row
from farm.gate.junit import junit
from farm.gate.sarif import sarif

NOTE = "Times are simulated: estimates of the compiled code, not measurements."
_WORDS = {OK: "ok", SLOWER: "SLOWER", MORE: "MORE RESOURCES", BROKEN: "BROKEN", FASTER: "faster"}
_ORDER = {BROKEN: 0, SLOWER: 1, MORE: 2, FASTER: 3, OK: 4}
SUMMARY_ROWS = 200


def _clean(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _clean(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    return value


def as_json(result: Result) -> str:
    """Everything, as one object."""
    return json.dumps(_clean(result.as_dict()), indent=1, ensure_ascii=False) + "\n"


def ordered(result: Result) -> list[Row]:
    """Failures first, the largest slowdown first."""
    return sorted(result.rows, key=lambda row: (_ORDER[row.status], -(row.change or 0.0), row.name, row.target))


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def change_text(row: Row) -> str:
    return "-" if row.change is None else f"{100 * row.change:+.2f} %"


def headline(result: Result) -> str:
    """One sentence: how many failed of how many."""
    failed = [row for row in result.rows if row.failed]
    faster = sum(row.status == FASTER for row in result.rows)
    targets = len({row.target for row in result.rows})
    text = f"{len(failed)} of {len(result.rows)} comparisons on {targets} GPU{'s' if targets != 1 else ''} failed"
    text += f", {faster} faster" if faster else ""
    if result.mean_change is not None:
        text += f"; geometric mean {100 * result.mean_change:+.2f} %"
    return text + f" (against {result.baseline})"


def failure_text(row: Row) -> str:
    """One line: what failed, by how much, and why."""
    if row.status == BROKEN:
        return f"{row.name} on {row.target}: {row.message}"
    causes = ", ".join(row.causes) or "no cause found in the tables"
    if row.status == MORE:
        return f"{row.name} on {row.target}: {causes}"
    return (
        f"{row.name} on {row.target}: {_us(row.before_us)} → {_us(row.after_us)} us ({change_text(row)}, "
        f"{100 * row.allowed:g} % allowed): {causes}"
    )


def text(result: Result) -> str:
    """For a terminal or a log: failures with their causes, what became faster, and what was not compared."""
    out = []
    for row in ordered(result):
        if row.failed:
            out.append(f"{_WORDS[row.status]:14} {failure_text(row)}")
        elif row.status == FASTER:
            causes = f": {', '.join(row.causes)}" if row.causes else ""
            out.append(f"faster         {row.name} on {row.target}: {change_text(row)}{causes}")
        elif row.message:
            out.append(f"note           {row.name} on {row.target}: {row.message}")
    out += [f"FAILED         {failure}" for failure in result.failures]
    out += [f"note           {line}" for line in notes(result)]
    out.append(f"{'ok' if result.ok else 'FAILED'}: {headline(result)}. {NOTE}")
    return "\n".join(out) + "\n"


def notes(result: Result) -> list[str]:
    """What was not compared."""
    out = []
    for words, names in (("not in the baseline", result.new), ("only in the baseline", result.gone)):
        if names:
            out.append(f"{len(names)} {words}: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}")
    out += [f"fails on both sides: {name}" for name in result.unusable[:5]]
    out += [f"the baseline does not have {name}" for name in result.missing]
    return out


def summary(result: Result) -> str:
    """Markdown for a GitHub job summary or a pull request comment."""
    mark = ":white_check_mark:" if result.ok else ":x:"
    out = [f"## {mark} Simulated kernel times", "", headline(result) + ".", ""]
    rows = ordered(result)
    shown = [row for row in rows if row.status != OK or row.message] or rows[:10]
    if shown:
        out += ["| kernel | GPU | before us | now us | change | allowed | verdict | cause |"]
        out += ["| --- | --- | ---: | ---: | ---: | ---: | --- | --- |"]
    for row in shown[:SUMMARY_ROWS]:
        cells = [
            row.name,
            row.target,
            _us(row.before_us),
            _us(row.after_us),
            change_text(row),
            f"{100 * row.allowed:g} %",
        ]
        cells += [_WORDS[row.status], ", ".join(row.causes) or row.message]
        out.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    if len(shown) > SUMMARY_ROWS:
        out.append(f"\n... and {len(shown) - SUMMARY_ROWS} more")
    out += ["", *[f"- **{_cell(failure)}**" for failure in result.failures], *[f"- {_cell(n)}" for n in notes(result)]]
    return "\n".join([*out, "", NOTE, ""])


def _cell(value: str) -> str:
    """Text that cannot end the cell, begin HTML or call somebody."""
    for plain, safe in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("`", "\\`"), ("@", "&#64;"), ("\n", " ")):
        value = value.replace(plain, safe)
    return value


def workflow_commands(result: Result) -> str:
    """GitHub workflow commands: an error at each source line that a failure names."""
    out = []
    for row in ordered(result):
        if row.failed:
            place = [f"file={_property(row.file)}"] if row.file else []
            place += [f"line={row.line}"] if row.line else []
            place += [f"title={_property(f'{row.name} on {row.target}')}"]
            out.append(f"::error {','.join(place)}::{_data(failure_text(row))}")
    out += [f"::error title=farm gate::{_data(failure)}" for failure in result.failures]
    return "".join(line + "\n" for line in out)


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def benchmark_action(result: Result) -> str:
    """github-action-benchmark's `customSmallerIsBetter`: a list of name, unit, value."""
    rows = [
        {
            "name": f"{row.name} on {row.target}",
            "unit": "us (simulated)",
            "value": row.after_us,
            "extra": f"{_WORDS[row.status]}, {change_text(row)} against {result.baseline}",
        }
        for row in result.rows
        if row.after_us is not None
    ]
    if not rows:  # resources only: registers are what there is
        rows = [
            {"name": f"{row.name} on {row.target}", "unit": "registers", "value": row.after["registers"]}
            for row in result.rows
            if row.after["registers"] is not None
        ]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def bencher(result: Result) -> str:
    """Bencher Metric Format: benchmark -> measure -> value. `latency` is in nanoseconds, as Bencher has it."""
    out: dict[str, dict[str, dict[str, float]]] = {}
    for row in result.rows:
        measures: dict[str, dict[str, float]] = {}
        if row.after_us is not None:
            measures["latency"] = {"value": 1000.0 * row.after_us}
        for name, key in (("registers", "registers"), ("ctas-per-sm", "ctas_per_sm")):
            if row.after[key] is not None:
                measures[name] = {"value": float(row.after[key])}
        spills = (row.after["spill_store_bytes"] or 0) + (row.after["spill_load_bytes"] or 0)
        measures["spill-bytes"] = {"value": float(spills)}
        out[f"{row.name} on {row.target}"] = measures
    return json.dumps(out, indent=1, ensure_ascii=False) + "\n"


_FACTS = ("registers", "spill_store_bytes", "spill_load_bytes", "stack_bytes", "static_shared_bytes",
          "dynamic_shared_bytes", "ctas_per_sm", "occupancy", "limiter", "bound")  # fmt: skip


def table(result: Result) -> str:
    """CSV, a row a variant and target in the gate's order: times and resources before and now, to keep and to diff."""
    out = io.StringIO()
    names = [f"{name}_{side}" for name in _FACTS for side in ("before", "now")]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["kernel", "target", "status", "simulated_us_before", "simulated_us_now", *names])
    for row in result.rows:
        facts = [side[name] for name in _FACTS for side in (row.before, row.after)]
        writer.writerow([row.name, row.target, row.status, row.before_us, row.after_us, *facts])
    return out.getvalue()


FORMATS: dict[str, Callable[[Result], str]] = {
    "text": text,
    "json": as_json,
    "junit": junit,
    "sarif": sarif,
    "summary": summary,
    "annotations": workflow_commands,
    "benchmark-action": benchmark_action,
    "bencher": bencher,
    "csv": table,
}
