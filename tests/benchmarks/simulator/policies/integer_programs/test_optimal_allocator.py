"""The Optimal Resource Allocator: progress in the next period, profiling runs first, within the cluster."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.policies.integer_programs.optimal_allocator import (
    INTERVAL_S,
    PROBES,
    OptimalAllocatorPolicy,
    progress_of,
)
from benchmarks.simulator.policies.integer_programs.predictions import PredictedOptions
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def test_progress_is_the_share_of_what_is_left_and_at_most_all_of_it() -> None:
    rows = tuple(Configuration(count, 1) for count in (1, 2, 4))
    options = PredictedOptions(rows, np.array([10.0, 20.0, 40.0]), np.array([2.0, 3.0, 5.0]), np.zeros(3), 0)
    assert progress_of(options, 30.0 * INTERVAL_S) == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_profiling_runs_come_first_and_cores_stay() -> None:
    watched = Watched(OptimalAllocatorPolicy())
    found = simulate_jobs([job(samples=300_000_000)], watched, cluster(2))
    rows = watched.configurations(0)
    assert [row[:2] for row in rows[:2]] == list(PROBES[:2]) and {row[2:] for row in rows} == {(2, 2)}
    last = found.jobs[0].final
    assert found.jobs[0].outcome == "completed" and last is not None and last.workers > 4


def test_a_job_with_less_left_gets_more_but_not_more_than_it_can_use_up() -> None:
    """Of two jobs that scale alike, the one with less left has the larger share of its rest to gain."""
    truth = ClosedNetwork(server_s=0.0005)
    specs = [job(0, samples=8_000_000_000, truth=truth), job(1, samples=1_000_000_000, truth=truth)]
    watched = Watched(OptimalAllocatorPolicy())
    found = simulate_jobs(specs, watched, cluster(1))
    assert {one.outcome for one in found.jobs} == {"completed"}
    both = [view.jobs for view, _ in watched.seen if len(view.jobs) == 2 and view.now_s > 300.0]
    running = [[jobs[at].running for jobs in both] for at in (0, 1)]
    long, short = (np.mean([one.cores for one in row if one is not None]) for row in running)
    assert short > 1.5 * long


def test_the_jobs_stay_within_the_cluster() -> None:
    specs = [job(number, samples=400_000_000, arrived_s=10.0 * number) for number in range(6)]
    watched = Watched(OptimalAllocatorPolicy())
    found = simulate_jobs(specs, watched, cluster(1))
    assert {one.outcome for one in found.jobs} == {"completed"}
    used = [sum(one.running.cores for one in view.jobs if one.running) for view, _ in watched.seen]
    assert 48 < max(used) <= 64
