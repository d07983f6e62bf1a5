"""Detects that the speed of a run has changed, so that earlier measurements are no longer valid. Pure.

The cause may be the machine (other processes use it) or the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from elastichost.tuner.facts import Configuration, Observation

__all__ = ["Drift", "Reference", "observe"]

ALLOWANCE, ALARM = 0.5, 5.0  # of the cumulative sums, in standard deviations
DRIFT_NOISE = 0.01  # standard deviation of the log speed of an unchanged machine over time


class Reference(msgspec.Struct, frozen=True):
    """The pooled speed of a configuration from all its observations: log(samples_per_s) and its variance."""

    log_speed: float
    variance: float


class Drift(msgspec.Struct, frozen=True):
    """State of the detector: cumulative sums of standardised residuals, upwards and downwards (Page, Biometrika 41,
    1954)."""

    references: Mapping[Configuration, Reference] = {}
    up: float = 0.0
    down: float = 0.0


def observe(state: Drift, observation: Observation) -> tuple[Drift, bool]:
    """Folds one observation. True: the speed has changed, and the returned state contains only this observation.

    For a configuration that was observed before,

        z = (log(speed) - reference) / sqrt(variance of speed + variance of reference)

    where the reference is the precision-weighted mean of all earlier observations. These residuals are independent as
    long as nothing changes (Brown, Durbin and Evans 1975). The sums grow by z - ALLOWANCE upwards and by
    -z - ALLOWANCE downwards, and do not fall below 0. A sum above ALARM = 5 is a change; by chance alone that happens
    once in several hundred observations.
    """
    own = Reference(math.log(observation.samples_per_s), observation.log_error**2 + DRIFT_NOISE**2)
    known = state.references.get(observation.configuration)
    if known is None:
        return msgspec.structs.replace(state, references={**state.references, observation.configuration: own}), False
    z = (own.log_speed - known.log_speed) / math.sqrt(known.variance + own.variance)
    up, down = max(0.0, state.up + z - ALLOWANCE), max(0.0, state.down - z - ALLOWANCE)
    if max(up, down) > ALARM:
        return Drift({observation.configuration: own}), True
    share = known.variance / (known.variance + own.variance)
    mean = known.log_speed + share * (own.log_speed - known.log_speed)
    learned = Reference(mean, known.variance * (1.0 - share))
    return Drift({**state.references, observation.configuration: learned}, up, down), False
