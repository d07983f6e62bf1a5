"""Computes the settings of the tuner from the job file, the model and the plan: its bounds, and the workload."""

from __future__ import annotations

import msgspec

from elastichost.arena.layout import MAX_WORKERS
from elastichost.config.job import JobSpec
from elastichost.plan import Plan
from elastichost.resources import Parallelism, bounds_of
from elastichost.sharding import MAX_SERVERS
from elastichost.specs import ModelSpec
from elastichost.supervisor.startup.worker_kinds import why_no_cpu_workers
from elastichost.tuner.facts import Configuration, Workload
from elastichost.tuner.models.base import Prior
from elastichost.tuner.placement.gpu_workers import most_workers
from elastichost.tuner.policy.candidates import Bounds, count
from elastichost.tuner.policy.policy import TunerSettings
from elastichost.tuner.policy.profile import BlockSettings

__all__ = ["NO_LINKS", "Links", "asked_bounds", "bounds_of_job", "configuration_of", "tuner_settings", "workload_of"]

OVERSUBSCRIPTION = 2.0  # most worker threads per core; in no measurement did more threads make a job faster
DIRECT_SERVERS = 4  # most PS with direct access, because they have little work


class Links(msgspec.Struct, frozen=True):
    """The links between the hosts of a run. bandwidth_bytes_per_s: of the slowest link; 0.0 with one host. capacity:
    cores of each host; () with one host."""

    bandwidth_bytes_per_s: float = 0.0
    capacity: tuple[int, ...] = ()


NO_LINKS = Links()


def workload_of(job: JobSpec, model: ModelSpec | None, plan: Plan, cores: int, links: Links = NO_LINKS) -> Workload:
    """The workload of a job. It has one id for each feature, although lists of ids are longer. model: None before it is
    built; its sizes are 0 then. cores: of all hosts."""
    embeddings = model.embeddings if model is not None else ()
    features = sum(len(embedding.features) for embedding in embeddings)
    row_bytes = sum(len(e.features) * e.dim * e.bytes_per_element for e in embeddings)
    return Workload(
        batch_size=job.train.batch_size,
        mode=job.train.mode,
        access="direct" if plan.access == "direct" else "served",  # mixed: PS serve rows too
        host_cores=0 if job.emulate.enabled else cores,  # virtual processes share no cores
        has_gpus=_has_gpus(plan),
        gpus=0 if why_no_cpu_workers(job) else _gpus_of(plan),
        dense_bytes=4 * model.dense.parameters if model is not None else 0,
        row_bytes=row_bytes,
        ids_per_sample=float(features),
        bandwidth_bytes_per_s=links.bandwidth_bytes_per_s,
        host_capacity=links.capacity if links.bandwidth_bytes_per_s > 0 else (),
    )


def _gpus_of(plan: Plan) -> int:
    """The number of GPUs that the plan uses."""
    return len({spec.gpu for spec in plan.workers} - {None})


def _has_gpus(plan: Plan) -> bool:
    return any(spec.gpu is not None for spec in plan.workers)


def bounds_of_job(job: JobSpec, plan: Plan, cores: int) -> Bounds:
    """The configurations that the job file allows. cores: of all hosts.

    The number of threads of a worker is fixed if the number of workers is fixed, on GPUs, and in sync mode: with more
    threads sums are computed in another order, which changes the bits of the model. On GPUs there is one worker for
    each, and the job file may allow more, on the CPU; of a job that may have none on the CPU, the GPUs are the limit.
    """
    resources = job.resources
    threads = job.tuner.first_plan.worker_cores or max((spec.threads for spec in plan.workers), default=1)
    has_gpus = _has_gpus(plan)
    most = most_workers(resources.workers, _gpus_of(plan)) if has_gpus else int(cores * OVERSUBSCRIPTION)
    workers = _within_gpus(_range(resources.workers, min(MAX_WORKERS, most)), job, plan)
    servers = _range(resources.servers, min(MAX_SERVERS, DIRECT_SERVERS if plan.access == "direct" else cores))
    is_fixed = workers[0] == workers[1] or has_gpus or job.train.mode == "sync"
    worker_cores = (threads, threads) if is_fixed else (1, cores)
    beyond = 1.0 if job.emulate.enabled else OVERSUBSCRIPTION  # virtual threads do not share cores
    return Bounds(
        least=Configuration(workers[0], servers[0], worker_cores[0]),
        most=Configuration(workers[1], servers[1], worker_cores[1]),
        cores=cores,
        oversubscription=max(beyond, workers[0] * worker_cores[0] / cores),
    )


def asked_bounds(job: JobSpec, plan: Plan, cores: int) -> Bounds:
    """The configurations that a user may request with `scale`. cores: of all hosts."""
    workers = _within_gpus(_range(job.resources.workers, MAX_WORKERS), job, plan)
    servers = _range(job.resources.servers, MAX_SERVERS)
    return Bounds(Configuration(workers[0], servers[0]), Configuration(workers[1], servers[1], cores))


def _within_gpus(workers: tuple[int, int], job: JobSpec, plan: Plan) -> tuple[int, int]:
    """(least, most) workers, at most one for each GPU where a job on GPUs may have none on the CPU."""
    if not _has_gpus(plan) or not why_no_cpu_workers(job):
        return workers
    least, most = workers
    return min(least, _gpus_of(plan)), min(most, _gpus_of(plan))


def _range(setting: Parallelism, most: int) -> tuple[int, int]:
    if isinstance(setting, str):
        return 1, max(1, most)
    return bounds_of(setting, 1)


def configuration_of(plan: Plan) -> Configuration:
    """The size of a plan."""
    return Configuration(len(plan.workers), len(plan.servers), max((spec.threads for spec in plan.workers), default=1))


def tuner_settings(
    job: JobSpec,
    model: ModelSpec,
    plan: Plan,
    cores: int,
    prior: Prior | None = None,
    links: Links = NO_LINKS,
) -> TunerSettings | str:
    """The settings of the tuner, or in words why it is off. cores: of all hosts. prior: from similar jobs."""
    if job.tuner.mode == "off":
        return 'tuner.mode = "off", so the first plan stays'
    bounds = bounds_of_job(job, plan, cores)
    if count(bounds) < 2:
        return "resources allow only one size, so the first plan stays"
    section = job.tuner
    return TunerSettings(
        workload=workload_of(job, model, plan, cores, links),
        bounds=bounds,
        block=BlockSettings(least_s=section.block_s, most_s=max(BlockSettings().most_s, section.block_s)),
        model=section.model,
        search=section.search,
        explore=section.explore,
        floor=section.floor,
        min_gain=section.min_gain,
        seed=job.job.seed,
        prior=prior,
        keeps_cores=section.mode == "propose",
    )
