"""The streaming funnel lets through exactly those that the selection over all results would, whatever their order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.funnel import Groups, StreamingFunnel, survivors
from jobs.sweep import Funnel, Sweep


def sweep_with(share: int | str) -> Sweep:
    return Sweep.model_construct(funnel=Funnel(sampled=share))


Results = list[tuple[float | None, str]]  # time (None: failed) and group

results = st.lists(
    st.tuples(st.one_of(st.none(), st.sampled_from([1.0, 1.5, 2.0, 2.5, 3.0, 7.0])), st.sampled_from("aab")),
    min_size=1,
    max_size=14,
)
shares = st.one_of(st.integers(0, 16), st.sampled_from(["0%", "1%", "33%", "50%", "77.7%", "100%"]))


@settings(max_examples=400, deadline=None)
@given(results, shares, st.randoms(use_true_random=False), st.integers(1, 5))
def test_any_order_gives_the_survivors(found: Results, share: int | str, random, every: int) -> None:
    sweep = sweep_with(share)
    rows = [
        {"target": "t", "variant": n, "status": "ok" if time else "failed", "time_us": time, "group": group}
        for n, (time, group) in enumerate(found)
    ]
    expected = survivors(sweep, rows).get("t", set())
    funnel = StreamingFunnel(sweep, "sampled", Groups.numbered(group for _, group in found))
    order = list(range(len(found)))
    random.shuffle(order)
    decided: list[int] = []
    for place, n in enumerate(order):
        funnel.take(n, found[n][0])
        if place % every == 0:
            decided += funnel.settle()
            early = {m for m in order if funnel.fate(m)}
            assert early <= expected, "went on too early"
            assert not {m for m in order if funnel.fate(m) is False} & expected, "dropped too early"
    decided += funnel.settle()
    assert sorted(decided) == sorted(set(decided)) == list(range(len(found)))
    assert {n for n in order if funnel.fate(n)} == expected
    assert funnel.kept() == len(expected) and funnel.waiting == 0


def test_it_streams() -> None:
    """With a share of one half, half of those that go on are known well before the last result."""
    funnel = StreamingFunnel(sweep_with("50%"), "sampled", Groups.single(100))
    for n in range(75):
        funnel.take(n, float(n))
    funnel.settle()
    assert funnel.kept() == 25 and funnel.fate(0) is True and funnel.fate(60) is False and funnel.fate(40) is None


def test_the_promising_are_those_close_to_the_best() -> None:
    funnel = StreamingFunnel(sweep_with(2), "sampled", Groups.numbered("aabb"))
    for n, time in enumerate([10.0, 15.0, 200.0, None]):
        funnel.take(n, time)
    assert [funnel.behind_best(n) for n in range(4)] == [1.0, 1.5, 1.0, float("inf")]
