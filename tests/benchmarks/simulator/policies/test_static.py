"""Static jobs keep their request; a tuned job has the best configuration within its user's share of cores."""

from __future__ import annotations

import pytest

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.jobs import DEFAULT_LIMITS
from benchmarks.simulator.policies.configurations import candidates
from benchmarks.simulator.policies.static import StaticPolicy, TunedStaticPolicy, best_configuration
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def test_a_static_job_keeps_its_request() -> None:
    watched = Watched(StaticPolicy())
    found = simulate_jobs([job()], watched, cluster(1))
    assert watched.configurations(0) == [(4, 2, 2, 2)]
    assert sum(len(grants) for _, grants in watched.seen) == 1 and found.jobs[0].outcome == "completed"


@pytest.mark.parametrize("cores", [4, 16, 64])
def test_the_best_configuration_agrees_with_an_exhaustive_search(cores: int) -> None:
    truth = ClosedNetwork(server_s=0.01)
    spec = job(truth=truth)
    array = candidates(DEFAULT_LIMITS)
    chosen = best_configuration(spec, array, cores)
    assert chosen.cores <= cores
    every = [Configuration(*row) for row in array.astype(int).tolist()]
    best = max(truth.speed(one).samples_per_s for one in every if one.cores <= cores)
    assert truth.speed(chosen).samples_per_s >= 0.98 * best
    cheaper = [one for one in every if one.cores < chosen.cores]
    assert all(truth.speed(one).samples_per_s < 0.98 * best for one in cheaper)


def test_a_tuned_job_has_enough_memory_and_never_changes() -> None:
    spec = job(requested_memory_bytes=10**9)
    watched = Watched(TunedStaticPolicy({0: spec}))
    found = simulate_jobs([spec], watched, cluster(2))
    assert (found.jobs[0].outcome, found.jobs[0].ooms, found.jobs[0].changes) == ("completed", 0, 0)
    assert found.jobs[0].used_byte_s / found.jobs[0].memory_byte_s > 0.5
