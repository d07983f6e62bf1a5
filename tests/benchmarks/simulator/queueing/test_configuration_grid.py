"""A grid covers the space of configurations."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulator.queueing.configuration_grid import grid
from elastichost.emulation.scenarios import SCENARIOS, Scenario
from elastichost.tuner.facts import as_array


@pytest.mark.parametrize("one", SCENARIOS, ids=lambda one: one.name)
def test_a_grid_is_large_distinct_and_within_bounds(one: Scenario) -> None:
    configurations = grid(one)
    assert len(set(configurations)) == len(configurations) >= 250
    array = as_array(configurations)
    assert array.min() >= 1
    if one.shares_host:
        assert (array[:, 0] * array[:, 2]).max() <= 2 * one.workload.host_cores
    else:
        assert len(configurations) == 768
        assert list(array.max(axis=0)) == [32, 16, 8, 8]
        # every value of every axis occurs with every value of every other
        for first, second in ((0, 1), (0, 2), (1, 3), (2, 3)):
            pairs = len(np.unique(array[:, [first, second]], axis=0))
            assert pairs == len(np.unique(array[:, first])) * len(np.unique(array[:, second]))
