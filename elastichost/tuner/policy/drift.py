"""Whether the machine or the data have changed, so that what was measured before holds no more. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from elastichost.tuner.facts import Configuration, Observation

__all__ = ["Drift", "Reference", "observe"]

ALLOWANCE, ALARM = 0.5, 5.0  # of the cumulative sums, in standard deviations
DRIFT_NOISE = 0.01  # by which a machine differs from itself


class Reference(msgspec.Struct, frozen=True):
    """What a configuration does, from all that was seen of it: log(samples_per_s) and the variance of that."""

    log_speed: float
    variance: float


class Drift(msgspec.Struct, frozen=True):
    """Page's cumulative sums (Biometrika 41, 1954) of standardised residuals, upwards and downwards."""

    references: Mapping[Configuration, Reference] = {}
    up: float = 0.0
    down: float = 0.0


def observe(state: Drift, observation: Observation) -> tuple[Drift, bool]:
    """Folds one observation; True: what was measured before holds no more, and the state begins anew with this one.

    z = (log(speed) - reference) / sqrt(both variances) of a configuration seen before, the reference being the mean by
    precision of all before: such residuals are independent while nothing changes (Brown, Durbin and Evans 1975). The
    sums grow by |z| - 0.5 and may reach 5, which chance alone does once in some hundred observations.
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
