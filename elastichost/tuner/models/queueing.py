"""The `elastichost` model: the equations of `queueing_equations`, fitted to speeds and to what processes time. Pure.

Speeds alone leave directions open: within one job batch, dimension and bandwidth are constants, and a handful of
configurations cannot tell computing from waiting. Direct timings (a worker's computing, the PS' CPU time, bytes) are
rows of the same least-squares problem and close most of them after one or two configurations; what stays open is held
by priors, wide for a cold job, narrow from history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Observation, Predictions, Workload, as_array
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
from elastichost.tuner.models.least_squares import Belief, Estimate, Evaluate, Rows, conformal_factor, estimate, rank_of
from elastichost.tuner.models.link_traffic import link_traffic
from elastichost.tuner.models.posynomial import Tape
from elastichost.tuner.models.queueing_equations import Columns, ParameterBelief, natural, parameter_beliefs, predicted

__all__ = ["QueueingFit", "QueueingSettings", "fit"]

Floats = npt.NDArray[np.float64]

# what may be measured, in the order of `queueing_equations.Predicted`, and how far the model is thought to be off in it
DISCREPANCY = np.array([0.04, 0.05, 0.1, 0.2, 0.05, 0.1, 0.03])
QUEUES = 0.7  # a PS or link that is busier lets requests wait: a time of exchange is no time of a round trip then
CHUNK = 8192  # configurations predicted at once: their columns stay in the processor's cache
UNSURE = 0.15  # standard deviation of log(samples_per_s) that is worth a warning when only wide priors say otherwise
NARROWEST = 0.05  # standard deviation of a parameter that is handed to the next job: no two jobs are equal
FLAT = 10.0  # priors are so many times as wide where none are wanted
UNDIVIDED = 1.0  # share of the busiest PS with direct access: all they do is the dense part, which one of them owns
DEFAULT_SAMPLE_S = 1e-5  # guess where nothing is known at all


class QueueingSettings(msgspec.Struct, frozen=True):
    """What may be left out, to see what it is worth. sharpness: None: fitted; 1: waiting times add up."""

    direct_timings: bool = True
    priors: bool = True
    hot_share: bool = True
    sharpness: float | None = None


@dataclass(frozen=True, slots=True)
class QueueingFit:
    """See `base.Fit`. factor: what predictive standard deviations are multiplied with (conformal)."""

    workload: Workload
    settings: QueueingSettings
    beliefs: tuple[ParameterBelief, ...]
    seen: tuple[Observation, ...]
    estimate: Estimate
    factor: float
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
        """The low end of the 90 % interval over the prediction, median over what was seen; without observations: for
        one process of each role."""
        seen = as_array([one.configuration for one in self.seen]) if self.seen else np.ones((1, 4))
        return float(np.exp(-NORMAL_90 * np.median(self.predict(seen).log_error)))

    def predict(self, configurations: ConfigurationArray, hot_share: float | None = None) -> Predictions:
        """See `base.Fit`.

        Variance of log(samples/s): j Sigma j' + discrepancy^2, j the derivatives there. With data information A in
        units of the prior's standard deviations, directions with an eigenvalue below 1 are those of which the prior
        says more than the data. `is_extrapolated`: they make most of j Sigma j', and its root is above `UNSURE`; a
        narrow prior, as from history, makes it small.
        """
        skew = self._skew(hot_share) if self.settings.hot_share else 0.0
        prior_sd = self.estimate.prior_sd
        values, vectors = np.linalg.eigh(prior_sd[:, None] * self.estimate.information * prior_sd)
        known = np.maximum(values, 0.0)
        # rows: directions, scaled so that the squares of (directions @ j) are their parts of the variance
        directions = (vectors * prior_sd[:, None] / np.sqrt(1.0 + known)).T
        log_speed = np.empty(len(configurations))
        parts = np.empty((2, len(configurations)))
        for start in range(0, len(configurations), CHUNK):
            rows = configurations[start : start + CHUNK]
            chunk = slice(start, start + len(rows))
            tape = Tape()
            leaves = {one.name: tape.leaf(value) for one, value in zip(self.beliefs, self.estimate.theta, strict=True)}
            columns = Columns(rows, skewed_shares(skew, rows[:, 1]), self.workload)
            speed = predicted(tape, leaves, columns, self.settings.sharpness).samples_per_s
            squares = (directions @ tape.gradients(speed, len(leaves), len(rows))) ** 2
            log_speed[chunk] = speed.log
            parts[0, chunk], parts[1, chunk] = squares[known < 1.0].sum(axis=0), squares[known >= 1.0].sum(axis=0)
        variance = parts.sum(axis=0)
        log_error = self.factor * np.sqrt(variance + self.estimate.discrepancy[0] ** 2)
        is_extrapolated = (parts[0] > 0.5 * variance) & (variance > UNSURE**2)
        return interval(log_speed, log_error, is_extrapolated)

    def _skew(self, hot_share: float | None) -> float:
        told = hot_share is not None or any(one.hot_share is not None for one in self.seen)
        return skew_of(self.seen, hot_share) if told or self.workload.access != "direct" else UNDIVIDED

    def posterior(self) -> Prior:
        """Means and standard deviations of the parameters, the latter not below `NARROWEST`."""
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
    """Fits the model. Without observations it says what the prior says. Raises ValueError as `base.checked`."""
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
        # of what the prior says less of than the guess, the guess is the greater part
        is_transferred=np.array([known.sd.get(one.name, math.inf) < math.sqrt(2.0) * one.sd for one in parameters]),
    )
    evaluate = _evaluation(workload, seen, parameters, settings, kinds, picks)
    found = estimate(evaluate, rows, belief)
    return QueueingFit(workload, settings, parameters, seen, found, conformal_factor(found, rows, kind=0))


def _parameters(
    workload: Workload, seen: tuple[Observation, ...], prior: Prior, settings: QueueingSettings
) -> tuple[ParameterBelief, ...]:
    """Guesses, and what the prior knows."""
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
    """A guess and what was learnt of other jobs, each by its precision: what says little changes little."""
    variance = 1.0 / (guess.sd**-2 + sd**-2)
    return ParameterBelief(guess.name, variance * (guess.mean * guess.sd**-2 + mean * sd**-2), math.sqrt(variance))


def _measured(workload: Workload, seen: tuple[Observation, ...], settings: QueueingSettings) -> Floats:
    """float64 [n, 7] logarithms of what was measured, columns as `DISCREPANCY`; nan: was not, or says nothing here."""
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
    """Of the busiest PS' cores, of one direction of its link, or of a shared host's cores, as measured."""
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
    """Predicted logarithms of the measured rows and their derivatives, for `least_squares.estimate`."""
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
        logs, jacobian = [np.zeros(0)], [np.zeros((0, len(theta)))]
        for kind, pick in zip(kinds, picks, strict=True):
            quantity = all_of_them[kind]
            assert quantity is not None, "what was measured is a part of the model"
            logs.append(np.broadcast_to(quantity.log, columns.rows)[pick])
            jacobian.append(tape.gradients(quantity, len(theta), columns.rows)[:, pick].T)
        return np.concatenate(logs), np.concatenate(jacobian)

    return evaluate
