"""The blocks of a job: a view of them stays the same when more are measured, and noise is part of every value."""

from __future__ import annotations

import math

import pytest

from benchmarks.simulator.cluster.measurements import BlockHistory, BlockLog, MeasuredBlock
from benchmarks.simulator.cluster.random_streams import MeasurementNoise
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import job


def blocks(count: int, *, cov: float = 0.1, straggler: bool = False, workers: int = 4) -> BlockLog:
    """The log of a job with this number of blocks of 30 s."""
    spec = job()
    found = BlockLog(MeasurementNoise(1, 1, cov, 0.7, 30), spec.truth.workload, spec.memory)
    configuration = Configuration(workers, 2, 2, 2)
    speed = spec.truth.speed(configuration)
    for index in range(count):
        work = speed.samples_per_s * 30.0
        row = MeasuredBlock(30.0 * index, 30.0, work, work * index, configuration, speed, 0.0, 0.0, straggler, False)
        found.blocks.append(row)
    return found


def test_a_view_does_not_grow() -> None:
    known = blocks(3)
    seen = BlockHistory(known)
    first = tuple(seen.observations)
    known.blocks.append(known.blocks[0])
    assert len(seen.observations) == len(seen.memory) == len(seen.slowest) == 3
    assert tuple(seen.observations) == first
    assert len(BlockHistory(known).observations) == 4
    assert BlockHistory(known).observations[:3] == first, "an observation must be made once"


def test_observations_are_a_sequence() -> None:
    observations = BlockHistory(blocks(5)).observations
    assert observations[-1] == observations[4] and observations[-2:] == (observations[3], observations[4])
    assert [one.at_s for one in observations] == [0.0, 30.0, 60.0, 90.0, 120.0]
    with pytest.raises(IndexError, match="block 5 of 5"):
        observations[5]


def test_a_measurement_is_the_true_value_times_noise() -> None:
    known = blocks(4)
    for index, one in enumerate(BlockHistory(known).observations):
        noise, true = known.noise.of_block(index), known.blocks[index].speed
        assert one.samples_per_s == pytest.approx(true.samples_per_s * math.exp(noise.offset))
        assert one.compute_s == pytest.approx(true.compute_s * noise.direct[0])
        assert one.log_error == noise.log_error and one.reader_s is None
        assert one.hot_share is not None and 0.5 <= one.hot_share < 0.6
        assert one.iterations == int(true.samples_per_s * 30 / 1000)


def test_the_slowest_worker() -> None:
    assert BlockHistory(blocks(1, workers=1)).slowest[0] == 1.0
    healthy = BlockHistory(blocks(200, cov=0.05)).slowest
    assert 0.9 < min(healthy) <= max(healthy) < 1.05 and 0.99 < sum(healthy) / 200 < 1.01
    assert max(BlockHistory(blocks(200, cov=0.05, straggler=True)).slowest) < 0.4


def test_the_slowest_worker_of_a_noisy_job() -> None:
    """One block does not show a straggler here; speeds of workers are averaged over several blocks."""
    healthy = BlockHistory(blocks(200, cov=0.8, workers=16)).slowest
    assert min(healthy) > 0.6 and 0.95 < sum(healthy) / 200 < 1.05
    slow = BlockHistory(blocks(200, cov=0.8, workers=16, straggler=True)).slowest
    assert sum(one < 0.6 for one in slow[3:]) > 0.9 * 197
