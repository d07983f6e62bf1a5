"""The `elastichost` model: the equations of `queueing_equations`, fitted to speeds and to measured times. Pure.

Speeds alone do not determine all parameters: within one job batch, dimension and bandwidth are constant, and a few
configurations cannot separate computing from waiting. Direct timings (computing time of a worker, CPU time of the PS,
bytes) are further rows of the same least-squares problem, and determine most parameters after one or two
configurations. Priors hold the remaining ones: wide priors for a job without history, narrow ones from the history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Predictions, Workload, as_array
from elastichost.tuner.models.base import (
    NORMAL_90,
    Prior,
    checked,
    distinct,
    interval,
    iteration_s,
    skew_of,
    skewed_shares,
)
from elastichost.tuner.models.least_squares import (
    Belief,
    Estimate,
    Evaluate,
    Rows,
    estimate,
    predictive_factor,
    rank_of,
)
from elastichost.tuner.models.link_traffic import link_traffic
from elastichost.tuner.models.posynomial import Quantity, Tape
from elastichost.tuner.models.queueing_equations import Columns, ParameterBelief, natural, parameter_beliefs, predicted

__all__ = ["BatchParts", "QueueingFit", "QueueingSettings", "fit"]

Floats = npt.NDArray[np.float64]

# prior of the model's discrepancy (log) in each measured quantity, in the order of `queueing_equations.Predicted`
DISCREPANCY = np.array([0.04, 0.05, 0.1, 0.2, 0.05, 0.1, 0.03])
QUEUES = 0.7  # utilisation of a PS or link above which requests queue, so an exchange time is not a round-trip time
CHUNK = 8192  # configurations predicted at once, so that their columns stay in the processor's cache
UNSURE = 0.15  # standard deviation of log(samples_per_s) above which a prediction from wide priors is extrapolated
NARROWEST = 0.05  # least standard deviation of a parameter in a prior for the next job, because jobs differ
FLAT = 10.0  # factor on the width of priors if `QueueingSettings.priors` is off
UNDIVIDED = 1.0  # load share of the busiest PS with direct access: PS only do the dense part, which one of them owns
# Errors of predictions for jobs that the model has not seen, over the errors that it states: 90 % of the speeds of a
# recorded job are inside its intervals with the scale that suits the other jobs (`bench tuner --only real`, ADR 20).
TRANSFER = 2.5
DEFAULT_SAMPLE_S = 1e-5  # guessed seconds per sample without observations


class QueueingSettings(msgspec.Struct, frozen=True):
    """Parts of the model that experiments can switch off. direct_timings: fit measured times too. priors: use priors.
    hot_share: use the load share of the busiest PS. sharpness: of the maximum; None: fitted; 1: waiting times add
    up. transfer: scale of errors on jobs that the model has not seen (`least_squares.predictive_factor`)."""

    direct_timings: bool = True
    priors: bool = True
    hot_share: bool = True
    sharpness: float | None = None
    transfer: float = TRANSFER


class BatchParts(msgspec.Struct, frozen=True):
    """The times of one batch of a worker, in seconds; in sync mode of its part of a step.

    batch_s: from one batch to the next. input_s: reading and preparing it; None: that was not measured. compute_s:
    forward and backward pass. servers_s: until the busiest PS has done its part of one batch of every worker. link_s:
    the same for the busiest link; None: workers and PS share memory. Parts overlap, so their sum may exceed batch_s,
    and the largest one limits the speed."""

    batch_s: float
    input_s: float | None
    compute_s: float
    servers_s: float
    link_s: float | None


@dataclass(frozen=True, slots=True)
class QueueingFit:
    """The fit of the `elastichost` model; see `base.Fit`. factor: multiplies predictive standard deviations
    (`least_squares.predictive_factor`). directions: float64 [k, k], rows in the space of the parameters, scaled so that
    the squares of (directions @ j) are their parts of the variance. known: float64 [k], the eigenvalues of A there (see
    `predict`)."""

    workload: Workload
    settings: QueueingSettings
    beliefs: tuple[ParameterBelief, ...]
    seen: tuple[Observation, ...]
    estimate: Estimate
    factor: float
    directions: Floats
    known: Floats
    name: str = "elastichost"

    @property
    def observations(self) -> int:
        return len(self.seen)

    @property
    def configurations(self) -> int:
        return distinct(self.seen)

    @property
    def rank(self) -> int:
        return rank_of(self.estimate)

    @property
    def parameters_total(self) -> int:
        return len(self.beliefs)

    @property
    def parameters(self) -> Mapping[str, float]:
        held = zip(self.beliefs, self.estimate.theta, strict=True)
        return {one.name: natural(one.name, float(value)) for one, value in held}

    @property
    def confidence(self) -> float:
        """Lower end of the 90 % interval / prediction, median over the observed configurations; without observations,
        for one worker and one PS."""
        seen = as_array([one.configuration for one in self.seen]) if self.seen else np.ones((1, 4))
        return float(np.exp(-NORMAL_90 * np.median(self.predict(seen).log_error)))

    def predict(self, configurations: ConfigurationArray, hot_share: float | None = None) -> Predictions:
        """See `base.Fit`.

        The variance of log(samples/s) is j Sigma j' + discrepancy^2 (times factor^2), j: derivatives with respect to
        the parameters, Sigma: their covariance. Let A be the information of the data in units of the prior's standard
        deviations. In directions with an eigenvalue of A below 1 the prior has more weight than the data. A
        configuration is extrapolated if these directions make up more than half of j Sigma j', and the root of
        j Sigma j' is above UNSURE. A narrow prior, as from the history, keeps j Sigma j' small.
        """
        skew = self._skew(hot_share) if self.settings.hot_share else 0.0
        is_known = self.known >= 1.0
        log_speed = np.empty(len(configurations))
        parts = np.empty((2, len(configurations)))
        for start in range(0, len(configurations), CHUNK):
            rows = configurations[start : start + CHUNK]
            chunk = slice(start, start + len(rows))
            tape = Tape()
            leaves = {one.name: tape.leaf(value) for one, value in zip(self.beliefs, self.estimate.theta, strict=True)}
            columns = Columns(rows, skewed_shares(skew, rows[:, 1]), self.workload)
            speed = predicted(tape, leaves, columns, self.settings.sharpness).samples_per_s
            squares = (self.directions @ tape.gradients(speed, len(leaves), len(rows))) ** 2
            log_speed[chunk] = speed.log
            parts[0, chunk], parts[1, chunk] = squares[~is_known].sum(axis=0), squares[is_known].sum(axis=0)
        variance = parts.sum(axis=0)
        log_error = self.factor * np.sqrt(variance + self.estimate.discrepancy[0] ** 2)
        is_extrapolated = (parts[0] > 0.5 * variance) & (variance > UNSURE**2)
        return interval(log_speed, log_error, is_extrapolated)

    def parts(self, configuration: Configuration) -> BatchParts:
        """The predicted parts of a batch in one configuration."""
        rows = as_array([configuration])
        tape = Tape()
        leaves = {one.name: tape.leaf(value) for one, value in zip(self.beliefs, self.estimate.theta, strict=True)}
        skew = self._skew(None) if self.settings.hot_share else 0.0
        columns = Columns(rows, skewed_shares(skew, rows[:, 1]), self.workload)
        told = predicted(tape, leaves, columns, self.settings.sharpness)

        def seconds(quantity: Quantity) -> float:
            return float(np.exp(np.broadcast_to(quantity.log, 1)[0]))

        own, by_name = configuration, {name: float(np.exp(log[0])) for name, log in columns.logs.items()}
        iterations_per_s = seconds(told.samples_per_s) / (by_name["w"] * by_name["m"])
        queue = max(1.0, own.workers / own.server_cores)
        link = max(by_name["wire of trip"], own.workers * by_name["link/2"])
        return BatchParts(
            batch_s=1.0 / iterations_per_s,
            input_s=None if told.reader_s is None else seconds(told.reader_s),
            compute_s=seconds(told.compute_s),
            servers_s=queue * seconds(told.hot_s),
            link_s=None if told.wire_s is None else link * seconds(told.wire_s),
        )

    def _skew(self, hot_share: float | None) -> float:
        told = hot_share is not None or any(one.hot_share is not None for one in self.seen)
        return skew_of(self.seen, hot_share) if told or self.workload.access != "direct" else UNDIVIDED

    def posterior(self) -> Prior:
        """Means and standard deviations of the parameters; standard deviations are at least `NARROWEST`."""
        sd = np.sqrt(np.diag(self.estimate.covariance))
        names = [one.name for one in self.beliefs]
        return Prior(
            mean=dict(zip(names, map(float, self.estimate.theta), strict=True)),
            sd=dict(zip(names, map(float, np.maximum(sd, NARROWEST)), strict=True)),
        )


def fit(
    workload: Workload,
    observations: Sequence[Observation],
    prior: Prior | None = None,
    settings: QueueingSettings | None = None,
) -> QueueingFit:
    """Fits the model. Without observations the fit equals the prior. Raises ValueError as `base.checked`."""
    checked(workload, observations)
    settings = settings or QueueingSettings()
    seen, known = tuple(observations), prior or Prior()
    parameters = _parameters(workload, seen, known, settings)
    logs = _measured(workload, seen, settings)
    kinds = [kind for kind in range(logs.shape[1]) if np.isfinite(logs[:, kind]).any()]
    picks = [np.flatnonzero(np.isfinite(logs[:, kind])) for kind in kinds]
    kind_of = np.repeat(np.array(kinds, dtype=np.int64), [len(pick) for pick in picks])
    row_of = np.concatenate([*picks, np.zeros(0, dtype=np.int64)])
    configurations = as_array([one.configuration for one in seen])
    _, group = np.unique(configurations, axis=0, return_inverse=True)
    own_error = np.array([one.log_error for one in seen])
    rows = Rows(
        log=logs[row_of, kind_of],
        error=np.where(kind_of == 0, own_error[row_of], 0.0) if len(seen) else np.zeros(0),
        kind=kind_of,
        group=group.reshape(-1)[row_of],
        discrepancy=DISCREPANCY,
    )
    belief = Belief(
        mean=np.array([one.mean for one in parameters]),
        sd=np.array([one.sd for one in parameters]),
        # transferred only where the history is more precise than the default guess; one.sd is that of both together
        is_transferred=np.array([known.sd.get(one.name, math.inf) < math.sqrt(2.0) * one.sd for one in parameters]),
    )
    evaluate = _evaluation(workload, seen, parameters, settings, kinds, picks)
    found = estimate(evaluate, rows, belief)
    factor = predictive_factor(found, rows, kind=0, transfer=settings.transfer)
    return QueueingFit(workload, settings, parameters, seen, found, factor, *_directions(found))


def _directions(found: Estimate) -> tuple[Floats, Floats]:
    """`directions` and `known` of the fit."""
    prior_sd = found.prior_sd
    values, vectors = np.linalg.eigh(prior_sd[:, None] * found.information * prior_sd)
    known = np.maximum(values, 0.0)
    return (vectors * prior_sd[:, None] / np.sqrt(1.0 + known)).T, known


def _parameters(
    workload: Workload, seen: tuple[Observation, ...], prior: Prior, settings: QueueingSettings
) -> tuple[ParameterBelief, ...]:
    """The default guesses of the parameters, combined with the prior."""
    times_s = iteration_s(workload, seen)
    scale_s = float(np.exp(np.median(np.log(times_s)))) if seen else DEFAULT_SAMPLE_S * workload.batch_size
    reads = "reader_sample_s" in prior.mean or any(one.reader_s for one in seen)
    found = []
    for one in parameter_beliefs(workload, scale_s, reads=reads, is_guess=not seen):
        if one.name == "sharpness" and settings.sharpness is not None:
            continue
        if one.name in prior.mean and one.name in prior.sd:
            one = _both(one, prior.mean[one.name], max(prior.sd[one.name], NARROWEST))
        found.append(one if settings.priors else ParameterBelief(one.name, one.mean, FLAT * one.sd))
    return tuple(found)


def _both(guess: ParameterBelief, mean: float, sd: float) -> ParameterBelief:
    """Combines a default guess with the prior from other jobs, each weighted by its precision."""
    variance = 1.0 / (guess.sd**-2 + sd**-2)
    return ParameterBelief(guess.name, variance * (guess.mean * guess.sd**-2 + mean * sd**-2), math.sqrt(variance))


def _measured(workload: Workload, seen: tuple[Observation, ...], settings: QueueingSettings) -> Floats:
    """Logarithms of the measured quantities, float64 [n, 7], columns as in `DISCREPANCY`; nan: not measured, or not
    usable."""
    logs = np.full((len(seen), len(DISCREPANCY)), np.nan)
    for row, (one, took_s) in enumerate(zip(seen, iteration_s(workload, seen), strict=True)):
        values: list[float | None] = [one.samples_per_s]
        if settings.direct_timings:
            is_free = workload.mode == "sync" or _utilisation(workload, one, took_s) < QUEUES
            cpu_s = None
            if workload.host_cores > 0 and one.worker_cpu_s is not None and one.server_cpu_s is not None:
                sharers = one.configuration.workers if workload.mode == "sync" else 1
                cpu_s = one.worker_cpu_s + one.server_cpu_s / sharers
            values += [one.compute_s, one.reader_s, one.exchange_s if is_free else None, one.server_cpu_s, cpu_s]
            values.append(one.bytes_moved if workload.bandwidth_bytes_per_s > 0 else None)
        for kind, value in enumerate(values):
            if value is not None and math.isfinite(value) and value > 0:
                logs[row, kind] = math.log(value)
    return logs


def _utilisation(workload: Workload, one: Observation, took_s: float) -> float:
    """The highest measured utilisation among: the cores of the busiest PS, one direction of its link, the cores of a
    shared host."""
    of, share = one.configuration, one.hot_share or 1.0 / one.configuration.servers
    busy = (one.server_cpu_s or 0.0) * share * of.workers / of.server_cores
    if workload.bandwidth_bytes_per_s > 0:
        if workload.host_capacity:
            rows = np.array([float(workload.row_bytes * workload.batch_size)])
            share = float(
                link_traffic(as_array([of]), workload.host_capacity, rows, workload.dense_bytes).link_share[0]
            )
        busy = max(busy, (one.bytes_moved or 0.0) * share * of.workers / (2.0 * workload.bandwidth_bytes_per_s))
    if workload.host_cores > 0:
        busy = max(busy, ((one.worker_cpu_s or 0.0) + (one.server_cpu_s or 0.0)) * of.workers / workload.host_cores)
    return float(busy / took_s)


def _evaluation(
    workload: Workload,
    seen: tuple[Observation, ...],
    parameters: tuple[ParameterBelief, ...],
    settings: QueueingSettings,
    kinds: Sequence[int],
    picks: Sequence[npt.NDArray[np.int64]],
) -> Evaluate:
    """Returns the function for `least_squares.estimate` that predicts the logarithms of the measured rows and their
    derivatives."""
    configurations = as_array([one.configuration for one in seen])
    servers = configurations[:, 1]
    shares = 1.0 / servers
    if settings.hot_share:
        unknown = UNDIVIDED if workload.access == "direct" else 0.0
        shares = np.clip([unknown if one.hot_share is None else one.hot_share for one in seen], shares, 1.0)
    columns = Columns(configurations, shares, workload)

    def evaluate(theta: Floats) -> tuple[Floats, Floats]:
        tape = Tape()
        leaves = {one.name: tape.leaf(value) for one, value in zip(parameters, theta, strict=True)}
        all_of_them = predicted(tape, leaves, columns, settings.sharpness)
        told = [quantity for kind in kinds if (quantity := all_of_them[kind]) is not None]
        assert len(told) == len(kinds), "the model predicts every measured quantity"
        logs, jacobian = [np.zeros(0)], [np.zeros((0, len(theta)))]
        slopes = tape.gradients_of_all(told, len(theta), columns.rows)
        for place, pick in enumerate(picks):
            logs.append(np.broadcast_to(told[place].log, columns.rows)[pick])
            jacobian.append(slopes[:, place, pick].T)
        return np.concatenate(logs), np.concatenate(jacobian)

    return evaluate
