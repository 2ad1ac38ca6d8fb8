"""Which CTAs an SM receives, and how a grid spreads over the SMs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a grid of `ctas` spreads over `sm_count` SMs, `resident` at a time on each.

    The work distributor deals CTAs round the SMs in order, one at a time, then refills as they finish; CTAs of about
    equal length therefore reach SM s in the order s, s + sm_count, s + 2 sm_count, ...
    """

    ctas: int
    sm_count: int
    resident: int
    lumps: int = 0  # CTAs of the last wave that one SM takes beyond its even share

    @property
    def active_sms(self) -> int:
        return min(self.ctas, self.sm_count)

    @property
    def slots(self) -> int:
        """CTAs resident on the whole chip at once."""
        return self.sm_count * max(self.resident, 1)

    @property
    def most(self) -> int:
        """CTAs of the most loaded SM.

        The first wave is dealt evenly (seen on an H200 for every grid up to 4 CTAs an SM). Later CTAs go to whatever
        SM frees a place first; co-resident CTAs finish together, so an SM that is early refills all its places and the
        last, partial wave lands in lumps (grids of 1.3 waves of equal CTAs, H200: up to `resident` more on one SM).
        """
        if self.ctas <= self.slots:
            return -(-self.ctas // self.sm_count)
        full, rest = divmod(self.ctas, self.slots)
        even = -(-rest // self.sm_count)
        return full * max(self.resident, 1) + max(even, min(self.resident, rest, even + self.lumps))

    @property
    def full_rounds(self) -> int:
        """CTAs that every SM receives."""
        return self.ctas // self.sm_count

    @property
    def tail_sms(self) -> int:
        """SMs that receive one CTA more than the others (0: evenly spread)."""
        return self.ctas % self.sm_count

    @property
    def waves(self) -> float:
        return self.ctas / (self.sm_count * max(self.resident, 1))

    def sampled_sm(self) -> int:
        """The SM to look at: one of the most loaded, from the middle of the grid rather than its edge."""
        busiest = self.tail_sms or self.active_sms
        return busiest // 2

    def ctas_of(self, sm: int, first: int, last: int) -> list[int]:
        """Linear CTA numbers that `sm` receives as its first-th .. (last-1)-th."""
        return [sm + k * self.sm_count for k in range(first, last) if sm + k * self.sm_count < self.ctas]
