"""The first plan of a run: what the job file says, else what the history knows, else the cold start. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from elastichost.history.features import Estimates, JobFeatures, JobRecord, PlanSize
from elastichost.plan import Access, Plan
from elastichost.resources import GpuDevice
from elastichost.tuner.cold_start import initial_plan
from elastichost.tuner.facts import Configuration, as_array
from elastichost.tuner.models.base import Prior
from elastichost.tuner.placement.resize import resized_plan
from elastichost.tuner.policy.candidates import (
    LIMIT,
    Bounds,
    as_configurations,
    contains,
    count,
    enumerate_candidates,
    nearest_candidate,
)
from elastichost.tuner.warm_start import ColdStart, warm_start

__all__ = ["FirstPlan", "FirstPlanRequest", "first_plan"]


WORDS = {"workers": "workers", "servers": "PS", "worker_cores": "threads a worker"}
ONE_OF = {"workers": "worker", "servers": "PS", "worker_cores": "thread a worker"}


class FirstPlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the first plan depends on. cores to access: of the cold start. wished: of the job file's
    `tuner.first_plan`, 0: left open; why_not_wished: why it is not looked at. bounds: None where there is nothing to
    choose. records: of similar jobs; why_not: why none were looked at. ended: of a run that is resumed, the size it had
    at last; it is taken if it is within ended_bounds; was_asked: somebody had asked for it."""

    cores: tuple[int, ...]
    workers: str | int | tuple[int, int]
    servers: str | int | tuple[int, int]
    gpus: tuple[GpuDevice, ...] = ()
    gpu_memory_fraction: float = 0.9
    access: Access | Literal["auto"] = "auto"
    hosts: int = 1
    capacity: tuple[int, ...] = ()  # cores of each host, where workers are on several
    wished: Configuration | None = None
    bounds: Bounds | None = None
    model: str = "elastichost"
    features: JobFeatures | None = None
    records: tuple[JobRecord, ...] = ()
    why_not: str = ""
    why_not_wished: str = ""
    ended: Configuration | None = None
    ended_bounds: Bounds | None = None
    was_asked: bool = False


class FirstPlan(msgspec.Struct, frozen=True):
    """Not pinned. prior: what the model believes before anything is measured; memory: the same of the memory curve.
    is_asked: somebody has asked for this size, and it is theirs to change."""

    plan: Plan
    prior: Prior | None = None
    memory: Estimates = Estimates()
    is_asked: bool = False


def first_plan(request: FirstPlanRequest) -> FirstPlan:
    """What a run had before it was resumed comes before the job file's wish, that before the history, the history
    before the default."""
    cold = _cold(request)
    known = _unresumed(cold, request)
    if request.ended is None or request.ended_bounds is None:
        return known
    if contains(request.ended_bounds, as_array([request.ended])).all():
        asked = "`scale` asked for " * request.was_asked
        reason = f"as {asked}before the run was resumed: {request.ended}"
        plan = _resized(cold, request.ended, reason, request)
        return msgspec.structs.replace(known, plan=plan, is_asked=request.was_asked)
    names = [name for name in WORDS if not _is_within(name, request.ended, request.ended_bounds)] or ["workers"]
    why = "; ".join(_limit(name, request.ended, request, request.ended_bounds) for name in names)
    return msgspec.structs.replace(
        known, plan=_because(known.plan, f"not {request.ended} as before it was resumed: {why}")
    )


def _cold(request: FirstPlanRequest) -> Plan:
    return initial_plan(
        cores=request.cores,
        workers=request.workers,
        servers=request.servers,
        gpus=request.gpus,
        gpu_memory_fraction=request.gpu_memory_fraction,
        access=request.access,
        hosts=request.hosts,
        capacity=request.capacity,
    )


def _unresumed(cold: Plan, request: FirstPlanRequest) -> FirstPlan:
    """Of a new run."""
    known = FirstPlan(cold)
    if request.wished is not None and request.why_not_wished:
        is_had = not _others(request.wished, _size(cold))
        why = f"tuner.first_plan asks for {_asked(request.wished)}: {request.why_not_wished}"
        return known if is_had else FirstPlan(_because(cold, why))
    if request.bounds is None:
        return known
    if request.features is not None:
        known = _warm(cold, request, request.features, request.bounds)
    if request.wished is not None:
        size = _size(known.plan)
        chosen = _nearest_to(request.wished, size, request.bounds)
        reason = _reason(request.wished, chosen, request)
        return msgspec.structs.replace(known, plan=_resized(cold, chosen, reason, request))
    return known


def _warm(cold: Plan, request: FirstPlanRequest, features: JobFeatures, bounds: Bounds) -> FirstPlan:
    if request.why_not:
        return FirstPlan(_because(cold, request.why_not))
    found = warm_start(features, request.records, bounds, model=request.model)
    if isinstance(found, ColdStart):
        return FirstPlan(_because(cold, found.reason), memory=found.memory)
    prior = found.prior if found.prior.mean else None
    return FirstPlan(_resized(cold, found.configuration, found.reason, request), prior, found.memory)


# --- what the job file wishes -----------------------------------------------------------------------------------------


def _nearest_to(wished: Configuration, size: Configuration, bounds: Bounds) -> Configuration:
    """The candidate that comes nearest to the numbers that were asked for, by ratios; of several such the one that is
    nearest to `size` in the others. Raises ValueError when nothing fits within the bounds."""
    names = PlanSize.__struct_fields__
    is_asked = np.array([getattr(wished, name) > 0 for name in names])
    wish = [getattr(wished, name) or getattr(size, name) for name in names]
    if not 0 < count(bounds) <= LIMIT:
        return nearest_candidate(bounds, wish)
    candidates = enumerate_candidates(bounds)
    away = (np.log(candidates) - np.log(np.array(wish, dtype=np.float64))) ** 2
    best = np.lexsort((away[:, ~is_asked].sum(axis=1), away[:, is_asked].sum(axis=1)))[0]
    return as_configurations(candidates[[best]])[0]


def _reason(wished: Configuration, chosen: Configuration, request: FirstPlanRequest) -> str:
    """What was asked for, what is given, and why where it is something else."""
    assert request.bounds is not None
    others = _others(wished, chosen)
    if not others:
        return f"as tuner.first_plan says: {chosen}"
    why = "; ".join(dict.fromkeys(_limit(name, wished, request, request.bounds) for name in others))
    return f"tuner.first_plan asks for {_asked(wished)}, the nearest that is possible is {chosen}: {why}"


def _others(wished: Configuration, chosen: Configuration) -> list[str]:
    """Numbers that were asked for and are others."""
    return [name for name in WORDS if getattr(wished, name) not in (0, getattr(chosen, name))]


def _limit(name: str, wished: Configuration, request: FirstPlanRequest, bounds: Bounds) -> str:
    """Why a number cannot be what was asked for."""
    low, high, cores = (
        getattr(bounds.least, name),
        getattr(bounds.most, name),
        sum(request.capacity) or len(request.cores),
    )
    if _is_within(name, wished, bounds):
        return f"so many workers with so many threads each do not fit on the job's cores, {cores}"
    only = f"{low} {WORDS[name] if low > 1 else ONE_OF[name]} only"
    allowed = only if low == high else f"from {low} to {high} {WORDS[name]}"
    if name == "worker_cores":
        return f"the job's cores, {cores}, allow {allowed}"
    if isinstance(getattr(request, name), str):
        return f"where resources.{name} is left open, {allowed} are tried on the job's cores, {cores}"
    return f"resources.{name} allows {allowed}"


def _is_within(name: str, wished: Configuration, bounds: Bounds) -> bool:
    low, asked, high = (getattr(one, name) for one in (bounds.least, wished, bounds.most))
    return bool(low <= asked <= high)


def _asked(wished: Configuration) -> str:
    return ", ".join(f"{WORDS[name]} = {number}" for name in WORDS if (number := getattr(wished, name)))


# --- in another size --------------------------------------------------------------------------------------------------


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
        capacity=request.capacity,
    )
