"""How soon a trial is recognised as slower than the floor."""

from __future__ import annotations

import math

import pytest

from elastichost.tuner.facts import Configuration, Observation
from elastichost.tuner.policy.floor import CLEAR, early_observation, is_below, slow_budget_s
from elastichost.tuner.policy.profile import BlockSettings, ProfileSample, ProfileState, log_error_of

BLOCK = BlockSettings()
BEST = Observation(Configuration(2, 1), 100_000.0, 0.02, 20.0, 1000)
EDGE = ProfileSample(5.0, Configuration(3, 1), True, 100_000)


def seen(*rates: float, best: Observation = BEST) -> Observation | None:
    return early_observation(
        ProfileState(Configuration(3, 1), edge=EDGE, rates=rates, seconds=0.5 * len(rates)), best, BLOCK
    )


def test_three_windows_are_enough_for_a_trial_at_half_speed() -> None:
    found = seen(50_000.0, 51_000.0, 49_000.0)
    assert found is not None and is_below(found, BEST, 0.9)
    assert found.compute_s is None and found.training_cpu_s is None
    assert seen(50_000.0, 51_000.0) is None
    assert seen(0.0, 0.0, 0.0) is None


def test_a_trial_slightly_below_the_floor_takes_longer() -> None:
    short, long = seen(*[85_000.0] * 3), seen(*[85_000.0] * 40)
    assert short is not None and not is_below(short, BEST, 0.9) and is_below(short, BEST, 0.9, errors=0.0)
    assert long is not None and is_below(long, BEST, 0.9)
    assert not is_below(long, BEST, 0.0), "a floor of 0 is no floor"


def test_the_noise_of_the_best_configuration_is_used() -> None:
    noisy = Observation(Configuration(2, 1), 100_000.0, 0.1, 20.0, 1000)
    found = seen(*[70_000.0] * 3, best=noisy)
    assert found is not None and not is_below(found, noisy, 0.9)
    # the same error as a block with this number of equally noisy windows has
    quiet = seen(*[90_000.0] * 40)
    assert quiet is not None and quiet.log_error == pytest.approx(BEST.log_error)
    assert log_error_of((90_000.0,) * 40) <= quiet.log_error


def test_noise_alone_ends_few_trials() -> None:
    found = seen(*[90_000.0 * math.exp(-0.5 * CLEAR * 0.02)] * 40)
    assert found is not None and not is_below(found, BEST, 0.9)


def test_the_time_below_the_floor_has_a_budget() -> None:
    assert slow_budget_s(0.0) == 5.0
    assert slow_budget_s(3600.0) == pytest.approx(41.0)
