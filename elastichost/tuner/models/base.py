"""Priors, fits and predictions, common to all models of speed. Pure."""

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

NORMAL_90 = 1.6448536269514722  # 90 % of a normal distribution lies within this number of standard deviations
RECENT = 5  # number of newest observations from which the present skew of the PS load is estimated

Floats = npt.NDArray[np.float64]


class Prior(msgspec.Struct, frozen=True):
    """Means and standard deviations of a model's parameters by name, in log space; parameters that are shares are held
    by their logit."""

    mean: dict[str, float] = {}
    sd: dict[str, float] = {}


class Fit(Protocol):
    """A model fitted to observations.

    rank: number of directions in the space of the `parameters_total` parameters that the data determine, without
    priors. parameters: in natural units. confidence: reliability of predictions near the observations, 0 to 1; for
    display only."""

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
        """Predicts speeds. configurations: float64 [n, 4]. hot_share: load share of the busiest PS with the number of
        PS of the newest observation; None: as observed. For other numbers of PS, the part of the load that does not
        divide (`skew_of`) stays constant."""
        ...

    def posterior(self) -> Prior:
        """The prior for the next similar job; empty for a model without priors."""
        ...


def checked(workload: Workload, observations: Sequence[Observation]) -> None:
    """Raises ValueError for an invalid batch size and for observations with invalid values."""
    if workload.batch_size < 1:
        raise ValueError(f"batch_size={workload.batch_size} must be positive")
    for one in observations:
        if min(msgspec.structs.astuple(one.configuration)) < 1:
            raise ValueError(f"{one.configuration}: workers, PS and cores must be at least 1")
        if not (math.isfinite(one.samples_per_s) and one.samples_per_s > 0):
            raise ValueError(f"{one.configuration}: samples_per_s={one.samples_per_s} must be positive and finite")
        if not (math.isfinite(one.log_error) and one.log_error >= 0):
            raise ValueError(f"{one.configuration}: log_error={one.log_error} must be at least 0 and finite")


def distinct(observations: Sequence[Observation]) -> int:
    """The number of different configurations among the observations."""
    return len({one.configuration for one in observations})


def iteration_s(workload: Workload, observations: Sequence[Observation]) -> Floats:
    """Seconds of an iteration, float64 [n]. w: workers, m: batch size, speed: samples/s. async, bounded: w m / speed,
    for a batch of one worker. sync: m / speed, for a step of all workers."""
    speeds = np.array([one.samples_per_s for one in observations], dtype=np.float64)
    if workload.mode == "sync":
        return workload.batch_size / speeds
    return as_array([one.configuration for one in observations])[:, 0] * workload.batch_size / speeds


# --- the busiest PS ---------------------------------------------------------------------------------------------------


def skew_of(observations: Sequence[Observation], hot_share: float | None = None) -> float:
    """The skew h: the part of the load of all PS that stays on one PS for any number p of PS,

        s = h + (1 - h) / p,   s: load share of the busiest PS.

    It is computed from `hot_share` and the p of the newest observation. Without `hot_share`, or if that p is 1 (one PS
    always has the whole load), it is the median over the newest RECENT observations with more than one PS; 0 if there
    are none.
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
    """The load share of the busiest PS, h + (1 - h) / p; float64 [n] for the numbers of PS float64 [n]."""
    return skew + (1.0 - skew) / servers


# --- predictions ------------------------------------------------------------------------------------------------------


def interval(log_speed: Floats, log_error: Floats, is_extrapolated: npt.NDArray[np.bool_]) -> Predictions:
    """Makes predictions with 90 % intervals from log-normal speeds: the medians and the standard deviations of their
    logarithms, float64 [n]."""
    margin = NORMAL_90 * log_error
    low, high = np.exp(np.maximum(log_speed - margin, -700.0)), np.exp(np.minimum(log_speed + margin, 700.0))
    return Predictions(np.exp(log_speed), log_error, low, high, is_extrapolated)
