"""Computes the value of trying another configuration: the expected saving, less the cost of trials and moves. Pure.

If a trial turns out to be slower, the run returns to the best known configuration and has lost at most the time of one
block. Let

    d ~ N(mu, sd^2)   log(speed of the trial / best known speed)
    R                 seconds that the rest of the run takes at the best known speed
    block             seconds that a trial is measured

A trial is expected to save

    E[max(0, 1 - exp(-d))] * (R - block)   seconds, where the configuration is faster

and to cost two moves plus

    E[max(0, 1 - exp(d))] * block          seconds, where it is slower.

This is expected improvement (Jones, Schonlau and Welch 1998) in units of time, less the cost of the measurement. The
measurement of a block has a standard error e. So the estimate after the trial has, seen from before it, the standard
deviation sd^2 / sqrt(sd^2 + e^2), which replaces sd in the saving (the knowledge gradient: Frazier, Powell and Dayanik
2009). A difference that is much smaller than the noise brings no gain.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Predictions

__all__ = ["DecisionCosts", "Values", "best_known", "price_of", "values"]

Floats = npt.NDArray[np.float64]


class DecisionCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The times and prices that a decision weighs.

    remaining_s: seconds that the rest of the run takes at the best known speed. moving_s: seconds of training that one
    move loses. block_s: seconds that a trial is measured. log_error: standard error of the log speed of this
    measurement. min_gain: gain in log speed that the use of all `most_cores` cores must bring; it is the price of
    cores, so of two almost equally fast configurations the one with fewer cores is better."""

    remaining_s: float
    moving_s: float
    block_s: float
    min_gain: float
    most_cores: int
    log_error: float = 0.0


class Values(msgspec.Struct, frozen=True):
    """The value of each of n configurations; float64 [n].

    gain: expected log(speed / best known speed), less the price of the cores. net_s: seconds that a trial saves, less
    its costs. sure: probability that a permanent move to the configuration saves time. holds: probability that its
    speed is at least the floor, a share of the best known speed."""

    gain: Floats
    net_s: Floats
    sure: Floats
    holds: Floats


def price_of(configurations: ConfigurationArray, costs: DecisionCosts) -> Floats:
    """The price of the cores of each configuration, in log speed; float64 [n]. configurations: float64 [n, 4]."""
    cores = configurations[:, 0] * configurations[:, 2] + configurations[:, 1] * configurations[:, 3]
    priced: Floats = costs.min_gain * cores / max(1, costs.most_cores)
    return priced


def best_known(observations: tuple[Observation, ...], costs: DecisionCosts) -> Observation:
    """The observation with the best log speed less the price of its cores. Raises ValueError without observations."""
    if not observations:
        raise ValueError("there are no observations to choose the best from")
    return max(observations, key=lambda one: (_worth(one, costs), _negative(one.configuration)))


def _worth(observation: Observation, costs: DecisionCosts) -> float:
    price = costs.min_gain * observation.configuration.cores / max(1, costs.most_cores)
    return math.log(max(observation.samples_per_s, 1e-9)) - price


def _negative(configuration: Configuration) -> tuple[int, ...]:
    """The sort key for ties: fewer cores, then fewer workers, then fewer PS are better."""
    return (-configuration.cores, -configuration.workers, -configuration.servers)


def values(
    configurations: ConfigurationArray,
    predictions: Predictions,
    best: Observation,
    costs: DecisionCosts,
    floor: float,
    most: Floats | None = None,
) -> Values:
    """Computes the value of trying each configuration instead of the best known one.

    configurations: float64 [n, 4]. predictions: their `log_error` is a standard deviation. floor: share of the best
    known speed, 0 to 1. most: float64 [n], an upper limit of the speed in samples/s; None: there is no limit."""
    from scipy.special import ndtr

    own = price_of(np.array([_row(best.configuration)], dtype=np.float64), costs)[0]
    raw = np.log(np.maximum(predictions.samples_per_s, 1e-9)) - math.log(max(best.samples_per_s, 1e-9))
    priced = price_of(configurations, costs) - own
    mean = raw - priced
    limit = np.full(len(raw), np.inf)
    if most is not None:
        limit = np.log(np.maximum(most, 1e-9)) - math.log(max(best.samples_per_s, 1e-9))
    spread = np.sqrt(predictions.log_error**2 + best.log_error**2)
    spread = np.maximum(spread, 1e-6)
    left_s = max(0.0, costs.remaining_s - costs.block_s)
    learnt = spread**2 / np.sqrt(spread**2 + costs.log_error**2)
    gain_s = left_s * _expected_saving(mean, learnt, limit - priced)
    loss_s = min(costs.block_s, costs.remaining_s) * _expected_loss(raw, spread, limit)
    # a permanent move saves time if (1 - exp(-d)) * R > moving, that is d > -log(1 - moving / R)
    share = costs.moving_s / costs.remaining_s if costs.remaining_s > 0 else 1.0
    hurdle = -math.log1p(-share) if share < 1.0 else math.inf
    sure = ndtr((mean - hurdle) / spread) if math.isfinite(hurdle) else np.zeros_like(mean)
    holds = ndtr((raw - math.log(floor)) / spread) if floor > 0 else np.ones_like(mean)
    sure = np.where(limit - priced > hurdle, sure, 0.0)
    holds = np.where(limit >= math.log(floor), holds, 0.0) if floor > 0 else holds
    return Values(mean, gain_s - loss_s - 2 * costs.moving_s, sure, holds)


def _expected_saving(mean: Floats, spread: Floats, limit: Floats) -> Floats:
    """E[max(0, 1 - exp(-d))] for d = min(x, limit), x ~ N(mean, spread^2); float64 [n]. Closed form for limit > 0, with
    z = mean / spread, y = (mean - limit) / spread and Phi the standard normal distribution function:

        Phi(z) - Phi(y) - exp(-mean + spread^2 / 2) (Phi(z - spread) - Phi(y - spread)) + Phi(y) (1 - exp(-limit))

    For limit <= 0 it is 0.
    """
    from scipy.special import ndtr

    z, y = mean / spread, (mean - limit) / spread
    factor = np.exp(np.minimum(-mean + spread**2 / 2, 700.0))
    saving = ndtr(z) - ndtr(y) - factor * (ndtr(z - spread) - ndtr(y - spread)) - ndtr(y) * np.expm1(-limit)
    saved: Floats = np.where(limit > 0.0, np.clip(saving, 0.0, 1.0), 0.0)
    return saved


def _expected_loss(mean: Floats, spread: Floats, limit: Floats) -> Floats:
    """E[max(0, 1 - exp(d))] for d = min(x, limit), x ~ N(mean, spread^2); float64 [n]. Where limit < 0, every x above
    the limit contributes 1 - exp(limit)."""
    from scipy.special import ndtr

    edge = np.minimum(limit, 0.0)
    z, exponent = (edge - mean) / spread, np.minimum(mean + spread**2 / 2, 700.0)
    loss = ndtr(z) - np.exp(exponent) * ndtr(z - spread) - ndtr(-z) * np.expm1(edge)
    lost: Floats = np.clip(loss, 0.0, 1.0)
    return lost


def _row(configuration: Configuration) -> tuple[int, int, int, int]:
    return configuration.workers, configuration.servers, configuration.worker_cores, configuration.server_cores
