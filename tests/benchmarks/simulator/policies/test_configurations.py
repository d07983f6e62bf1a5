"""Configurations are within the limits; a frontier that is thinned keeps its ends."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulator.cluster.jobs import DEFAULT_LIMITS
from benchmarks.simulator.policies.configurations import candidates, clamped, cores_of, thinned_frontier
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.frontier import pareto


def test_clamped() -> None:
    assert clamped(DEFAULT_LIMITS, 99, 0, 3, 2.0) == Configuration(32, 1, 3, 2)


def test_candidates_are_all_configurations_with_the_given_cores() -> None:
    array = candidates(DEFAULT_LIMITS, (1, 4))
    assert len(array) == len(np.unique(array, axis=0)) == 32 * 16 * 4
    assert set(array[:, 2]) == set(array[:, 3]) == {1.0, 4.0}
    assert cores_of(array)[-1] == 32 * 4 + 16 * 4


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e3)), min_size=1, max_size=60), st.integers(2, 8))
def test_thinned_frontier(points: list[tuple[float, float]], most: int) -> None:
    gain, cost = (np.array(column) for column in zip(*points, strict=True))
    whole, kept = pareto(gain, cost), thinned_frontier(gain, cost, most)
    assert len(kept) <= max(most, 1) and set(kept) <= set(whole)
    assert gain[kept[-1]] == gain[whole[-1]]
    if len(whole) > 1:
        assert cost[kept[0]] == cost[whole[0]]
