"""All SMs of a chip side by side, in stretches of some hundred cycles.

Within a stretch every SM runs alone (`timing.sm_engine`) against the chip as it was at the start of the stretch, so SMs
may run on any number of threads. Between stretches, in SM order, L2 and DRAM take in what the SMs asked for
(`timing.chip_l2`) and CTAs are dealt. Nothing depends on which thread ran which SM.

The work distributor deals CTAs in launch order, the first wave round the SMs, then to the SM that frees a place first.
An SM that completes CTAs gets the next ones a stretch ahead, so that it need not wait for the end of the stretch; what
it has not begun when the grid runs out goes to SMs that stand empty.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from timing.chip_l2 import ChipL2, settle
from timing.jit import njit, njit_entry
from timing.l2_view import L2View
from timing.memory_path import N_SHARES, SEEN_SLOTS
from timing.sm_engine import advance
from timing.sm_state import (
    AGE_COUNTER,
    COMPLETED,
    INFINITE,
    ISSUED,
    N_EMPTY,
    NEXT_CTA,
    blank_states,
    state_of,
)
from timing.stalls import N_STALLS
from timing.timeline import ChipTimeline, Timeline, recorder_of
from timing.trace_pool import TracePool

# Less than the latency of an L2 hit: what an SM asks for is not answered within the stretch in any case.
STRETCH_CYCLES = 256
RATE_WEIGHT = 0.25  # of the last stretch in an SM's mean rate of completing CTAs


class Dealt(NamedTuple):
    """Which CTAs each SM has been given."""

    order: np.ndarray  # int64[SMs, room], places in the trace pool
    cta: np.ndarray  # int64[SMs, room], the CTA's number
    given: np.ndarray  # int64[SMs]
    done_at: np.ndarray  # float64[SMs, room], -1 until completed
    issued_at: np.ndarray  # int64[SMs, room]
    rate: np.ndarray  # float64[SMs], CTAs completed a stretch lately
    completed: np.ndarray  # int64[SMs], at the last dealing
    next_cta: np.ndarray  # int64[1], first CTA not given yet


def _dealt(sms: int, room: int) -> Dealt:
    def whole() -> np.ndarray:
        return np.zeros((sms, room), np.int64)

    zeros = np.zeros(sms, np.int64)
    return Dealt(
        order=whole(),
        cta=whole(),
        given=zeros,
        done_at=np.full((sms, room), -1.0),
        issued_at=whole(),
        rate=np.zeros(sms),
        completed=zeros.copy(),
        next_cta=np.zeros(1, np.int64),
    )


@njit()
def _give(i, place, number, dealt):
    n = dealt.given[i]
    dealt.order[i, n] = place
    dealt.cta[i, n] = number
    dealt.done_at[i, n] = -1.0
    dealt.given[i] = n + 1


@njit_entry()
def deal(now, again, grid, traced, place_of, state, dealt):
    """Give CTAs to SMs at cycle `now`; returns how many more could be given than the first `traced`.

    `again`: called once more at the same cycle, because more are traced now.
    """
    sms = dealt.given.shape[0]
    places = state.slot_empty.shape[1]
    # places free or becoming free for which the SM has no CTA, first freed first
    when = np.zeros(sms * places)
    whose = np.zeros(sms * places, np.int64)
    n = 0
    for i in range(sms):
        completed = state.scalars[i, COMPLETED]
        if not again:
            dealt.rate[i] += RATE_WEIGHT * (completed - dealt.completed[i] - dealt.rate[i])
            dealt.completed[i] = completed
        waiting = dealt.given[i] - state.scalars[i, NEXT_CTA]
        free = np.sort(state.pending_slots[i][state.slot_empty[i]])
        for k in range(waiting, free.shape[0]):
            # in the first wave all are free at once: one CTA to each SM, then the next
            when[n] = free[k] + 1e-3 * k
            whose[n] = i
            n += 1
    short = 0
    for k in np.argsort(when[:n], kind="mergesort"):
        i = whose[k]
        number = dealt.next_cta[0]
        if number >= grid:
            number = _taken_back(state, dealt)
            if number < 0:
                break
            _give(i, place_of[number], number, dealt)
        elif number >= traced:
            short += 1
            continue
        else:
            _give(i, place_of[number], number, dealt)
            dealt.next_cta[0] += 1
        state.launch_free[i, 0] = max(state.launch_free[i, 0], now)
    for i in range(sms):
        waiting = dealt.given[i] - state.scalars[i, NEXT_CTA] - state.scalars[i, N_EMPTY]
        ahead = min(int(np.ceil(dealt.rate[i])), places)
        for _ in range(waiting, ahead):
            number = dealt.next_cta[0]
            if number >= grid:
                break
            if number >= traced:
                short += 1
            else:
                _give(i, place_of[number], number, dealt)
                dealt.next_cta[0] += 1
    return min(short, grid - traced)


@njit()
def _taken_back(state, dealt):
    """The first CTA that an SM has been given ahead and has no place for, or -1."""
    best = -1
    owner = -1
    for i in range(dealt.given.shape[0]):
        last = dealt.given[i] - 1
        if last - state.scalars[i, NEXT_CTA] >= state.scalars[i, N_EMPTY] and (owner < 0 or dealt.cta[i, last] < best):
            best = dealt.cta[i, last]
            owner = i
    if owner >= 0:
        dealt.given[owner] -= 1
    return best


@njit_entry()
def advance_some(
    first, step, until, state, l2, rows, events, warp_start, warp_end, lines, line_start, warps, dealt, p, seen_line,
    seen_mask, seen_at, stalls, timeline,
):  # fmt: skip
    """Simulate the SMs first, first + step, ... to cycle `until`."""
    regions = np.zeros((0, 2), np.int64)
    shares = np.zeros((0, N_SHARES))
    for i in range(first, dealt.given.shape[0], step):
        launch = dealt.given[i] > state.scalars[i, NEXT_CTA] and state.scalars[i, N_EMPTY] > 0
        if not launch and state.next_time[i].min() >= until:
            continue
        view = L2View(
            l2.tags, l2.valid, l2.ready, l2.atomic_free, l2.slice_free, l2.log_line[i], l2.log_what[i], l2.log_at[i],
            l2.log_service[i], l2.log_length[i],
        )  # fmt: skip
        order = dealt.order[i][: dealt.given[i]]
        record = None
        if timeline is not None:
            record = recorder_of(timeline, i)
        advance(
            state_of(state, i), view, until, rows, events, warp_start, warp_end, lines, line_start, warps, order, p[i],
            regions, shares, seen_line, seen_mask, seen_at, INFINITE, stalls[i], dealt.done_at[i], dealt.issued_at[i],
            record,
        )  # fmt: skip


class Chip:
    """A launch on all SMs. `feed(count)` executes at least one and at most `count` further CTAs into the trace pool."""

    def __init__(
        self,
        rows: np.ndarray,
        p: np.ndarray,
        l2: ChipL2,
        pool: TracePool,
        *,
        sms: int,
        resident: int,
        grid: int,
        warps: int,
        launch_cycles: float,
        timeline: ChipTimeline | None = None,
    ) -> None:
        """`p` has fair shares of the chip; `launch_cycles` lie between two CTAs of the first wave."""
        self.state = blank_states(sms, p, resident)
        self.state.launch_free[:, 0] = launch_cycles * np.arange(sms)
        # numbers of warps name their local memory, which is no other SM's
        self.state.scalars[:, AGE_COUNTER] = np.arange(sms) << 28
        self.l2 = l2
        self.pool = pool
        self.stalls = np.zeros((sms, len(rows), N_STALLS))
        self.timeline = timeline or ChipTimeline(sms, 0)
        self.now = 0
        self.traced = 0
        self._rows, self._grid, self._warps = rows, grid, warps
        self._p = np.tile(p, (sms, 1))
        self._dealt = _dealt(sms, 4 * resident + 16)
        self._place_of = np.full(grid, -1, np.int64)
        self._released = np.zeros(self._dealt.order.shape, np.bool_)

    @property
    def completed(self) -> int:
        """CTAs that are done."""
        return int(self.state.scalars[:, COMPLETED].sum())

    def recorded(self) -> Timeline:
        """What the timeline has of the launch, once it has run."""
        return self.timeline.result(self._dealt.cta, self.state.scalars[:, ISSUED])

    def take(self, places: list[int]) -> None:
        """The next CTAs of the grid are executed and lie at these places of the trace pool."""
        self._place_of[self.traced : self.traced + len(places)] = places
        self.traced += len(places)

    def release_done(self) -> None:
        """Give up the traces of CTAs that are done."""
        done = (self._dealt.done_at >= 0.0) & ~self._released
        done &= np.arange(done.shape[1]) < self._dealt.given[:, None]
        for place in self._dealt.order[done]:
            self.pool.release(int(place))
        self._released |= done

    def run(self, feed: Callable[[int], None], threads: int = 1, tick: Callable[[], None] | None = None) -> None:
        """Simulate the launch to its end. `tick` is called between stretches."""
        seen = [
            (np.full(SEEN_SLOTS, -1, np.int64), np.zeros(SEEN_SLOTS, np.int64), np.zeros(SEEN_SLOTS))
            for _ in range(threads)
        ]
        with ThreadPoolExecutor(threads) as workers:
            while self.completed < self._grid:
                self._make_room()
                self._deal(feed)
                begin = self.now
                self.now = begin + self._stretch()
                if self.timeline.on:
                    following = int(self.state.next_time.min())
                    # CTAs are launched in short stretches only
                    short = self.now - begin <= STRETCH_CYCLES
                    self.timeline.begin(min(begin, following) if short else following, self.now)
                if threads == 1:
                    self._advance(0, 1, seen[0])
                else:
                    for result in [workers.submit(self._advance, k, threads, seen[k]) for k in range(threads)]:
                        result.result()
                if self.timeline.on:
                    self.timeline.take(min(self.now, int(self.state.next_time.min())))
                settle(float(begin), float(self.now), self.l2, self.state.servers, self.state.traffic, self._p)
                if tick is not None:
                    tick()

    def _deal(self, feed: Callable[[int], None]) -> None:
        again = False
        while True:
            short = deal(self.now, again, self._grid, self.traced, self._place_of, self.state, self._dealt)
            if short <= 0:
                return
            before = self.traced
            feed(int(short))
            if self.traced <= before:
                raise ValueError("no further CTAs were executed")
            again = True

    def _stretch(self) -> int:
        """Cycles to the next settlement; longer when nothing happens before."""
        scalars = self.state.scalars
        if ((self._dealt.given > scalars[:, NEXT_CTA]) & (scalars[:, N_EMPTY] > 0)).any():
            return STRETCH_CYCLES
        following = int(self.state.next_time.min())
        if following >= INFINITE:
            raise ValueError(f"{self._grid - self.completed} CTAs never complete")
        return max(STRETCH_CYCLES, following - self.now)

    def _advance(self, first: int, step: int, seen: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        pool = self.pool
        advance_some(
            first, step, self.now, self.state, self.l2.front, self._rows, pool.events, pool.warp_start, pool.warp_end,
            pool.lines, pool.line_start, self._warps, self._dealt, self._p, *seen, self.stalls,
            self.timeline.recorders(),
        )  # fmt: skip

    def _make_room(self) -> None:
        """Longer lists when the next dealing could fill one."""
        room = self._dealt.order.shape[1]
        needed = int(self._dealt.given.max()) + 2 * self.state.slot_empty.shape[1] + 2
        if needed <= room:
            return
        larger = _dealt(self._dealt.given.shape[0], max(needed, 2 * room))
        for name in ("order", "cta", "done_at", "issued_at"):
            getattr(larger, name)[:, :room] = getattr(self._dealt, name)
        for name in ("given", "rate", "completed", "next_cta"):
            getattr(larger, name)[:] = getattr(self._dealt, name)
        self._dealt = larger
        released = np.zeros(larger.order.shape, np.bool_)
        released[:, :room] = self._released
        self._released = released
