"""Estimates the number of distinct ids of a dataset from the numbers in longer and longer beginnings of it. Pure.

Model: there are N ids, and each draw is the r-th most frequent id with probability p_r ~ r^-a. The expected number of
distinct ids after n draws is

    V(n) = sum_r 1 - (1 - p_r)^n  ~  sum_r 1 - exp(-n p_r)

The expected number of ids that were drawn at least k times is sum_r P(k, n p_r), P: the regularised lower incomplete
gamma function. For each N the exponent a is chosen so that V agrees with the last observation; then the N whose curve
fits the earlier observations best is used.

Heaps' power law n^beta has no upper limit, so it overestimates tables whose ids are exhausted within the data. For
synthetic tables of 10^4 to 10^7 ids, and the first 262,144 of up to forty times as many samples, the power law gave
0.94 to 1.8 times the true number, this model 0.88 to 1.11 times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.special import gammainc

__all__ = ["IdLaw", "expected", "fit_ids"]

Float64 = npt.NDArray[np.float64]

HEAD_RANKS = 32  # the first ranks are summed one by one, the others in RANGES geometric ranges
RANGES = 96
MOST_EXPONENT = 4.0
HALVINGS = 16
# log(N / seen ids) of the grid; dense at small values, for tables that are nearly exhausted
BEYOND = (0.001, 0.01, 0.03, 0.1, *(0.25 + 0.5 * step for step in range(18)))
FIRST_STEP, LEAST_STEP = 0.2, 0.02


class IdLaw(msgspec.Struct, frozen=True):
    """A fitted law. seen: (draws, distinct ids) of the longest observed beginning. ids: N; None: no id occurred twice,
    so N cannot be estimated. exponent: a."""

    seen: tuple[int, int]
    ids: float | None = None
    exponent: float = 0.0

    def distinct(self, draws: float, sightings: int = 1) -> float:
        """The expected number of ids that occur at least `sightings` times among `draws` draws."""
        drawn, distinct = self.seen
        if self.ids is None:
            return distinct * draws / max(1, drawn) * (sightings == 1)
        found = float(expected([draws], self.ids, self.exponent, sightings)[0])
        return min(max(found, float(distinct)), draws) if draws >= drawn and sightings == 1 else found


def expected(draws: Sequence[float], ids: float, exponent: float, sightings: int = 1) -> Float64:
    """V(n) for each number of draws, float64 [draws], with N = ids (at least 1) and a = exponent; for sightings > 1 the
    number of ids that occur at least that often."""
    ranks = min(ids, float(HEAD_RANKS))
    behind = np.geomspace(ranks, ids, RANGES + 1) if ids > ranks else np.array([ranks])
    edges = np.concatenate([np.arange(1.0, ranks), np.unique(behind)])
    # the range [r, s) of ranks is integrated from r - 1/2 to s - 1/2; the last range ends at ids + 1/2
    low, high = edges - 0.5, np.append(edges[1:] - 0.5, ids + 0.5)
    counts = high - low
    if abs(exponent - 1.0) < 1e-9:
        mass = np.log(high / low)
    else:
        mass = (high ** (1.0 - exponent) - low ** (1.0 - exponent)) / (1.0 - exponent)
    times = np.outer(np.asarray(draws, np.float64), mass / mass.sum() / counts)
    seen: Float64 = -np.expm1(-times) if sightings == 1 else gammainc(sightings, times)
    found: Float64 = seen @ counts
    return found


def fit_ids(points: Sequence[tuple[int, int]]) -> IdLaw:
    """Fits the law. points: (draws, distinct ids among them) of at least one beginning, by rising draws."""
    seen = [(n, v) for n, v in points if n > 0 and v > 0]
    if not seen:
        return IdLaw((0, 0))
    if seen[-1][0] == seen[-1][1] or len(seen) < 2:
        return IdLaw(seen[-1])
    ids, exponent = _fit(seen)
    return IdLaw(seen[-1], ids, exponent)


def _fit(seen: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Returns (ids, exponent): a grid search over log ids, then a search with halved steps around the best point."""
    draws, log_seen = [n for n, _ in seen], np.log([v for _, v in seen])
    least = math.log(seen[-1][1])

    def misfit(log_ids: float) -> tuple[float, float, float]:
        exponent = _exponent(draws[-1], seen[-1][1], math.exp(log_ids))
        errors = np.log(expected(draws, math.exp(log_ids), exponent)) - log_seen
        return float(errors @ errors), log_ids, exponent

    best = min(misfit(least + beyond) for beyond in BEYOND)
    step = FIRST_STEP
    while step >= LEAST_STEP:
        near = [misfit(best[1] + way) for way in (-step, step) if least < best[1] + way <= least + BEYOND[-1]]
        nearer = min([best, *near])
        step = step / 2 if nearer is best else step
        best = nearer
    return math.exp(best[1]), best[2]


def _exponent(draws: int, distinct: int, ids: float) -> float:
    """The exponent for which `draws` draws have `distinct` distinct ids; a larger exponent gives fewer."""
    low, high = 0.0, MOST_EXPONENT
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if expected([draws], ids, middle)[0] > distinct:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
