"""The configurations in which jobs with known costs are measured."""

from __future__ import annotations

import numpy as np

from elastichost.emulation.scenarios import Scenario
from elastichost.tuner.facts import Configuration

__all__ = ["grid"]


def grid(of: Scenario) -> tuple[Configuration, ...]:
    """Returns the grid of a scenario. For processes with their own cores it has 768 configurations with 1 to 32
    workers, 1 to 16 PS, and 1 to 8 cores each: every second point of a lattice, like the black fields of a chessboard.
    For a shared host it has all points of a denser lattice with at most twice as many worker threads as cores."""
    if of.shares_host:
        most = 2 * of.workload.host_cores
        counts = [count for count in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32) if count <= most]
        axes = [counts, [1, 2, 3, 4], [1, 2, 3, 4, 6, 8], [1, 2]]
    else:
        few = [1, 2, 4, 8]
        axes = [[1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32], [1, 2, 3, 4, 6, 8, 12, 16], few, few]
    chosen = []
    for place in np.ndindex(*(len(axis) for axis in axes)):
        one = Configuration(*(axis[index] for axis, index in zip(axes, place, strict=True)))
        if one.workers * one.worker_cores <= most if of.shares_host else sum(place) % 2 == 0:
            chosen.append(one)
    return tuple(chosen)
