"""Simulated jobs with the arrivals, the lengths and the requests of a trace. Pure.

A trace tells when jobs came, how long they ran and what they asked for. What it does not tell - the costs of a sample,
the growth of memory, noise and faults - is drawn as for all simulated jobs. The times between arrivals are never
stretched. A trace of a smaller cluster can be folded: its days (or other periods) are laid over each other, so that
more jobs run at once, while their lengths and their places within the period stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.simulator.cluster.jobs import REFERENCE, JobMix, SimulatedJob, draw_jobs
from benchmarks.simulator.cluster.traces.trace import Trace, TraceJob
from benchmarks.simulator.cluster.views import GrantLimits
from benchmarks.simulator.queueing.job_speed import SpeedTable
from elastichost.tuner.facts import Configuration

__all__ = ["CORES_PER_GPU", "configuration_of", "core_seconds", "folded", "replayed"]

CORES_PER_GPU = 12  # assumed, where a trace tells GPUs and no cores: hosts of the published clusters have 8 to 16
LEAST_TABLES = 0.01  # of the drawn tables, if a job asked for little more than its processes need
SERVER_SHARE = REFERENCE.servers / (REFERENCE.servers + REFERENCE.workers)


def configuration_of(cores: float, limits: GrantLimits) -> Configuration:
    """A configuration with about this number of cores, in the proportions of REFERENCE. It has at least one worker and
    one PS, and stays within the limits."""
    each = REFERENCE.worker_cores if cores >= 3 * REFERENCE.worker_cores else 1
    while True:
        processes = max(2, int(cores // each))
        servers = max(1, round(processes * SERVER_SHARE))
        workers = processes - servers
        if (workers <= limits.most.workers and servers <= limits.most.servers) or each >= limits.most.worker_cores:
            break
        each *= 2
    return Configuration(min(workers, limits.most.workers), min(servers, limits.most.servers), each, each)


def folded(jobs: Sequence[TraceJob], period_s: float) -> tuple[TraceJob, ...]:
    """The jobs with their times of submission modulo the period, in order of submission. period_s: 0: as they are."""
    if period_s <= 0:
        return tuple(jobs)
    moved = (msgspec.structs.replace(job, submit_s=job.submit_s % period_s) for job in jobs)
    return tuple(sorted(moved, key=lambda job: job.submit_s))


def replayed(
    seed: int,
    trace: Trace,
    mix: JobMix,
    tables: Mapping[str, SpeedTable],
    limits: GrantLimits,
    *,
    count: int = 0,
    period_s: float = 0.0,
    cores_per_gpu: float = CORES_PER_GPU,
) -> tuple[SimulatedJob, ...]:
    """The first `count` jobs of the trace (0: all), folded, in order of arrival. A job of the trace runs as long as in
    the trace if it has the cores that it asked for; in REFERENCE if the trace does not tell them."""
    chosen = folded(trace.jobs[: count or len(trace.jobs)], period_s)
    drawn = draw_jobs(seed, len(chosen), mix, tables, limits)
    return tuple(_as_in(job, told, limits, cores_per_gpu) for job, told in zip(drawn, chosen, strict=True))


def _as_in(job: SimulatedJob, told: TraceJob, limits: GrantLimits, cores_per_gpu: float) -> SimulatedJob:
    cores = told.cores or told.gpus * cores_per_gpu
    request = configuration_of(cores, limits) if cores > 0 else job.request
    speed = job.truth.speed(request if cores > 0 else REFERENCE).samples_per_s
    samples = told.samples or max(1, int(told.duration_s * speed))
    asked_over_needed = job.requested_memory_bytes / job.memory.used_bytes(float(job.samples), job.request)
    memory = msgspec.structs.replace(job.memory, samples=float(samples))
    needed = memory.used_bytes(float(samples), request)
    if told.memory_bytes > 0:
        # what the job needs keeps its proportion to what was asked; its processes need what they need
        tables = memory.fixed_bytes + memory.growth_bytes
        processes, needed = needed - tables, told.memory_bytes / asked_over_needed
        scale = max(LEAST_TABLES, (needed - processes) / tables)
        memory = msgspec.structs.replace(
            memory, fixed_bytes=memory.fixed_bytes * scale, growth_bytes=memory.growth_bytes * scale
        )
    requested = told.memory_bytes or int(asked_over_needed * needed)
    return msgspec.structs.replace(
        job,
        arrived_s=told.submit_s,
        features=msgspec.structs.replace(job.features, samples=samples),
        samples=samples,
        memory=memory,
        request=request,
        requested_memory_bytes=requested,
        share_cores=max(job.share_cores, request.cores),
    )


def core_seconds(jobs: Sequence[SimulatedJob]) -> float:
    """The core-seconds of all jobs in the configurations that their users asked for."""
    return sum(job.request.cores * job.samples / job.truth.speed(job.request).samples_per_s for job in jobs)
