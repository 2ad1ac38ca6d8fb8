"""Alignment of two listings of SASS: the longest common subsequence of lines, register names left out."""

from __future__ import annotations

from collections.abc import Sequence

from farm.analysis.sass import normalised

Pair = tuple[int | None, int | None]  # rows of a and b; None where the other has no counterpart


def align(a: Sequence[str], b: Sequence[str]) -> list[Pair]:
    """Pairs of rows in order: (i, j) for lines equal but for register names, (i, None) and (None, j) for the others."""
    first, second = [normalised(text) for text in a], [normalised(text) for text in b]
    head = 0
    while head < min(len(first), len(second)) and first[head] == second[head]:
        head += 1
    tail = 0
    while tail < min(len(first), len(second)) - head and first[-1 - tail] == second[-1 - tail]:
        tail += 1
    middle = _common(first[head : len(first) - tail], second[head : len(second) - tail])
    out: list[Pair] = [(i, i) for i in range(head)]
    i, j = head, head
    for x, y in [*middle, (len(first) - tail - head, len(second) - tail - head)]:
        out += [(row, None) for row in range(i, head + x)]
        out += [(None, row) for row in range(j, head + y)]
        i, j = head + x, head + y
        if (x, y) != (len(first) - tail - head, len(second) - tail - head):
            out.append((i, j))
            i, j = i + 1, j + 1
    out += [(len(first) - tail + k, len(second) - tail + k) for k in range(tail)]
    return out


def _common(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Matched rows of a longest common subsequence.

    Bit-parallel (Hyyrö 2004): one row of the table is one integer with a bit a line of `a`, so that two kernels of
    5,000 lines take milliseconds where the plain table has 25 million cells.
    """
    if not a or not b:
        return []
    where: dict[str, int] = {}
    for i, text in enumerate(a):
        where[text] = where.get(text, 0) | 1 << i
    full = (1 << len(a)) - 1
    row, rows = full, []
    for text in b:
        hits = row & where.get(text, 0)
        row = ((row + hits) | (row - hits)) & full
        rows.append(row)
    found: list[tuple[int, int]] = []
    i, j = len(a), len(b)
    while i and j:
        if rows[j - 1] >> (i - 1) & 1:  # line i-1 of a adds nothing to what b's first j lines have in common
            i -= 1
            continue
        j -= 1
        if j == 0 or rows[j - 1] >> (i - 1) & 1:
            i -= 1
            found.append((i, j))
    return found[::-1]
