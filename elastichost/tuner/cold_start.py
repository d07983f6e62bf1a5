"""The first plan of a job without measurements and without similar jobs in the history. Pure."""

from __future__ import annotations

from typing import Literal

from elastichost.arena.layout import MAX_WORKERS
from elastichost.human_readable import plural
from elastichost.plan import Access, Plan
from elastichost.resources import GpuDevice, Parallelism, bounds_of
from elastichost.tuner.placement.gpu_workers import gpus_of_workers
from elastichost.tuner.placement.process_placement import hosts_of_workers, server_specs, usable_hosts, worker_spec

__all__ = ["initial_plan"]


def initial_plan(
    *,
    cores: tuple[int, ...],
    workers: Parallelism = "auto",
    servers: Parallelism = "auto",
    gpus: tuple[GpuDevice, ...] = (),
    gpu_memory_fraction: float = 0.9,
    access: Access | Literal["auto"] = "auto",
    hosts: int = 1,
    capacity: tuple[int, ...] = (),
) -> Plan:
    """Returns the processes and threads of a plan without any measurements.

    `supervisor.core.core_assignment` assigns the cores later.

    Workers: one for each core, each with one thread. On CPU, many workers with one thread are faster than few workers
    with many threads: the dense part of a recommendation model is too small to divide among threads, and two threads
    on cores that other processes use too reach only 0.2-0.4 of the speed of one thread (measured). Servers: one,
    because with direct access a PS only makes new rows and applies dense updates. A [min, max] in the job file starts
    at the allowed number nearest to these.

    With GPUs there is one worker for each GPU, on host 0, with `gpu_memory_fraction` of its memory; workers beyond the
    number of GPUs train on the CPU (`gpu_workers`). With several hosts, PS are assigned to hosts round-robin, and
    workers use the rows of their own host in place. capacity: cores of each host, by which workers are spread over
    hosts; 0 for a host that must have no processes; (): all workers are on host 0.
    """
    devices = tuple(gpu.index for gpu in gpus)
    worker_count = _clamp(workers, min(MAX_WORKERS, len(devices) or sum(capacity) or len(cores)))
    server_count = _clamp(servers, 1)
    by_place: Access = "mixed" if hosts > 1 or access == "mixed" else "direct"
    chosen: Access = "served" if access == "served" else by_place
    on_gpus = gpus_of_workers({}, range(worker_count), devices)
    placed = hosts_of_workers(dict.fromkeys(on_gpus, 0), range(worker_count), capacity)
    workers_specs = [
        worker_spec(index, 1, on_gpus.get(index), gpu_memory_fraction, placed[index]) for index in range(worker_count)
    ]
    servers_specs = server_specs({}, range(server_count), usable_hosts(hosts, capacity))
    processes = (*workers_specs, *servers_specs)
    reason = _reason(worker_count, len(on_gpus), server_count, cores, chosen)
    return Plan(processes=processes, access=chosen, reason=reason)


def _clamp(setting: Parallelism, wish: int) -> int:
    low, high = bounds_of(setting, max(1, wish))
    return max(1, min(max(wish, low), high))


def _reason(workers: int, on_gpus: int, servers: int, cores: tuple[int, ...], access: Access) -> str:
    some = "core" if len(cores) == 1 else "cores"
    first = f"cold start: {workers} worker{'s' * (workers != 1)} on {len(cores)} {some}"
    if on_gpus:
        first = f"cold start: {plural(on_gpus, 'worker')} with a GPU each"
        first += f", {workers - on_gpus} on the CPU" if workers > on_gpus else ""
    elif workers == len(cores):
        first += ", one each"
    how = {
        "direct": "rows in shared memory",
        "served": "rows served over sockets",
        "mixed": "rows of a worker's own host in shared memory, others served over sockets",
    }[access]
    return f"{first}; {plural(servers, 'parameter server')} (PS), {how}; nothing measured yet"
