"""The frontier of threads and speeds that a run reports to the dispatcher, which divides a host among jobs. Pure.

It is the Pareto frontier of the run's model: no plan is both faster and cheaper than a plan of the frontier. In
DLRover-RM jobs report the same to the brain of their cluster (PVLDB 17(12), 2024). If other jobs used part of the host
while the model was fitted, its ratios of speeds are more reliable than its speeds.
"""

from __future__ import annotations

import numpy as np

from elastichost.metrics import FrontierPoint
from elastichost.tuner.models.ceiling import bounded, most
from elastichost.tuner.models.registry import fit
from elastichost.tuner.policy.candidates import LIMIT, as_configurations, count, enumerate_candidates
from elastichost.tuner.policy.decision import TunerSettings, TunerState
from elastichost.tuner.policy.frontier import pareto

__all__ = ["MOST_POINTS", "job_frontier"]

MOST_POINTS = 16


def job_frontier(state: TunerState, settings: TunerSettings) -> tuple[FrontierPoint, ...]:
    """Returns up to MOST_POINTS points by rising threads, and therefore by rising speed. Empty before the first
    measurement, and if the bounds allow too many plans to predict each one."""
    if not state.observations or count(settings.bounds) > min(LIMIT, 20_000):
        return ()
    prior = settings.prior if state.prior is None else state.prior
    fitted = fit(settings.model, settings.workload, state.observations, prior)
    space = enumerate_candidates(settings.bounds)
    predictions = bounded(fitted.predict(space), most(settings.workload, state.observations, space))
    threads = space[:, 0] * space[:, 2]
    front = pareto(predictions.samples_per_s, threads + 0.01 * space[:, 1])  # fewer PS break ties
    front = front[np.unique(np.linspace(0, len(front) - 1, MOST_POINTS).round().astype(np.int64))]
    return tuple(
        FrontierPoint(
            one.workers,
            one.servers,
            one.worker_cores,
            float(predictions.samples_per_s[index]),
            float(predictions.log_error[index]),
        )
        for one, index in zip(as_configurations(space[front]), front.tolist(), strict=True)
    )
