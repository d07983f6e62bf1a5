"""What a run's tuner tells whoever shares a host among several: speeds it could have, by the threads that takes. Pure.

The frontier of its model (no plan is both faster and cheaper), as DLRover-RM's jobs tell their cluster's brain (PVLDB
17(12), 2024). A model that was fitted while others took part of the host knows ratios of speeds better than speeds.
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
    """By rising threads, and so by rising speed; empty while nothing was measured, or where plans are too many to be
    looked at one by one."""
    if not state.observations or count(settings.bounds) > min(LIMIT, 20_000):
        return ()
    prior = settings.prior if state.prior is None else state.prior
    fitted = fit(settings.model, settings.workload, state.observations, prior)
    space = enumerate_candidates(settings.bounds)
    predictions = bounded(fitted.predict(space), most(settings.workload, state.observations, space))
    threads = space[:, 0] * space[:, 2]
    front = pareto(predictions.samples_per_s, threads + 0.01 * space[:, 1])  # of equals the one with fewer PS
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
