"""Finding the variants of a run that records of another tool stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from farm.database import RunDatabase
from farm.interchange.records import InterchangeError, Record, Records
from farm.measured import MAX_SPREAD

MIN_REGISTERS = 16  # that the driver gives a thread, as Nsight Compute shows


@dataclass(slots=True)
class Matched:
    """Rows for the table `measurements`, and what was left over."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    failed: int = 0  # the configuration did not run
    unmatched: list[str] = field(default_factory=list)  # no variant of the run


def match(
    database: RunDatabase,
    family: str,
    target: str,
    found: Records,
    source: str,
    rename: Mapping[str, str],
    l2: str | None,
) -> Matched:
    """Rows of measured times for `family` on `target`. `rename` maps the tool's parameter names to the sweep's.

    Raises InterchangeError when a record fits several variants, two records fit the same, or nothing fits at all.
    """
    variants = database.rows(
        "SELECT variant, parameters, grid_dim, block_dim, registers, static_shared_bytes, dynamic_shared_bytes, kernel "
        "FROM variants WHERE family = ? AND target = ? ORDER BY variant",
        [family, target],
    )
    names = [name for name, _ in variants[0]["parameters"]] if variants else []
    out = Matched()
    seen: dict[int, Record] = {}
    for record in found.records:
        fitting = _fitting(record, variants, names, rename)
        if not fitting:
            out.unmatched.append(record.place)
            continue
        if len(fitting) > 1:
            raise InterchangeError(
                f"{record.place}: fits {len(fitting)} variants ({', '.join(map(str, fitting[:5]))}, ...): what it "
                "gives does not tell them apart; name one with --variant"
            )
        number = fitting[0]
        if number in seen:
            raise InterchangeError(f"{record.place}: variant {number} again (first: {seen[number].place})")
        seen[number] = record
        if record.failure is not None or record.time_us is None:
            out.failed += 1
            continue
        out.rows.append(
            {
                "family": family,
                "variant": number,
                "target": target,
                "time_us": record.time_us,
                "min_us": record.min_us,
                "spread": record.spread,
                "used": record.spread is None or record.spread <= MAX_SPREAD,
                "l2": l2,
                "clock_mhz": record.clock_mhz,
                "source": f"{found.kind}: {source}",
            }
        )
    if not seen:
        example = found.records[0].configuration or found.records[0].launch if found.records else {}
        has = ", ".join(f"{name}={value}" for name, value in example.items())
        raise InterchangeError(
            f"{source}: none of its {len(found.records)} records fits a variant of {family} on {target}. The first has "
            f"{has or 'nothing'}; the run's parameters are {', '.join(names) or 'none'} (--rename THEIRS=OURS)"
        )
    return out


def _fitting(
    record: Record, variants: Sequence[Mapping[str, Any]], names: Sequence[str], rename: Mapping[str, str]
) -> list[int]:
    """Numbers of the variants a record may stand for."""
    if record.variant is not None:
        return [v["variant"] for v in variants if v["variant"] == record.variant]
    if record.configuration:
        given = {rename.get(name, name): value for name, value in record.configuration.items()}
        missing = [name for name in names if name not in given]
        if missing:
            raise InterchangeError(
                f"{record.place}: has no parameter {missing[0]} (it has {', '.join(given)}; the run's are "
                f"{', '.join(names)}); rename with --rename THEIRS={missing[0]}"
            )
        wanted = {name: _integer(given[name]) for name in names}
        return [v["variant"] for v in variants if dict(v["parameters"]) == wanted]
    known = {name: value for name, value in record.launch.items() if name != "kernel"}
    if not known:
        return [v["variant"] for v in variants]
    return [v["variant"] for v in variants if all(_same(name, v[name], value) for name, value in known.items())]


def _same(name: str, ours: Any, theirs: Any) -> bool:
    if ours is not None and name == "registers":  # a launch has at least MIN_REGISTERS, whatever the cubin says
        return bool(max(ours, MIN_REGISTERS) == max(theirs, MIN_REGISTERS))
    return bool(ours is None or ours == theirs)


def _integer(value: Any) -> int | None:
    """Parameters are integers here; 64.0, "64" and true count as such."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number == int(number) else None
