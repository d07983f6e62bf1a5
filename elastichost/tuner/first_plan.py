"""The first plan of a run: what the job file says, else what the history knows, else the cold start. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.job_features import Estimates, JobFeatures, JobRecord, PlanSize
from elastichost.plan import Plan
from elastichost.resources import GpuDevice
from elastichost.tuner.candidates import Bounds, nearest_candidate
from elastichost.tuner.cold_start import initial_plan, resized_plan
from elastichost.tuner.facts import Configuration
from elastichost.tuner.performance import Prior
from elastichost.tuner.warm_start import ColdStart, warm_start

__all__ = ["FirstPlan", "FirstPlanRequest", "first_plan"]


class FirstPlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the first plan depends on. cores to access: of the cold start. wished: of the job file's
    `tuner.first_plan`, 0: left open. bounds: None where there is nothing to choose. records: of similar jobs; why_not:
    why none were looked at."""

    cores: tuple[int, ...]
    workers: str | int | tuple[int, int]
    servers: str | int | tuple[int, int]
    gpus: tuple[GpuDevice, ...] = ()
    gpu_memory_fraction: float = 0.9
    access: Literal["auto", "direct", "served"] = "auto"
    hosts: int = 1
    wished: Configuration | None = None
    bounds: Bounds | None = None
    model: str = "elastichost"
    features: JobFeatures | None = None
    records: tuple[JobRecord, ...] = ()
    why_not: str = ""


class FirstPlan(msgspec.Struct, frozen=True):
    """Not pinned. prior: what the model believes before anything is measured; memory: the same of the memory curve."""

    plan: Plan
    prior: Prior | None = None
    memory: Estimates = Estimates()


def first_plan(request: FirstPlanRequest) -> FirstPlan:
    """The job file's wish comes before the history, the history before the default."""
    cold = initial_plan(
        cores=request.cores,
        workers=request.workers,
        servers=request.servers,
        gpus=request.gpus,
        gpu_memory_fraction=request.gpu_memory_fraction,
        access=request.access,
        hosts=request.hosts,
    )
    known = FirstPlan(cold)
    if request.bounds is None:
        return known
    if request.features is not None:
        known = _warm(cold, request, request.features, request.bounds)
    if request.wished is not None:
        size = _size(known.plan)
        wish = [getattr(request.wished, name) or getattr(size, name) for name in PlanSize.__struct_fields__]
        chosen = nearest_candidate(request.bounds, wish)
        reason = f"as tuner.first_plan says: {chosen}"
        return msgspec.structs.replace(known, plan=_resized(cold, chosen, reason, request))
    return known


def _warm(cold: Plan, request: FirstPlanRequest, features: JobFeatures, bounds: Bounds) -> FirstPlan:
    if request.why_not:
        return FirstPlan(_because(cold, request.why_not))
    found = warm_start(features, request.records, bounds, model=request.model)
    if isinstance(found, ColdStart):
        return FirstPlan(_because(cold, found.reason))
    prior = found.prior if found.prior.mean else None
    return FirstPlan(_resized(cold, found.configuration, found.reason, request), prior, found.memory)


def _because(plan: Plan, why: str) -> Plan:
    return msgspec.structs.replace(plan, reason=f"{plan.reason} ({why})")


def _size(plan: Plan) -> Configuration:
    return Configuration(len(plan.workers), len(plan.servers), max((spec.threads for spec in plan.workers), default=1))


def _resized(plan: Plan, size: Configuration, reason: str, request: FirstPlanRequest) -> Plan:
    return resized_plan(
        plan,
        reason,
        workers=size.workers,
        servers=size.servers,
        worker_cores=size.worker_cores,
        gpus=tuple(gpu.index for gpu in request.gpus),
        hosts=request.hosts,
    )
