"""Parts of the sentences that give the reasons of the tuner's decisions."""

from __future__ import annotations

from elastichost.tuner.facts import Observation
from elastichost.tuner.policy.decision import SpeedForecast

__all__ = ["rate", "ratio", "why_stay"]


def rate(expected: SpeedForecast) -> str:
    """A speed with its 90 % interval: `1,000 (900 to 1,100) samples/s`."""
    return f"{expected.samples_per_s:,.0f} ({expected.low:,.0f} to {expected.high:,.0f}) samples/s"


def ratio(block: Observation, best: Observation) -> str:
    """The speeds of the measured and of the best known configuration."""
    return (
        f"{block.configuration} trains {block.samples_per_s:,.0f} samples/s, "
        f"{best.configuration} trains {best.samples_per_s:,.0f}"
    )


def why_stay(second: SpeedForecast | None, best: Observation) -> str:
    """Why the run stays at the best known configuration. second: the fastest one that was not measured."""
    speed = f"{best.samples_per_s:,.0f} samples/s measured"
    if second is None:
        return f"{speed}; all other allowed configurations were measured too"
    share = second.samples_per_s / best.samples_per_s - 1
    return (
        f"{speed}; the fastest configuration that was not measured, {second.configuration}, "
        f"is predicted to train {rate(second)} ({share:+.0%})"
    )
