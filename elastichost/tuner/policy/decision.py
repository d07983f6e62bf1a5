"""Settings, state and decisions of the tuner. Pure values."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from elastichost.tuner.facts import Configuration, Observation, Workload
from elastichost.tuner.models.base import Prior
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.policy.drift import Drift
from elastichost.tuner.policy.profile import BlockSettings, ProfileState
from elastichost.tuner.policy.search_space import Search

__all__ = ["Decision", "Kind", "SpeedForecast", "TunerSettings", "TunerState", "measured"]

Kind = Literal["try", "move", "return", "settle"]


class TunerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of the tuner, constant while a job runs.

    workload, bounds: of the job. block: how long a configuration is measured. model: name in `models.registry`.
    explore: "safe": trials must be likely to hold the floor; "free": any trial; "off": no trials. floor: share of the
    best known speed that a trial must hold. min_gain: price of cores (`acquisition.DecisionCosts`). moving_s: seconds
    of training that a move loses, used until a move was measured. most_trials: largest number of trials; moves that
    very probably save time do not count. keeps_cores: decisions need at most the cores of the running configuration,
    because others divide the cores among jobs (`tuner.cluster`)."""

    workload: Workload
    bounds: Bounds
    block: BlockSettings = BlockSettings()
    model: str = "elastichost"
    search: Search = "auto"
    explore: Literal["safe", "free", "off"] = "safe"
    floor: float = 0.9
    min_gain: float = 0.03
    moving_s: float = 0.5
    most_trials: int = 8
    seed: int = 0
    prior: Prior | None = None
    keeps_cores: bool = False


class SpeedForecast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The predicted or measured speed of one configuration, in samples/s, with a 90 % interval."""

    configuration: Configuration
    samples_per_s: float
    low: float
    high: float
    is_extrapolated: bool = False


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision of the tuner.

    kind: "try": run a configuration to measure it; "move": change to a faster one; "return": go back to the best known
    one; "settle": keep the present one. configuration: the one that should run from now on. confidence: probability
    that it saves time, the cost of the move included. has_drifted: the speed has changed, and that is why the tuner
    decides now."""

    kind: Kind
    configuration: Configuration
    reason: str
    present: SpeedForecast | None = None  # measured speed of the running configuration
    expected: SpeedForecast | None = None  # predicted or measured speed of `configuration`
    second: SpeedForecast | None = None  # the next best choice
    gain_s: float = 0.0  # seconds that the decision is expected to save over the rest of the run, costs deducted
    cost_s: float = 0.0  # seconds of training that the move loses
    confidence: float = 0.0
    observed: int = 0  # number of measured configurations
    rank: int = 0  # number of directions in the space of the model's `parameters` that measurements determine
    parameters: int = 0
    has_drifted: bool = False


class TunerState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that the tuner remembers of a run. "Since the change" means since the last detected change of speed.

    profile: the block that is being measured. observations: one per configuration, since the change. faded:
    observations of other configurations from before the change, rescaled. attempts: configuration -> how often it was
    decided for. trials, moves, returns: number of decisions of each kind since the change. is_settled: the last
    decision was to keep the configuration. considered_s: time of the last decision. patience_s: seconds for which a
    settled run is not reconsidered; 0: RECONSIDER_S. slow_s: seconds that trials ran below the floor since the change.
    moving_s: seconds of training that moves lose, measured; None: not measured yet. drift: the sums that detect a
    change of speed. prior: the fitted model at the change; None: the speed has not changed."""

    profile: ProfileState = ProfileState()
    observations: tuple[Observation, ...] = ()
    faded: tuple[Observation, ...] = ()
    attempts: dict[str, int] = {}
    trials: int = 0
    moves: int = 0
    returns: int = 0
    is_settled: bool = False
    considered_s: float = 0.0
    patience_s: float = 0.0
    slow_s: float = 0.0
    moving_s: float | None = None
    drift: Drift = Drift()
    prior: Prior | None = None


def measured(observation: Observation) -> SpeedForecast:
    """The speed of an observation with its 90 % interval, exp(+-1.645 log_error)."""
    wide = float(np.exp(1.645 * observation.log_error))
    rate = observation.samples_per_s
    return SpeedForecast(observation.configuration, rate, rate / wide, rate * wide)
