"""Aggregates repeated measurements: spreads, percentiles, bootstrap intervals, ratios. Pure."""

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
    """Median, smallest and largest value."""

    median: float
    least: float
    most: float

    def shown(self, form: str) -> str:
        return f"{self.median:{form}} ({self.least:{form}}-{self.most:{form}})"

    def __str__(self) -> str:
        return self.shown(".3g")


class Percentiles(msgspec.Struct, frozen=True):
    """Percentiles by nearest rank, so that each is a measured value. times: number of measurements."""

    times: int
    p50: float
    p99: float
    worst: float

    def shown(self, form: str) -> str:
        return f"{self.p50:{form}} (p99 {self.p99:{form}}, worst {self.worst:{form}})"


class Interval(msgspec.Struct, frozen=True):
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    def shown(self, form: str, scale: float = 1.0) -> str:
        return f"{scale * self.mean:{form}} ({scale * self.low:{form}}-{scale * self.high:{form}})"


Aggregate = float | Spread | Percentiles | Interval


def typical(found: Aggregate) -> float:
    """The number that an aim judges: the median or the mean."""
    match found:
        case Spread():
            return found.median
        case Percentiles():
            return found.p50
        case Interval():
            return found.mean
    return float(found)


def shown(found: Aggregate | None, form: str) -> str:
    """The aggregate as text; "-" if it was not measured. A single value is shown without a range."""
    if found is None:
        return "-"
    if isinstance(found, Spread) and found.least == found.most:
        found = found.median
    return f"{found:{form}}" if isinstance(found, (int, float)) else found.shown(form)


def spread_of(values: Iterable[float]) -> Spread:
    """The spread of the values. Raises ValueError for no values."""
    found = list(values)
    return Spread(median(found), min(found), max(found))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed. Raises ValueError for no values."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def percentiles_of(values: Sequence[float]) -> Percentiles:
    """The percentiles of the values. Raises ValueError for no values."""
    return Percentiles(len(values), percentile(values, 50), percentile(values, 99), max(values))


def quantile(share: float) -> Callable[[Sequence[float]], float]:
    """An aggregate function: the quantile `share` (0 to 1), interpolated between measured values."""
    return lambda values: float(np.quantile(values, share))


def bootstrap(values: Floats, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The mean of `values` (one for each seed), and its 95 % percentile interval over resamples."""
    picks = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))
    means = values[picks].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high))


def pooled(parts: Floats, wholes: Floats, resamples: int = RESAMPLES, seed: int = 0) -> Interval | None:
    """The sum of `parts` divided by the sum of `wholes` (one of each for a seed), with its interval over resampled
    seeds. None if all wholes are 0."""
    if wholes.sum() <= 0:
        return None
    picks = np.random.default_rng(seed).integers(0, len(wholes), (resamples, len(wholes)))
    sums = wholes[picks].sum(axis=1)
    shares = parts[picks].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = np.quantile(shares, (0.025, 0.975))
    return Interval(float(parts.sum() / wholes.sum()), float(low), float(high))


def ratio(one: Floats, other: Floats) -> Interval:
    """The geometric mean over seeds of `one / other`, paired by seed."""
    spread = bootstrap(np.log(one / other))
    return Interval(*(float(np.exp(value)) for value in msgspec.structs.astuple(spread)))
