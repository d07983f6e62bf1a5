"""The search of Pollux stays within the cores of the cluster and finds a nearly optimal allocation."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.policies.pollux import PolluxPolicy, evolved, hopeful
from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.models.published.pollux import fit
from tests.benchmarks.simulator.closed_network import job
from tests.benchmarks.simulator.watched_policy import Watched, cluster
from tests.effort import examples


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 4)), min_size=1, max_size=6), st.integers(0, 40))
def test_found_allocations_fit(jobs: list[tuple[int, int]], spare: int) -> None:
    most, sizes = (np.array(column) for column in zip(*jobs, strict=True))
    cores = int(sizes.sum()) + spare
    speedups = [np.arange(1.0, 17.0) ** 0.8 for _ in jobs]
    found = evolved(np.random.default_rng(0), speedups, np.ones(len(jobs), dtype=np.int64), most, sizes, cores)
    assert (found >= 1).all() and (found <= most).all()
    assert int((found * sizes).sum()) <= cores


def test_a_found_allocation_is_nearly_the_best_of_all() -> None:
    speedups = [np.arange(1.0, 7.0) ** power for power in (1.0, 0.6, 0.2)]
    ones, most, sizes = np.ones(3, dtype=np.int64), np.full(3, 6), np.array([1, 2, 3])

    def fitness(workers: tuple[int, ...]) -> float:
        gained = [
            table[count - 1] * (0.9 if count != 1 else 1.0) for table, count in zip(speedups, workers, strict=True)
        ]
        return 3 / sum(1 / one for one in gained)

    best = max(fitness(one) for one in product(range(1, 7), repeat=3) if sum(np.array(one) * sizes) <= 14)
    found = evolved(np.random.default_rng(1), speedups, ones, most, sizes, 14)
    assert fitness(tuple(found.tolist())) >= 0.97 * best


def test_a_job_at_most_doubles_at_a_time_and_its_ps_stay() -> None:
    watched = Watched(PolluxPolicy())
    found = simulate_jobs([job(samples=300_000_000)], watched, cluster(2))
    rows = watched.configurations(0)
    workers = [row[0] for row in rows]
    assert workers[0] == 1 and max(workers) > 8
    assert all(after <= 2 * max(workers[: place + 1]) for place, after in enumerate(workers[1:]))
    assert {row[1:] for row in rows} == {(2, 2, 2)}
    assert found.jobs[0].outcome == "completed"


def test_a_cost_that_was_never_measured_is_assumed_to_be_zero() -> None:
    """After measurements with one worker, a job is assumed to scale perfectly."""
    seen = [Observation(Configuration(1, 1), 1000.0, 0.02)]
    fitted = hopeful(fit(Workload(batch_size=100), seen))
    one, eight = fitted.predict(as_array([Configuration(1, 1), Configuration(8, 1)])).samples_per_s
    assert eight == pytest.approx(8 * one)
    seen.append(Observation(Configuration(2, 1), 1200.0, 0.02))
    seen.append(Observation(Configuration(4, 1), 1250.0, 0.02))
    known = fit(Workload(batch_size=100), seen)
    assert hopeful(known) == known
