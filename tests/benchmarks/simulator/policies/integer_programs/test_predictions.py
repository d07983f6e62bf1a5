"""The options of a job: the user's cores, within the reach, with the running configuration and its measured speed."""

from __future__ import annotations

import numpy as np

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.views import ClusterView
from benchmarks.simulator.policies.integer_programs.predictions import Predictions
from benchmarks.simulator.policies.static import StaticPolicy
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def seen() -> ClusterView:
    """A view of a job that was measured in its requested configuration, 5 workers and 2 PS with 2 cores each."""
    watched = Watched(StaticPolicy())
    simulate_jobs([job(samples=30_000_000, request=Configuration(5, 2, 2, 2))], watched, cluster(1))
    return next(view for view, _ in watched.seen if view.jobs and len(view.jobs[0].observations) >= 3)


def test_options_are_a_frontier_of_the_users_cores() -> None:
    view, predictions = seen(), Predictions("optimus")
    running = view.jobs[0].running
    assert running is not None
    found = predictions.of(view, view.jobs[0], running, (8, 4))
    assert {(one.worker_cores, one.server_cores) for one in found.configurations} == {(2, 2)}
    assert all(one.workers <= 8 and one.servers <= 4 for one in found.configurations)
    assert found.configurations[found.present] == Configuration(5, 2, 2, 2), "also where 5 is no number of COUNTS"
    measured = np.mean([one.samples_per_s for one in view.jobs[0].observations])
    assert abs(found.speeds[found.present] / measured - 1) < 0.05
    others = np.delete(np.arange(len(found.cores)), found.present)
    assert (np.diff(found.cores[others]) > 0).all() and (np.diff(found.speeds[others]) > 0).all()
    assert predictions.of(view, view.jobs[0], running, (8, 4)) is found, "nothing new is known"
    assert predictions.of(view, view.jobs[0], running, (16, 4)) is not found
