"""Noise and incidents have their stated statistics, and depend only on the seed and the job."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.cluster.random_streams import IncidentRates, IncidentStream, MeasurementNoise, generator

BLOCKS = 3000


def test_the_noise_of_blocks_has_the_stated_error() -> None:
    noise = MeasurementNoise(1, 1, 0.3, 0.7, 30)
    offsets = np.array([noise.of_block(index).offset for index in range(BLOCKS)])
    assert abs(offsets.mean()) < 4 * noise.log_error / math.sqrt(BLOCKS)
    assert offsets.std() == pytest.approx(noise.log_error, rel=0.15)
    told = np.median([noise.of_block(index).log_error for index in range(BLOCKS)])
    assert 0.5 < told / offsets.std() < 1.5, "an observer must know the error approximately"


def test_windows_are_correlated_by_rho() -> None:
    """A block of two windows has their mean, and two neighbours' means are correlated by rho (1 + rho) / 2."""
    rho = 0.7
    noise = MeasurementNoise(1, 2, 0.2, rho, 2)
    offsets = np.array([noise.of_block(index).offset for index in range(BLOCKS)])
    found = float(np.corrcoef(offsets[1:], offsets[:-1])[0, 1])
    assert found == pytest.approx(rho * (1 + rho) / 2, abs=0.06)


def test_a_block_does_not_depend_on_the_order_of_draws() -> None:
    first, second = MeasurementNoise(1, 3, 0.1, 0.6, 30), MeasurementNoise(1, 3, 0.1, 0.6, 30)
    assert second.of_block(70) == first.of_block(70)
    assert second.of_block(3) == first.of_block(3)
    assert MeasurementNoise(2, 3, 0.1, 0.6, 30).of_block(3) != first.of_block(3)
    assert MeasurementNoise(1, 4, 0.1, 0.6, 30).of_block(3) != first.of_block(3)


def test_streams_differ_by_seed_name_and_index() -> None:
    draws = {
        generator(seed, stream, index).random() for seed in (0, 1) for stream in ("noise", "job") for index in (0, 1)
    }
    assert len(draws) == 8


def test_rates_of_incidents() -> None:
    rates = IncidentRates(process_failures=0.1, stragglers=0.2, hot=1.0)
    incidents = IncidentStream(1, 1, rates, worker_slots=10, server_slots=5)
    drawn = [one for one in (incidents.next() for _ in range(4000)) if one is not None]
    hours = drawn[-1].after_s / 3600
    per_hour = {kind: sum(one.kind == kind for one in drawn) / hours for kind in ("failure", "straggler", "hot")}
    assert per_hour["failure"] == pytest.approx(1.5, rel=0.1)
    assert per_hour["straggler"] == pytest.approx(2.0, rel=0.1)
    assert per_hour["hot"] == pytest.approx(1.0, rel=0.15)
    assert all(one.slot < 10 for one in drawn if one.kind == "straggler")
    assert {one.slot for one in drawn if one.kind == "failure"} == set(range(15))
    assert all(calibration.HOT_LEVELS[0] <= one.size <= calibration.HOT_LEVELS[1] for one in drawn if one.kind == "hot")
    straggles = [one.size for one in drawn if one.kind == "straggler"]
    assert np.mean(straggles) == pytest.approx(calibration.STRAGGLE_MEAN_S, rel=0.15)
    assert [one.after_s for one in drawn] == sorted(one.after_s for one in drawn)


def test_rates_of_0_give_no_incident() -> None:
    assert IncidentStream(1, 1, IncidentRates(0.0, 0.0, 0.0, 0.0), 10, 5).next() is None
