"""Launches whose CTAs differ in work: how long the whole grid takes, given what one SM gets done in a cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from interpreter.trace import Trace
from timing.jit import njit_entry

PROBES = 16  # CTAs looked at to see whether they differ
UNEVEN = 0.1  # standard deviation of their work over its mean, from which they do
SAMPLES = 1024  # CTAs executed of a grid that is uneven,
SAMPLED_INSTRUCTIONS = 8_000_000  # unless they are longer than this in all
NEIGHBOURS = 2.0  # samples to either side that a CTA may resemble


class Works(Protocol):
    """What this needs of `timing.sampled.TraceSource`."""

    def work(self, ctas: Sequence[int]) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class UnevenWork:
    """Sampled CTAs of a grid, ascending, and their warp instructions."""

    ctas: int
    sampled: np.ndarray
    work: np.ndarray

    def grid(self) -> np.ndarray:
        """The work of every CTA: that of a sample near it, so that all samples count and none is repeated in a row."""
        random = np.random.default_rng(self.ctas)
        place = np.interp(np.arange(self.ctas), self.sampled, np.arange(len(self.sampled)))
        place += random.uniform(-NEIGHBOURS, NEIGHBOURS, self.ctas)
        near = np.clip(np.rint(place), 0, len(self.sampled) - 1).astype(np.int64)
        near[self.sampled] = np.arange(len(self.sampled))
        return self.work[near]

    def representative(self, resident: int, budget: int) -> list[int]:
        """Samples to time in detail: some fillings of an SM, from all over the grid, in an order of no meaning."""
        count = min(len(self.sampled), max(int(budget / self.work.mean()), 3 * resident), 6 * resident)
        random = np.random.default_rng(len(self.sampled))
        chosen = np.linspace(0, len(self.sampled) - 1, max(count, 1)).astype(np.int64)
        return [int(self.sampled[i]) for i in random.permutation(np.unique(chosen))]


def uneven_work(ctas: int, traces: Works, budget: int) -> UnevenWork | None:
    """The work of a sample of the grid's CTAs, or None where they all do about the same.

    `budget`: warp instructions that the look may cost, about.
    """
    if ctas < PROBES:
        return None
    length = max(float(traces.work([ctas // 2])[0]), 1.0)
    probes = int(np.clip(4 * budget / length, 4, PROBES))
    looked = np.linspace(0, ctas - 1, probes + 2)[1:-1].astype(np.int64)  # not the edges, which often have less to do
    found = traces.work([int(cta) for cta in looked])
    if found.std() <= UNEVEN * found.mean():
        return None
    count = int(np.clip(SAMPLED_INSTRUCTIONS / max(found.mean(), 1.0), PROBES, min(SAMPLES, ctas)))
    # one from each stretch of the grid, anywhere in it: a fixed step could fall in with the grid's width
    edges = np.linspace(0, ctas, count + 1)
    chosen = edges[:-1] + np.random.default_rng(count).uniform(0, 1, count) * np.diff(edges)
    sampled = np.unique(np.minimum(chosen.astype(np.int64), ctas - 1))
    return UnevenWork(ctas, sampled, np.maximum(traces.work([int(cta) for cta in sampled]), 1.0))


def traced_work(trace: Trace) -> np.ndarray:
    """Warp instructions of each CTA of a trace."""
    return np.diff(trace.warp_start[:: trace.warps_per_cta]).astype(np.float64)


@njit_entry()
def makespan(work: np.ndarray, sm_count: int, resident: int, rate: float, alone: float) -> float:
    """Cycles until the last CTA has ended.

    `work`: warp instructions of each CTA, in the order they are launched. An SM of k CTAs gets `rate` warp instructions
    a cycle done, divided evenly, but no CTA more than `alone`. The first CTAs are dealt round the SMs, the others go to
    whichever SM frees a place first.
    """
    grid = len(work)
    progress = np.zeros(sm_count)  # of each SM, what a CTA that has been there all along would have done,
    active = np.zeros(sm_count, np.int64)
    ends = np.full((sm_count, resident), np.inf)  # progress at which each place's CTA ends
    free_at = np.full(sm_count, np.inf)  # when the SM's next CTA ends
    nearest = np.zeros(sm_count, np.int64)
    launched = 0
    for place in range(resident):
        for sm in range(sm_count):
            if launched < grid:
                ends[sm, place] = work[launched]
                active[sm] += 1
                launched += 1
    for sm in range(sm_count):
        nearest[sm] = np.argmin(ends[sm])
        if active[sm] > 0:
            free_at[sm] = ends[sm, nearest[sm]] / min(alone, rate / active[sm])
    last = 0.0
    while True:
        sm = int(np.argmin(free_at))
        t = free_at[sm]
        if t == np.inf:
            return last
        last = max(last, t)
        place = int(nearest[sm])
        progress[sm] = ends[sm, place]
        if launched < grid:
            ends[sm, place] = progress[sm] + work[launched]
            launched += 1
        else:
            ends[sm, place] = np.inf
            active[sm] -= 1
        nearest[sm] = np.argmin(ends[sm])
        if active[sm] > 0:
            free_at[sm] = t + (ends[sm, nearest[sm]] - progress[sm]) / min(alone, rate / active[sm])
        else:
            free_at[sm] = np.inf
