"""Admission in order, merged observations, frontiers that are thinned but keep their ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.simulator.engine import simulate_jobs
from elastichost.simulator.jobs import DEFAULT_LIMITS
from elastichost.simulator.policies.common import (
    Digests,
    candidates,
    clamped,
    cores_of,
    requested_memory,
    thinned_frontier,
)
from elastichost.simulator.policies.static import Static
from elastichost.simulator.views import JobView
from elastichost.tuner.facts import Configuration
from elastichost.tuner.frontier import pareto
from elastichost.tuner.profile import merged

from ..closed_network import job
from ..watching import Watched, cluster


def last_view(**changes: object) -> JobView:
    watched = Watched(Static())
    simulate_jobs([job(samples=60_000_000, **changes)], watched, cluster(1))
    return watched.seen[-1][0].ended[0].view


def test_order_of_arrival_but_what_does_not_fit_is_passed_by() -> None:
    big, small = Configuration(6, 2, 8, 4), Configuration(2, 1, 2, 2)
    specs = [job(0, request=big), job(1, request=big), job(2, request=small)]
    found = simulate_jobs(specs, Watched(Static()), cluster(1))
    assert [one.waited_s > 0 for one in found.jobs] == [False, True, False]


def test_memory_of_processes_that_nobody_asked_for() -> None:
    view = last_view()
    asked = requested_memory(view, Configuration(4, 2, 2, 2))
    assert asked == 8 * 10**9
    assert requested_memory(view, Configuration(1, 1, 2, 2)) == asked
    assert requested_memory(view, Configuration(6, 3, 2, 2)) == asked + 2 * 250_000_000 + 100_000_000


def test_clamped() -> None:
    assert clamped(DEFAULT_LIMITS, 99, 0, 3, 2.0) == Configuration(32, 1, 3, 2)


def test_candidates_are_all_with_such_cores() -> None:
    array = candidates(DEFAULT_LIMITS, (1, 4))
    assert len(array) == len(np.unique(array, axis=0)) == 32 * 16 * 4
    assert set(array[:, 2]) == set(array[:, 3]) == {1.0, 4.0}
    assert cores_of(array)[-1] == 32 * 4 + 16 * 4


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e3)), min_size=1, max_size=60), st.integers(2, 8))
def test_thinned_frontier(points: list[tuple[float, float]], most: int) -> None:
    gain, cost = (np.array(column) for column in zip(*points, strict=True))
    whole, kept = pareto(gain, cost), thinned_frontier(gain, cost, most)
    assert len(kept) <= max(most, 1) and set(kept) <= set(whole)
    assert gain[kept[-1]] == gain[whole[-1]]
    if len(whole) > 1:
        assert cost[kept[0]] == cost[whole[0]]


def test_digests_merge_blocks_once() -> None:
    view = last_view()
    assert len(view.observations) > 10
    digests = Digests()
    known = digests.update(view)
    assert digests.update(view) is known and list(known) == [view.running]
    expected = view.observations[0]
    for one in view.observations[1:]:
        expected = merged(expected, one)
    assert known[expected.configuration] == expected
    assert known[expected.configuration].samples_per_s == pytest.approx(
        job().truth.speed(expected.configuration).samples_per_s, rel=0.05
    )
