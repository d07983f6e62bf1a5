"""The tuner's forecasts for a job that has not started."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec
    from elastichost.supervisor.startup.preflight import Preparation
    from elastichost.tuner.plan_preview import PlanPreview

__all__ = ["preview_of"]


def preview_of(job: JobSpec, prepared: Preparation) -> PlanPreview | None:
    """The tuner's forecasts. None: no similar job was measured before, or the job file fixes the plan."""
    from elastichost.supervisor.startup.tuner_settings import workload_of
    from elastichost.tuner.plan_preview import measured_before, preview_plan

    initial_plan = prepared.initial_plan
    if initial_plan.request.bounds is None or initial_plan.request.features is None:
        return None
    known = measured_before(initial_plan.features, initial_plan.request.records)
    workload = workload_of(job, None, prepared.plan, len(prepared.cores))
    bounds, prior = initial_plan.request.bounds, initial_plan.first.prior
    return preview_plan(job.tuner.model, workload, bounds, known, prior, job.tuner.min_gain)
