"""From repeated measurements of one thing to what is told of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = [
    "Aggregate",
    "Interval",
    "Percentiles",
    "Spread",
    "bootstrap",
    "percentile",
    "percentiles_of",
    "pooled",
    "quantile",
    "ratio",
    "shown",
    "spread_of",
    "typical",
]

RESAMPLES = 4000
Floats = npt.NDArray[np.float64]


class Spread(msgspec.Struct, frozen=True):
    """Median, least and most."""

    median: float
    least: float
    most: float

    def shown(self, form: str) -> str:
        return f"{self.median:{form}} ({self.least:{form}}-{self.most:{form}})"

    def __str__(self) -> str:
        return self.shown(".3g")


class Percentiles(msgspec.Struct, frozen=True):
    """Each is a value that was measured. times: how many there are."""

    times: int
    p50: float
    p99: float
    worst: float

    def shown(self, form: str) -> str:
        return f"{self.p50:{form}} (p99 {self.p99:{form}}, worst {self.worst:{form}})"


class Interval(msgspec.Struct, frozen=True):
    """Mean, and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    def shown(self, form: str, scale: float = 1.0) -> str:
        return f"{scale * self.mean:{form}} ({scale * self.low:{form}}-{scale * self.high:{form}})"


Aggregate = float | Spread | Percentiles | Interval


def typical(found: Aggregate) -> float:
    """The one number that an aim judges: median or mean."""
    match found:
        case Spread():
            return found.median
        case Percentiles():
            return found.p50
        case Interval():
            return found.mean
    return float(found)


def shown(found: Aggregate | None, form: str) -> str:
    """ "-": it was not measured. A single value has no range."""
    if found is None:
        return "-"
    if isinstance(found, Spread) and found.least == found.most:
        found = found.median
    return f"{found:{form}}" if isinstance(found, (int, float)) else found.shown(form)


def spread_of(values: Iterable[float]) -> Spread:
    """Raises ValueError when there are none."""
    found = list(values)
    return Spread(median(found), min(found), max(found))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed. Raises ValueError when there are none."""
    if not values:
        raise ValueError("no values, hence no percentile")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def percentiles_of(values: Sequence[float]) -> Percentiles:
    """Raises ValueError when there are none."""
    return Percentiles(len(values), percentile(values, 50), percentile(values, 99), max(values))


def quantile(share: float) -> Callable[[Sequence[float]], float]:
    """An aggregate: interpolated between measured values."""
    return lambda values: float(np.quantile(values, share))


def bootstrap(values: Floats, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The mean and its 95 % percentile interval over resamples of the values, which are one for each seed."""
    picks = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))
    means = values[picks].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high))


def pooled(parts: Floats, wholes: Floats, resamples: int = RESAMPLES, seed: int = 0) -> Interval | None:
    """Sum of the parts over sum of the wholes, one of each for a seed, and its interval over resampled seeds. None when
    all wholes are 0: there was nothing to count."""
    if wholes.sum() <= 0:
        return None
    picks = np.random.default_rng(seed).integers(0, len(wholes), (resamples, len(wholes)))
    sums = wholes[picks].sum(axis=1)
    shares = parts[picks].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = np.quantile(shares, (0.025, 0.975))
    return Interval(float(parts.sum() / wholes.sum()), float(low), float(high))


def ratio(one: Floats, other: Floats) -> Interval:
    """Geometric mean over seeds of one over the other, paired."""
    spread = bootstrap(np.log(one / other))
    return Interval(*(float(np.exp(value)) for value in msgspec.structs.astuple(spread)))
