"""Which CTAs an SM receives, and how a grid spreads over the SMs."""

from __future__ import annotations

from dataclasses import dataclass

from timing.dealing import Deal


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a grid of `ctas` spreads over `sm_count` SMs, `resident` at a time on each.

    The work distributor deals CTAs round the SMs in order, one at a time, then refills as they finish; CTAs of about
    equal length therefore reach SM s in the order s, s + sm_count, s + 2 sm_count, ...
    """

    ctas: int
    sm_count: int
    resident: int
    dealt: Deal | None = None  # once it is known how the CTAs after the first wave are dealt

    @property
    def active_sms(self) -> int:
        return min(self.ctas, self.sm_count)

    @property
    def slots(self) -> int:
        """CTAs resident on the whole chip at once."""
        return self.sm_count * max(self.resident, 1)

    @property
    def most(self) -> int:
        """CTAs of the most loaded SM: evenly dealt, unless `dealt` says more."""
        return self.dealt.most if self.dealt is not None else -(-self.ctas // self.sm_count)

    @property
    def full_rounds(self) -> int:
        """CTAs that every SM receives."""
        return self.dealt.least if self.dealt is not None else self.ctas // self.sm_count

    @property
    def tail_sms(self) -> int:
        """SMs that receive more CTAs than the others (0: evenly spread)."""
        return self.dealt.above_least if self.dealt is not None else self.ctas % self.sm_count

    @property
    def waves(self) -> float:
        return self.ctas / (self.sm_count * max(self.resident, 1))

    def sampled_sm(self) -> int:
        """The SM to look at: one of the most loaded, from the middle of the grid rather than its edge."""
        busiest = self.tail_sms or self.active_sms
        return busiest // 2

    def ctas_of(self, sm: int, first: int, last: int) -> list[int]:
        """Linear CTA numbers that `sm` receives as its first-th .. (last-1)-th when all are dealt evenly."""
        return [sm + k * self.sm_count for k in range(first, last) if sm + k * self.sm_count < self.ctas]

    def more_ctas(self, sm: int, count: int) -> list[int]:
        """`count` CTAs (or as many as there are) that the neighbours of `sm` would receive last."""
        found: list[int] = []
        for other in range(sm + 1, sm + self.active_sms):
            found += self.ctas_of(other % self.active_sms, self.full_rounds - 1, self.full_rounds)
            if len(found) >= count:
                break
        return found[:count]
