"""Speed tables: exact at their points, and scaled by the costs of a job, by skew and by stragglers."""

from __future__ import annotations

from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulator.queueing.job_speed import QUANTITIES, ScaledSpeedTable, SpeedTable, slowed
from elastichost.tuner.facts import Configuration, Workload, as_array
from tests.benchmarks.simulator.closed_network import ClosedNetwork

AXES = ((1.0, 4.0, 16.0), (1.0, 4.0), (1.0, 4.0), (1.0, 4.0), (0.0, 0.5))
NETWORK = ClosedNetwork()


def network_table() -> SpeedTable:
    """The table of NETWORK at all points of AXES."""
    rows = []
    for workers, servers, worker_cores, server_cores, skew in product(*AXES):
        configuration = Configuration(int(workers), int(servers), int(worker_cores), int(server_cores))
        speed = NETWORK.speed(configuration, skew)
        rows.append([max(1e-12, getattr(speed, name)) for name in QUANTITIES])
    shape = (*(len(axis) for axis in AXES), len(QUANTITIES))
    return SpeedTable("network", NETWORK.workload, 0.0, AXES, np.log(np.array(rows)).reshape(shape))


TABLE = network_table()
whole = st.builds(Configuration, st.integers(1, 32), st.integers(1, 16), st.integers(1, 16), st.integers(1, 16))


@pytest.mark.parametrize("skew", [0.0, 0.5])
def test_points_of_the_lattice_are_exact(skew: float) -> None:
    for point in product(*(tuple(int(x) for x in axis) for axis in AXES[:4])):
        configuration = Configuration(*point)
        found, true = ScaledSpeedTable(TABLE).speed(configuration, skew), NETWORK.speed(configuration, skew)
        for name in QUANTITIES:
            assert getattr(found, name) == pytest.approx(getattr(true, name), rel=1e-9), name


@given(whole, st.floats(0.5, 2.0), st.floats(0.5, 2.0), st.floats(0.0, 0.9))
def test_speeds_agree_with_speed(configuration: Configuration, compute: float, server: float, skew: float) -> None:
    truth = ScaledSpeedTable(TABLE, 1.3, compute, server)
    many = truth.speeds(as_array([configuration, Configuration(1, 1)]), skew)
    assert many[0] == pytest.approx(truth.speed(configuration, skew).samples_per_s, rel=1e-9)


def test_costs_scale() -> None:
    plain, slow = ScaledSpeedTable(TABLE), ScaledSpeedTable(TABLE, time_scale=2.0)
    at = Configuration(4, 1, 4, 4)
    assert slow.speed(at).samples_per_s == pytest.approx(plain.speed(at).samples_per_s / 2)
    assert slow.speed(at).compute_s == pytest.approx(plain.speed(at).compute_s * 2)
    heavy = ScaledSpeedTable(TABLE, compute_scale=4.0)
    assert heavy.speed(Configuration(4, 1, 4, 4)).samples_per_s == pytest.approx(
        plain.speed(Configuration(4, 1, 1, 4)).samples_per_s
    ), "four times the computing on four cores is the computing on one"


def test_more_skew_is_never_faster() -> None:
    at = Configuration(16, 4, 4, 1)
    speeds = [ScaledSpeedTable(TABLE).speed(at, skew).samples_per_s for skew in (0.0, 0.1, 0.3, 0.5)]
    assert speeds == sorted(speeds, reverse=True) and speeds[0] > 1.1 * speeds[-1]


@given(st.integers(1, 8), st.integers(0, 8), st.sampled_from(["async", "bounded", "sync"]))
def test_stragglers_slow_all_workers_or_only_themselves(workers: int, slow: int, mode: str) -> None:
    speed = NETWORK.speed(Configuration(workers, 2))
    workload = msgspec.structs.replace(NETWORK.workload, mode=mode)
    rate = slowed(speed, workload, workers, slow, 1 / 3)
    if slow == 0:
        assert rate == speed.samples_per_s
    elif mode == "async":
        assert speed.samples_per_s * (1 - min(slow, workers) / workers) < rate < speed.samples_per_s
    else:
        assert rate == slowed(speed, workload, workers, workers, 1 / 3) < speed.samples_per_s


def test_shape_is_checked() -> None:
    with pytest.raises(ValueError, match="the table has shape .* its axes have"):
        SpeedTable("x", Workload(batch_size=1), 0.0, AXES, np.zeros((2, 2, 2, 2, 2, 7)))
