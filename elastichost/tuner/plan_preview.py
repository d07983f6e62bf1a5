"""Predicts the best configurations of a job before it runs, with intervals and confidence. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.history.features import JobFeatures, JobRecord
from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Workload
from elastichost.tuner.models.base import Fit, Prior
from elastichost.tuner.models.queueing import BatchParts, QueueingFit
from elastichost.tuner.models.registry import fit
from elastichost.tuner.models.residual_gp import surface
from elastichost.tuner.models.two_kinds import TwoKindsFit
from elastichost.tuner.policy.acquisition import DecisionCosts, price_of
from elastichost.tuner.policy.candidates import Bounds, as_configurations
from elastichost.tuner.policy.policy import SpeedForecast
from elastichost.tuner.policy.profile import merged
from elastichost.tuner.policy.search_space import search_space
from elastichost.tuner.warm_start import BAND, RUN_TO_RUN, distance

__all__ = ["PlanPreview", "measured_before", "preview_plan"]


class PlanPreview(msgspec.Struct, frozen=True):
    """The forecast for a job that has not started.

    forecasts: one for each candidate, ordered by speed less the price of the cores, best first; where there are very
    many candidates, only the promising ones. measured: configurations that earlier runs of the same job measured.
    rank: how many of the model's `parameters` (more exactly: directions in their space) the measurements determine.
    confidence: that of the fit (`models.base.Fit`). parts: the times of a batch with the best configuration; None: the
    model does not have them."""

    forecasts: tuple[SpeedForecast, ...]
    measured: tuple[Configuration, ...]
    rank: int
    parameters: int
    confidence: float
    parts: BatchParts | None = None


def measured_before(features: JobFeatures, records: Iterable[JobRecord]) -> tuple[Observation, ...]:
    """Returns the observations of earlier runs of the same job, one for each configuration.

    Their errors are widened by RUN_TO_RUN, because two runs differ more than two blocks of one run. Records that this
    version cannot decode are left out."""
    known: dict[Configuration, Observation] = {}
    for record in records:
        if distance(features, record.features) >= BAND:
            continue
        try:
            observations = msgspec.json.decode(record.observations, type=list[Observation])
        except msgspec.DecodeError:
            continue
        for one in observations:
            wider = msgspec.structs.replace(one, log_error=float(np.hypot(one.log_error, RUN_TO_RUN)))
            before = known.get(one.configuration)
            known[one.configuration] = wider if before is None else merged(before, wider)
    return tuple(known.values())


def preview_plan(
    model: str,
    workload: Workload,
    bounds: Bounds,
    observations: tuple[Observation, ...],
    prior: Prior | None,
    min_gain: float,
) -> PlanPreview | None:
    """Ranks the configurations within `bounds` by predicted speed. None: there are neither observations nor a prior."""
    if not observations and prior is None:
        return None
    fitted: Fit = fit(model, workload, observations, prior)
    predict = surface(fitted, observations, None).at if observations else fitted.predict  # as the tuner predicts
    costs = DecisionCosts(0.0, 0.0, 0.0, min_gain, bounds.cores or bounds.most.cores)

    def worth(array: ConfigurationArray) -> npt.NDArray[np.float64]:
        speeds = np.maximum(predict(array).samples_per_s, 1e-9)
        return np.asarray(np.log(speeds) - price_of(array, costs))

    space = search_space(bounds, "auto", worth, seed=0)
    predictions = predict(space)
    order = np.argsort(-worth(space), kind="stable")
    rows = as_configurations(space[order])
    forecasts = tuple(
        SpeedForecast(
            configuration,
            float(predictions.samples_per_s[index]),
            float(predictions.low[index]),
            float(predictions.high[index]),
            bool(predictions.is_extrapolated[index]),
        )
        for configuration, index in zip(rows, order.tolist(), strict=True)
    )
    seen = tuple(one.configuration for one in observations)
    parts = _parts(fitted, forecasts[0]) if forecasts else None
    return PlanPreview(forecasts, seen, fitted.rank, fitted.parameters_total, fitted.confidence, parts)


def _parts(fitted: Fit, best: SpeedForecast) -> BatchParts | None:
    """The parts of a batch, with the time of the whole batch that follows from the forecast. None: the model does not
    have them, or workers of two kinds have two."""
    if isinstance(fitted, TwoKindsFit) and best.configuration.workers <= fitted.workload.gpus:
        fitted = fitted.on_gpus
    if not isinstance(fitted, QueueingFit):
        return None
    workload = fitted.workload
    batches = 1 if workload.mode == "sync" else best.configuration.workers
    batch_s = batches * workload.batch_size / max(best.samples_per_s, 1e-9)
    return msgspec.structs.replace(fitted.parts(best.configuration), batch_s=batch_s)
