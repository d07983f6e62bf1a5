"""The policy of elastichost: it forecasts memory, replaces stragglers, moves buckets, and starts from history."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.hosts import ClusterHost
from benchmarks.simulator.cluster.memory_curve import MemoryCurve
from benchmarks.simulator.cluster.random_streams import IncidentRates
from benchmarks.simulator.policies.elastichost_policy import ElastichostPolicy, PolicyParts
from elastichost.history.features import JobFeatures
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.benchmarks.simulator.watched_policy import Watched, cluster

SAMPLES = 400_000_000


def test_a_job_grows_to_a_fast_configuration() -> None:
    spec = job(samples=SAMPLES)
    found = simulate_jobs([spec], Watched(ElastichostPolicy()), cluster(2)).jobs[0]
    assert found.outcome == "completed" and found.final is not None
    best = max(spec.truth.speed(found.final).samples_per_s, 1.0)
    assert best > 3 * spec.truth.speed(spec.request).samples_per_s


def test_rows_are_dropped_before_the_memory_of_the_hosts_is_used_up() -> None:
    spec = job(
        samples=8 * SAMPLES,
        memory=MemoryCurve(1e9, 60e9, 0.8, 8.0 * SAMPLES, 250e6, 100e6),
        features=JobFeatures(family="family", user="user", samples=8 * SAMPLES, rows=15_000_000, mean_dim=16.0),
        requested_memory_bytes=8 * 10**9,
    )
    small = msgspec.structs.replace(cluster(1), hosts=(ClusterHost(64, 24 * 10**9),))
    found = simulate_jobs([spec], Watched(ElastichostPolicy()), small).jobs[0]
    assert found.outcome == "completed"
    blind = simulate_jobs([spec], Watched(ElastichostPolicy(PolicyParts(memory=False))), small).jobs[0]
    assert blind.outcome == "died"


def test_after_a_kill_a_job_keeps_its_doubled_memory() -> None:
    """The memory of a short job reaches its peak before much is measured."""
    spec = job(
        samples=30_000_000,
        memory=MemoryCurve(1e9, 20e9, 0.5, 30e6, 250e6, 100e6),
        features=JobFeatures(family="family", user="user", samples=30_000_000, rows=15_000_000, mean_dim=16.0),
        requested_memory_bytes=5 * 10**9,
    )
    found = simulate_jobs([spec], Watched(ElastichostPolicy()), cluster(2)).jobs[0]
    assert found.outcome == "completed" and 1 <= found.ooms <= 3


@pytest.mark.parametrize("cares", [True, False])
def test_stragglers_and_hot_ps(cares: bool) -> None:
    spec = job(samples=4 * SAMPLES, truth=ClosedNetwork(server_s=0.1))
    parts = PolicyParts(health=cares, hot_servers=cares)
    found = simulate_jobs(
        [spec], Watched(ElastichostPolicy(parts)), cluster(2, IncidentRates(0.0, 0.3, 10.0, 0.0))
    ).jobs[0]
    assert found.episodes
    if not cares:
        assert found.replaced_right + found.replaced_wrong + found.moved_right + found.moved_wrong == 0
        return
    assert found.replaced_right >= 1 and found.moved_right >= 1
    assert found.replaced_wrong + found.moved_wrong <= 1


def test_a_job_begins_as_fast_as_the_last_job_of_its_family_ended() -> None:
    first = job(0, samples=SAMPLES)
    second = msgspec.structs.replace(job(1, samples=SAMPLES), arrived_s=20_000.0)
    found = simulate_jobs([first, second], Watched(ElastichostPolicy()), cluster(8)).jobs
    assert found[0].ended_s < second.arrived_s
    assert found[1].first is not None and found[0].final is not None
    speed = first.truth.speed
    assert speed(found[1].first).samples_per_s > 0.9 * speed(found[0].final).samples_per_s
    cold = simulate_jobs([first, second], Watched(ElastichostPolicy(PolicyParts(warm_start=False))), cluster(8)).jobs
    assert found[1].completion_s < cold[1].completion_s
    assert cold[1].first == cold[0].first


def test_a_job_begins_with_what_a_running_job_of_its_family_has_measured() -> None:
    first = job(0, samples=20 * SAMPLES)
    second = msgspec.structs.replace(job(1, samples=SAMPLES), arrived_s=2_000.0)
    found = simulate_jobs([first, second], Watched(ElastichostPolicy()), cluster(8)).jobs
    assert found[0].ended_s > found[1].ended_s, "the first job runs all the time"
    assert found[1].first is not None
    speed = first.truth.speed
    assert speed(found[1].first).samples_per_s > 2 * speed(second.request).samples_per_s
    cold = simulate_jobs([first, second], Watched(ElastichostPolicy(PolicyParts(warm_start=False))), cluster(8)).jobs
    assert cold[1].first == second.request and found[1].completion_s < cold[1].completion_s
