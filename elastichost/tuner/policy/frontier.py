"""Configurations of which none is both faster and cheaper than another: the Pareto frontier of speed and cost. Pure.

Exact where all candidates can be predicted at once, which takes milliseconds for a hundred thousand of them; by NSGA-II
(Deb, Pratap, Agarwal and Meyarivan 2002, as DLRover-RM uses it) where there are too many, or where it is asked for.
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

__all__ = ["Frontier", "Prices", "nsga2", "pareto", "require_nsga2", "resource_cost", "warm_up_nsga2"]

Floats = npt.NDArray[np.float64]
# float64 [n] for float64 [n, 4]
Objective = Callable[[ConfigurationArray], Floats]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a core and a GiB cost, in any unit. By default in cores: a GiB costs 0.13 of one in the price lists of large
    clouds (Google Compute Engine N1, 2024: 0.0332 $ an hour and core, 0.0044 $ an hour and GiB)."""

    core: float = 1.0
    gib: float = 0.13


class Frontier(msgspec.Struct, frozen=True):
    """float64 [n, 4], [n] and [n]; by rising cost, and therefore by rising gain."""

    configurations: ConfigurationArray
    gain: Floats
    cost: Floats


def resource_cost(
    configurations: ConfigurationArray, memory_bytes: Floats | float = 0.0, prices: Prices | None = None
) -> Floats:
    """What the cores and the memory of each configuration cost, float64 [n]. configurations: float64 [n, 4];
    memory_bytes: of all processes of each together, float64 [n] or one number."""
    prices = prices or Prices()
    workers, servers, worker_cores, server_cores = configurations.T
    cores = workers * worker_cores + servers * server_cores
    return np.asarray(prices.core * cores + prices.gib * np.asarray(memory_bytes) / 2**30, dtype=np.float64)


def pareto(gain: Floats, cost: Floats) -> npt.NDArray[np.int64]:
    """Indices of what nothing else beats (no less gain at no more cost, one of them better), by rising cost; int64 [k].

    Of those equal in both the first. What has no finite gain or cost is left out. gain, cost: float64 [n]; raises
    ValueError when they are of different lengths.
    """
    if gain.shape != cost.shape or gain.ndim != 1:
        raise ValueError(f"gain {gain.shape} and cost {cost.shape} must be of one length")
    usable = np.flatnonzero(np.isfinite(gain) & np.isfinite(cost))
    if not len(usable):
        return usable
    by_cost = usable[np.argsort(cost[usable])]
    # only what gains no less than all that cost less can stay: a handful, and the exact order is needed of them alone
    records = np.sort(by_cost[gain[by_cost] >= np.maximum.accumulate(gain[by_cost])])
    # by rising cost, at equal cost by falling gain, at equal gain by index; kept is what gains more than all before it
    order = records[np.lexsort((-gain[records], cost[records]))]
    best_before = np.concatenate(([-np.inf], np.maximum.accumulate(gain[order])[:-1]))
    return np.asarray(order[gain[order] > best_before])


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
    """The frontier of all configurations that the search looked at. predict: gain, such as samples/s.

    Variables are whole numbers, and what crossover and mutation make is cut to what fits (`candidates.repaired`), so
    that nothing else is ever looked at. start: configurations to begin with, float64 [n, 4], such as the present one;
    the others are drawn by ratios, log-uniformly. The same seed gives the same frontier. population * generations is
    the number of predictions. Raises ValueError when nothing fits within the bounds, and ConfigError where pymoo is not
    installed.
    """
    require_nsga2()
    # slow to import, and most runs never need it
    from pymoo.core.problem import Problem
    from pymoo.optimize import minimize

    seen: list[tuple[ConfigurationArray, Floats, Floats]] = []

    class TwoObjectives(Problem):
        def _evaluate(self, x: npt.NDArray[Any], out: dict[str, Any], *_: Any, **__: Any) -> None:
            array = np.asarray(x, dtype=np.float64)
            found = array, predict(array), cost(array)
            seen.append(found)
            # NSGA-II minimises, and ranks no NaN
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
    """Raises ConfigError where pymoo, which NSGA-II is from, is not installed."""
    if importlib.util.find_spec("pymoo") is None:
        raise ConfigError(
            'tuner.search = "nsga2" needs pymoo, which is not installed here',
            hint='pip install "elastichost[nsga2]", or leave tuner.search as it is by default, "auto"',
        )


def warm_up_nsga2() -> None:
    """Runs a short search, so that pymoo is imported: parts of it are imported only within a search."""

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
