"""Fits the growth of dynamic tables while a run trains, and forecasts it. Pure.

The number of distinct ids in a stream follows Heaps' law, rows = K n^beta after n samples. So new rows come at the rate
K beta n^(beta - 1) per sample. The fit uses the rate and not the sum, because the errors of rates are independent:

    log(new bytes / samples) = a + (beta - 1) log(n / now)

now: number of trained samples. a: log of the present rate, in bytes per sample. The fit is weighted least squares with
a prior on beta. Recent points are kept closer together than old ones. So recent points mainly determine the level and
old points the slope; an exhausted table, a drift of the ids or a burst of new ids soon changes the fit. A stationary
stream never grows faster than its present rate, so growth at the fastest recent rate is the upper bound.

The error of a forecast is that of the fit (its covariance), scaled by the errors of earlier forecasts: a conformal
quantile (Vovk et al. 2005), separately for near, middle and far forecasts.

Estimates from similar jobs (`GrowthPrior`) add one point to the line, and replace the prior of its slope. Both have
less weight the farther they are from the observations, like the tails of a Cauchy distribution. So observations
outweigh a wrong history.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

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
CLOSENESS = 0.2  # a point is kept if the distance of its neighbours is more than this share of its age
PRIOR_BETA, PRIOR_BETA_ERROR = 0.65, 0.2  # 90 % of the prior lies in 0.3 .. 1
PRIOR_SIGMA, PRIOR_SIGMA_WEIGHT = 0.1, 3.0  # prior of the scatter of log rates around the line; its weight in points
LEAST_BETA, MOST_BETA = -3.0, 1.0
RECENCY = 1.0  # a point at n has the weight (n / now)^RECENCY
HORIZONS = (0.02, 0.15, 0.8)  # distances of the forecasts whose errors are stored, as shares of the trained samples
KEPT_SCORES, PRIOR_SCORES = 24, 6  # number of stored errors, and of errors of a correct forecast that are added
CORRECT_SCORES = tuple(NORMAL.inv_cdf(0.5 + (k + 0.5) / (2 * PRIOR_SCORES)) for k in range(PRIOR_SCORES))
LEAST_SCALE, MOST_SCALE = 0.3, 2.0
FASTEST_LOG = 100.0  # of a rate in bytes per sample; a prior of long ago has an error that makes it any number
# Bounds of the error of a forecast's log. The lower one: the bytes of a row are a mean, and indexes grow in steps. The
# upper one: after a jump of rates forecasts are less certain, but not arbitrary.
LEAST_ERROR, MOST_ERROR = 0.05, 0.6
Z90 = 1.645
PIVOT = 1e6  # number of samples at which a prior states the rate
TRUSTED = 0.5  # a prior with at least this weight agrees with the observations


class GrowthPrior(msgspec.Struct, frozen=True):
    """Estimates of the growth from similar jobs. log_rate: log of the new rows per sample when PIVOT samples are
    trained. beta: the exponent. log_rate_error, beta_error: their standard deviations."""

    log_rate: float
    log_rate_error: float
    beta: float
    beta_error: float


class _Pending(msgspec.Struct, frozen=True):
    """A stored forecast that is compared later: at `until` samples, the log of (made bytes - bytes) is expected to be
    log_median, with the standard deviation log_error."""

    until: float
    bytes: float
    log_median: float
    log_error: float


class _Fit(msgspec.Struct, frozen=True):
    """The fitted line of log rates against log(n / now). level: its value at now. sigma: scatter of log rates around
    the line. fastest: upper bound of the recent rates, in bytes per sample. trust: weight of the prior, 0 to 1; 0
    without a prior."""

    level: float
    slope: float
    covariance: tuple[float, float, float]  # variance of level, covariance, variance of slope
    sigma: float
    fastest: float
    trust: float = 0.0


class GrowthState(msgspec.Struct, frozen=True):
    """The folded samples.

    row_bytes: mean bytes of a row. points: (trained samples, bytes of all rows ever made), oldest first. pending: one
    stored forecast for each of HORIZONS. scores: errors of forecasts over their standard deviations, newest last, for
    each of HORIZONS. fit: of the points and the prior; None without two points and without a prior."""

    row_bytes: float = 1.0
    points: tuple[tuple[float, float], ...] = ()
    pending: tuple[_Pending | None, ...] = (None,) * len(HORIZONS)
    scores: tuple[tuple[float, ...], ...] = ((),) * len(HORIZONS)
    fit: _Fit | None = None
    prior: GrowthPrior | None = None


class RowForecast(msgspec.Struct, frozen=True):
    """The distribution of the bytes of new rows: log-normal with this median and standard deviation of the log, cut at
    `most`."""

    median: float
    log_error: float
    most: float


# --- observations -----------------------------------------------------------------------------------------------------


def observe(state: GrowthState, samples: int, made_bytes: float, row_bytes: float) -> GrowthState:
    """Folds one sample. made_bytes: bytes of all rows ever made, including dropped ones. row_bytes: mean bytes of a
    row. If a count falls, because rows were restored, the state restarts with the prior."""
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
    """Removes points whose neighbours are closer together than CLOSENESS times their age; keeps the first and the last
    point."""
    now = points[-1][0]
    kept = [points[0]]
    for number in range(1, len(points) - 1):
        distance = points[number + 1][0] - kept[-1][0]
        if distance > CLOSENESS * (now - points[number][0]):
            kept.append(points[number])
    return (*kept, points[-1]) if len(points) > 1 else points


def _judge(state: GrowthState, samples: int, made_bytes: float) -> GrowthState:
    """Compares due forecasts with the made bytes, and stores their scores."""
    pending, scores = list(state.pending), list(state.scores)
    for number, one in enumerate(pending):
        if one is None or samples < one.until:
            continue
        made = max(made_bytes - one.bytes, 0.5 * state.row_bytes)
        scores[number] = (*scores[number], (math.log(made) - one.log_median) / one.log_error)[-KEPT_SCORES:]
        pending[number] = None
    return msgspec.structs.replace(state, pending=tuple(pending), scores=tuple(scores))


def _foresee(state: GrowthState, samples: int, made_bytes: float) -> GrowthState:
    """Stores new forecasts, which are compared later."""
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


class _Intervals(NamedTuple):
    """The k intervals between points, each of length k. xs: log(n / now) at the middle. ys: logs of the rates, in bytes
    per sample. counts: new rows, and a half. ages: the weights of recency, (n / now)^RECENCY."""

    xs: Sequence[float]
    ys: Sequence[float]
    counts: Sequence[float]
    ages: Sequence[float]


def _intervals(points: Sequence[tuple[float, float]], row_bytes: float, now: float) -> _Intervals:
    xs, ys, counts = list[float](), list[float](), list[float]()
    for (n0, y0), (n1, y1) in itertools.pairwise(points):
        made = y1 - y0
        xs.append(math.log(max(0.5 * (n0 + n1), 1.0) / now))
        # half a row is added, because an interval without new rows would have no logarithm
        ys.append(math.log((made + 0.5 * row_bytes) / (n1 - n0)))
        counts.append(made / row_bytes + 0.5)
    return _Intervals(xs, ys, counts, [math.exp(RECENCY * x) for x in xs])


def _fit(points: Sequence[tuple[float, float]], row_bytes: float, prior: GrowthPrior | None = None) -> _Fit | None:
    """Fits the line to the intervals between points. None without two points and without a prior."""
    if len(points) < 2 and prior is None:
        return None
    now = max(points[-1][0], 1.0)
    seen = _intervals(points, row_bytes, now)
    sigma = PRIOR_SIGMA
    believed = _believed(prior, row_bytes, now)
    trust = 1.0 if prior is not None else 0.0
    level, slope, covariance = 0.0, 0.0, (0.0, 0.0, 0.0)
    for _ in range(3):
        noise = sigma * sigma
        weights = [age / (noise + 1.0 / count) for age, count in zip(seen.ages, seen.counts, strict=True)]
        trust = _trust(believed, seen, weights, sigma) if weights and believed is not None else trust
        level, slope, covariance = _least_squares(seen, weights, believed, trust)
        sigma = _scatter(seen, level, slope)
    recent = [y + 1.0 / math.sqrt(m) for x, y, m in zip(*seen[:3], strict=True) if x > -0.5] or seen.ys[-1:]
    fastest = max(recent) if recent else level + 2 * math.sqrt(covariance[0])
    return _Fit(level, slope, covariance, sigma, math.exp(min(fastest + sigma, FASTEST_LOG)), trust)


class _Believed(msgspec.Struct, frozen=True):
    """A prior as a point (x, y) of the line with the error of y, and the slope of the line there with its error."""

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


def _trust(believed: _Believed, seen: _Intervals, weights: Sequence[float], sigma: float) -> float:
    """The weight of the prior: that of a Cauchy distribution, min(1, 2 / (1 + d^2)). d: distance between the mean
    observed log rate and the prior's value at the same x, in standard deviations of both."""
    total = sum(weights)
    x = sum(w * one for w, one in zip(weights, seen.xs, strict=True)) / total
    y = sum(w * one for w, one in zip(weights, seen.ys, strict=True)) / total
    away = x - believed.x
    error = believed.error**2 + (away * believed.slope_error) ** 2 + 1.0 / total + sigma**2
    distance = (y - believed.y - believed.slope * away) ** 2 / error
    return min(1.0, 2.0 / (1.0 + distance))


def _least_squares(
    seen: _Intervals, weights: Sequence[float], believed: _Believed | None, trust: float
) -> tuple[float, float, tuple[float, float, float]]:
    """Returns level, slope and covariance by weighted least squares. The prior of the slope is one more observation of
    the slope; the prior of the rate is one more point."""
    precision = (1.0 - trust) / PRIOR_BETA_ERROR**2
    pull = precision * (PRIOR_BETA - 1.0)
    s0 = s1 = s2 = t0 = t1 = 0.0
    for w, x, y in zip(weights, seen.xs, seen.ys, strict=True):  # five sums in one walk: this is most of a fit
        wx = w * x
        s0 += w
        s1 += wx
        s2 += wx * x
        t0 += w * y
        t1 += wx * y
    if believed is not None:
        precision += trust / believed.slope_error**2
        pull += trust * believed.slope / believed.slope_error**2
        weight = trust / believed.error**2 * math.exp(min(0.0, RECENCY * believed.x))  # ages like a point
        s0, s1, s2 = s0 + weight, s1 + weight * believed.x, s2 + weight * believed.x**2
        t0, t1 = t0 + weight * believed.y, t1 + weight * believed.x * believed.y
    s2, t1 = s2 + precision, t1 + pull
    determinant = s0 * s2 - s1 * s1
    slope = (s0 * t1 - s1 * t0) / determinant
    bounded = min(max(slope, LEAST_BETA - 1.0), MOST_BETA - 1.0)
    level = (t0 - bounded * s1) / s0
    return level, bounded, (s2 / determinant, -s1 / determinant, s0 / determinant)


def _scatter(seen: _Intervals, level: float, slope: float) -> float:
    """Standard deviation of log rates around the line, beyond the Poisson error of their counts."""
    excess, total = PRIOR_SIGMA_WEIGHT * PRIOR_SIGMA**2, PRIOR_SIGMA_WEIGHT
    for x, y, count, age in zip(*seen, strict=True):
        beyond = (y - level - slope * x) ** 2 - 1.0 / count
        if beyond > 0.0:
            excess += age * beyond
        total += age
    return math.sqrt(excess / total)


def _integral(fit: _Fit, start: float, stop: float) -> float:
    """Bytes made between `start` and `stop` samples: the integral of exp(level) (n / start)^slope over n."""
    if stop <= start:
        return 0.0
    power, ratio = fit.slope + 1.0, stop / max(start, 1.0)
    scale = math.exp(fit.level) * max(start, 1.0)
    return scale * math.log(ratio) if abs(power) < 1e-6 else scale * (ratio**power - 1.0) / power


def _log_error(fit: _Fit, start: float, stop: float) -> float:
    """Standard deviation of the log of `_integral`: the error of the fit at the middle of the range, and the scatter of
    the rates."""
    x = math.log(max(0.5 * (start + stop), 1.0) / max(start, 1.0))
    of_level, of_both, of_slope = fit.covariance
    return math.sqrt(of_level + 2 * x * of_both + x * x * of_slope + fit.sigma**2)


# --- forecasts --------------------------------------------------------------------------------------------------------


def forecast(state: GrowthState, samples_at: float) -> RowForecast | None:
    """The bytes of the rows that will be made until `samples_at` trained samples. None without a fit."""
    fit = state.fit
    if fit is None:
        return None
    now = state.points[-1][0]
    ahead = max(0.0, samples_at - now)
    median, most = _integral(fit, now, samples_at), fit.fastest * ahead
    error = _log_error(fit, now, max(samples_at, now)) * _scale(state, ahead / max(now, 1.0))
    return RowForecast(min(median, most), min(max(error, LEAST_ERROR), MOST_ERROR), most)


def _scale(state: GrowthState, share: float) -> float:
    """The factor on the error of a forecast over the share `share` of the trained samples: the conformal 90 % quantile
    of the scores of the nearest of HORIZONS, together with PRIOR_SCORES scores of a correct forecast, over Z90."""
    distances = [abs(math.log(max(share, 1e-6) / horizon)) for horizon in HORIZONS]
    scores = state.scores[distances.index(min(distances))]
    errors = sorted((*map(abs, scores), *CORRECT_SCORES))
    rank = min(len(errors) - 1, math.ceil(0.9 * (len(errors) + 1)) - 1)
    return min(max(errors[rank] / Z90, LEAST_SCALE), MOST_SCALE)


def quantile(found: RowForecast, probability: float) -> float:
    """The quantile of the forecast, in bytes: not exceeded with this probability."""
    if found.median <= 0:
        return 0.0
    return min(found.median * math.exp(NORMAL.inv_cdf(probability) * found.log_error), found.most)


def is_foreknown(state: GrowthState) -> bool:
    """Whether the prior from similar jobs agrees with the observations."""
    return state.fit is not None and state.fit.trust >= TRUSTED


def clipped(samples_at: float, new_ids_until: int) -> float:
    """The number of samples up to which new ids come: at most new_ids_until; 0: no limit."""
    return min(samples_at, float(new_ids_until)) if new_ids_until > 0 else samples_at


def chance_beyond(found: RowForecast, room_bytes: float) -> float:
    """The probability that the new rows take more than room_bytes."""
    if room_bytes <= 0:
        return 1.0 if found.median > 0 else 0.0
    if found.median <= 0 or room_bytes >= found.most:
        return 0.0
    return 1.0 - NORMAL.cdf(math.log(room_bytes / found.median) / max(found.log_error, 1e-9))


def slope(state: GrowthState) -> tuple[float, float]:
    """Returns (beta, its standard error), the present exponent of the growth."""
    fit = state.fit
    if fit is None:
        return PRIOR_BETA, PRIOR_BETA_ERROR
    return fit.slope + 1.0, math.sqrt(fit.covariance[2])
