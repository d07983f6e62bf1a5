"""Chooses the first plan of a run: from the job file, the history of similar jobs, or the cold start."""

from __future__ import annotations

import getpass
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from elastichost.config.job import JobSpec
from elastichost.config.tables import table_settings
from elastichost.datasets.api import DatasetDescription
from elastichost.datasets.remote import remote_rate
from elastichost.errors import HistoryError
from elastichost.history.features import JobFeatures, JobRecord
from elastichost.history.store import History, history_path
from elastichost.plan import Access, Plan
from elastichost.resources import GpuDevice, Parallelism
from elastichost.runs.journal_replay import EndedSize
from elastichost.specs import TableSpec
from elastichost.supervisor.core.core_assignment import capacity_of, pin
from elastichost.supervisor.startup.tuner_settings import asked_bounds, bounds_of_job
from elastichost.tuner.cold_start import initial_plan
from elastichost.tuner.facts import Configuration
from elastichost.tuner.first_plan import FirstPlan, FirstPlanRequest, first_plan
from elastichost.tuner.policy.candidates import Bounds, count
from elastichost.tuner.warm_start import METRIC, neighbours, none_near

__all__ = ["InitialPlan", "begin", "features_of"]


@dataclass(frozen=True, slots=True)
class InitialPlan:
    """The first plan of a run. request: everything that `first` was chosen from. plan: the plan of `first`, pinned to
    cores. features: the properties by which later jobs find this one in the history."""

    request: FirstPlanRequest
    first: FirstPlan
    plan: Plan
    features: JobFeatures
    warnings: tuple[str, ...]


def begin(
    job: JobSpec,
    tables: tuple[TableSpec, ...],
    train: DatasetDescription,
    cores: tuple[int, ...],
    gpus: tuple[GpuDevice, ...],
    gpu_memory_fraction: float,
    ended: EndedSize | None = None,
    elsewhere: Mapping[int, tuple[int, ...]] | None = None,
) -> InitialPlan:
    """Chooses the first plan. A history that cannot be read gives a warning.

    cores: of this machine. gpu_memory_fraction: share of a GPU's memory that its worker may use. ended: size of the run
    that is resumed; None: a new run, or not known. elsewhere: host number -> cores, for each other machine; None: there
    are no other machines, and none may join.
    """
    capacity = capacity_of(len(cores), elsewhere, 1 + max(elsewhere, default=0)) if elsewhere is not None else ()
    all_cores = sum(capacity) or len(cores)
    request = FirstPlanRequest(
        cores=cores,
        workers=_setting(job.resources.workers),
        servers=_setting(job.resources.servers),
        gpus=gpus,
        gpu_memory_fraction=gpu_memory_fraction,
        access=_access(job, may_join=elsewhere is not None),
        hosts=job.resources.hosts,
        capacity=capacity,
    )
    cold = initial_plan(
        cores=cores,
        workers=request.workers,
        servers=request.servers,
        gpus=gpus,
        gpu_memory_fraction=gpu_memory_fraction,
        access=request.access,
        hosts=request.hosts,
        capacity=capacity,
    )
    features = features_of(job, tables, train, cold.access, all_cores, len(gpus))
    bounds = bounds_of_job(job, cold, all_cores)
    warnings: tuple[str, ...] = ()
    request = _with_wish(request, job, bounds)
    if job.tuner.mode != "off" and count(bounds) > 1:
        known, why_not, warnings = _history(job, features, bounds)
        request = msgspec.structs.replace(
            request,
            bounds=bounds,
            model=job.tuner.model,
            features=features,
            records=known,
            why_not=why_not,
        )
    if ended is not None:
        size = Configuration(ended.workers, ended.servers, ended.worker_cores)
        within = asked_bounds(job, cold, all_cores) if ended.was_asked else bounds
        request = msgspec.structs.replace(request, ended=size, ended_bounds=within, was_asked=ended.was_asked)
    first = first_plan(request)
    pinned = pin(first.plan, cores, elsewhere or {}, gpus)
    return InitialPlan(request, first, pinned.plan, features, (*warnings, *pinned.warnings))


def _with_wish(request: FirstPlanRequest, job: JobSpec, bounds: Bounds) -> FirstPlanRequest:
    """The request with the size of `tuner.first_plan`, where the job file has one."""
    size = job.tuner.first_plan
    wished = Configuration(size.workers, size.servers, size.worker_cores, 0)
    if wished == Configuration(0, 0, 0, 0):
        return request
    why_not = _why_not_wished(job, bounds)
    return msgspec.structs.replace(request, wished=wished, bounds=bounds, why_not_wished=why_not)


def _access(job: JobSpec, *, may_join: bool) -> Access | Literal["auto"]:
    """The access to rows that the job requires. may_join: machines may join, so rows may be in several arenas."""
    if job.train.mode == "sync" or job.emulate.enabled or job.train.access == "served":
        return "served"
    return "mixed" if may_join else job.train.access


def _setting(value: Parallelism) -> str | int | tuple[int, int]:
    return (value[0], value[1]) if isinstance(value, list) else value


def _why_not_wished(job: JobSpec, bounds: Bounds) -> str:
    """Why `tuner.first_plan` is ignored, in words; "": it is used."""
    if job.tuner.mode == "off":
        return 'it is ignored with tuner.mode = "off"'
    return "" if count(bounds) else f"not even {bounds.least} fits on the {bounds.cores} cores of the job"


def _history(job: JobSpec, features: JobFeatures, bounds: Bounds) -> tuple[tuple[JobRecord, ...], str, tuple[str, ...]]:
    """Returns the records of similar jobs, the reason if there are none, and warnings."""
    try:
        path = history_path(os.environ) if job.tuner.warm_start else None
        if path is None:
            return (), "the history is not used: it is switched off", ()
        if not path.exists():
            return (), "", ()
        with History(path) as history:
            near = history.near(features, METRIC)
            unreadable = history.unreadable
    except (HistoryError, OSError) as error:  # OSError: the directory belongs to another user
        why = error.message if isinstance(error, HistoryError) else str(error)
        return (), f"the history is not used: {why}", (f"history: {error}",)
    warnings = (f"history: {unreadable} records of {path} have another version and are ignored",) if unreadable else ()
    known = neighbours(features, near.records)
    return known, "" if known else none_near(near.known, near.closest).reason, warnings


def features_of(
    job: JobSpec, tables: tuple[TableSpec, ...], train: DatasetDescription, access: str, cores: int, gpus: int
) -> JobFeatures:
    """The properties of a job for the history, as far as they are known before the model is built."""
    dims = [table_settings(job, table.name).dim for table in tables]
    fixed = [table.rows for table in tables if not table.is_dynamic]
    return JobFeatures(
        # measurements of an emulated job must not be used for real jobs with the model that its job file names
        family=f"emulated {job.emulate.scenario}".strip() if job.emulate.enabled else job.model.build,
        name=job.job.name,
        user=_user(),
        tables=len(tables),
        dynamic_tables=sum(table.is_dynamic for table in tables),
        rows=sum(fixed),
        largest_rows=max(fixed, default=0),
        mean_dim=sum(dims) / len(dims) if dims else 0.0,
        largest_dim=max(dims, default=0),
        ids_per_sample=float(sum(len(table.features) for table in tables)),
        batch_size=job.train.batch_size,
        mode=job.train.mode,
        access=access,
        samples=train.samples * job.train.epochs,
        host_cores=cores,
        gpus=gpus,
        shape=_shape(job),
    )


def _shape(job: JobSpec) -> str:
    facts: object = job.emulate.model_dump(mode="json") if job.emulate.enabled else (job.model.args, job.model.fused)
    if (rate := remote_rate(job)) is not None and not job.emulate.enabled:
        facts = (facts, rate.bytes_per_s, rate.latency_s)  # with a remote store it is another kind of job
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()[:16]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        return ""
