"""The drift detector distinguishes a change of speed from noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from elastichost.tuner.facts import Configuration, Observation
from elastichost.tuner.policy.drift import Drift, observe


def block(workers: int, speed: float, error: float = 0.015) -> Observation:
    return Observation(Configuration(workers, 1), speed, error)


def noisy(speed: float, generator: np.random.Generator, error: float = 0.015) -> float:
    return speed * math.exp(error * generator.standard_normal())


def test_noise_alone_raises_few_alarms() -> None:
    alarms = 0
    for seed in range(20):
        generator, state = np.random.default_rng(seed), Drift()
        for number in range(60):
            workers = 1 + number % 3
            state, has_drifted = observe(state, block(workers, noisy(1000.0 * workers, generator)))
            alarms += has_drifted
    assert alarms <= 4  # of 1,200 observations


@pytest.mark.parametrize("factor", [0.85, 1.2])
def test_a_change_of_the_machine_is_detected_within_a_few_blocks(factor: float) -> None:
    for seed in range(20):
        generator, state = np.random.default_rng(seed), Drift()
        for _ in range(5):
            state, has_drifted = observe(state, block(2, noisy(1000.0, generator)))
            assert not has_drifted
        told = []
        for number in range(6):
            state, has_drifted = observe(state, block(2, noisy(factor * 1000.0, generator)))
            if has_drifted:
                told.append(number)
        assert told and told[0] <= 3
        # the state restarted, so the new speed is the reference now
        assert len(told) == 1


def test_a_slow_drift_is_detected_although_the_reference_adapts() -> None:
    state, told = Drift(), False
    for number in range(40):
        state, has_drifted = observe(state, block(1, 1000.0 * 0.99**number, error=0.01))
        told = told or has_drifted
    assert told


def test_the_first_block_of_a_configuration_raises_no_alarm() -> None:
    state = Drift()
    for workers in range(1, 30):
        state, has_drifted = observe(state, block(workers, 1e6 / workers))
        assert not has_drifted and state.up == state.down == 0.0
    assert len(state.references) == 29
