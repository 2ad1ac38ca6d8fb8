"""Kernel Tuner's cache files and T4 results: read as measurements, and T4 written from estimates.

Times in both are milliseconds unless T4's metadata say otherwise. A cache that was not closed, because tuning was
stopped, is read as far as it goes, as Kernel Tuner itself does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from farm.interchange.records import FAILURES, InterchangeError, Record, Records, finite, parse_json, spread_of, steady

T4_VERSION = "1.0.0"
_MICROSECONDS = {
    "s": 1e6, "seconds": 1e6, "ms": 1e3, "milliseconds": 1e3, "us": 1.0, "microseconds": 1.0, "ns": 1e-3,
    "nanoseconds": 1e-3,
}  # fmt: skip
# how a cache names configurations that did not run
_ERRORS = {"InvalidConfig": "constraints", "CompilationFailedConfig": "compile", "RuntimeFailedConfig": "runtime"}


def is_cache(data: Mapping[str, Any]) -> bool:
    return "cache" in data and "tune_params_keys" in data


def is_t4(data: Mapping[str, Any]) -> bool:
    return isinstance(data.get("results"), list) and "schema_version" in data


def closed(text: str) -> str:
    """The text of a cache with the brackets that an unfinished one lacks."""
    text = text.strip()
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return text.rstrip(",").rstrip() + "}\n}"
    return text


def read_cache(path: Path, text: str) -> Records:
    """A cache file. Raises InterchangeError."""
    data = parse_json(path, closed(text))
    keys, cache = data.get("tune_params_keys"), data.get("cache")
    if not isinstance(keys, list) or not isinstance(cache, dict):
        raise InterchangeError(
            f"{path}: not a cache of Kernel Tuner: needs a list tune_params_keys and an object cache"
        )
    objective = data.get("objective") or "time"
    records = []
    for name, entry in cache.items():
        place = f"{path}: cache[{name!r}]"
        if not isinstance(entry, dict):
            raise InterchangeError(f"{place}: should be an object")
        missing = [key for key in keys if key not in entry]
        if missing:
            raise InterchangeError(f"{place}: lacks the parameter {missing[0]}")
        record = Record(place, {key: entry[key] for key in keys})
        errors = [value for value in entry.values() if isinstance(value, str) and value.endswith("Config")]
        time = finite(entry.get("time"))
        if errors:
            record.failure = _ERRORS.get(errors[0], "runtime")
        elif time is None:
            raise InterchangeError(f"{place}: time: {entry.get('time')!r} is not a time")
        else:
            runs = [1e3 * value for one in entry.get("times") or [] if (value := finite(one)) is not None]
            record.time_us = 1e3 * time
            if runs:
                _, record.min_us, record.spread = spread_of(steady(runs))
            record.clock_mhz = finite(entry.get("core_freq"))
        records.append(record)
    objectives = objective if isinstance(objective, list) else [objective]  # Kernel Tuner 1.5 writes a list
    others = ", ".join(map(str, objectives))
    notes = [] if objectives == ["time"] else [f"tuned for {others}; the times are taken all the same"]
    return Records("Kernel Tuner cache", records, data.get("device_name"), data.get("kernel_name"), notes)


def read_t4(path: Path, text: str) -> Records:
    """T4 results. Raises InterchangeError."""
    data = parse_json(path, text)
    if not is_t4(data):
        raise InterchangeError(f"{path}: not T4: needs schema_version and a list results")
    about = data.get("metadata") if isinstance(data.get("metadata"), dict) else {}
    assert isinstance(about, dict)
    if about.get("simulated"):
        raise InterchangeError(f"{path}: holds simulated times, which are no measurements")
    unit = str(about.get("timeunit", "milliseconds"))
    if unit not in _MICROSECONDS:
        raise InterchangeError(f"{path}: metadata.timeunit: {unit!r} (one of {', '.join(_MICROSECONDS)})")
    records = [_t4_record(f"{path}: results[{i}]", entry, unit) for i, entry in enumerate(data["results"])]
    return Records("T4", records, about.get("device"), about.get("kernel"))


def _t4_record(place: str, entry: Any, unit: str) -> Record:
    if not isinstance(entry, dict) or not isinstance(entry.get("configuration"), dict):
        raise InterchangeError(f"{place}: needs an object configuration")
    record = Record(place, dict(entry["configuration"]))
    validity = entry.get("invalidity", "correct")
    if validity != "correct":
        if validity not in FAILURES:
            raise InterchangeError(f"{place}: invalidity: {validity!r} (one of correct, {', '.join(FAILURES)})")
        record.failure = validity
        return record
    times = entry.get("times") if isinstance(entry.get("times"), dict) else {}
    assert isinstance(times, dict)
    runs = [_MICROSECONDS[unit] * value for one in times.get("runtimes") or [] if (value := finite(one)) is not None]
    measured = {m.get("name"): m for m in entry.get("measurements") or [] if isinstance(m, dict)}
    time = measured.get("time")
    if time is not None and (value := finite(time.get("value"))) is not None:
        own = str(time.get("unit") or unit)
        if own not in _MICROSECONDS:
            raise InterchangeError(f"{place}: the unit of time is {own!r} (one of {', '.join(_MICROSECONDS)})")
        record.time_us = value * _MICROSECONDS[own]
    if runs:
        median, record.min_us, record.spread = spread_of(steady(runs))
        record.time_us = median if record.time_us is None else record.time_us
    if record.time_us is None:
        raise InterchangeError(f"{place}: neither a measurement called time nor times.runtimes gives a time")
    return record


def write_t4(rows: Sequence[Mapping[str, Any]], target: str, kernel: str, measured: bool) -> str:
    """T4 results of variants on one target.

    `rows` have parameters (a mapping), status, failure, time_us, compile_seconds, simulation_seconds and the columns
    that become further measurements. Times are in milliseconds; whether they are simulated is said in the metadata and
    with every time.
    """
    results = [_t4_result(row, measured) for row in rows]
    about = {
        "timeunit": "milliseconds",
        "simulated": not measured,
        "tool": "farm",
        "device": target,
        "kernel": kernel,
    }
    return json.dumps({"schema_version": T4_VERSION, "metadata": about, "results": results}, indent=1) + "\n"


def _t4_result(row: Mapping[str, Any], measured: bool) -> dict[str, Any]:
    good = row["status"] == "ok" and row["time_us"] is not None
    measurements: list[dict[str, Any]] = []
    if good:
        measurements.append({"name": "time", "value": row["time_us"] / 1e3, "unit": "ms"})
        measurements.append({"name": "provenance", "value": "measured" if measured else "simulated", "unit": ""})
        for name in ("registers", "occupancy", "bound", "spill_store_bytes", "spill_load_bytes", "cubin_sha"):
            if row.get(name) is not None:
                measurements.append({"name": name, "value": row[name], "unit": ""})
    compiled, simulated = row.get("compile_seconds") or 0.0, row.get("simulation_seconds") or 0.0
    return {
        "configuration": dict(row["parameters"]),
        "objectives": ["time"],
        "times": {
            "compilation": 1e3 * compiled,
            "benchmark": 0.0,
            "framework": 0.0 if measured else 1e3 * simulated,
            "search_algorithm": 0.0,
            "validation": 0.0,
            "runtimes": [row["time_us"] / 1e3] if good and measured else [],
        },
        "invalidity": "correct" if good else row["failure"] or "runtime",
        "correctness": 1 if good else 0,
        "measurements": measurements,
    }
