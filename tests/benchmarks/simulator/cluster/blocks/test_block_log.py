"""The blocks of a job: a view of them stays the same when more are measured, and noise is part of every value."""

from __future__ import annotations

import math

import pytest

from benchmarks.simulator.cluster.blocks.block_log import BlockHistory, BlockLog, BlockState, Stretch
from benchmarks.simulator.cluster.random_streams import MeasurementNoise
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import job


def blocks(count: int, *, cov: float = 0.1, straggler: bool = False, workers: int = 4) -> BlockLog:
    """The log of a job with this number of blocks of 30 s."""
    spec = job()
    first = stretch(Configuration(workers, 2, 2, 2), straggler=straggler)
    found = BlockLog(MeasurementNoise(1, 1, cov, 0.7, 30), spec.truth.workload, spec.memory, lambda: first)
    if count:
        found.add(first, count)
    return found


def stretch(configuration: Configuration, *, began_s: float = -30.0, straggler: bool = False) -> Stretch:
    """A job that begins at began_s, and trains at its true speed."""
    speed = job().truth.speed(configuration)
    rate = speed.samples_per_s
    state = BlockState(30.0, configuration, speed, 0.0, 0.0, straggler, False)
    return Stretch(state, began_s, began_s + 30, 0.0, began_s, 0.0, 0.0, rate)


def test_a_view_does_not_grow() -> None:
    known = blocks(3)
    seen = BlockHistory(known, 3)
    first = tuple(seen.observations)
    known.add(stretch(Configuration(4, 2, 2, 2), began_s=60.0), 1)
    assert known.count == 4
    assert len(seen.observations) == len(seen.memory) == len(seen.slowest) == 3
    assert tuple(seen.observations) == first
    assert len(BlockHistory(known, 4).observations) == 4
    assert BlockHistory(known, 4).observations[:3] == first, "an observation must be made once"


def test_blocks_are_the_same_whenever_they_are_read() -> None:
    """Read after each block of an open stretch, after its end, or all at once in the end."""
    first, second = stretch(Configuration(4, 2, 2, 2)), stretch(Configuration(6, 2, 2, 2), began_s=90.0)
    found = []
    for early in (0, 1, 3):
        present = [first]
        spec = job()
        noise = MeasurementNoise(1, 1, 0.1, 0.7, 30)
        log = BlockLog(noise, spec.truth.workload, spec.memory, lambda present=present: present[-1])
        for index in range(early):
            log.block(index)
        log.add(first, 3)
        present.append(second)
        if early:
            assert log.block(3).configuration.workers == 6, "the first block of the stretch that goes on"
        log.add(second, 2)
        found.append([log.block(index) for index in range(log.count)])
    assert found[0] == found[1] == found[2]
    assert [one.at_s for one in found[0]] == [0.0, 30.0, 60.0, 120.0, 150.0]
    assert [one.work for one in found[0][:3]] == pytest.approx([30 * first.rate] * 3)


def test_observations_are_a_sequence() -> None:
    observations = BlockHistory(blocks(5), 5).observations
    assert observations[-1] == observations[4] and observations[-2:] == (observations[3], observations[4])
    assert [one.at_s for one in observations] == [0.0, 30.0, 60.0, 90.0, 120.0]
    with pytest.raises(IndexError, match="block 5 of 5"):
        observations[5]


def test_a_measurement_is_the_true_value_times_noise() -> None:
    known = blocks(4)
    for index, one in enumerate(BlockHistory(known, 4).observations):
        noise, true = known.noise.of_block(index), known.block(index).speed
        assert one.samples_per_s == pytest.approx(true.samples_per_s * math.exp(noise.offset))
        assert one.compute_s == pytest.approx(true.compute_s * noise.direct[0])
        assert one.log_error == noise.log_error and one.reader_s is None
        assert one.hot_share is not None and 0.5 <= one.hot_share < 0.6
        assert one.iterations == int(true.samples_per_s * 30 / 1000)


def test_the_slowest_worker() -> None:
    assert BlockHistory(blocks(1, workers=1), 1).slowest[0] == 1.0
    healthy = BlockHistory(blocks(200, cov=0.05), 200).slowest
    assert 0.9 < min(healthy) <= max(healthy) < 1.05 and 0.99 < sum(healthy) / 200 < 1.01
    assert max(BlockHistory(blocks(200, cov=0.05, straggler=True), 200).slowest) < 0.4


def test_the_slowest_worker_of_a_noisy_job() -> None:
    """One block does not show a straggler here; speeds of workers are averaged over several blocks."""
    healthy = BlockHistory(blocks(200, cov=0.8, workers=16), 200).slowest
    assert min(healthy) > 0.6 and 0.95 < sum(healthy) / 200 < 1.05
    slow = BlockHistory(blocks(200, cov=0.8, workers=16, straggler=True), 200).slowest
    assert sum(one < 0.6 for one in slow[3:]) > 0.9 * 197
