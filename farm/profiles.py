"""Nsight Compute's source page as exported to CSV: stall samples a SASS line, and how estimates agree with them."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from interpreter.errors import FarmError
from timing.stalls import N_STALLS, NSIGHT_SHORT, STALLS

TOP_LINES = 5
_NAME = re.compile(r"profile\.(\d+)\.csv(\.gz)?$")


class ProfileError(FarmError):
    """A file that is not a source page in CSV."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How an estimate's warp-cycles lie against a profile's stall samples.

    `top_lines`: share of the profile's TOP_LINES most sampled lines that are among the estimate's. `reason_distance`:
    total variation distance of the two mixes of reasons, 0 (the same) to 1 (nothing in common).
    """

    top_lines: float
    reason_distance: float


def profiles_of(folder: Path) -> Iterator[tuple[int, Path]]:
    """(variant number, file) of the files `*profile.N.csv[.gz]` in a folder, by number."""
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.search(path.name))]
    yield from sorted(found)


def read_profile(path: Path) -> np.ndarray:
    """Stall samples, shape (lines, N_STALLS), columns in the order of STALLS. Raises ProfileError."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProfileError(f"{path}: cannot be read: {error}") from None
    header = next((i for i, row in enumerate(rows) if "Source" in row), None)
    if header is None:
        raise ProfileError(f"{path}: no row of column names with 'Source': not Nsight Compute's source page in CSV")
    columns = {name: place for place, name in enumerate(rows[header])}
    body = [row for row in rows[header + 1 :] if len(row) == len(rows[header])]
    out = np.zeros((len(body), N_STALLS))
    known = False
    for stall in STALLS:
        place = columns.get(f"stall_{NSIGHT_SHORT[stall]}")
        if place is not None:
            known = True
            out[:, stall] = [int(row[place]) if row[place].isdigit() else 0 for row in body]
    if not known:
        raise ProfileError(f"{path}: no stall columns (stall_wait, stall_long_sb, ...)")
    return out


def agreement(estimated: np.ndarray, sampled: np.ndarray) -> Agreement | None:
    """Compare warp-cycles with samples, both (lines, N_STALLS); None when either is empty."""
    lines = min(len(estimated), len(sampled))
    a, b = np.asarray(estimated[:lines], float), np.asarray(sampled[:lines], float)
    if a.sum() <= 0 or b.sum() <= 0:
        return None
    wanted = np.argsort(-b.sum(1), kind="stable")[:TOP_LINES]
    ours = np.argsort(-a.sum(1), kind="stable")[:TOP_LINES]
    mix_a, mix_b = a.sum(0) / a.sum(), b.sum(0) / b.sum()
    return Agreement(
        len(set(wanted.tolist()) & set(ours.tolist())) / len(wanted), float(np.abs(mix_a - mix_b).sum() / 2.0)
    )
