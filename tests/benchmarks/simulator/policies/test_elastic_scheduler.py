"""The elastic scheduler adds workers while they are worth their cost, and never changes the PS."""

from __future__ import annotations

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.policies.elastic_scheduler import ElasticSchedulerPolicy
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def path(truth: ClosedNetwork, request: Configuration) -> list[int]:
    """The numbers of workers that the policy granted one after the other."""
    watched = Watched(ElasticSchedulerPolicy())
    simulate_jobs([job(samples=400_000_000, truth=truth, request=request, cov=0.02)], watched, cluster(4))
    rows = watched.configurations(0)
    assert {row[1:] for row in rows} == {(request.servers, request.worker_cores, request.server_cores)}
    return [row[0] for row in rows]


def test_a_job_grows_while_workers_scale() -> None:
    workers = path(ClosedNetwork(server_s=0.0005), Configuration(4, 2, 2, 2))
    assert workers == sorted(workers) and workers[-1] == 32


def test_a_step_that_is_not_worth_its_cost_is_taken_back() -> None:
    """One PS of 10 ms serves 100 iterations a second: four workers of 25 ms nearly use it up."""
    workers = path(ClosedNetwork(serial_s=0.015, parallel_s=0.02, server_s=0.01), Configuration(2, 1, 2, 1))
    assert workers[0] == 2 < workers[-1] < max(workers) <= 6
    assert workers[-2] > workers[-1]


def test_a_job_with_too_many_workers_shrinks() -> None:
    workers = path(ClosedNetwork(serial_s=0.015, parallel_s=0.02, server_s=0.01), Configuration(16, 1, 2, 1))
    assert workers[1] > 16, "the policy tries more workers first"
    assert workers[-1] < 8
