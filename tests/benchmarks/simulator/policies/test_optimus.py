"""Optimus: sample runs come first, then the process that gains most; cores of a process stay as requested."""

from __future__ import annotations

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.policies.optimus import PROBES, OptimusPolicy
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def test_sample_runs_come_first() -> None:
    watched = Watched(OptimusPolicy())
    found = simulate_jobs([job(samples=300_000_000)], watched, cluster(2))
    rows = watched.configurations(0)
    assert tuple(row[:2] for row in rows[: len(PROBES)]) == PROBES
    assert {row[2:] for row in rows} == {(2, 2)}
    assert found.jobs[0].outcome == "completed"
    last = found.jobs[0].final
    assert last is not None and last.workers > 8, "there is room, and more workers gain"


def test_the_bottleneck_gets_more_processes() -> None:
    """Optimus adds PS to a job in which the PS do all the work, and workers to one in which they do none."""
    request = Configuration(4, 2, 2, 2)
    finals = []
    for truth in (ClosedNetwork(parallel_s=0.002, server_s=0.05), ClosedNetwork(parallel_s=0.05, server_s=0.001)):
        spec = job(samples=200_000_000, truth=truth, request=request, cov=0.02)
        found = simulate_jobs([spec], Watched(OptimusPolicy()), cluster(1))
        finals.append(found.jobs[0].final)
    heavy, light = finals
    assert heavy is not None and light is not None
    assert heavy.servers / heavy.workers > 2 * light.servers / light.workers


def test_the_jobs_share_nearly_the_whole_cluster() -> None:
    specs = [job(number, samples=400_000_000, arrived_s=10.0 * number) for number in range(5)]
    watched = Watched(OptimusPolicy())
    found = simulate_jobs(specs, watched, cluster(2))
    assert {one.outcome for one in found.jobs} == {"completed"}
    late = [view for view, _ in watched.seen if 600 < view.now_s < 900 and len(view.jobs) == 5]
    assert late and all(view.free_cores <= 0.2 * view.cores for view in late)
