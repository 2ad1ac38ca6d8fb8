"""Statistics that SQL has no fast form for. `farm/database.py` makes them functions of the queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TIE = 1e-9  # relative: scores closer than that are the same


def kendall_tau(scores: Sequence[float], measured: Sequence[float], noise: Sequence[float]) -> float | None:
    """Kendall's tau-b of scores against measured times, both smaller when better, in O(n log n) steps.

    Two measured times are tied when the intervals `measured` +- `noise` overlap. None when all of them are: nothing to
    order. A model that gives all the same score orders nothing: 0.
    """
    places = _places(np.asarray(scores, float))
    times, half = np.asarray(measured, float), np.asarray(noise, float)
    n = len(places)
    _, counts = np.unique(places, return_counts=True)
    untied_scores = (n * (n - 1) - int((counts * (counts - 1)).sum())) // 2
    agreeing, opposed, untied_times = _ordered_pairs(places, times - half, times + half)
    if untied_times == 0:
        return None
    if untied_scores == 0:
        return 0.0
    return (agreeing - opposed) / float(np.sqrt(float(untied_times) * untied_scores))


def _places(scores: np.ndarray) -> np.ndarray:
    """Ranks from 0, equal scores (within TIE) with equal ranks."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    steps = np.diff(ordered) > TIE * np.maximum(np.abs(ordered[1:]), np.abs(ordered[:-1]))
    places = np.empty(len(scores), np.int64)
    places[order] = np.concatenate([[0], np.cumsum(steps)])[: len(scores)]
    return places


def _ordered_pairs(places: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[int, int, int]:
    """Over the pairs (a, b) with high[a] < low[b]: how many have a's place before b's, after it, and how many in all.

    A pair's places differ first in one binary digit, read from the most significant: pairs are counted digit by digit,
    among elements that agree in all digits before. `ends` (an a) and `begins` (a b) are walked in order of time.
    """
    n = len(places)
    ends = np.concatenate([np.zeros(n, bool), np.ones(n, bool)])  # begins come first where times are equal
    walk = np.lexsort((ends, np.concatenate([low, high])))
    ends, places = ends[walk], np.concatenate([places, places])[walk]
    total = int(np.cumsum(ends)[~ends].sum())
    before = after = 0
    for digit in range(int(places.max(initial=0)).bit_length()):
        prefix = places >> (digit + 1)
        together = np.argsort(prefix, kind="stable")
        prefix, is_end = prefix[together], ends[together]
        one = (places[together] >> digit & 1).astype(bool)
        starts = np.flatnonzero(np.diff(prefix, prepend=-1))
        lengths = np.diff(np.append(starts, 2 * n))
        before += _passed(is_end & ~one, ~is_end & one, starts, lengths)
        after += _passed(is_end & one, ~is_end & ~one, starts, lengths)
    return before, after, total


def _passed(counted: np.ndarray, asking: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> int:
    """The sum, over the elements `asking`, of how many `counted` came before in the same segment."""
    running = np.cumsum(counted)
    offset = np.repeat(running[starts] - counted[starts], lengths)
    return int((running - offset)[asking].sum())
