"""Sia: fair by a negative power, careful with restarts, at most twice the processes in a round, within the cluster."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.policies.integer_programs.predictions import PredictedOptions
from benchmarks.simulator.policies.integer_programs.sia import POWER, UNALLOCATED, SiaPolicy, restart_factor, values_of
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def options_of(speeds: list[float], present: int) -> PredictedOptions:
    rows = tuple(Configuration(count + 1, 1) for count in range(len(speeds)))
    cores = np.array([one.cores for one in rows], dtype=np.float64)
    return PredictedOptions(rows, np.array(speeds), cores, cores * 1e9, present)


def test_the_values_are_those_of_the_papers_objective() -> None:
    found = values_of(options_of([100.0, 150.0, 400.0], present=1), factor=0.5)
    goodput = np.array([1.0 * 0.5, 1.5, 4.0 * 0.5])  # over the least; only the others restart the job
    assert found == pytest.approx(UNALLOCATED - goodput**POWER)


def test_a_job_that_has_little_gains_more_by_the_same_factor() -> None:
    values = values_of(options_of([1.0, 2.0, 4.0, 8.0], present=0), factor=1.0)
    assert (np.diff(values) > 0).all() and (np.diff(values, 2) < 0).all()
    assert values[0] == pytest.approx(UNALLOCATED - 1.0), "the least is worth more than to wait"


def test_the_restart_factor_falls_with_restarts_and_rises_with_age() -> None:
    assert restart_factor(600.0, 0, 30.0) == pytest.approx(600 / 630)
    assert restart_factor(600.0, 10, 30.0) == pytest.approx(300 / 630)
    assert restart_factor(600.0, 3, 30.0) < restart_factor(6000.0, 3, 30.0) < 1.0
    assert restart_factor(10.0, 50, 30.0) > 0


def test_a_job_grows_from_the_smallest_and_at_most_doubles() -> None:
    watched = Watched(SiaPolicy())
    found = simulate_jobs([job(samples=300_000_000)], watched, cluster(2))
    rows = watched.configurations(0)
    assert rows[0][:2] == (1, 1) and {row[2:] for row in rows} == {(2, 2)}
    for role in (0, 1):
        counts = [row[role] for row in rows]
        assert all(after <= 2 * max(counts[: place + 1]) for place, after in enumerate(counts[1:]))
    assert found.jobs[0].outcome == "completed"
    last = found.jobs[0].final
    assert last is not None and last.workers > 4, "there is room, and more workers gain"


def test_the_jobs_share_the_cluster_and_late_ones_get_room() -> None:
    """Jobs that scale share what there is; `Watched` fails if grants together exceed the free cores."""
    truth = ClosedNetwork(server_s=0.0005)
    specs = [job(number, samples=400_000_000, arrived_s=400.0 * number, truth=truth) for number in range(6)]
    watched = Watched(SiaPolicy())
    found = simulate_jobs(specs, watched, cluster(1))
    assert {one.outcome for one in found.jobs} == {"completed"}
    assert all(one.started_s is not None and one.started_s - one.arrived_s < 300.0 for one in found.jobs)
    used = [sum(one.running.cores for one in view.jobs if one.running) for view, _ in watched.seen]
    assert max(used) > 48 and max(used) <= 64
