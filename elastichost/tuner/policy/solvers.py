"""What the tuner's searches need and is slow to import: NSGA-II, which most runs never use. Pure."""

from __future__ import annotations

import importlib.util

import numpy as np
import numpy.typing as npt

from elastichost.errors import ConfigError
from elastichost.tuner.facts import Configuration, ConfigurationArray
from elastichost.tuner.policy.candidates import Bounds, count
from elastichost.tuner.policy.space import EVOLVED, Search

__all__ = ["may_evolve", "require_nsga2", "warm_nsga2"]


def may_evolve(bounds: Bounds, search: Search) -> bool:
    """Whether `space.search_space` can come to NSGA-II within these bounds, or narrower ones."""
    return search == "nsga2" and count(bounds) > EVOLVED


def require_nsga2() -> None:
    """Raises ConfigError where pymoo, which NSGA-II is from, is not installed."""
    if importlib.util.find_spec("pymoo") is None:
        raise ConfigError(
            'tuner.search = "nsga2" needs pymoo, which is not installed here',
            hint='pip install "elastichost[nsga2]", or leave tuner.search as it is by default, "auto"',
        )


def warm_nsga2() -> None:
    """A search of a moment: what pymoo is made of is imported when it is first used, some of it within a search."""
    from elastichost.tuner.policy.frontier import nsga2

    def first(array: ConfigurationArray) -> npt.NDArray[np.float64]:
        return array[:, 0]

    def second(array: ConfigurationArray) -> npt.NDArray[np.float64]:
        return array[:, 1]

    few = Bounds(Configuration(1, 1), Configuration(4, 4))
    nsga2(few, first, second, seed=0, population=8, generations=2)
