"""The frontier of cores and speeds of one job, from which the cores of a host or a cluster are divided. Pure.

It is the Pareto frontier of the job's model, corrected by what was measured: no plan is both faster and cheaper than a
plan of the frontier. In DLRover-RM jobs report the same to the brain of their cluster (PVLDB 17(12), 2024). If other
jobs used part of the host while the model was fitted, its ratios of speeds are more reliable than its speeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.metrics import FrontierPoint
from elastichost.tuner.facts import Configuration, ConfigurationArray, Predictions, as_array
from elastichost.tuner.models.registry import fit
from elastichost.tuner.placement.allocation import OptionArray
from elastichost.tuner.policy.candidates import Bounds, as_configurations, count, enumerate_candidates
from elastichost.tuner.policy.decision import TunerSettings, TunerState
from elastichost.tuner.policy.evidence import surface_of
from elastichost.tuner.policy.frontier import thinned
from elastichost.tuner.policy.search_space import ALL_OF_THEM, coarse_grid

__all__ = ["MOST_POINTS", "JobFront", "age_of", "cores_of", "front_of", "job_frontier", "job_options"]

MOST_POINTS = 16


def age_of(state: TunerState) -> tuple[int, int]:
    """A value that changes when a frontier should be computed again: with each new configuration, and when the measured
    time has doubled. One more block of a configuration with many blocks changes no model."""
    return len(state.observations), int(sum(one.seconds for one in state.observations)).bit_length()


@dataclass(frozen=True, slots=True, eq=False)
class JobFront:
    """The frontier of a job's model: k configurations, float64 [k, 4], by rising cores, with their predictions and
    their cores, float64 [k]. predict: predicts any n configurations, float64 [n, 4]."""

    configurations: ConfigurationArray
    predictions: Predictions
    cores: npt.NDArray[np.float64]
    predict: Callable[[ConfigurationArray], Predictions]


def front_of(state: TunerState, settings: TunerSettings) -> JobFront | None:
    """The frontier, of up to MOST_POINTS points; it is valid as long as `age_of` stays the same. Without a measurement
    it follows from the prior alone. None: there is neither a measurement nor a prior."""
    if state.observations:
        predict: Callable[[ConfigurationArray], Predictions] = surface_of(
            state, settings, state.observations[-1].hot_share
        ).at
    elif settings.prior is not None:
        predict = fit(settings.model, settings.workload, (), settings.prior).predict
    else:
        return None
    bounds = settings.bounds
    space = enumerate_candidates(bounds) if count(bounds) <= ALL_OF_THEM else coarse_grid(bounds)
    told, cores = predict(space), cores_of(space, bounds)
    # of plans with as many cores and the same speed, the one with fewer PS
    front = thinned(told.samples_per_s, cores + 0.01 * space[:, 1], MOST_POINTS)
    kept = Predictions(
        told.samples_per_s[front], told.log_error[front], told.low[front], told.high[front], told.is_extrapolated[front]
    )
    return JobFront(space[front], kept, cores[front], predict)


def job_frontier(state: TunerState, settings: TunerSettings) -> tuple[FrontierPoint, ...]:
    """The frontier as a run reports it. Empty before the first measurement."""
    front = front_of(state, settings) if state.observations else None
    if front is None:
        return ()
    told = front.predictions
    rows = zip(
        as_configurations(front.configurations), told.samples_per_s.tolist(), told.log_error.tolist(), strict=True
    )
    return tuple(FrontierPoint(one.workers, one.servers, one.worker_cores, rate, error) for one, rate, error in rows)


def job_options(
    front: JobFront, bounds: Bounds, running: Configuration | None, first: Configuration | None = None
) -> OptionArray:
    """The frontier as the options of a job, by rising cores.

    The last option of a running job is its configuration. Points with as many cores as that one are left out: within
    its cores the job's own tuner chooses. The last option of a waiting job is its first plan, if it is given. That was
    the best plan of similar jobs, so points with as many cores or more, which nothing measured, are left out."""
    nothing, own = np.zeros(len(front.cores)), running or first
    if own is None:
        return OptionArray(front.configurations, front.predictions.samples_per_s, front.cores, nothing)
    row = as_array([own])
    cores, speed = cores_of(row, bounds), front.predict(row).samples_per_s
    kept = front.cores < cores[0] if running is None else front.cores != cores[0]
    speeds = front.predictions.samples_per_s[kept]
    if running is None:
        speed = np.maximum(speed, speeds.max(initial=0.0))
    return OptionArray(
        np.concatenate([front.configurations[kept], row]),
        np.concatenate([speeds, speed]),
        np.concatenate([front.cores[kept], cores]),
        np.zeros(int(kept.sum()) + 1),
    )


def cores_of(space: ConfigurationArray, bounds: Bounds) -> npt.NDArray[np.float64]:
    """The cores of each configuration; on shared cores those of the workers, because PS mostly wait."""
    own = space[:, 0] * space[:, 2]
    return np.asarray(own if bounds.share_cores else own + space[:, 1] * space[:, 3])
