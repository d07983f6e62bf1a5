"""How fast dynamic tables grow: the law of new ids, fitted while they come. Pure.

Distinct ids of a stream grow as Heaps found for words: `rows = K * n^beta` after n samples, so new rows come at the
rate `K * beta * n^(beta - 1)`. What is fitted is the rate, log against log, because its errors do not add up as those
of the sum do:

    log(new bytes / samples) = a + (beta - 1) * log(n / now)

by weighted least squares with a prior on beta. Points are kept the closer together the younger they are, so recent ones
count for most of the level and old ones for the slope; an exhausted table, a drift of the ids or a burst of new ones
bends the fit soon. No stationary stream grows faster than its present rate: that line is the upper bound.

How wrong a forecast may be comes from the covariance of the fit, scaled by how wrong earlier ones were (a conformal
quantile of their errors, Vovk et al. 2005), for near, middle and far horizons apart.

What jobs like it have taught (`GrowthPrior`) is one more point of the line and another prior of its slope. Both count
the less, the farther they are from what is seen, as the tails of a Cauchy distribution do: a wrong history gives way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist

import msgspec

__all__ = [
    "PIVOT",
    "GrowthPrior",
    "GrowthState",
    "RowForecast",
    "chance_beyond",
    "clipped",
    "forecast",
    "is_foreknown",
    "observe",
    "quantile",
    "slope",
]

NORMAL = NormalDist()
CLOSENESS = 0.2  # points are kept whose distance is at least this share of their age
PRIOR_BETA, PRIOR_BETA_ERROR = 0.65, 0.2  # 90 % of it in 0.3 .. 1
PRIOR_SIGMA, PRIOR_SIGMA_WEIGHT = 0.1, 3.0  # of log rates about the line
LEAST_BETA, MOST_BETA = -3.0, 1.0
RECENCY = 1.0  # a point at n counts (n / now)^RECENCY
HORIZONS = (0.02, 0.15, 0.8)  # of the samples so far: the horizons whose errors are remembered
KEPT_SCORES, PRIOR_SCORES = 24, 6
LEAST_SCALE, MOST_SCALE = 0.3, 2.0
# Of a forecast's logarithm. Least: what a row costs is an average, indexes grow in steps. Most: whoever has seen rates
# jump knows less, but does not take everything for possible.
LEAST_ERROR, MOST_ERROR = 0.05, 0.6
Z90 = 1.645
PIVOT = 1e6  # samples: where a prior says how fast rows come
TRUSTED = 0.5  # a prior that counts for so much is right so far


class GrowthPrior(msgspec.Struct, frozen=True):
    """Before anything is seen. log_rate: of new rows a sample when PIVOT samples are trained; errors: standard
    deviations, of the exponent and of that logarithm."""

    log_rate: float
    log_rate_error: float
    beta: float
    beta_error: float


class _Pending(msgspec.Struct, frozen=True):
    """A forecast whose time has not come: so much more than `bytes` at `until`."""

    until: float
    bytes: float
    log_median: float
    log_error: float


class _Fit(msgspec.Struct, frozen=True):
    """Of log rates against log(n / now): level (at now), slope and their covariance, scatter, and the fastest of the
    recent rates. trust: what the prior counts for, 0 .. 1; 0 without one."""

    level: float
    slope: float
    covariance: tuple[float, float, float]  # of level, of both, of slope
    sigma: float
    fastest: float
    trust: float = 0.0


class GrowthState(msgspec.Struct, frozen=True):
    """points: (samples trained, bytes of all rows ever made), oldest first. scores: errors of forecasts over their
    expected size, newest last, for each of HORIZONS. fit: of the points and the prior, None while there is no interval
    and no prior."""

    row_bytes: float = 1.0
    points: tuple[tuple[float, float], ...] = ()
    pending: tuple[_Pending | None, ...] = (None,) * len(HORIZONS)
    scores: tuple[tuple[float, ...], ...] = ((),) * len(HORIZONS)
    fit: _Fit | None = None
    prior: GrowthPrior | None = None


class RowForecast(msgspec.Struct, frozen=True):
    """Bytes of the rows that will be made: log-normal about `median`, never more than `most`."""

    median: float
    log_error: float
    most: float


# --- observing --------------------------------------------------------------------------------------------------------


def observe(state: GrowthState, samples: int, made_bytes: float, row_bytes: float) -> GrowthState:
    """Folds one look. made_bytes: of all rows ever made, dropped ones as well; row_bytes: of one, on average. A count
    that falls (rows were restored) begins anew."""
    last = state.points[-1] if state.points else (-1.0, 0.0)
    row_bytes = max(row_bytes, 1.0)
    if samples < last[0] or made_bytes < last[1]:
        points: tuple[tuple[float, float], ...] = ((float(samples), made_bytes),)
        return GrowthState(row_bytes, points, fit=_fit(points, row_bytes, state.prior), prior=state.prior)
    if samples == last[0]:
        return state
    points = _thinned((*state.points, (float(samples), made_bytes)))
    state = msgspec.structs.replace(state, points=points, row_bytes=row_bytes, fit=_fit(points, row_bytes, state.prior))
    return _foresee(_judge(state, samples, made_bytes), samples, made_bytes)


def _thinned(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Without those that lie closer to their neighbours than their age asks for. The first and the last stay."""
    now = points[-1][0]
    kept = [points[0]]
    for number in range(1, len(points) - 1):
        distance = points[number + 1][0] - kept[-1][0]
        if distance > CLOSENESS * (now - points[number][0]):
            kept.append(points[number])
    return (*kept, points[-1]) if len(points) > 1 else points


def _judge(state: GrowthState, samples: int, made_bytes: float) -> GrowthState:
    """Forecasts whose time has come become scores."""
    pending, scores = list(state.pending), list(state.scores)
    for number, one in enumerate(pending):
        if one is None or samples < one.until:
            continue
        made = max(made_bytes - one.bytes, 0.5 * state.row_bytes)
        scores[number] = (*scores[number], (math.log(made) - one.log_median) / one.log_error)[-KEPT_SCORES:]
        pending[number] = None
    return msgspec.structs.replace(state, pending=tuple(pending), scores=tuple(scores))


def _foresee(state: GrowthState, samples: int, made_bytes: float) -> GrowthState:
    """What is to be judged later."""
    fit = state.fit
    if fit is None or len(state.points) < 2 or all(one is not None for one in state.pending):
        return state
    pending = list(state.pending)
    for number, share in enumerate(HORIZONS):
        if pending[number] is None:
            until = samples * (1 + share)
            median = max(_integral(fit, samples, until), 0.5 * state.row_bytes)
            error = _log_error(fit, samples, until)
            pending[number] = _Pending(until, made_bytes, math.log(median), error)
    return msgspec.structs.replace(state, pending=tuple(pending))


# --- the fit ----------------------------------------------------------------------------------------------------------


def _fit(points: Sequence[tuple[float, float]], row_bytes: float, prior: GrowthPrior | None = None) -> _Fit | None:
    """None before there is an interval or a prior."""
    if len(points) < 2 and prior is None:
        return None
    now = max(points[-1][0], 1.0)
    xs, ys, counts = list[float](), list[float](), list[float]()
    for (n0, y0), (n1, y1) in itertools.pairwise(points):
        made = y1 - y0
        xs.append(math.log(max(0.5 * (n0 + n1), 1.0) / now))
        # Half a row, so that an interval without new rows has a logarithm.
        ys.append(math.log((made + 0.5 * row_bytes) / (n1 - n0)))
        counts.append(made / row_bytes + 0.5)
    sigma = PRIOR_SIGMA
    believed = _believed(prior, row_bytes, now)
    trust = 1.0 if prior is not None else 0.0
    level, slope, covariance = 0.0, 0.0, (0.0, 0.0, 0.0)
    for _ in range(3):
        weights = [math.exp(RECENCY * x) / (sigma * sigma + 1.0 / count) for x, count in zip(xs, counts, strict=True)]
        trust = _trust(believed, xs, ys, weights, sigma) if xs and believed is not None else trust
        level, slope, covariance = _least_squares(xs, ys, weights, believed, trust)
        sigma = _scatter(xs, ys, counts, level, slope)
    recent = [y + 1.0 / math.sqrt(m) for x, y, m in zip(xs, ys, counts, strict=True) if x > -0.5] or ys[-1:]
    fastest = max(recent) if recent else level + 2 * math.sqrt(covariance[0])
    return _Fit(level, slope, covariance, sigma, math.exp(fastest + sigma), trust)


class _Believed(msgspec.Struct, frozen=True):
    """A prior as a point of the line, at x, of log rate y, and its slope there."""

    x: float
    y: float
    error: float
    slope: float
    slope_error: float


def _believed(prior: GrowthPrior | None, row_bytes: float, now: float) -> _Believed | None:
    if prior is None:
        return None
    log_rate = prior.log_rate + math.log(row_bytes)
    return _Believed(math.log(PIVOT / now), log_rate, prior.log_rate_error, prior.beta - 1.0, prior.beta_error)


def _trust(
    believed: _Believed, xs: Sequence[float], ys: Sequence[float], weights: Sequence[float], sigma: float
) -> float:
    """The weight of a Cauchy distribution, 2 / (1 + d^2), at most 1: d is how far the prior is from the mean of the
    rates that were seen, where they were seen, in standard deviations of both."""
    total = sum(weights)
    x = sum(w * one for w, one in zip(weights, xs, strict=True)) / total
    y = sum(w * one for w, one in zip(weights, ys, strict=True)) / total
    away = x - believed.x
    error = believed.error**2 + (away * believed.slope_error) ** 2 + 1.0 / total + sigma**2
    distance = (y - believed.y - believed.slope * away) ** 2 / error
    return min(1.0, 2.0 / (1.0 + distance))


def _least_squares(
    xs: Sequence[float], ys: Sequence[float], weights: Sequence[float], believed: _Believed | None, trust: float
) -> tuple[float, float, tuple[float, float, float]]:
    """Level, slope, covariance: weighted, with the prior on the slope as one more observation of it, and that on the
    rate as one more of that."""
    precision = (1.0 - trust) / PRIOR_BETA_ERROR**2
    pull = precision * (PRIOR_BETA - 1.0)
    s0 = sum(weights)
    s1 = sum(w * x for w, x in zip(weights, xs, strict=True))
    s2 = sum(w * x * x for w, x in zip(weights, xs, strict=True))
    t0 = sum(w * y for w, y in zip(weights, ys, strict=True))
    t1 = sum(w * x * y for w, x, y in zip(weights, xs, ys, strict=True))
    if believed is not None:
        precision += trust / believed.slope_error**2
        pull += trust * believed.slope / believed.slope_error**2
        weight = trust / believed.error**2 * math.exp(min(0.0, RECENCY * believed.x))  # it grows old as points do
        s0, s1, s2 = s0 + weight, s1 + weight * believed.x, s2 + weight * believed.x**2
        t0, t1 = t0 + weight * believed.y, t1 + weight * believed.x * believed.y
    s2, t1 = s2 + precision, t1 + pull
    determinant = s0 * s2 - s1 * s1
    slope = (s0 * t1 - s1 * t0) / determinant
    bounded = min(max(slope, LEAST_BETA - 1.0), MOST_BETA - 1.0)
    level = (t0 - bounded * s1) / s0
    return level, bounded, (s2 / determinant, -s1 / determinant, s0 / determinant)


def _scatter(xs: Sequence[float], ys: Sequence[float], counts: Sequence[float], level: float, slope: float) -> float:
    """Standard deviation of log rates about the line, beyond what their counts explain."""
    excess, total = PRIOR_SIGMA_WEIGHT * PRIOR_SIGMA**2, PRIOR_SIGMA_WEIGHT
    for x, y, count in zip(xs, ys, counts, strict=True):
        weight = math.exp(RECENCY * x)
        excess += weight * max(0.0, (y - level - slope * x) ** 2 - 1.0 / count)
        total += weight
    return math.sqrt(excess / total)


def _integral(fit: _Fit, start: float, stop: float) -> float:
    """Bytes made between two numbers of samples: of `exp(level) * (n / start)^slope`."""
    if stop <= start:
        return 0.0
    power, ratio = fit.slope + 1.0, stop / max(start, 1.0)
    scale = math.exp(fit.level) * max(start, 1.0)
    return scale * math.log(ratio) if abs(power) < 1e-6 else scale * (ratio**power - 1.0) / power


def _log_error(fit: _Fit, start: float, stop: float) -> float:
    """Standard deviation of the logarithm of `_integral`: the fit's, and that rates will scatter as they did."""
    x = math.log(max(0.5 * (start + stop), 1.0) / max(start, 1.0))
    of_level, of_both, of_slope = fit.covariance
    return math.sqrt(of_level + 2 * x * of_both + x * x * of_slope + fit.sigma**2)


# --- forecasting ------------------------------------------------------------------------------------------------------


def forecast(state: GrowthState, samples_at: float) -> RowForecast | None:
    """What will be made between now and then. None before anything is known."""
    fit = state.fit
    if fit is None:
        return None
    now = state.points[-1][0]
    ahead = max(0.0, samples_at - now)
    median, most = _integral(fit, now, samples_at), fit.fastest * ahead
    error = _log_error(fit, now, max(samples_at, now)) * _scale(state, ahead / max(now, 1.0))
    return RowForecast(min(median, most), min(max(error, LEAST_ERROR), MOST_ERROR), most)


def _scale(state: GrowthState, share: float) -> float:
    """By how much forecasts of such a horizon were more wrong than they said: the conformal 90 % quantile of their
    errors, beside a few that a right forecast would have."""
    distances = [abs(math.log(max(share, 1e-6) / horizon)) for horizon in HORIZONS]
    scores = state.scores[distances.index(min(distances))]
    prior = [NORMAL.inv_cdf(0.5 + (k + 0.5) / (2 * PRIOR_SCORES)) for k in range(PRIOR_SCORES)]
    errors = sorted([abs(score) for score in scores] + prior)
    rank = min(len(errors) - 1, math.ceil(0.9 * (len(errors) + 1)) - 1)
    return min(max(errors[rank] / Z90, LEAST_SCALE), MOST_SCALE)


def quantile(found: RowForecast, probability: float) -> float:
    """Bytes that are not exceeded with this probability."""
    if found.median <= 0:
        return 0.0
    return min(found.median * math.exp(NORMAL.inv_cdf(probability) * found.log_error), found.most)


def is_foreknown(state: GrowthState) -> bool:
    """What jobs like it taught agrees with what was seen."""
    return state.fit is not None and state.fit.trust >= TRUSTED


def clipped(samples_at: float, new_ids_until: int) -> float:
    """Up to there new ids come; new_ids_until 0: always."""
    return min(samples_at, float(new_ids_until)) if new_ids_until > 0 else samples_at


def chance_beyond(found: RowForecast, room_bytes: float) -> float:
    """Probability that more than so many bytes are made."""
    if room_bytes <= 0:
        return 1.0 if found.median > 0 else 0.0
    if found.median <= 0 or room_bytes >= found.most:
        return 0.0
    return 1.0 - NORMAL.cdf(math.log(room_bytes / found.median) / max(found.log_error, 1e-9))


def slope(state: GrowthState) -> tuple[float, float]:
    """(beta, its standard error): the exponent of the growth at present."""
    fit = state.fit
    if fit is None:
        return PRIOR_BETA, PRIOR_BETA_ERROR
    return fit.slope + 1.0, math.sqrt(fit.covariance[2])
