"""Every policy runs a mix of jobs: nothing beyond capacity, the same every time, nobody starves."""

from __future__ import annotations

import pytest

from elastichost.simulator.engine import simulate_jobs
from elastichost.simulator.jobs import DEFAULT_LIMITS, Mix, draw_jobs
from elastichost.simulator.policies.registry import POLICIES, make_policy
from elastichost.simulator.streams import IncidentRates
from elastichost.simulator.tables import tables

from ..watching import Watched, cluster

JOBS = draw_jobs(2, 8, Mix(families=5, interarrival_s=300.0, median_s=2400.0), tables(), DEFAULT_LIMITS)


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
    with pytest.raises(ValueError, match="no policy 'best': choose from static"):
        make_policy("best", JOBS, 1)
