"""The input of a decision: the model, fitted to all observations and corrected by their residuals, and the candidates.
Pure."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, as_array
from elastichost.tuner.models.base import Fit, Prior
from elastichost.tuner.models.registry import fit
from elastichost.tuner.models.residual_gp import Surface, surface
from elastichost.tuner.policy.acquisition import DecisionCosts, price_of
from elastichost.tuner.policy.candidates import contains
from elastichost.tuner.policy.decision import TunerSettings, TunerState
from elastichost.tuner.policy.search_space import codes, search_space
from elastichost.tuner.policy.trials import Options

__all__ = [
    "EARLY",
    "Evidence",
    "attempt_key",
    "decision_costs",
    "evidence_of",
    "known_observations",
    "prior_of",
    "surface_of",
]

EARLY = 0.1  # advantage in log speed that is decided before a block is complete; also the least large gain
ATTEMPTS = 2  # a configuration that was decided for this number of times and never measured is not tried again


def known_observations(state: TunerState) -> tuple[Observation, ...]:
    """The observations since the change of speed, and the rescaled earlier ones of other configurations."""
    measured_now = {one.configuration for one in state.observations}
    return (*state.observations, *(one for one in state.faded if one.configuration not in measured_now))


def prior_of(state: TunerState, settings: TunerSettings) -> Prior | None:
    """The prior of the model: after a change of speed the model before it, otherwise that of similar jobs."""
    return settings.prior if state.prior is None else state.prior


class Evidence(msgspec.Struct, frozen=True):
    """The input of a decision.

    block: the last observation. best: the best known observation, its speed corrected by the model and the other
    observations. advantage: log speed of `best` over that of the running configuration, both less the price of their
    cores. has_gained: `best` is better than the first measured configuration by more than EARLY."""

    block: Observation
    best: Observation
    advantage: float
    fitted: Fit
    costs: DecisionCosts
    options: Options
    has_gained: bool


def evidence_of(state: TunerState, block: Observation, samples_left: int, settings: TunerSettings) -> Evidence:
    """Fits the model to all observations of a state, corrects it by their residuals, and predicts the candidates. The
    state must have an observation of the configuration of `block`."""
    observations = known_observations(state)
    state = msgspec.structs.replace(state, observations=observations)
    costs = decision_costs(state, samples_left, settings, block)
    ground = surface_of(state, settings, block.hot_share)
    told = ground.at_seen()
    worth = np.log(told.samples_per_s) - price_of(ground.seen, costs)
    own = next(index for index, one in enumerate(observations) if one.configuration == block.configuration)
    possible = contains(settings.bounds, ground.seen)  # the bounds may have become narrower
    possible[own] = True
    best = max(
        np.flatnonzero(possible).tolist(),
        key=lambda index: (worth[index], -observations[index].configuration.cores, -index),
    )
    believed = msgspec.structs.replace(
        observations[best],
        samples_per_s=float(told.samples_per_s[best]),
        log_error=float(told.log_error[best]),
    )
    space = _open_space(ground, state, costs, settings)
    options = Options(space, *ground.around(space, beside=best))
    return Evidence(
        block,
        believed,
        float(worth[best] - worth[own]),
        ground.fitted,
        costs,
        options,
        float(worth[best] - worth[0]) > EARLY,
    )


def surface_of(state: TunerState, settings: TunerSettings, hot_share: float | None) -> Surface:
    """The model of a state with at least one observation, corrected by the residuals of all its observations."""
    observations = known_observations(state)
    fitted = fit(settings.model, settings.workload, observations, prior_of(state, settings))
    return surface(fitted, observations, hot_share)


def _open_space(
    ground: Surface, state: TunerState, costs: DecisionCosts, settings: TunerSettings
) -> ConfigurationArray:
    """The candidates that were not measured, nor decided for ATTEMPTS times in vain; float64 [n, 4]."""

    def worth(array: ConfigurationArray) -> npt.NDArray[np.float64]:
        return np.asarray(np.log(ground.at(array).samples_per_s) - price_of(array, costs))

    space = search_space(settings.bounds, settings.search, worth, settings.seed)
    out = [one.configuration for one in state.observations]
    out += [_configuration_of(key) for key, times in state.attempts.items() if times >= ATTEMPTS]
    return space[~np.isin(codes(space), codes(as_array(out)))]


def decision_costs(
    state: TunerState, samples_left: int, settings: TunerSettings, block: Observation | None = None
) -> DecisionCosts:
    """The costs of a decision. The state must have an observation. block: the next block is assumed to be as long and
    as noisy as this one; None: the shortest block without noise."""
    fastest = max(one.samples_per_s for one in state.observations)
    return DecisionCosts(
        remaining_s=samples_left / max(fastest, 1e-9),
        moving_s=settings.moving_s if state.moving_s is None else state.moving_s,
        block_s=(settings.block.least_s if block is None else block.seconds) + settings.block.warm_up_s,
        min_gain=settings.min_gain,
        most_cores=settings.bounds.cores or settings.bounds.most.cores,
        log_error=0.0 if block is None else block.log_error,
    )


def attempt_key(configuration: Configuration) -> str:
    """The key of a configuration in `TunerState.attempts`."""
    c = configuration
    return f"{c.workers},{c.servers},{c.worker_cores},{c.server_cores}"


def _configuration_of(key: str) -> Configuration:
    return Configuration(*map(int, key.split(",")))
