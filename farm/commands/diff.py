"""`farm diff`: two variants, or two runs, compared."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from farm.commands.names import (
    FamilyOption,
    JsonOption,
    StoreOption,
    TargetOption,
    console,
    family_of,
    open_run,
    target_of,
)
from interpreter.errors import FarmError

if TYPE_CHECKING:
    from farm.analysis.compare import Comparison
    from farm.analysis.pairing import PairedRuns

STYLES = {"SLOWER": "bold red", "FASTER": "bold green", "SAME": "dim", "UNSURE": "yellow"}
SHOWN = 24  # changed SASS lines, unless --sass says all


def diff(
    a: Annotated[str, typer.Argument(help="RUN:N or RUN: what is compared with.", metavar="A")],
    b: Annotated[str, typer.Argument(help="RUN:N or RUN: what is judged.", metavar="B")],
    target: TargetOption = None,
    family: FamilyOption = None,
    sass: Annotated[
        bool, typer.Option("--sass", help="The whole aligned SASS, not the lines that changed most.")
    ] = False,
    json_output: JsonOption = False,
    store: StoreOption = None,
    store_b: Annotated[str | None, typer.Option("--store-b", help="Store of B, when it is another one.")] = None,
) -> None:
    """B against A: times on each target, resources, stall mix, and the SASS with renamed registers left out.

    Verdicts: SAME, FASTER, SLOWER, or UNSURE where the difference is smaller than the known error of the model.
    """
    from farm.analysis.pairing import common_targets, compare_runs, load_pair
    from farm.analysis.variant import split_name
    from farm.render import as_json

    (run_a, number_a), (run_b, number_b) = split_name(a), split_name(b)
    if (number_a is None) != (number_b is None):
        raise FarmError(f"{a} and {b}: compare two variants (RUN:N RUN:N) or two runs (RUN RUN)")
    first, second = open_run(run_a, store), open_run(run_b, store_b or store)
    if number_a is None or number_b is None:
        chosen = None if family is None else family_of(first, family)
        found = compare_runs(first, second, chosen, target_of(first, target))
        if json_output:
            sys.stdout.write(as_json(_runs_as_dict(found)))
        else:
            _print_runs(console(), run_a, run_b, found)
        return
    from farm.analysis.compare import compare

    family_a, family_b = family_of(first, family), family_of(second, family)
    wanted = target_of(first, target)
    both = common_targets(first, family_a, number_a, second, family_b, number_b)
    if wanted is not None and wanted not in both:
        raise FarmError(f"target {wanted}: {a} and {b} have both estimates only for {', '.join(both)}")
    chosen_targets = [wanted] if wanted is not None else both
    pairs = [load_pair(first, family_a, number_a, second, family_b, number_b, name) for name in chosen_targets]
    comparisons = [compare(*pair) for pair in pairs]
    if json_output:
        sys.stdout.write(as_json([comparison.as_dict() for comparison in comparisons]))
    else:
        _print_variants(console(), comparisons, sass)


def _print_variants(out: Console, comparisons: list[Comparison], everything: bool) -> None:
    from farm.analysis.compare import change_words
    from farm.render import microseconds

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="B against A, times simulated", title_justify="left")
    measured = any(c.measured_a_us is not None and c.measured_b_us is not None for c in comparisons)
    for name in ("target", f"A {comparisons[0].a} us", f"B {comparisons[0].b} us", "change", "verdict", "sure from"):
        table.add_column(name, justify="left" if name in ("target", "verdict") else "right", overflow="fold")
    facts = [name for name in ("registers", "spill B", "occupancy") if any(_fact(c, name) for c in comparisons)]
    for name in facts:
        table.add_column(name, justify="right")
    if measured:
        table.add_column("measured change", justify="right")
    for c in comparisons:
        cells: list[Any] = [
            c.target,
            microseconds(c.time_a_us),
            microseconds(c.time_b_us),
            f"{100 * (c.ratio - 1):+.1f} %",
        ]
        cells += [Text(c.judgement.verdict, STYLES[c.judgement.verdict]), f"{100 * c.judgement.threshold:g} %"]
        cells += [_fact(c, name) for name in facts]
        if measured:
            real = c.measured_b_us / c.measured_a_us - 1 if c.measured_a_us and c.measured_b_us else None
            cells.append("-" if real is None else f"{100 * real:+.1f} %")
        table.add_row(*cells)
    out.print(table)
    c = comparisons[0]
    _say(out, f"On {c.target}: B is {change_words(c)}: {c.judgement.verdict} ({c.judgement.basis}).")
    for cause in c.causes:
        _say(out, f"  {cause}")
    _print_changes(out, c)
    _print_sass(out, c, everything)


def _fact(c: Comparison, name: str) -> str:
    """A resource of both sides on one target, "" where neither has any."""

    def of(side: dict[str, Any]) -> str:
        if name == "occupancy":
            return "-" if side["occupancy"] is None else f"{100 * side['occupancy']:.0f} %"
        if name == "spill B":
            return str((side["spill_store_bytes"] or 0) + (side["spill_load_bytes"] or 0))
        return "-" if side["registers"] is None else str(side["registers"])

    a, b = of(c.resources_a), of(c.resources_b)
    if {a, b} == {"0"}:
        return ""
    return a if a == b else f"{a} → {b}"


def _print_changes(out: Console, c: Comparison) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, justify in (("", "left"), ("A", "right"), ("B", "right"), ("change", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for change in c.resources:
        numbers = isinstance(change.before, int | float) and isinstance(change.after, int | float)
        delta = ""
        if numbers:
            difference = change.after - change.before
            delta = f"{difference:+.3g}" if isinstance(difference, float) else f"{difference:+d}"
        table.add_row(change.name, _value(change.before), _value(change.after), delta)
    for change in c.stalls:
        if abs(change.after - change.before) >= 0.01:
            points = f"{100 * (change.after - change.before):+.1f} points"
            table.add_row(f"stall {change.name}", f"{100 * change.before:.1f} %", f"{100 * change.after:.1f} %", points)
    if table.row_count:
        out.print(table)


def _print_sass(out: Console, c: Comparison, everything: bool) -> None:
    changed = [line for line in c.lines if line.kind != "same"]
    if not changed and not everything:
        _say(out, "SASS: the same but for names of registers.")
        return
    removed = sum(line.kind == "removed" for line in changed)
    _say(
        out, f"SASS: {removed} lines only in A, {len(changed) - removed} only in B, {100 * c.similarity:.0f} % in both."
    )
    shown = c.lines if everything else sorted(changed, key=lambda line: -abs(line.delta_us))[:SHOWN]
    kept = {id(line) for line in shown}
    for line in c.lines:
        if id(line) not in kept:
            continue
        mark = {"same": " ", "removed": "-", "added": "+"}[line.kind]
        executed = line.executed_b if line.executed_b is not None else line.executed_a
        text = f"{mark} {line.place:>24}  {line.delta_us:+9.2f} us  x{executed or 0:<12.0f} {line.sass}"
        out.print(Text(text, {"-": "red", "+": "green"}.get(mark, "")), highlight=False, soft_wrap=True)
    if not everything and len(changed) > SHOWN:
        _say(out, f"  ... {len(changed) - SHOWN} more changed lines (--sass shows all)")


def _runs_as_dict(found: PairedRuns) -> dict[str, Any]:
    rows = []
    for (family, parameters, target), c in found.comparisons:
        row = {key: value for key, value in c.as_dict().items() if key != "lines"}
        rows.append({"family": family, "parameters": dict(parameters), "target": target, **row})
    return {
        "simulated": True,
        "verdicts": _counts(found),
        "geometric_mean_ratio": _mean(found),
        "only_in_a": found.only_a,
        "only_in_b": found.only_b,
        "fails_only_in_a": [_label(key) for key in found.failed_a],
        "fails_only_in_b": [_label(key) for key in found.failed_b],
        "variants": rows,
    }


def _print_runs(out: Console, a: str, b: str, found: PairedRuns) -> None:
    from farm.render import microseconds

    title = f"{b} against {a}, times simulated"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold")
    for name, justify in (
        ("family", "left"), ("variant", "left"), ("target", "left"), ("A us", "right"), ("B us", "right"),
        ("change", "right"), ("verdict", "left"), ("sure from", "right"), ("causes", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for (family, parameters, target), c in sorted(found.comparisons, key=lambda pair: -abs(math.log(pair[1].ratio))):
        table.add_row(
            family,
            " ".join(f"{name}={value}" for name, value in parameters),
            target,
            microseconds(c.time_a_us),
            microseconds(c.time_b_us),
            f"{100 * (c.ratio - 1):+.1f} %",
            Text(c.judgement.verdict, STYLES[c.judgement.verdict]),
            f"{100 * c.judgement.threshold:g} %",
            Text("; ".join(c.causes[:3])),
        )
    if found.comparisons:
        out.print(table)
        counts = ", ".join(f"{count} {name}" for name, count in _counts(found).items() if count)
        _say(out, f"{counts}; geometric mean of B/A {_mean(found):.4f}.")
    for words, keys in (("A", found.failed_a), ("B", found.failed_b)):
        for key in keys:
            _say(out, f"fails only in {words}: {_label(key)}")
    if found.only_a or found.only_b:
        _say(out, f"{found.only_a} variants are only in A, {found.only_b} only in B.")


def _counts(found: PairedRuns) -> dict[str, int]:
    from farm.analysis.verdict import Verdict

    return {str(v): sum(c.judgement.verdict == v for _, c in found.comparisons) for v in Verdict}


def _mean(found: PairedRuns) -> float:
    logs = [math.log(c.ratio) for _, c in found.comparisons]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _label(key: tuple[str, tuple[tuple[str, int], ...], str]) -> str:
    family, parameters, target = key
    return f"{family} {' '.join(f'{name}={value}' for name, value in parameters)} on {target}"


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "-" if value is None else str(value)


def _say(out: Console, text: str) -> None:
    out.print(Text(text), highlight=False, soft_wrap=True)
