"""Every policy runs a mix of jobs: within the capacity, with the same result every time, and most jobs complete."""

from __future__ import annotations

import pytest

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.jobs import DEFAULT_LIMITS, JobMix, draw_jobs
from benchmarks.simulator.cluster.random_streams import IncidentRates
from benchmarks.simulator.policy_registry import POLICIES, make_policy
from benchmarks.simulator.queueing.truth_tables import tables
from tests.benchmarks.simulator.watched_policy import Watched, cluster

JOBS = draw_jobs(2, 8, JobMix(families=5, interarrival_s=300.0, median_s=2400.0), tables(), DEFAULT_LIMITS)


@pytest.mark.parametrize("name", POLICIES)
def test_a_mix_of_jobs(name: str) -> None:
    options = cluster(4, IncidentRates(0.05, 0.05, 0.2, 0.01))
    first, again = (simulate_jobs(JOBS, Watched(make_policy(name, JOBS, 1)), options, seed=2) for _ in range(2))
    assert first == again
    assert first.policy == name
    assert {one.outcome for one in first.jobs} <= {"completed", "died"}
    assert sum(one.outcome == "completed" for one in first.jobs) >= 6
    assert first.refused < 0.5 * first.decisions * len(JOBS)


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match="unknown policy 'best'; the policies are static"):
        make_policy("best", JOBS, 1)
