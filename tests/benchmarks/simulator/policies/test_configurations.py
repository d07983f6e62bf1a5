"""Configurations are within the limits."""

from __future__ import annotations

import numpy as np

from benchmarks.simulator.cluster.jobs import DEFAULT_LIMITS
from benchmarks.simulator.policies.configurations import candidates, clamped, cores_of
from elastichost.tuner.facts import Configuration


def test_clamped() -> None:
    assert clamped(DEFAULT_LIMITS, 99, 0, 3, 2.0) == Configuration(32, 1, 3, 2)


def test_candidates_are_all_configurations_with_the_given_cores() -> None:
    array = candidates(DEFAULT_LIMITS, (1, 4))
    assert len(array) == len(np.unique(array, axis=0)) == 32 * 16 * 4
    assert set(array[:, 2]) == set(array[:, 3]) == {1.0, 4.0}
    assert cores_of(array)[-1] == 32 * 4 + 16 * 4
