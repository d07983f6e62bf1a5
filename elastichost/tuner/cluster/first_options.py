"""The options of a job about whose speed nothing is known. Pure."""

from __future__ import annotations

from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import Option, OptionArray

__all__ = ["first_options"]

UNKNOWN_LEFT_S = 1200.0  # assumed duration of the job; it counts only for its urgency beside other jobs


def first_options(configuration: Configuration, samples_left: float) -> OptionArray:
    """The only option of a job until it is measured: its first configuration."""
    return OptionArray.of((Option(configuration, samples_left / UNKNOWN_LEFT_S, configuration.cores),))
