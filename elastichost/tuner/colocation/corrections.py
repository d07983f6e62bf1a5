"""What measured speeds teach of pairs of kinds that the demand rows do not say: caches, stalls, locks. Pure.

    log(measured / predicted) of job j = mean over its neighbours k of theta[kind j, kind k]

The mean and not the sum: what is learnt beside one neighbour must not be multiplied by ten where there are ten, whose
larger demand the speeds have already. theta is symmetric (one number per unordered pair), fitted by ridge regression:

    theta = (X' W X + ridge I)^-1 X' W y,    X[i, pair]: share of the neighbours of window i that make this pair

so without evidence it is 0, and with a few windows close to it. Weights W halve every ten minutes: jobs change, and
what was true of their warm-up is forgotten. Each theta lies within factors of 0.25 and 1.5, each y within 0.25 and 4.
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
RIDGE = 8.0  # windows that say 0: those of one job are alike, and few of them are one fact
HALF_LIFE_S = 600.0
MOST_SAMPLES = 512
LEAST_LOG, MOST_LOG = math.log(0.25), math.log(1.5)
MOST_RATIO_LOG = math.log(4.0)


class SpeedSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One window of a job beside others. log_ratio: log(measured / predicted), predicted without corrections."""

    kind: str
    neighbours: tuple[str, ...]
    log_ratio: float
    at_s: float


class SpeedSamples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest last, at most 512."""

    seen: tuple[SpeedSample, ...] = ()


class PairCorrection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """theta of an unordered pair: first <= second."""

    first: str
    second: str
    log_correction: float


class Corrections(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pairs that are not in it have 0."""

    pairs: tuple[PairCorrection, ...] = ()

    def of(self, one: str, other: str) -> float:
        first, second = sorted((one, other))
        return next((pair.log_correction for pair in self.pairs if pair.first == first and pair.second == second), 0.0)


def learnt(encounters: SpeedSamples, new: Sequence[SpeedSample]) -> SpeedSamples:
    """With more windows. Those of jobs that were alone, and speeds of nothing, teach nothing."""
    useful = tuple(one for one in new if one.neighbours and math.isfinite(one.log_ratio))
    return SpeedSamples((*encounters.seen, *useful)[-MOST_SAMPLES:])


def fitted(encounters: SpeedSamples, now_s: float) -> Corrections:
    """The corrections that the windows say, as of now."""
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
    """theta of each kind in `rows` with each in `columns`, float64 [n, m]."""
    if not corrections.pairs:
        return np.zeros((len(rows), len(columns)))
    known = {(pair.first, pair.second): pair.log_correction for pair in corrections.pairs}
    kinds = sorted({*rows, *columns})
    place = {kind: index for index, kind in enumerate(kinds)}
    theta = np.array([[known.get(_pair(one, other), 0.0) for other in kinds] for one in kinds])
    found: Floats = theta[np.ix_([place[kind] for kind in rows], [place[kind] for kind in columns])]
    return found


def log_corrections(corrections: Corrections, kinds: Sequence[str]) -> Floats:
    """Of each of n jobs that compute beside each other, by their kinds: float64 [n]; 0 for one alone."""
    if len(kinds) < 2 or not corrections.pairs:
        return np.zeros(len(kinds))
    pairs = table(corrections, kinds, kinds)
    mean: Floats = (pairs.sum(axis=1) - pairs.diagonal()) / (len(kinds) - 1)
    return mean
