"""Converts the growth of a finished run to estimates for the history, and estimates to the prior of a new run. Pure.

The rows that were ever made follow Heaps' law, K n^beta after n samples. Instead of K, the rows made in the first PIVOT
samples are stored: estimates of K and beta are almost completely correlated, and their errors are stored as if they
were independent. Rows are stored instead of bytes, because a similar job may have other dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from elastichost.history.features import Estimates
from elastichost.tuner.memory.growth import MOST_BETA, PIVOT, GrowthPrior, GrowthState

__all__ = ["BETA", "GROWTH_BYTES", "ROWS", "ROW_BYTES", "learnt", "prior_of", "widened"]

# Names of the estimates. ROWS: rows of all tables together in the first PIVOT samples. BETA: the exponent. ROW_BYTES:
# bytes of a row with all its costs. GROWTH_BYTES: bytes of all rows that a run made.
ROWS, BETA, ROW_BYTES, GROWTH_BYTES = "rows_by_1e6_samples", "beta", "row_bytes", "growth_bytes"

LEAST_POINTS = 4
LEAST_RANGE = math.log(3.0)  # least log range of samples; a smaller one does not determine an exponent
LEAST_BETA = 0.02  # almost no growth
LEAST_ERROR = 0.05  # least error of a log, because the next run draws other samples
LEAST_BETA_ERROR = 0.08  # least error of a prior beta, because the exponent changes over a run
MOST_LOG_RATE_ERROR = 3.0  # a prior with a larger error is not used
# Additional errors of a run that ended early, for each factor of e of samples that it did not train. In simulated runs
# (`benchmarks.tuner.memory`), whole and cut at 5 to 80 %, 90 % of the differences are within 1.645 times these errors.
UNSEEN_ERRORS = {ROWS: 0.1, BETA: 0.04}
LEAST_UNSEEN, MOST_UNSEEN = 0.5, 7.0  # bounds of the number of these factors


def learnt(state: GrowthState, grown_bytes: float = 0.0) -> Estimates:
    """Estimates from a run for similar jobs; empty if too little was observed. state: from the time in which no action
    limited the growth. grown_bytes: bytes of all rows that were made, if no action limited the growth until the end of
    the run; else 0."""
    points = [(n, made / state.row_bytes) for n, made in state.points if n >= 1 and made >= state.row_bytes]
    mean, sd = dict[str, float](), dict[str, float]()
    if len(points) >= LEAST_POINTS and math.log(points[-1][0] / points[0][0]) >= LEAST_RANGE:
        (mean[ROWS], sd[ROWS]), (beta, error) = _heaps(points)
        mean[BETA], sd[BETA] = math.log(beta), max(error / beta, LEAST_ERROR)
        mean[ROW_BYTES], sd[ROW_BYTES] = math.log(state.row_bytes), LEAST_ERROR
    if grown_bytes > 0:
        mean[GROWTH_BYTES], sd[GROWTH_BYTES] = math.log(grown_bytes), 2 * LEAST_ERROR
    return Estimates(mean, sd)


def widened(memory: Estimates, share: float) -> Estimates:
    """The estimates of a run that ended after this share of its samples, with wider errors, because its exponent may
    change in the part that was not trained."""
    unseen = min(max(-math.log(max(share, 1e-9)), LEAST_UNSEEN), MOST_UNSEEN)
    wider = {name: math.hypot(sd, unseen * UNSEEN_ERRORS.get(name, 0.0)) for name, sd in memory.sd.items()}
    return Estimates(memory.mean, wider)


def _heaps(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Fits log rows = a + beta log(n / PIVOT). Returns (a, its error), (beta, its error). Points are weighted so that
    every factor of samples has the same weight, because points are closer together at the end."""
    xs = [math.log(n / PIVOT) for n, _ in points]
    ys = [math.log(rows) for _, rows in points]
    edges = [xs[0], *(0.5 * (one + other) for one, other in itertools.pairwise(xs)), xs[-1]]
    weights = [high - low for low, high in itertools.pairwise(edges)]
    total = math.fsum(weights)
    x = math.fsum(w * one for w, one in zip(weights, xs, strict=True)) / total
    y = math.fsum(w * one for w, one in zip(weights, ys, strict=True)) / total
    spread = math.fsum(w * (one - x) ** 2 for w, one in zip(weights, xs, strict=True))
    slope = math.fsum(w * (one - x) * (other - y) for w, one, other in zip(weights, xs, ys, strict=True)) / spread
    beta = min(max(slope, LEAST_BETA), MOST_BETA)
    misfit = math.fsum(w * (b - y - beta * (a - x)) ** 2 for w, a, b in zip(weights, xs, ys, strict=True)) / total
    # The errors of sums are correlated; the number of independent ones is about that of factors of e of samples.
    counted = max(1.0, xs[-1] - xs[0])
    error = math.sqrt(misfit / counted * total / spread + abs(slope - beta) ** 2)
    return (y - beta * x, math.sqrt(misfit + (x * error) ** 2 + LEAST_ERROR**2)), (beta, error)


def prior_of(memory: Estimates) -> GrowthPrior | None:
    """The prior of the growth from estimates; None: there are no usable estimates.

    The rate is d rows / dn = beta / n * rows, at n = PIVOT.
    """
    found = [(memory.mean.get(name, math.nan), memory.sd.get(name, math.nan)) for name in (ROWS, BETA)]
    if not all(math.isfinite(mean) and math.isfinite(sd) and sd > 0 for mean, sd in found):
        return None
    (log_rows, rows_error), (log_beta, beta_error) = found
    log_rate_error = math.hypot(rows_error, beta_error)
    if log_rate_error > MOST_LOG_RATE_ERROR or not math.log(LEAST_BETA / 2) <= log_beta <= math.log(2 * MOST_BETA):
        return None
    beta = min(math.exp(log_beta), MOST_BETA)
    return GrowthPrior(
        log_rows + log_beta - math.log(PIVOT), log_rate_error, beta, max(beta * beta_error, LEAST_BETA_ERROR)
    )
