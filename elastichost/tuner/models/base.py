"""What all models of speed share: priors, fits, predictions. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Predictions, Workload, as_array

__all__ = [
    "NORMAL_90",
    "Fit",
    "Prior",
    "checked",
    "distinct",
    "interval",
    "iteration_s",
    "skew_of",
    "skewed_shares",
]

NORMAL_90 = 1.6448536269514722  # 90 % of a normal variable lies within so many standard deviations
RECENT = 5  # observations that tell how uneven the load of the PS is now

Floats = npt.NDArray[np.float64]


class Prior(msgspec.Struct, frozen=True):
    """Of one model's parameters, by name, in log space (shares: their logit): mean and standard deviation."""

    mean: dict[str, float] = {}
    sd: dict[str, float] = {}


class Fit(Protocol):
    """A model fitted to observations.

    rank: directions of the `parameters_total` that the data determine, priors not counted. parameters: in natural
    units. confidence: from 0 to 1, how far predictions near what was seen can be trusted; for people."""

    @property
    def name(self) -> str: ...
    @property
    def workload(self) -> Workload: ...
    @property
    def observations(self) -> int: ...
    @property
    def configurations(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def parameters_total(self) -> int: ...
    @property
    def parameters(self) -> Mapping[str, float]: ...
    @property
    def confidence(self) -> float: ...
    def predict(self, configurations: ConfigurationArray, hot_share: float | None = None) -> Predictions:
        """configurations: float64 [n, 4]. hot_share: of the busiest PS, with as many PS as in the newest observation;
        None: as observed. With another number of PS the part of the load that does not divide stays what it is."""
        ...

    def posterior(self) -> Prior:
        """What a fit of the next similar job begins with; empty for a model without priors."""
        ...


def checked(workload: Workload, observations: Sequence[Observation]) -> None:
    """Raises ValueError for what no run can have shown."""
    if workload.batch_size < 1:
        raise ValueError(f"batch_size = {workload.batch_size} must be positive")
    for one in observations:
        if min(msgspec.structs.astuple(one.configuration)) < 1:
            raise ValueError(f"{one.configuration}: nothing trains without workers, PS and cores")
        if not (math.isfinite(one.samples_per_s) and one.samples_per_s > 0):
            raise ValueError(f"{one.configuration}: samples_per_s = {one.samples_per_s} is no speed")
        if not (math.isfinite(one.log_error) and one.log_error >= 0):
            raise ValueError(f"{one.configuration}: log_error = {one.log_error} is no error")


def distinct(observations: Sequence[Observation]) -> int:
    """Configurations among them."""
    return len({one.configuration for one in observations})


def iteration_s(workload: Workload, observations: Sequence[Observation]) -> Floats:
    """float64 [n] seconds of an iteration. async, bounded: w m / speed; sync: m / speed, a step of all."""
    speeds = np.array([one.samples_per_s for one in observations], dtype=np.float64)
    if workload.mode == "sync":
        return workload.batch_size / speeds
    return as_array([one.configuration for one in observations])[:, 0] * workload.batch_size / speeds


# --- the busiest PS ---------------------------------------------------------------------------------------------------


def skew_of(observations: Sequence[Observation], hot_share: float | None = None) -> float:
    """The part h of the PS' load that is with one of them whatever their number: s = h + (1 - h) / p.

    From `hot_share` at the newest observation's p; else, and when that is 1, which has all of any load, the median over
    the newest observations with more than one PS.
    """
    newest = sorted(observations, key=lambda one: one.at_s)[-RECENT:]
    if hot_share is not None and not newest:
        return hot_share
    if hot_share is not None and newest[-1].configuration.servers > 1:
        return _skew(hot_share, newest[-1].configuration)
    told = [one for one in newest if one.hot_share is not None and one.configuration.servers > 1]
    known = [_skew(one.hot_share or 0.0, one.configuration) for one in told]
    return float(np.median(known)) if known else 0.0


def _skew(share: float, configuration: Configuration) -> float:
    even = 1.0 / configuration.servers
    return min(1.0, max(0.0, (share - even) / (1.0 - even))) if configuration.servers > 1 else 0.0


def skewed_shares(skew: float, servers: Floats) -> Floats:
    """float64 [n] load share of the busiest PS."""
    return skew + (1.0 - skew) / servers


# --- predictions ------------------------------------------------------------------------------------------------------


def interval(log_speed: Floats, log_error: Floats, is_extrapolated: npt.NDArray[np.bool_]) -> Predictions:
    """Predictions of log-normal speeds: medians and standard deviations of their logarithms, float64 [n]."""
    margin = NORMAL_90 * log_error
    low, high = np.exp(np.maximum(log_speed - margin, -700.0)), np.exp(np.minimum(log_speed + margin, 700.0))
    return Predictions(np.exp(log_speed), log_error, low, high, is_extrapolated)
