"""Observations made from samples: what is counted, what is left out, and their errors."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.tuner.facts import Configuration, Observation, Workload
from elastichost.tuner.policy.profile import (
    BlockSettings,
    ProfileSample,
    ProfileState,
    Totals,
    change_of,
    fold,
    joined,
    log_error_of,
    merged,
    rescaled,
    so_far,
)
from tests.effort import examples

TWO, THREE = Configuration(2, 1), Configuration(3, 1)
JOB = Workload(batch_size=100)
BLOCK = BlockSettings(least_s=3.0, most_s=20.0, iterations=50, log_error=0.02)


def looks(
    rates: list[float], configuration: Configuration | None = TWO, *, start_s: float = 0.0, every_s: float = 0.5
) -> list[ProfileSample]:
    """One sample per window, with counters that grow at these rates from the first sample on."""
    found, samples = [], 0.0
    for number, rate in enumerate([0.0, *rates]):
        samples += rate * every_s
        batches = samples / JOB.batch_size
        totals = Totals(
            batches=batches,
            compute_s=0.02 * batches,
            reader_s=0.005 * batches,
            worker_cpu_s=0.03 * batches,
            server_cpu_s=0.001 * batches,
        )
        found.append(ProfileSample(start_s + number * every_s, configuration, True, int(samples), totals))
    return found


def folded(found: list[ProfileSample], state: ProfileState | None = None) -> tuple[ProfileState, list[Observation]]:
    state, observations = state or ProfileState(), []
    for look in found:
        state, observation = fold(state, look, JOB, BLOCK)
        observations += [observation] if observation is not None else []
    return state, observations


def test_steady_training_is_observed_with_its_times() -> None:
    _, observations = folded(looks([10_000.0] * 12))
    [first] = observations
    assert first.configuration == TWO
    assert first.samples_per_s == pytest.approx(10_000)
    assert first.seconds == pytest.approx(3.0)
    assert first.iterations == 300
    assert first.compute_s == pytest.approx(0.02)
    assert first.reader_s == pytest.approx(0.005)
    assert first.worker_cpu_s == pytest.approx(0.03)
    assert first.server_cpu_s == pytest.approx(0.001)
    assert first.exchange_s is None


def test_the_times_of_a_sync_step_are_divided_among_its_workers() -> None:
    job = Workload(batch_size=100, mode="sync")
    state, found = ProfileState(), None
    for look in looks([10_000.0] * 12):
        state, observation = fold(state, look, job, BLOCK)
        found = observation or found
    assert found is not None
    assert found.worker_cpu_s == pytest.approx(0.015)  # half the CPU time of each step
    assert found.server_cpu_s == pytest.approx(0.001)  # all the CPU time of the PS


def test_the_first_second_after_a_change_is_left_out() -> None:
    slow_at_first = [1_000.0, 1_000.0, *[10_000.0] * 7]
    _, [first] = folded(looks(slow_at_first))
    assert first.samples_per_s == pytest.approx(10_000)
    assert first.iterations == 300


def test_no_observation_while_the_plan_changes() -> None:
    _, observations = folded(looks([10_000.0] * 30, None))
    assert not observations


def test_a_change_of_configuration_begins_a_new_block() -> None:
    state, none_yet = folded(looks([10_000.0] * 6))
    assert not none_yet
    _, [first] = folded(looks([20_000.0] * 12, THREE, start_s=10.0), state)
    assert first.configuration == THREE
    assert first.samples_per_s == pytest.approx(20_000)


def test_a_checkpoint_interrupts_a_block_and_does_not_end_it() -> None:
    first = looks([10_000.0] * 6)
    cut = ProfileSample(3.5, TWO, False, first[-1].samples + 100, first[-1].totals)
    after = [
        ProfileSample(
            look.at_s + 4.0,
            look.configuration,
            True,
            look.samples + cut.samples,
            Totals(batches=look.totals.batches + cut.totals.batches),
        )
        for look in looks([10_000.0] * 5)
    ]
    _, [observation] = folded([*first, cut, *after])
    assert observation.samples_per_s == pytest.approx(10_000)


def test_a_block_before_the_end_of_training_is_not_lost() -> None:
    """When workers have no work left, training is not steady; the noisy block before that is long enough."""
    noisy = (10_000.0 * np.exp(np.random.default_rng(1).normal(0.0, 0.15, 24))).tolist()
    state, observations = folded(looks(noisy))
    last = looks(noisy)[-1]
    ended = msgspec.structs.replace(last, at_s=last.at_s + 0.5, is_steady=False)
    state, more = folded([ended, msgspec.structs.replace(ended, at_s=ended.at_s + 0.5)], state)
    assert not observations and not more
    found = so_far(state, JOB, BLOCK)
    assert found is not None and found.samples_per_s == pytest.approx(10_000, rel=0.1)
    assert found.at_s == last.at_s
    _, [cut] = folded([msgspec.structs.replace(ended, configuration=THREE)], state)
    assert cut == found, "a change of the configuration ends the block"


def test_noise_makes_blocks_longer() -> None:
    generator = np.random.default_rng(3)
    quiet = 10_000 * np.exp(0.005 * generator.standard_normal(60))
    noisy = 10_000 * np.exp(0.15 * generator.standard_normal(60))
    _, short = folded(looks(list(quiet)))
    _, long = folded(looks(list(noisy)))
    assert short[0].seconds < long[0].seconds <= BLOCK.most_s + 0.5
    assert short[0].log_error < long[0].log_error


def test_few_large_batches_make_long_windows() -> None:
    slow = looks([200.0] * 100)  # two batches per second
    state, rates = ProfileState(), 0
    for look in slow:
        state, observation = fold(state, look, JOB, BLOCK)
        rates = max(rates, len(state.rates))
        if observation is not None:
            assert observation.samples_per_s == pytest.approx(200)
            assert observation.iterations >= 40
            return
    pytest.fail("never observed")


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 1000), rho=st.floats(0.0, 0.8))
def test_the_error_covers_the_truth(seed: int, rho: float) -> None:
    """With AR(1) noise the median lies within four standard errors of the truth. An error that ignored the correlation
    would be too small for that."""
    generator = np.random.default_rng(seed)
    noise = np.zeros(40)
    for at in range(1, 40):
        noise[at] = rho * noise[at - 1] + 0.05 * math.sqrt(1 - rho**2) * generator.standard_normal()
    rates = tuple(np.exp(noise))
    assert abs(math.log(float(np.median(rates)))) < 4 * log_error_of(rates) + 0.02


def test_blocks_merge_by_precision() -> None:
    sure = Observation(TWO, 100.0, 0.01, seconds=3, iterations=30, compute_s=0.02)
    vague = Observation(TWO, 200.0, 0.1, seconds=3, iterations=10, at_s=9.0)
    both = merged(sure, vague)
    assert 100 < both.samples_per_s < 103
    assert both.log_error < 0.01
    assert (both.seconds, both.iterations, both.at_s) == (6, 40, 9.0)
    assert both.compute_s == 0.02
    with pytest.raises(ValueError, match="cannot merge observations of"):
        merged(sure, Observation(THREE, 100.0, 0.01))


def test_joined_keeps_one_observation_per_configuration_in_the_first_order() -> None:
    first, other, again = (Observation(one, rate, 0.01) for one, rate in ((TWO, 100.0), (THREE, 150.0), (TWO, 110.0)))
    both = joined(joined(joined((), first), other), again)
    assert [one.configuration for one in both] == [TWO, THREE]
    assert both[0] == merged(first, again) and both[1] == other


def test_after_a_change_of_speed_observations_are_rescaled_with_larger_errors() -> None:
    before = (Observation(TWO, 100.0, 0.01, compute_s=0.02), Observation(THREE, 150.0, 0.01, compute_s=0.02))
    block = Observation(TWO, 70.0, 0.02, compute_s=0.03)
    assert change_of(before, block) == pytest.approx(math.log(0.7))
    [other] = rescaled(before, block, 0.5)
    assert other.configuration == THREE and other.compute_s is None
    assert other.samples_per_s == pytest.approx(105.0)
    assert other.log_error == pytest.approx(math.hypot(0.01, 0.5 * math.log(0.7)))
    with pytest.raises(ValueError, match="there is no earlier observation of"):
        rescaled(before[1:], block, 0.5)
