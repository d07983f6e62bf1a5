"""The three stages of DLRover-RM: a start from history, plans from the fitted model, memory before it runs out."""

from __future__ import annotations

import msgspec

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.memory_curve import MemoryCurve
from benchmarks.simulator.cluster.views import Policy
from benchmarks.simulator.policies.dlrover_rm import COLD, DlroverRmPolicy
from elastichost.history.features import JobFeatures
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def row(configuration: Configuration | None) -> tuple[int, int, int, int]:
    assert configuration is not None
    c = configuration
    return c.workers, c.servers, c.worker_cores, c.server_cores


def test_a_job_of_a_family_begins_where_the_last_one_ended() -> None:
    first = job(0, samples=300_000_000)
    same = job(1, samples=300_000_000, arrived_s=20_000.0)
    other = msgspec.structs.replace(same, job=2, features=JobFeatures(family="another"))
    watched = Watched(DlroverRmPolicy())
    found = simulate_jobs([first, same, other], watched, cluster(12))
    assert watched.configurations(0)[0] == watched.configurations(2)[0] == row(COLD)
    assert watched.configurations(1)[0] == row(found.jobs[0].final)
    assert found.jobs[1].completion_s < found.jobs[0].completion_s


def test_plans_get_faster() -> None:
    spec = job(samples=800_000_000, truth=ClosedNetwork(server_s=0.01))
    found = simulate_jobs([spec], Watched(DlroverRmPolicy()), cluster(12))
    final = found.jobs[0].final
    assert final is not None
    assert spec.truth.speed(final).samples_per_s > 1.5 * spec.truth.speed(COLD).samples_per_s


def test_memory_is_granted_before_it_is_needed() -> None:
    curve = MemoryCurve(5e9, 60e9, 0.9, 2e9, 250e6, 100e6)
    spec = job(samples=2_000_000_000, memory=curve, requested_memory_bytes=12 * 10**9)
    found = simulate_jobs([spec], Watched(DlroverRmPolicy()), cluster(4))
    assert (found.jobs[0].outcome, found.jobs[0].ooms) == ("completed", 0)
    assert found.jobs[0].used_byte_s / found.jobs[0].memory_byte_s > 0.5


def test_nsga2_finds_about_as_good_plans() -> None:
    spec = job(samples=100_000_000, truth=ClosedNetwork(server_s=0.01))
    policies: list[Policy] = [DlroverRmPolicy(), DlroverRmPolicy("nsga2")]
    finals = [simulate_jobs([spec], Watched(policy), cluster(2)).jobs[0].final for policy in policies]
    speeds = [spec.truth.speed(final).samples_per_s for final in finals if final is not None]
    assert len(speeds) == 2 and speeds[1] > 0.7 * speeds[0]
