"""The truth tables of the package agree with the queue simulator."""

from __future__ import annotations

import io

import numpy as np
import pytest

from benchmarks.simulator.queueing.truth_tables import (
    AXES,
    CLUSTER_SCENARIOS,
    point,
    read_tables,
    tables,
    tabulate,
    write_tables,
)
from elastichost.errors import ConfigError
from elastichost.tuner.facts import Configuration

NOISE = 0.08  # of logarithms: a table comes from runs of a few hundred iterations


def test_points_of_the_file_agree_with_the_queue_simulator() -> None:
    random = np.random.default_rng(7)
    for scenario in CLUSTER_SCENARIOS:
        places = [int(random.integers(len(axis))) for axis in AXES]
        workers, servers, worker_cores, server_cores, skew = (
            axis[place] for axis, place in zip(AXES, places, strict=True)
        )
        configuration = Configuration(int(workers), int(servers), int(worker_cores), int(server_cores))
        kept = tables()[scenario.name].at(workers, servers, worker_cores, server_cores, skew)
        assert kept == pytest.approx(point(scenario, configuration, skew), abs=NOISE), scenario.name


def test_written_tables_are_read_back() -> None:
    axes = ((1.0, 2.0), (1.0, 2.0), (1.0, 2.0), (1.0, 2.0), (0.0, 0.3))
    rows = {one.name: np.zeros((32, 7), dtype=np.int16) for one in CLUSTER_SCENARIOS}
    first = CLUSTER_SCENARIOS[0]
    rows[first.name] = np.stack(list(tabulate(first, axes)))
    stream = io.BytesIO()
    write_tables(stream, rows)
    stream.seek(0)
    found = read_tables(stream, axes)[first.name].at(2, 1, 2, 1, 0.3)
    assert found == pytest.approx(point(first, Configuration(2, 1, 2, 1), 0.3), abs=0.001)


def test_a_file_of_other_scenarios_is_refused() -> None:
    stream = io.BytesIO()
    write_tables(stream, {"other": np.zeros((32, 7), dtype=np.int16)})
    stream.seek(0)
    with pytest.raises(ConfigError, match="lack scenario"):
        read_tables(stream)
