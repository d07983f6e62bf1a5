"""The policy follows the rules of DLRover's Brain."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.memory_curve import MemoryCurve
from benchmarks.simulator.policies.dlrover_brain import DlroverBrainPolicy, cores_in_use
from elastichost.history.features import JobFeatures
from elastichost.tuner.facts import Configuration, Observation, Workload
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def test_used_cores() -> None:
    """10 iterations a second of 4 workers: 0.2 CPU seconds each at the PS, 0.3 at a worker."""
    seen = Observation(Configuration(4, 2), 1000.0, 0.01, hot_share=0.75, server_cpu_s=0.2, worker_cpu_s=0.3)
    found = cores_in_use(seen, Workload(batch_size=100))
    assert (found.busiest, found.servers, found.worker) == pytest.approx((1.5, 2.0, 0.75))
    assert cores_in_use(seen, Workload(batch_size=100, mode="sync")).worker == pytest.approx(3.0)


def test_a_cold_job_begins_with_one_worker_and_four_ps_of_twelve_cores() -> None:
    watched = Watched(DlroverBrainPolicy())
    found = simulate_jobs([job(samples=400_000_000)], watched, cluster(4))
    rows = watched.configurations(0)
    assert rows[0] == (1, 4, 12, 12)
    assert rows[1][:1] == (1,) and rows[1][3] < 12, "then the PS are cut to what they use"
    assert rows[-1][0] > 8, "then workers are added"
    assert found.jobs[0].outcome == "completed"


def test_busy_ps_stop_the_growth() -> None:
    truth = ClosedNetwork(serial_s=0.002, parallel_s=0.004, server_s=0.2)
    watched = Watched(DlroverBrainPolicy())
    simulate_jobs([job(samples=100_000_000, truth=truth)], watched, cluster(4))
    rows = watched.configurations(0)
    assert max(row[0] for row in rows) < 32 or max(row[3] for row in rows) == 16


def test_memory_follows_what_is_used_and_doubles_after_a_kill() -> None:
    spec = job(samples=4_000_000_000, memory=MemoryCurve(5e9, 60e9, 0.9, 4e9, 250e6, 100e6))
    watched = Watched(DlroverBrainPolicy())
    found = simulate_jobs([spec], watched, cluster(4))
    assert found.jobs[0].outcome == "completed"
    assert found.jobs[0].used_byte_s / found.jobs[0].memory_byte_s > 0.4


def test_history_of_the_family_sizes_the_next_job() -> None:
    first = job(0, samples=200_000_000)
    same = job(1, samples=200_000_000, arrived_s=20_000.0)
    other = msgspec.structs.replace(same, job=2, features=JobFeatures(family="another"))
    watched = Watched(DlroverBrainPolicy())
    simulate_jobs([first, same, other], watched, cluster(4))
    assert watched.configurations(1)[0] != (1, 4, 12, 12)
    assert watched.configurations(2)[0] == (1, 4, 12, 12)
