"""Selects the configurations that a decision evaluates: all if they are few, else a coarse grid that is refined around
its best points, or the frontier that NSGA-II finds. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray
from elastichost.tuner.policy.candidates import Bounds, contains, count, enumerate_candidates

__all__ = ["ALL_OF_THEM", "Search", "coarse_grid", "codes", "may_use_nsga2", "search_space"]

Search = Literal["auto", "exact", "nsga2"]
ALL_OF_THEM = 20_000  # up to this number all candidates are evaluated; predicting them takes a few milliseconds
EVOLVED = 6_000  # NSGA-II evaluates this number of configurations; for fewer candidates, evaluating all is faster
# The neighbours of the BEST_POINTS best points are evaluated, ROUNDS times: levels of the grid are up to four steps
# apart at 32, two at 16.
BEST_POINTS, ROUNDS = 8, 8
CODE = np.array([4096.0**3, 4096.0**2, 4096.0, 1.0])  # all numbers are below 4096, and the codes are exact in float64
Floats = npt.NDArray[np.float64]
Worth = Callable[[ConfigurationArray], Floats]


def search_space(bounds: Bounds, search: Search, worth: Worth, seed: int) -> ConfigurationArray:
    """Returns the candidates to evaluate, float64 [n, 4] in lexicographic order; empty if no configuration fits the
    bounds. worth: returns the worth of n candidates, float64 [n]; more is better. Raises ValueError for an exact search
    with more candidates than `candidates.LIMIT`."""
    many = count(bounds)
    if search == "nsga2" and many > EVOLVED:
        return _by_nsga2(bounds, worth, seed)
    if search == "exact" or many <= ALL_OF_THEM:
        return enumerate_candidates(bounds)
    return _coarse_to_fine(bounds, worth)


def may_use_nsga2(bounds: Bounds, search: Search) -> bool:
    """Whether `search_space` may use NSGA-II within these bounds or narrower ones."""
    return search == "nsga2" and count(bounds) > EVOLVED


def _levels(low: int, high: int) -> Floats:
    """The levels 1, 2, 3, 4, 6, 8, 12, 16, ... from low to high; every value is within a fifth of a level."""
    values = {low, high}
    power = 1
    while power <= high:
        values.update(value for value in (power, power + power // 2) if low <= value <= high)
        power *= 2
    return np.array(sorted(values), dtype=np.float64)


def coarse_grid(bounds: Bounds) -> ConfigurationArray:
    """The candidates whose numbers are levels; float64 [n, 4] in lexicographic order, a few thousand rows."""
    low, high = bounds.least, bounds.most
    ranges = (
        (low.workers, high.workers),
        (low.servers, high.servers),
        (low.worker_cores, high.worker_cores),
        (low.server_cores, high.server_cores),
    )
    grid = np.stack(np.meshgrid(*(_levels(*one) for one in ranges), indexing="ij"), axis=-1).reshape(-1, 4)
    return np.asarray(grid[contains(bounds, grid)])


def _coarse_to_fine(bounds: Bounds, worth: Worth) -> ConfigurationArray:
    known = coarse_grid(bounds)
    if not len(known):
        return known
    known_worth = worth(known)
    for _ in range(ROUNDS):
        best = np.argsort(-known_worth, kind="stable")[:BEST_POINTS]
        around = _around(bounds, known[best])
        _, first = np.unique(codes(around), return_index=True)
        around = around[first]
        new = around[~np.isin(codes(around), codes(known))]
        if not len(new):
            break
        known, known_worth = np.concatenate([known, new]), np.concatenate([known_worth, worth(new)])
    return known[np.lexsort(known.T[::-1])]


def codes(configurations: ConfigurationArray) -> Floats:
    """A unique number for each configuration, ascending in lexicographic order; float64 [n] for float64 [n, 4]."""
    found: Floats = configurations @ CODE
    return found


def _around(bounds: Bounds, configurations: ConfigurationArray) -> ConfigurationArray:
    """The neighbours of all rows of float64 [n, 4], as by `candidates.neighbours`; with duplicates."""
    found = []
    for column in range(configurations.shape[1]):
        own = configurations[:, column]
        for values in (own - 1, own + 1, own * 2, np.floor(own / 2)):
            moved = configurations.copy()
            moved[:, column] = values
            found.append(moved)
    for more, fewer in ((0, 2), (2, 0), (1, 3), (3, 1)):
        traded = configurations.copy()
        traded[:, more], traded[:, fewer] = configurations[:, more] * 2, np.floor(configurations[:, fewer] / 2)
        found.append(traded)
    array = np.concatenate(found)
    return array[contains(bounds, array)]


def _by_nsga2(bounds: Bounds, worth: Worth, seed: int) -> ConfigurationArray:
    from elastichost.tuner.policy.frontier import nsga2

    def cores(array: ConfigurationArray) -> Floats:
        total: Floats = array[:, 0] * array[:, 2] + array[:, 1] * array[:, 3]
        return total

    found = nsga2(bounds, worth, cores, seed=seed)
    return np.unique(found.configurations, axis=0)
