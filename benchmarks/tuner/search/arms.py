"""Policies that search a job's best configuration: the tuner's policy, random search, and Bayesian optimisation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, as_array
from elastichost.tuner.policy.acquisition import DecisionCosts, best_known, price_of
from elastichost.tuner.policy.candidates import as_configurations, enumerate_candidates, maximin, repaired
from elastichost.tuner.policy.policy import Decision, TunerSettings, TunerState, advance, decision_costs
from elastichost.tuner.policy.profile import ProfileSample, ProfileState, fold, joined

__all__ = ["BayesianSearch", "GaussianProcess", "RandomSearch", "Tuned"]

Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Tuned:
    """The production policy, called as the supervisor calls it."""

    settings: TunerSettings
    state: TunerState = field(default_factory=TunerState)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)

    def look(self, look: ProfileSample, samples_left: int) -> Configuration | None:
        self.state, decision = advance(self.state, look, samples_left, self.settings)
        if decision is None:
            return None
        self.decisions.append((look.at_s, decision))
        return decision.configuration


class _Search:
    """Measures blocks as the tuner does, tries the configurations of `_next`, and ends with the best measured one."""

    def __init__(self, settings: TunerSettings) -> None:
        self.settings = settings
        self.observations: tuple[Observation, ...] = ()
        self._profile, self._is_over = ProfileState(), False

    def look(self, look: ProfileSample, samples_left: int) -> Configuration | None:
        self._profile, block = fold(self._profile, look, self.settings.workload, self.settings.block)
        if block is None or self._is_over or block.configuration != look.configuration:
            return None
        self.observations = joined(self.observations, block)
        state = TunerState(observations=self.observations)
        costs = decision_costs(state, samples_left, self.settings)
        wanted = self._next(costs)
        if wanted is not None:
            return wanted
        self._is_over = True
        return best_known(self.observations, costs).configuration

    def _next(self, costs: DecisionCosts) -> Configuration | None:
        raise NotImplementedError


class RandomSearch(_Search):
    """Tries a number of configurations, drawn log-uniformly within the bounds."""

    def __init__(self, settings: TunerSettings, seed: int, tries: int = 10) -> None:
        super().__init__(settings)
        self._random, self._tries = np.random.default_rng((seed, 21)), tries

    def _next(self, costs: DecisionCosts) -> Configuration | None:
        if len(self.observations) > self._tries:
            return None
        bounds = self.settings.bounds
        low = np.log(msgspec.structs.astuple(bounds.least))
        high = np.log(np.array(msgspec.structs.astuple(bounds.most)) + 1.0)
        drawn = np.floor(np.exp(self._random.uniform(low, high)))
        return as_configurations(repaired(bounds, drawn[None, :]))[0]


class BayesianSearch(_Search):
    """Expected improvement over a Gaussian process of (log speed - price of cores) (Jones, Schonlau and Welch 1998).
    The first three configurations are spread over the space. Ends if the expected gain of a trial is below 0.3 %."""

    SPREAD, TRIES, WORTH, CANDIDATES = 3, 12, 0.003, 2000

    def __init__(self, settings: TunerSettings, seed: int) -> None:
        super().__init__(settings)
        self._random = np.random.default_rng((seed, 22))
        space = enumerate_candidates(settings.bounds)
        if len(space) > self.CANDIDATES:
            space = space[np.sort(self._random.choice(len(space), self.CANDIDATES, replace=False))]
        self._space = space

    def _next(self, costs: DecisionCosts) -> Configuration | None:
        seen = as_array([one.configuration for one in self.observations])
        if len(seen) > self.TRIES:
            return None
        if len(seen) <= self.SPREAD:
            picks = maximin(self._space, seen, 1)
            return as_configurations(self._space[picks])[0] if len(picks) else None
        worth = np.log([one.samples_per_s for one in self.observations]) - price_of(seen, costs)
        process = GaussianProcess(seen, worth, np.array([one.log_error for one in self.observations]))
        mean, deviation = process.at(self._space)
        best = float(process.at(seen)[0].max())
        gain = _improvement(mean - best, deviation)
        gain[(self._space[:, None, :] == seen[None, :, :]).all(axis=2).any(axis=1)] = 0.0
        index = int(np.argmax(gain))
        return as_configurations(self._space[[index]])[0] if gain[index] > self.WORTH else None


def _improvement(mean: Floats, deviation: Floats) -> Floats:
    from scipy.special import ndtr

    z = mean / np.maximum(deviation, 1e-9)
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    found: Floats = mean * ndtr(z) + deviation * density
    return found


class GaussianProcess:
    """A Gaussian process with a Matern 5/2 kernel over logarithms and one length scale for each number. Length scales
    and variance are the most probable ones under wide log-normal priors (a factor of e around two octaves, and around
    1); the noise is known."""

    def __init__(self, seen: ConfigurationArray, values: Floats, errors: Floats) -> None:
        from scipy.optimize import minimize

        self._seen, self._errors = np.log2(seen), errors
        self._centre = float(np.mean(values))
        self._values = values - self._centre
        start = np.array([*np.log([2.0] * seen.shape[1]), 0.0])
        self._prior = start
        found = minimize(self._loss, start, method="L-BFGS-B", options={"maxiter": 30})
        self._set(found.x)

    def at(self, configurations: ConfigurationArray) -> tuple[Floats, Floats]:
        """The mean and standard deviation, float64 [n] each, for configurations float64 [n, 4]."""
        between = self._alike(np.log2(configurations), self._seen)
        mean = self._centre + between @ self._inverse @ self._values
        variance = self._variance - np.einsum("nk,kl,nl->n", between, self._inverse, between)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def _set(self, theta: Floats) -> Floats:
        self._reach, self._variance = np.exp(theta[:-1]), float(np.exp(theta[-1]))
        covariance = self._alike(self._seen, self._seen) + np.diag(self._errors**2 + 1e-6)
        self._inverse = np.linalg.inv(covariance)
        return covariance

    def _loss(self, theta: Floats) -> float:
        covariance = self._set(theta)
        fit = float(self._values @ self._inverse @ self._values) + float(np.linalg.slogdet(covariance)[1])
        return 0.5 * fit + 0.5 * float(((theta - self._prior) ** 2).sum())

    def _alike(self, some: Floats, others: Floats) -> Floats:
        apart = (some[:, None, :] - others[None, :, :]) / self._reach
        distance = np.sqrt(5.0 * (apart**2).sum(axis=2))
        found: Floats = self._variance * (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
        return found
