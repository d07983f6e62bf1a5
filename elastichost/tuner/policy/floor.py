"""A look that turns out to be slower than the floor: seen within two seconds, and left. Pure.

The floor is a share of the best speed known (`tuner.floor`). Before a look its speed is foreseen, and looks that would
not hold the floor are not taken; what is wrong with a prediction shows in the first windows. Their noise is not known
from themselves, being so few: it is that of the windows of the best configuration.
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

CLEAR = 1.28  # standard errors: nine times of ten what seems to be below the floor by so much is
LEAST_WINDOWS = 3
SLOW_S, SLOW_SHARE = 5.0, 0.01  # looks may train so long below the floor, and for that share of what is left beside it


def early_observation(profile: ProfileState, best: Observation, block: BlockSettings) -> Observation | None:
    """What the windows of a look say so far, though they are too few for a block; nothing of what is timed. None: they
    say nothing. best: another configuration that was measured."""
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
    """That `seen` is slower than the floor, by so many standard errors at least."""
    if floor <= 0.0:
        return False
    return math.log(seen.samples_per_s / best.samples_per_s) + errors * seen.log_error < math.log(floor)


def slow_budget_s(remaining_s: float) -> float:
    """So long all looks together may train below the floor."""
    return SLOW_S + SLOW_SHARE * remaining_s


def _effective(windows: float) -> float:
    """Independent windows, of so many; as in `profile.log_error_of`, where the error is MEDIAN_OVER_MEAN times the
    spread of windows over the root of this."""
    return max(1.0, windows * (1 - USUAL_CORRELATION) / (1 + USUAL_CORRELATION))
