"""The first plan of a run: from the job file, else from similar jobs in the history, else the cold start. Pure."""

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
    """Everything that the first plan depends on.

    cores, workers, servers, gpus, gpu_memory_fraction, access, hosts, capacity: as in `cold_start.initial_plan`.
    wished: `tuner.first_plan` of the job file; a number that is 0 is left open. why_not_wished: why `tuner.first_plan`
    is ignored. bounds: the allowed configurations; None where nothing can be chosen. model, features, records: of the
    warm start; records are those of similar jobs. why_not: why the history was not read. ended: the last size of a run
    that is resumed; used if it lies within ended_bounds. was_asked: a user had requested that size with `scale`."""

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
    """The first plan of a run; its processes are not pinned to cores yet.

    prior: parameters of the speed model before any measurement. memory: parameters of the memory curve before any
    measurement. is_asked: a user requested this size with `scale`, and only a user changes it."""

    plan: Plan
    prior: Prior | None = None
    memory: Estimates = Estimates()
    is_asked: bool = False


def first_plan(request: FirstPlanRequest) -> FirstPlan:
    """Chooses the first plan. In this order of preference: the size that the run had before it was resumed,
    `tuner.first_plan` of the job file, the warm start from the history, the cold start."""
    cold = _cold(request)
    known = _unresumed(cold, request)
    if request.ended is None or request.ended_bounds is None:
        return known
    if contains(request.ended_bounds, as_array([request.ended])).all():
        asked = ", requested with `scale`" * request.was_asked
        reason = f"same size as before the run was resumed{asked}: {request.ended}"
        plan = _resized(cold, request.ended, reason, request)
        return msgspec.structs.replace(known, plan=plan, is_asked=request.was_asked)
    names = [name for name in WORDS if not _is_within(name, request.ended, request.ended_bounds)] or ["workers"]
    why = "; ".join(_limit(name, request.ended, request, request.ended_bounds) for name in names)
    return msgspec.structs.replace(
        known, plan=_because(known.plan, f"not {request.ended} as before the run was resumed: {why}")
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
    """The first plan without regard to `request.ended`."""
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


# --- tuner.first_plan of the job file ---------------------------------------------------------------------------------


def _nearest_to(wished: Configuration, size: Configuration, bounds: Bounds) -> Configuration:
    """Returns the candidate whose numbers are nearest, by ratios, to the requested numbers. Among equally near
    candidates it takes the one that is nearest to `size` in the numbers that were left open. Raises ValueError if no
    configuration fits the bounds."""
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
    """The sentence for the plan: the requested size, and if the chosen size differs, the limit that prevents it."""
    assert request.bounds is not None
    others = _others(wished, chosen)
    if not others:
        return f"as tuner.first_plan asks: {chosen}"
    why = "; ".join(dict.fromkeys(_limit(name, wished, request, request.bounds) for name in others))
    return f"tuner.first_plan asks for {_asked(wished)}; the nearest allowed size is {chosen}: {why}"


def _others(wished: Configuration, chosen: Configuration) -> list[str]:
    """Names of the requested numbers that the chosen configuration does not have."""
    return [name for name in WORDS if getattr(wished, name) not in (0, getattr(chosen, name))]


def _limit(name: str, wished: Configuration, request: FirstPlanRequest, bounds: Bounds) -> str:
    """The limit that prevents the requested value of the number `name`, as a sentence."""
    low, high, cores = (
        getattr(bounds.least, name),
        getattr(bounds.most, name),
        sum(request.capacity) or len(request.cores),
    )
    if _is_within(name, wished, bounds):
        return f"the requested workers and threads do not fit on the {cores} cores of the job"
    only = f"only {low} {WORDS[name] if low > 1 else ONE_OF[name]}"
    allowed = only if low == high else f"{low} to {high} {WORDS[name]}"
    if name == "worker_cores":
        return f"the {cores} cores of the job allow {allowed}"
    if isinstance(getattr(request, name), str):
        return f"resources.{name} is left open, which allows {allowed} on the {cores} cores of the job"
    return f"resources.{name} allows {allowed}"


def _is_within(name: str, wished: Configuration, bounds: Bounds) -> bool:
    low, asked, high = (getattr(one, name) for one in (bounds.least, wished, bounds.most))
    return bool(low <= asked <= high)


def _asked(wished: Configuration) -> str:
    return ", ".join(f"{WORDS[name]} = {number}" for name in WORDS if (number := getattr(wished, name)))


# --- resized plans ----------------------------------------------------------------------------------------------------


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
