"""Learns corrections of predicted speeds for pairs of kinds: effects of caches, stalls and locks. Pure.

Demand rows do not contain these effects. The correction of a job is

    log(measured / predicted speed) of job j = mean over its neighbours k of theta[kind j, kind k]

It is a mean and not a sum, because the predicted speeds already contain the larger demand of more neighbours; the
correction learned beside one neighbour must not be multiplied by ten for ten of them. theta is symmetric (one number
per unordered pair) and fitted by ridge regression,

    theta = (X' W X + RIDGE I)^-1 X' W y

X[i, pair]: share of the neighbours of window i that form this pair with its job. y[i]: log(measured / predicted) of
window i, limited to factors of 0.25 and 4. W: diagonal weights that halve every HALF_LIFE_S, because jobs change (for
example after their warm-up). Without windows theta is 0, with few windows it is close to 0. Each theta is limited to
factors of 0.25 and 1.5.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = [
    "Corrections",
    "PairCorrection",
    "SpeedSample",
    "SpeedSamples",
    "fitted",
    "learnt",
    "log_corrections",
    "table",
]

Floats = npt.NDArray[np.float64]
RIDGE = 8.0  # weight of the prior theta = 0, in windows; windows of one job are correlated, so few of them prove little
HALF_LIFE_S = 600.0
MOST_SAMPLES = 512
LEAST_LOG, MOST_LOG = math.log(0.25), math.log(1.5)
MOST_RATIO_LOG = math.log(4.0)


class SpeedSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One window of a job beside others. neighbours: their kinds. log_ratio: log(measured / predicted speed), predicted
    without corrections. at_s: time of the window."""

    kind: str
    neighbours: tuple[str, ...]
    log_ratio: float
    at_s: float


class SpeedSamples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest MOST_SAMPLES windows, newest last."""

    seen: tuple[SpeedSample, ...] = ()


class PairCorrection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """theta of an unordered pair of kinds, first <= second."""

    first: str
    second: str
    log_correction: float


class Corrections(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The theta of all learned pairs; other pairs have 0."""

    pairs: tuple[PairCorrection, ...] = ()

    def of(self, one: str, other: str) -> float:
        first, second = sorted((one, other))
        return next((pair.log_correction for pair in self.pairs if pair.first == first and pair.second == second), 0.0)


def learnt(encounters: SpeedSamples, new: Sequence[SpeedSample]) -> SpeedSamples:
    """Adds windows. Windows of a job that ran alone, and windows without a finite ratio, are ignored."""
    useful = tuple(one for one in new if one.neighbours and math.isfinite(one.log_ratio))
    return SpeedSamples((*encounters.seen, *useful)[-MOST_SAMPLES:])


def fitted(encounters: SpeedSamples, now_s: float) -> Corrections:
    """Fits the corrections to the windows, with their weights at now_s."""
    seen = encounters.seen
    pairs = sorted({_pair(one.kind, other) for one in seen for other in one.neighbours})
    if not pairs:
        return Corrections()
    column = {pair: index for index, pair in enumerate(pairs)}
    shares = np.zeros((len(seen), len(pairs)))
    for row, one in enumerate(seen):
        for other, times in Counter(one.neighbours).items():
            shares[row, column[_pair(one.kind, other)]] += times / len(one.neighbours)
    ratio = np.clip([one.log_ratio for one in seen], -MOST_RATIO_LOG, MOST_RATIO_LOG)
    age_s = np.maximum(0.0, now_s - np.array([one.at_s for one in seen]))
    weighted = shares * (0.5 ** (age_s / HALF_LIFE_S))[:, None]
    theta = np.linalg.solve(weighted.T @ shares + RIDGE * np.eye(len(pairs)), weighted.T @ ratio)
    bounded = np.clip(theta, LEAST_LOG, MOST_LOG)
    return Corrections(tuple(PairCorrection(*pair, float(log)) for pair, log in zip(pairs, bounded, strict=True)))


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one <= other else (other, one)


def table(corrections: Corrections, rows: Sequence[str], columns: Sequence[str]) -> Floats:
    """theta of each kind in `rows` with each kind in `columns`, float64 [n, m]."""
    if not corrections.pairs:
        return np.zeros((len(rows), len(columns)))
    known = {(pair.first, pair.second): pair.log_correction for pair in corrections.pairs}
    kinds = sorted({*rows, *columns})
    place = {kind: index for index, kind in enumerate(kinds)}
    theta = np.array([[known.get(_pair(one, other), 0.0) for other in kinds] for one in kinds])
    found: Floats = theta[np.ix_([place[kind] for kind in rows], [place[kind] for kind in columns])]
    return found


def log_corrections(corrections: Corrections, kinds: Sequence[str]) -> Floats:
    """The log correction of each of n jobs that compute together, by their kinds; float64 [n]. It is 0 for a single
    job."""
    if len(kinds) < 2 or not corrections.pairs:
        return np.zeros(len(kinds))
    pairs = table(corrections, kinds, kinds)
    mean: Floats = (pairs.sum(axis=1) - pairs.diagonal()) / (len(kinds) - 1)
    return mean
