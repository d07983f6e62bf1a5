"""Waiting jobs start in order of arrival, with the requested memory."""

from __future__ import annotations

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.views import JobView
from benchmarks.simulator.policies.admission import requested_memory
from benchmarks.simulator.policies.static import StaticPolicy
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def last_view(**changes: object) -> JobView:
    """The view of a static job at its end."""
    watched = Watched(StaticPolicy())
    simulate_jobs([job(samples=60_000_000, **changes)], watched, cluster(1))
    return watched.seen[-1][0].ended[0].view


def test_jobs_start_in_order_of_arrival_but_a_job_that_does_not_fit_is_skipped() -> None:
    big, small = Configuration(6, 2, 8, 4), Configuration(2, 1, 2, 2)
    specs = [job(0, request=big), job(1, request=big), job(2, request=small)]
    found = simulate_jobs(specs, Watched(StaticPolicy()), cluster(1))
    assert [one.waited_s > 0 for one in found.jobs] == [False, True, False]


def test_processes_beyond_the_request_add_their_private_memory() -> None:
    view = last_view()
    asked = requested_memory(view, Configuration(4, 2, 2, 2))
    assert asked == 8 * 10**9
    assert requested_memory(view, Configuration(1, 1, 2, 2)) == asked
    assert requested_memory(view, Configuration(6, 3, 2, 2)) == asked + 2 * 250_000_000 + 100_000_000
