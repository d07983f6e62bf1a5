"""What the tuner is told, remembers and decides. Pure values."""

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
    """What does not change while a job runs. moving_s: training lost by a move, until one was measured. most_trials: so
    many configurations are tried for what they may teach; moves that surely pay are not counted."""

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


class SpeedForecast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is expected of one configuration: samples/s, with a 90 % interval."""

    configuration: Configuration
    samples_per_s: float
    low: float
    high: float
    is_extrapolated: bool = False


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`configuration`: what should run from now on. `confidence`: chance that it pays, moving included."""

    kind: Kind
    configuration: Configuration
    reason: str
    present: SpeedForecast | None = None  # what runs, as measured
    expected: SpeedForecast | None = None  # what should run, as predicted
    second: SpeedForecast | None = None  # the next best choice
    gain_s: float = 0.0  # expected saving over the rest of the run, costs taken off
    cost_s: float = 0.0  # of moving
    confidence: float = 0.0
    observed: int = 0  # configurations that were measured
    rank: int = 0  # directions the measurements determine, of `parameters`
    parameters: int = 0


class TunerState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """observations: one a configuration, since the speed changed last; faded: of others, from before. attempts: how
    often each was asked for. trials, moves, returns: how often, since the speed changed last. patience_s: for how long
    a settled run does not reconsider; 0: as long as usual. slow_s: that looks have trained below the floor, since the
    speed changed last. moving_s: what the last move cost. drift: sums that tell when the speed has changed. prior: what
    the model believed when it did; None: it did not."""

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
    """What was measured, with the 90 % interval of its error."""
    wide = float(np.exp(1.645 * observation.log_error))
    rate = observation.samples_per_s
    return SpeedForecast(observation.configuration, rate, rate / wide, rate * wide)
