"""Traces of the CTAs that run now: taken in when they are executed, given up when they are done.

CTAs of most kernels issue the very same instructions on different data, so equal event sequences are kept once; only
the lines they touch are their own. That keeps a wave of a thousand CTAs within a few CTAs' memory.
"""

from __future__ import annotations

import bisect
import zlib

import numpy as np

from interpreter.errors import FarmError
from interpreter.trace import EVENT, Trace

DEFAULT_LIMIT = 4 << 30  # bytes of traces held at once


class TraceMemoryError(FarmError):
    """The CTAs resident on the chip have longer traces than may be held."""


class Segments:
    """First-fit allocation of ranges in an array that grows; the array itself belongs to the caller."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []  # (start, length), sorted, never adjacent

    def take(self, length: int) -> int:
        """Start of a range of `length`; `size` grows when nothing fits."""
        for i, (start, have) in enumerate(self._free):
            if have >= length:
                if have == length:
                    del self._free[i]
                else:
                    self._free[i] = (start + length, have - length)
                return start
        if self._free and sum(self._free[-1]) == self.size:  # the last gap can be extended
            start, _ = self._free.pop()
        else:
            start = self.size
        self.size = start + length
        return start

    def give(self, start: int, length: int) -> None:
        """Return a range that `take` gave."""
        if length == 0:
            return
        i = bisect.bisect(self._free, (start, 0))
        if i < len(self._free) and self._free[i][0] == start + length:
            length += self._free.pop(i)[1]
        if i > 0 and sum(self._free[i - 1]) == start:
            begin, before = self._free.pop(i - 1)
            start, length = begin, before + length
            i -= 1
        self._free.insert(i, (start, length))


class _Sequence:
    """One distinct sequence of a CTA's events, used by `users` places."""

    __slots__ = ("key", "length", "start", "users", "warps")

    def __init__(self, key: tuple[int, int], start: int, length: int, warps: np.ndarray) -> None:
        self.key, self.start, self.length, self.warps, self.users = key, start, length, warps, 1


class TracePool:
    """Arrays the SM engine reads; a CTA's place p has its warps at p * warps_per_cta and after.

    `warp_start`, `warp_end`: first event of each warp and one past its last in `events`; `line_start`: its first entry
    in `lines`. All arrays are replaced when they grow; positions stay.
    """

    def __init__(self, warps_per_cta: int, limit: int = DEFAULT_LIMIT) -> None:
        self._warps = warps_per_cta
        self._limit = limit
        self.events = np.zeros(1, EVENT)
        self.lines = np.zeros(1, np.uint64)
        self.warp_start = np.zeros(0, np.int64)
        self.warp_end = np.zeros(0, np.int64)
        self.line_start = np.zeros(0, np.int64)
        self._event_room, self._line_room = Segments(), Segments()
        self._known: dict[tuple[int, int], list[_Sequence]] = {}
        self._places: list[tuple[_Sequence, int, int] | None] = []  # sequence, start and length of its lines
        self._free_places: list[int] = []

    @property
    def held_bytes(self) -> int:
        """Bytes of the traces' arrays."""
        return self.events.nbytes + self.lines.nbytes

    def add(self, trace: Trace) -> list[int]:
        """Take in a trace's CTAs; returns the place of each. Raises TraceMemoryError."""
        return [self._add(trace, position) for position in range(len(trace.ctas))]

    def release(self, place: int) -> None:
        """The CTA at `place` is done."""
        entry = self._places[place]
        if entry is None:
            raise ValueError(f"place {place} is empty")
        sequence, start, length = entry
        self._places[place] = None
        self._free_places.append(place)
        self._line_room.give(start, length)
        sequence.users -= 1
        if sequence.users == 0:
            self._event_room.give(sequence.start, sequence.length)
            self._known[sequence.key].remove(sequence)
            if not self._known[sequence.key]:
                del self._known[sequence.key]

    def _add(self, trace: Trace, position: int) -> int:
        w = self._warps
        first, last = position * w, (position + 1) * w
        sequence = self._sequence(trace, first, last)
        lines = trace.lines[trace.line_start[first] : trace.line_start[last]]
        start = self._line_room.take(len(lines))
        self.lines = self._grown(self.lines, self._line_room.size)
        self.lines[start : start + len(lines)] = lines
        if self._free_places:
            place = self._free_places.pop()
        else:
            place = len(self._places)
            self._places.append(None)
            needed = len(self._places) * w
            self.warp_start, self.warp_end, self.line_start = (
                _enlarged(a, needed) for a in (self.warp_start, self.warp_end, self.line_start)
            )
        self._places[place] = (sequence, start, len(lines))
        at = slice(place * w, (place + 1) * w)
        self.warp_start[at] = sequence.start + sequence.warps[:-1]
        self.warp_end[at] = sequence.start + sequence.warps[1:]
        self.line_start[at] = start + trace.line_start[first:last] - trace.line_start[first]
        return place

    def _sequence(self, trace: Trace, first: int, last: int) -> _Sequence:
        events = trace.events[trace.warp_start[first] : trace.warp_start[last]]
        warps = trace.warp_start[first : last + 1] - trace.warp_start[first]
        key = (len(events), zlib.crc32(events.view(np.uint8).data))
        for known in self._known.get(key, ()):
            held = self.events[known.start : known.start + known.length]
            if np.array_equal(known.warps, warps) and np.array_equal(held.view(np.uint64), events.view(np.uint64)):
                known.users += 1
                return known
        start = self._event_room.take(len(events))
        self.events = self._grown(self.events, self._event_room.size)
        self.events[start : start + len(events)] = events
        sequence = _Sequence(key, start, len(events), warps)
        self._known.setdefault(key, []).append(sequence)
        return sequence

    def _grown(self, array: np.ndarray, needed: int) -> np.ndarray:
        grown = _enlarged(array, needed)
        more = self.held_bytes + grown.nbytes - array.nbytes
        if more > self._limit:
            raise TraceMemoryError(
                f"the cycle tier holds the traces of all CTAs that run at once; they need more than "
                f"{self._limit / 2**30:.1f} GiB here. A smaller problem or the sampled tier works"
            )
        return grown


def _enlarged(array: np.ndarray, needed: int) -> np.ndarray:
    """`array` itself, or a copy with room for at least `needed` elements."""
    if needed <= len(array):
        return array
    grown = np.zeros(max(needed, len(array) + len(array) // 2), array.dtype)
    grown[: len(array)] = array
    return grown
