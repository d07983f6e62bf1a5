"""Workers are added while they are worth it; PS are never touched."""

from __future__ import annotations

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.policies.elastic_scheduler import ElasticSchedulerPolicy
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def path(truth: ClosedNetwork, request: Configuration) -> list[int]:
    watched = Watched(ElasticSchedulerPolicy())
    simulate_jobs([job(samples=400_000_000, truth=truth, request=request, cov=0.02)], watched, cluster(4))
    rows = watched.configurations(0)
    assert {row[1:] for row in rows} == {(request.servers, request.worker_cores, request.server_cores)}
    return [row[0] for row in rows]


def test_it_grows_while_workers_scale() -> None:
    workers = path(ClosedNetwork(server_s=0.0005), Configuration(4, 2, 2, 2))
    assert workers == sorted(workers) and workers[-1] == 32


def test_it_goes_back_from_the_step_that_was_not_worth_it() -> None:
    """One PS of 10 ms serves 100 iterations a second: four workers of 25 ms nearly use it up."""
    workers = path(ClosedNetwork(serial_s=0.015, parallel_s=0.02, server_s=0.01), Configuration(2, 1, 2, 1))
    assert workers[0] == 2 < workers[-1] < max(workers) <= 6
    assert workers[-2] > workers[-1]


def test_it_shrinks_a_job_with_too_many() -> None:
    workers = path(ClosedNetwork(serial_s=0.015, parallel_s=0.02, server_s=0.01), Configuration(16, 1, 2, 1))
    assert workers[1] > 16, "first it looks above"
    assert workers[-1] < 8
