"""How many CTAs each SM gets: the first wave is dealt evenly, later CTAs go to whatever SM frees a place first.

On an H200 (microbenchmark `waves`) CTAs of one SM that end together are replaced together: with two CTAs an SM of equal
length, a grid of 1.1 waves takes as long as one of 2, since an SM that gets one more CTA gets two. Where the CTAs of an
SM end one after the other (they compete for issue slots, and the oldest wins), the last wave is spread evenly. SMs are
never quite in step: those near to their data run a little ahead, and take more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Deal:
    """CTAs of the busiest and of the least busy SM, and how many SMs get more than the least.

    `pace` is the relative time that the slowest SM among the busiest takes for a CTA. A grid of one wave lasts as long
    as the slowest of all its SMs, none of which can take over what another has.
    """

    most: int
    least: int
    above_least: int
    pace: float


def deal(ctas: int, sm_count: int, resident: int, completions: np.ndarray, jitter: float) -> Deal:
    """Deal `ctas` to `sm_count` SMs of `resident` places.

    `completions`: when the CTAs of one SM end, ascending, as long as each is replaced at once; beyond the last of them
    they go on at the mean rate. `jitter`: the SMs' speeds are spread evenly over 1 - jitter to 1 + jitter.
    """
    places = sm_count * resident
    rest = ctas - places
    if rest <= 0:
        least, above = divmod(ctas, sm_count)
        active = min(ctas, sm_count)  # the largest of so many speeds, on average
        return Deal(least + (above > 0), least, above, 1.0 + jitter * (active - 1) / (active + 1))
    # no SM takes more than twice its share of the rest, or one filling, whichever is more
    wanted = min(rest, 2 * -(-rest // sm_count) + resident)
    ends = np.asarray(completions, np.float64)
    if len(ends) < wanted:
        rate = ends[-1] / len(ends)
        ends = np.concatenate([ends, ends[-1] + rate * np.arange(1, wanted - len(ends) + 1)])
    speed = 1.0 + jitter * np.linspace(-1.0, 1.0, sm_count)
    freed = ends[None, :wanted] * speed[:, None]
    # places are handed out as they come free, at equal times round the SMs
    order = np.argsort(freed.T.ravel(), kind="stable")[:rest]
    counts = resident + np.bincount(order % sm_count, minlength=sm_count)
    least, most = int(counts.min()), int(counts.max())
    pace = float(speed[counts == most].max())
    return Deal(most, least, int((counts > least).sum()), pace)
