"""The Pareto frontier of speed and cost: configurations that no other one beats in both. Pure.

The frontier is exact where all candidates can be predicted at once; that takes milliseconds for 100,000 candidates.
For more candidates, or on request, NSGA-II searches it (Deb, Pratap, Agarwal and Meyarivan 2002; DLRover-RM uses the
same method).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.errors import ConfigError
from elastichost.tuner.facts import COLUMNS, Configuration, ConfigurationArray
from elastichost.tuner.policy.candidates import Bounds, repaired

if TYPE_CHECKING:
    from pymoo.algorithms.moo.nsga2 import NSGA2

__all__ = ["Frontier", "Prices", "nsga2", "pareto", "require_nsga2", "resource_cost", "thinned", "warm_up_nsga2"]

Floats = npt.NDArray[np.float64]
# float64 [n] for float64 [n, 4]
Objective = Callable[[ConfigurationArray], Floats]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of a core and of a GiB of memory, in any common unit. The default unit is the price of one core: a GiB
    costs 0.13 of a core in cloud price lists (Google Compute Engine N1, 2024: 0.0332 $ per core and hour, 0.0044 $ per
    GiB and hour)."""

    core: float = 1.0
    gib: float = 0.13


class Frontier(msgspec.Struct, frozen=True):
    """The n configurations of a frontier, float64 [n, 4], with their gain and cost, float64 [n]; sorted by rising cost,
    and therefore by rising gain."""

    configurations: ConfigurationArray
    gain: Floats
    cost: Floats


def resource_cost(
    configurations: ConfigurationArray, memory_bytes: Floats | float = 0.0, prices: Prices | None = None
) -> Floats:
    """The cost of the cores and the memory of each configuration, float64 [n]. configurations: float64 [n, 4].
    memory_bytes: memory of all processes of a configuration together, float64 [n] or one number."""
    prices = prices or Prices()
    workers, servers, worker_cores, server_cores = configurations.T
    cores = workers * worker_cores + servers * server_cores
    return np.asarray(prices.core * cores + prices.gib * np.asarray(memory_bytes) / 2**30, dtype=np.float64)


def pareto(gain: Floats, cost: Floats) -> npt.NDArray[np.int64]:
    """Returns the indices of the undominated entries by rising cost, int64 [k].

    An entry is dominated if another one has at least its gain at no more cost, and is better in one of the two. Of
    entries that are equal in both, the first is returned. Entries without a finite gain or cost are left out. gain,
    cost: float64 [n]. Raises ValueError if their lengths differ.
    """
    if gain.shape != cost.shape or gain.ndim != 1:
        raise ValueError(f"gain {gain.shape} and cost {cost.shape} must be vectors of the same length")
    usable = np.flatnonzero(np.isfinite(gain) & np.isfinite(cost))
    if not len(usable):
        return usable
    by_cost = usable[np.argsort(cost[usable])]
    # Only entries with at least the gain of all cheaper ones can stay. These are few, and only they are sorted exactly:
    records = np.sort(by_cost[gain[by_cost] >= np.maximum.accumulate(gain[by_cost])])
    # by rising cost, then falling gain, then index. Entries with more gain than all before them are kept.
    order = records[np.lexsort((-gain[records], cost[records]))]
    best_before = np.concatenate(([-np.inf], np.maximum.accumulate(gain[order])[:-1]))
    return np.asarray(order[gain[order] > best_before])


def thinned(gain: Floats, cost: Floats, most: int) -> npt.NDArray[np.int64]:
    """Returns the indices of at most `most` points of the frontier by rising cost, int64 [k]: the two ends, and points
    between them at even steps of the logarithm of the gain. gain, cost: float64 [n]."""
    front = pareto(gain, cost)
    if len(front) <= most:
        return front
    logs = np.log(np.maximum(gain[front], 1e-12))
    places = np.searchsorted(logs, np.linspace(logs[0], logs[-1], most))
    kept: npt.NDArray[np.int64] = front[np.unique(np.minimum(places, len(front) - 1))]
    return kept


# --- NSGA-II ----------------------------------------------------------------------------------------------------------


def nsga2(
    bounds: Bounds,
    predict: Objective,
    cost: Objective,
    seed: int,
    population: int = 100,
    generations: int = 60,
    start: ConfigurationArray | None = None,
) -> Frontier:
    """Searches with NSGA-II, and returns the frontier of all configurations that the search evaluated.

    predict: the gain of configurations, for example samples/s. cost: their cost. Variables are whole numbers. The
    results of crossover and mutation are repaired to candidates (`candidates.repaired`), so only configurations within
    the bounds are evaluated. start: configurations of the first population, float64 [n, 4], for example the present
    one; the rest of it is drawn log-uniformly. The same seed gives the same frontier. The number of predictions is
    population * generations. Raises ValueError if no configuration fits the bounds, and ConfigError if pymoo is not
    installed.
    """
    require_nsga2()
    # imported here because the import is slow and most runs do not need it
    from pymoo.core.problem import Problem
    from pymoo.optimize import minimize

    seen: list[tuple[ConfigurationArray, Floats, Floats]] = []

    class TwoObjectives(Problem):
        def _evaluate(self, x: npt.NDArray[Any], out: dict[str, Any], *_: Any, **__: Any) -> None:
            array = np.asarray(x, dtype=np.float64)
            found = array, predict(array), cost(array)
            seen.append(found)
            # NSGA-II minimises, and cannot rank NaN
            out["F"] = np.nan_to_num(np.stack([-found[1], found[2]], axis=1), nan=1e300, posinf=1e300, neginf=-1e300)

    low = _numbers(bounds, "least")
    high = np.maximum(_numbers(bounds, "most"), low)
    problem = TwoObjectives(n_var=len(COLUMNS), n_obj=2, xl=low, xu=high)
    first = _first_population(bounds, low, high, population, seed, start)
    minimize(problem, _algorithm(bounds, first), ("n_gen", generations), seed=seed, verbose=False)
    configurations, gain, spent = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    kept = pareto(gain, spent)
    return Frontier(configurations[kept], gain[kept], spent[kept])


def require_nsga2() -> None:
    """Raises ConfigError if pymoo, which implements NSGA-II, is not installed."""
    if importlib.util.find_spec("pymoo") is None:
        raise ConfigError(
            'tuner.search = "nsga2" needs pymoo, which is not installed here',
            hint='pip install "elastichost[nsga2]", or use the default tuner.search = "auto"',
        )


def warm_up_nsga2() -> None:
    """Runs a short search to import pymoo; parts of pymoo are imported only during a search."""

    def first(array: ConfigurationArray) -> Floats:
        return array[:, 0]

    def second(array: ConfigurationArray) -> Floats:
        return array[:, 1]

    few = Bounds(Configuration(1, 1), Configuration(4, 4))
    nsga2(few, first, second, seed=0, population=8, generations=2)


def _numbers(bounds: Bounds, name: str) -> Floats:
    return np.array([getattr(getattr(bounds, name), column) for column in COLUMNS], dtype=np.float64)


def _first_population(
    bounds: Bounds, low: Floats, high: Floats, population: int, seed: int, start: ConfigurationArray | None
) -> ConfigurationArray:
    given = np.empty((0, len(COLUMNS))) if start is None else repaired(bounds, start)
    drawn = np.random.default_rng(seed).uniform(np.log(low), np.log(high + 1), (population, len(COLUMNS)))
    rows = np.concatenate([given, repaired(bounds, np.floor(np.exp(drawn)))])
    return rows[np.sort(np.unique(rows, axis=0, return_index=True)[1])][:population]


def _algorithm(bounds: Bounds, first: ConfigurationArray) -> NSGA2:
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.repair import Repair
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.pm import PM

    class ToCandidates(Repair):
        def _do(self, problem: object, X: npt.NDArray[Any], **_: Any) -> ConfigurationArray:  # noqa: N803
            return repaired(bounds, np.asarray(X, dtype=np.float64))

    return NSGA2(
        pop_size=len(first),
        sampling=first,
        crossover=SBX(prob=0.9, eta=10, vtype=float, repair=ToCandidates()),
        mutation=PM(prob=0.9, prob_var=0.4, eta=10, vtype=float, repair=ToCandidates()),
        repair=ToCandidates(),
        eliminate_duplicates=True,
    )
