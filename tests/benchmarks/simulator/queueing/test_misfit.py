"""A departing speed: of the given size, smooth, alike within a family, and consistent between its two methods."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulator.cluster.jobs import DEFAULT_LIMITS
from benchmarks.simulator.policies.configurations import candidates
from benchmarks.simulator.queueing.job_speed import ScaledSpeedTable
from benchmarks.simulator.queueing.misfit import misfit
from benchmarks.simulator.queueing.truth_tables import tables
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.candidates import as_configurations

TRUTH = ScaledSpeedTable(tables()["server_bound"])
ARRAY = candidates(DEFAULT_LIMITS)


def logs(family: str, seed: int = 1, size: float = 0.2) -> np.ndarray:
    """Logarithms of the factors on all configurations."""
    return np.log(misfit(TRUTH, size, seed, family).speeds(ARRAY) / TRUTH.speeds(ARRAY))


def test_the_departure_has_the_given_size_over_families() -> None:
    all_of_them = np.concatenate([logs(f"family {number}") for number in range(40)])
    assert np.std(all_of_them) == pytest.approx(0.2, rel=0.2)
    assert np.abs(all_of_them).max() <= 0.2 * np.sqrt(2) + 1e-9


def test_it_is_smooth() -> None:
    """One more process or core changes the factor by little; twice as many change it by at most 0.2 sqrt(2) 1.0 in
    each of the axes."""
    one = misfit(TRUTH, 0.2, 1, "a")
    rows = np.array([[count, 4.0, 2.0, 2.0] for count in range(8, 33)])
    steps = np.diff(np.log(one.speeds(rows) / TRUTH.speeds(rows)))
    assert np.abs(steps).max() < 0.06


def test_families_depart_in_their_own_way_and_both_methods_agree() -> None:
    assert np.array_equal(logs("a"), logs("a")) and not np.allclose(logs("a"), logs("b"))
    assert not np.allclose(logs("a"), logs("a", seed=2))
    one = misfit(TRUTH, 0.2, 1, "a")
    for configuration in as_configurations(ARRAY[::997]):
        row = np.array([[getattr(configuration, name) for name in Configuration.__struct_fields__]], dtype=np.float64)
        assert one.speed(configuration).samples_per_s == pytest.approx(float(one.speeds(row)[0]), rel=1e-9)
        assert one.speed(configuration).compute_s == TRUTH.speed(configuration).compute_s
    assert one.workload == TRUTH.workload and one.skew == TRUTH.skew
