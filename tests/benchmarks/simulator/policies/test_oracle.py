"""The oracle, which knows all true values, is not beaten by a policy that knows only a part of them."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.jobs import DEFAULT_LIMITS, JobMix, draw_jobs
from benchmarks.simulator.cluster.random_streams import IncidentRates
from benchmarks.simulator.policies.oracle import OraclePolicy
from benchmarks.simulator.policies.static import TunedStaticPolicy
from benchmarks.simulator.queueing.truth_tables import tables
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.benchmarks.simulator.watched_policy import Watched, cluster

SHORT = JobMix(interarrival_s=1200.0, median_s=3600.0)


@pytest.mark.parametrize("seed", range(4))
def test_the_oracle_is_never_worse_than_tuned_jobs_where_there_is_room(seed: int) -> None:
    jobs = draw_jobs(seed, 12, SHORT, tables(), DEFAULT_LIMITS)
    known = {one.job: one for one in jobs}
    options = msgspec.structs.replace(cluster(12 * 6), interference=0.0)
    tuned, oracle = (simulate_jobs(jobs, policy, options) for policy in (TunedStaticPolicy(known), OraclePolicy(known)))
    assert {one.outcome for one in (*tuned.jobs, *oracle.jobs)} == {"completed"}
    for one, other in zip(oracle.jobs, tuned.jobs, strict=True):
        assert one.completion_s <= 1.001 * other.completion_s
    assert sum(one.completion_s for one in oracle.jobs) < sum(one.completion_s for one in tuned.jobs)


def test_the_oracle_fits_a_crowded_cluster_and_wastes_no_memory() -> None:
    specs = [job(number, samples=300_000_000, arrived_s=20.0 * number, requested_memory_bytes=1) for number in range(8)]
    watched = Watched(OraclePolicy({one.job: one for one in specs}))
    found = simulate_jobs(specs, watched, cluster(2))
    assert {one.outcome for one in found.jobs} == {"completed"}
    assert sum(one.ooms for one in found.jobs) == 0
    assert sum(one.used_byte_s for one in found.jobs) > 0.7 * sum(one.memory_byte_s for one in found.jobs)


def test_the_oracle_replaces_stragglers_and_moves_buckets_of_hot_ps() -> None:
    spec = job(samples=1_500_000_000, truth=ClosedNetwork(server_s=0.1))
    options = cluster(2, IncidentRates(0.0, 0.3, 10.0, 0.0))
    found = simulate_jobs([spec], Watched(OraclePolicy({0: spec})), options).jobs[0]
    assert found.replaced_right >= 1 and found.moved_right >= 1
    assert found.replaced_wrong + found.moved_wrong <= 1
    assert found.hot_s < 0.4 * found.completion_s
