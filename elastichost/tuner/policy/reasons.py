"""Why the tuner decided as it did, in words."""

from __future__ import annotations

from elastichost.tuner.facts import Observation
from elastichost.tuner.policy.decision import SpeedForecast

__all__ = ["rate", "ratio", "why_stay"]


def rate(expected: SpeedForecast) -> str:
    return f"{expected.samples_per_s:,.0f} ({expected.low:,.0f} to {expected.high:,.0f})"


def ratio(block: Observation, best: Observation) -> str:
    return (
        f"{block.configuration} trains {block.samples_per_s:,.0f} samples/s, "
        f"{best.configuration} {best.samples_per_s:,.0f}"
    )


def why_stay(second: SpeedForecast | None, best: Observation) -> str:
    speed = f"{best.samples_per_s:,.0f} samples/s measured"
    if second is None:
        return f"{speed}, and every other configuration that is allowed was measured"
    share = second.samples_per_s / best.samples_per_s - 1
    return f"{speed}; of those not measured {second.configuration} is the best: {rate(second)} ({share:+.0%})"
