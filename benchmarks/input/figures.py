"""The names of the arms, and the figures that all benchmarks of the input have."""

from __future__ import annotations

from benchmarks.harness.benchmark import Figure, PairedFigure
from benchmarks.input.arms import Measured

__all__ = ["AUTO", "BEST", "LEAST_SHARE", "SPEED", "ratio_to"]

AUTO, BEST = "auto", "exhaustive"
LEAST_SHARE = 0.95  # of the speed with the best knobs
SPEED = Figure[Measured]("speed", "samples/s", lambda one: one.samples_per_s, form=",.0f")


def ratio_to(arm: str) -> PairedFigure[Measured]:
    """The speed of the tuner over that of another arm."""
    return PairedFigure(
        f"over {arm}", "", AUTO, arm, lambda ours, other: ours.samples_per_s / other.samples_per_s, form=".3f"
    )
