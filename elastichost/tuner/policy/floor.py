"""Detects within about two seconds that a trial is slower than the floor, so that the run can leave it. Pure.

The floor is a share of the best known speed (`tuner.floor`). Trials with a predicted speed below the floor are not
started. Where the prediction was wrong, the first windows of the trial show it. These windows are too few to estimate
their own noise, so the noise of the windows of the best configuration is used.
"""

from __future__ import annotations

import math

from elastichost.tuner.facts import Observation
from elastichost.tuner.policy.profile import (
    TIMINGS,
    USUAL_CORRELATION,
    BlockSettings,
    ProfileState,
    speed_of,
)

__all__ = ["CLEAR", "SLOW_S", "SLOW_SHARE", "early_observation", "is_below", "slow_budget_s"]

CLEAR = 1.28  # standard errors below the floor at which a trial is below the floor with a probability of 90 %
LEAST_WINDOWS = 3
SLOW_S, SLOW_SHARE = 5.0, 0.01  # trials may run below the floor for SLOW_S + SLOW_SHARE * remaining seconds in total


def early_observation(profile: ProfileState, best: Observation, block: BlockSettings) -> Observation | None:
    """An observation from the first windows of a trial, too few for a block; it contains no timings. None: there are
    fewer than LEAST_WINDOWS windows, or no samples. best: the observation of the best known configuration, whose noise
    is used."""
    count = len(profile.rates)
    if profile.configuration is None or profile.edge is None or count < LEAST_WINDOWS or max(profile.rates) <= 0.0:
        return None
    error = best.log_error * math.sqrt(_effective(best.seconds / block.window_s) / _effective(count))
    return Observation(
        configuration=profile.configuration,
        samples_per_s=speed_of(profile.rates),
        log_error=max(error, best.log_error),
        seconds=profile.seconds,
        iterations=1,
        at_s=profile.edge.at_s,
        **dict.fromkeys(TIMINGS),
    )


def is_below(seen: Observation, best: Observation, floor: float, errors: float = CLEAR) -> bool:
    """Whether `seen` is slower than the floor by at least `errors` standard errors."""
    if floor <= 0.0:
        return False
    return math.log(seen.samples_per_s / best.samples_per_s) + errors * seen.log_error < math.log(floor)


def slow_budget_s(remaining_s: float) -> float:
    """Seconds that all trials together may run below the floor."""
    return SLOW_S + SLOW_SHARE * remaining_s


def _effective(windows: float) -> float:
    """The number of independent windows among `windows` correlated ones, as in `profile.log_error_of`. There the error
    is MEDIAN_OVER_MEAN * spread of the windows / sqrt(this number)."""
    return max(1.0, windows * (1 - USUAL_CORRELATION) / (1 + USUAL_CORRELATION))
