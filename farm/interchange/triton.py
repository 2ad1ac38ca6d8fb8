"""Triton's `KERNEL.autotune.json`: read as measurements, and written from estimates.

The file holds the tuning key and pairs of a configuration with its timing: milliseconds, one number or the median with
the 20 % and 80 % quantiles; infinite for a configuration that does not run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from farm.interchange.records import InterchangeError, Record, Records, finite, parse_json

# attributes of a configuration besides its keyword arguments, with Triton's defaults
OPTIONS: dict[str, int | None] = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None}


def is_autotune(data: Mapping[str, Any]) -> bool:
    return "configs_timings" in data


def read_autotune(path: Path, text: str) -> Records:
    """Raises InterchangeError."""
    data = parse_json(path, text)
    pairs = data.get("configs_timings")
    if not isinstance(pairs, list):
        raise InterchangeError(f"{path}: not Triton's: needs a list configs_timings")
    if data.get("simulated"):
        raise InterchangeError(f"{path}: holds simulated times, which are no measurements")
    records = []
    for i, pair in enumerate(pairs):
        place = f"{path}: configs_timings[{i}]"
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], dict):
            raise InterchangeError(f"{place}: should be a pair of a configuration and its timing")
        config, timing = pair
        configuration = dict(config.get("kwargs") or {})
        configuration |= {name: config.get(name, default) for name, default in OPTIONS.items()}
        record = Record(place, {name: value for name, value in configuration.items() if value is not None})
        median = timing[0] if isinstance(timing, list) and timing else timing
        time = finite(median)
        if time is None:
            record.failure = "runtime"
        else:
            record.time_us = 1e3 * time
        records.append(record)
    kernel = path.name.removesuffix(".autotune.json") if path.name.endswith(".autotune.json") else None
    return Records("Triton autotune cache", records, None, kernel)


def write_autotune(rows: Sequence[Mapping[str, Any]], key: Sequence[Any], measured: bool) -> str:
    """The file for variants of one problem on one target. `rows` as in `kernel_tuner.write_t4`, with block_dim.

    A failed variant's timing is infinite, as Triton writes it. Triton reads `configs_timings` alone; `simulated` is
    there for people and for `farm import`, which refuses it.
    """
    pairs: list[Any] = []
    for row in rows:
        parameters = dict(row["parameters"])
        config: dict[str, Any] = {"kwargs": {k: v for k, v in parameters.items() if k not in OPTIONS}}
        config.update(OPTIONS)
        config["num_warps"] = _warps(row)
        config |= {name: parameters[name] for name in OPTIONS if name in parameters}
        good = row["status"] == "ok" and row["time_us"] is not None
        time = row["time_us"] / 1e3 if good else float("inf")
        pairs.append([{**config, "pre_hook": None}, [time, time, time]])
    return json.dumps({"key": list(key), "configs_timings": pairs, "simulated": not measured}, indent=1) + "\n"


def _warps(row: Mapping[str, Any]) -> int:
    threads = 1
    for part in row["block_dim"].split("x"):
        threads *= int(part)
    return -(-threads // 32)
