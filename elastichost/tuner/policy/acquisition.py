"""What trying another configuration is worth, against the best one known and against what moving costs. Pure.

A trial has a way back: if the configuration turns out to be slower the run returns, and has lost the time of a block.
So with d = log(speed there / best speed known) ~ N(mu, sd^2), and R seconds left at the best speed known, a trial gains

    E[max(0, 1 - exp(-d))] * (R - block)   seconds (time saved where it is faster)

and costs two moves and  E[max(0, 1 - exp(d))] * block  seconds (samples not trained where it is slower). This is
expected improvement (Jones, Schonlau and Welch 1998) in units of time, with the price of looking beside it. A block is
measured with an error e of its own, so what is believed afterwards varies by  sd^2 / sqrt(sd^2 + e^2)  only (the
knowledge gradient; Frazier, Powell and Dayanik 2009): where noise hides a difference nothing is learnt of it.
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
    """What is at stake. remaining_s: at the best speed known. moving_s: training lost by one move. block_s: how long a
    trial is measured, log_error: how exactly. min_gain: what using all cores must gain over using none, as a share of
    the speed: configurations that differ by less are told apart by their cores."""

    remaining_s: float
    moving_s: float
    block_s: float
    min_gain: float
    most_cores: int
    log_error: float = 0.0


class Values(msgspec.Struct, frozen=True):
    """float64 [n], for n configurations. gain: expected log speed over that of the best known, the price of the cores
    taken off; net_s: seconds a trial saves, costs taken off; sure: chance that moving there
    for good pays; holds: chance that the speed there reaches the floor, as a share of the best known."""

    gain: Floats
    net_s: Floats
    sure: Floats
    holds: Floats


def price_of(configurations: ConfigurationArray, costs: DecisionCosts) -> Floats:
    """In log speed, float64 [n]: what its cores must bring. configurations: float64 [n, 4]."""
    cores = configurations[:, 0] * configurations[:, 2] + configurations[:, 1] * configurations[:, 3]
    priced: Floats = costs.min_gain * cores / max(1, costs.most_cores)
    return priced


def best_known(observations: tuple[Observation, ...], costs: DecisionCosts) -> Observation:
    """The observed configuration with the best speed, its cores' price taken off. Raises ValueError when there is
    none."""
    if not observations:
        raise ValueError("nothing was observed")
    return max(observations, key=lambda one: (_worth(one, costs), _negative(one.configuration)))


def _worth(observation: Observation, costs: DecisionCosts) -> float:
    price = costs.min_gain * observation.configuration.cores / max(1, costs.most_cores)
    return math.log(max(observation.samples_per_s, 1e-9)) - price


def _negative(configuration: Configuration) -> tuple[int, ...]:
    """Ties go to fewer processes."""
    return (-configuration.cores, -configuration.workers, -configuration.servers)


def values(
    configurations: ConfigurationArray,
    predictions: Predictions,
    best: Observation,
    costs: DecisionCosts,
    floor: float,
    most: Floats | None = None,
) -> Values:
    """What each configuration is worth trying, beside the best known one. most: float64 [n] samples/s that it does not
    exceed; None: nothing is known of that."""
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
    # moving for good pays when (1 - exp(-d)) * R > moving, that is d > -log(1 - moving / R)
    share = costs.moving_s / costs.remaining_s if costs.remaining_s > 0 else 1.0
    hurdle = -math.log1p(-share) if share < 1.0 else math.inf
    sure = ndtr((mean - hurdle) / spread) if math.isfinite(hurdle) else np.zeros_like(mean)
    holds = ndtr((raw - math.log(floor)) / spread) if floor > 0 else np.ones_like(mean)
    sure = np.where(limit - priced > hurdle, sure, 0.0)
    holds = np.where(limit >= math.log(floor), holds, 0.0) if floor > 0 else holds
    return Values(mean, gain_s - loss_s - 2 * costs.moving_s, sure, holds)


def _expected_saving(mean: Floats, spread: Floats, limit: Floats) -> Floats:
    """E[max(0, 1 - exp(-d))] for d = min(x, limit), x ~ N(mean, spread^2); float64 [n]. With z = mean / spread and
    y = (mean - limit) / spread it is, for limit > 0,

        Phi(z) - Phi(y) - exp(-mean + spread^2 / 2) (Phi(z - spread) - Phi(y - spread)) + Phi(y) (1 - exp(-limit))
    """
    from scipy.special import ndtr

    z, y = mean / spread, (mean - limit) / spread
    factor = np.exp(np.minimum(-mean + spread**2 / 2, 700.0))
    saving = ndtr(z) - ndtr(y) - factor * (ndtr(z - spread) - ndtr(y - spread)) - ndtr(y) * np.expm1(-limit)
    saved: Floats = np.where(limit > 0.0, np.clip(saving, 0.0, 1.0), 0.0)
    return saved


def _expected_loss(mean: Floats, spread: Floats, limit: Floats) -> Floats:
    """E[max(0, 1 - exp(d))] for d = min(x, limit), x ~ N(mean, spread^2); float64 [n]. Where limit < 0, all of d that
    exceeds it loses 1 - exp(limit)."""
    from scipy.special import ndtr

    edge = np.minimum(limit, 0.0)
    z, exponent = (edge - mean) / spread, np.minimum(mean + spread**2 / 2, 700.0)
    loss = ndtr(z) - np.exp(exponent) * ndtr(z - spread) - ndtr(-z) * np.expm1(edge)
    lost: Floats = np.clip(loss, 0.0, 1.0)
    return lost


def _row(configuration: Configuration) -> tuple[int, int, int, int]:
    return configuration.workers, configuration.servers, configuration.worker_cores, configuration.server_cores
