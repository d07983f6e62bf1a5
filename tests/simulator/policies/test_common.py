"""Admission in order, merged observations, frontiers that are thinned but keep their ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.simulator.engine import simulate_jobs
from elastichost.simulator.jobs import DEFAULT_LIMITS
from elastichost.simulator.policies.common import (
    Choices,
    Digests,
    Refused,
    candidates,
    clamped,
    cores_of,
    requested_memory,
    thinned_frontier,
)
from elastichost.simulator.policies.static import Static
from elastichost.simulator.views import ClusterView, JobView
from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import Capacity, JobOptions, Option
from elastichost.tuner.policy.frontier import pareto
from elastichost.tuner.policy.profile import merged

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


def test_choices_are_kept_while_nothing_is_new() -> None:
    asked: list[Sequence[JobOptions]] = []

    def choose(jobs: Sequence[JobOptions], capacity: Capacity) -> Mapping[int | str, int]:
        asked.append(jobs)
        return {one.job: 0 for one in jobs}

    option = Option(Configuration(1, 1), 10.0, 2)
    jobs = [JobOptions(7, 100.0, (option,))]
    choices = Choices(choose)
    assert choices.of(jobs, Capacity(8), 0.0, [1]) == {7: 0}
    choices.of([msgspec.structs.replace(jobs[0], remaining_samples=90.0)], Capacity(8), 30.0, [1])
    assert len(asked) == 1, "less is left to train, and nothing else"
    for capacity, known, now_s in ((8, 2, 60.0), (16, 2, 90.0), (16, 2, 500.0)):
        choices.of(jobs, Capacity(capacity), now_s, [known])
    assert len(asked) == 4, "other options, other cores, a long time"
    choices.of([msgspec.structs.replace(jobs[0], current=0)], Capacity(16), 510.0, [2])
    assert len(asked) == 5


def test_what_was_refused_is_not_asked_for_at_once() -> None:
    watched = Watched(Static())
    simulate_jobs([job(samples=60_000_000)], watched, cluster(1))
    view: ClusterView = next(view for view, _ in watched.seen if view.jobs and view.jobs[0].running is not None)
    running = view.jobs[0].running
    assert running is not None
    here, there = (Option(one, 1.0, one.cores) for one in (running, Configuration(9, 9)))
    refused = Refused()
    refused.asked = {0: running}
    refused.note(view, 100.0)
    assert refused.without(view.jobs[0], (here, there)) == (here, there)
    refused.asked = {0: there.configuration}
    refused.note(view, 130.0)
    assert refused.without(view.jobs[0], (here, there)) == (here,)
    assert refused.without(view.jobs[0], (there,)) == (there,), "rather that than nothing"
    refused.asked = {}
    refused.note(view, 500.0)
    assert refused.without(view.jobs[0], (here, there)) == (here, there)
