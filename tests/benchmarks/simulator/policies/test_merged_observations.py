"""Blocks of one configuration are merged once."""

from __future__ import annotations

import pytest

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.views import JobView
from benchmarks.simulator.policies.merged_observations import MergedObservations
from benchmarks.simulator.policies.static import StaticPolicy
from elastichost.tuner.policy.profile import merged
from tests.benchmarks.simulator.closed_network import job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def last_view(**changes: object) -> JobView:
    """The view of a static job at its end."""
    watched = Watched(StaticPolicy())
    simulate_jobs([job(samples=60_000_000, **changes)], watched, cluster(1))
    return watched.seen[-1][0].ended[0].view


def test_digests_merge_blocks_once() -> None:
    view = last_view()
    assert len(view.observations) > 10
    digests = MergedObservations()
    known = digests.update(view)
    assert digests.update(view) is known and list(known) == [view.running]
    expected = view.observations[0]
    for one in view.observations[1:]:
        expected = merged(expected, one)
    assert known[expected.configuration] == expected
    assert known[expected.configuration].samples_per_s == pytest.approx(
        job().truth.speed(expected.configuration).samples_per_s, rel=0.05
    )
