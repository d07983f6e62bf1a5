"""Which configurations a decision looks at: all of them while they are few, else a coarse grid and what lies about its
best points, or what NSGA-II finds. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from elastichost.tuner.candidates import Bounds, as_configurations, contains, count, enumerate_candidates, neighbours
from elastichost.tuner.facts import ConfigurationArray

__all__ = ["ALL_OF_THEM", "Search", "search_space"]

Search = Literal["auto", "exact", "nsga2"]
ALL_OF_THEM = 20_000  # so many are predicted in a few milliseconds
BEST_POINTS, ROUNDS = 8, 6  # whose neighbours are looked at, so often
Speed = Callable[[ConfigurationArray], npt.NDArray[np.float64]]


def search_space(bounds: Bounds, search: Search, speed: Speed, seed: int) -> ConfigurationArray:
    """Candidates, float64 [n, 4] in lexicographic order; empty when nothing fits the bounds. speed: of n of them,
    float64 [n]. Raises ValueError for an exact search among more candidates than can be laid out."""
    if search == "nsga2":
        return _by_nsga2(bounds, speed, seed)
    if search == "exact" or count(bounds) <= ALL_OF_THEM:
        return enumerate_candidates(bounds)
    return _coarse_to_fine(bounds, speed)


def _levels(low: int, high: int) -> npt.NDArray[np.float64]:
    """1, 2, 3, 4, 6, 8, 12, 16, ...: every value has one within a fifth of it."""
    values = {low, high}
    power = 1
    while power <= high:
        values.update(value for value in (power, power + power // 2) if low <= value <= high)
        power *= 2
    return np.array(sorted(values), dtype=np.float64)


def _coarse_to_fine(bounds: Bounds, speed: Speed) -> ConfigurationArray:
    low, high = bounds.least, bounds.most
    ranges = (
        (low.workers, high.workers),
        (low.servers, high.servers),
        (low.worker_cores, high.worker_cores),
        (low.server_cores, high.server_cores),
    )
    grid = np.stack(np.meshgrid(*(_levels(*one) for one in ranges), indexing="ij"), axis=-1).reshape(-1, 4)
    known = grid[contains(bounds, grid)]
    for _ in range(ROUNDS):
        if not len(known):
            return known
        best = known[np.argsort(-speed(known), kind="stable")[:BEST_POINTS]]
        around = [neighbours(bounds, configuration) for configuration in as_configurations(best)]
        grown = np.unique(np.concatenate([known, *around]), axis=0)
        if len(grown) == len(known):
            break
        known = grown
    return known


def _by_nsga2(bounds: Bounds, speed: Speed, seed: int) -> ConfigurationArray:
    from elastichost.tuner.frontier import nsga2

    def cores(array: ConfigurationArray) -> npt.NDArray[np.float64]:
        total: npt.NDArray[np.float64] = array[:, 0] * array[:, 2] + array[:, 1] * array[:, 3]
        return total

    found = nsga2(bounds, speed, cores, seed=seed)
    return np.unique(found.configurations, axis=0)
