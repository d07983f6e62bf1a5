"""Changes the size of a plan: the number of workers, servers and threads. Pure."""

from __future__ import annotations

import msgspec

from elastichost.plan import Plan
from elastichost.tuner.placement.process_placement import hosts_of_workers, server_specs, usable_hosts, worker_spec

__all__ = ["resized_plan"]


def resized_plan(
    plan: Plan,
    reason: str,
    *,
    workers: int | None = None,
    servers: int | None = None,
    worker_cores: int | None = None,
    gpus: tuple[int, ...] = (),
    hosts: int = 1,
    capacity: tuple[int, ...] = (),
) -> Plan:
    """Returns the plan with another number of workers, PS and threads per worker (None: unchanged).

    `supervisor.core.core_assignment` assigns the cores later. Processes that stay keep their indices and hosts. The
    processes with the highest indices are removed first; new ones get the lowest free indices. gpus: of the job; ():
    those in the plan. New workers are assigned to GPUs as by `initial_plan`, with the same share as the others. New PS
    and workers are assigned to hosts as by `initial_plan`. A PS on host 0, which the dense vector needs, always stays.
    Raises ValueError for a plan without workers or PS.
    """
    worker_count = len(plan.workers) if workers is None else workers
    server_count = len(plan.servers) if servers is None else servers
    if min(worker_count, server_count, len(plan.workers), 1 if worker_cores is None else worker_cores) < 1:
        raise ValueError(f"a plan needs workers, PS and threads: {worker_count} workers and {server_count} PS given")
    first = plan.workers[0]
    devices = gpus or tuple(sorted({spec.gpu for spec in plan.workers if spec.gpu is not None}))
    devices = devices if first.gpu is not None else ()
    share = first.gpu_memory_fraction if devices else 1.0
    threads = first.threads if worker_cores is None else worker_cores
    workers_before = {spec.index: spec for spec in plan.workers}
    processes = []
    indices = _indices(list(workers_before), worker_count)
    placed = hosts_of_workers({spec.index: spec.host for spec in plan.workers}, indices, capacity)
    for index in indices:
        known = workers_before.get(index)
        made = worker_spec(index, threads, devices, share, placed[index])
        processes.append(msgspec.structs.replace(made, cores=known.cores if known is not None else ()))
    servers_before = {spec.index: spec for spec in plan.servers}
    processes += server_specs(
        servers_before, _indices(list(servers_before), server_count), usable_hosts(hosts, capacity)
    )
    return Plan(tuple(processes), plan.access, reason)


def _indices(present: list[int], count: int) -> list[int]:
    kept = sorted(present)[:count]
    free = (index for index in range(len(kept) + count) if index not in kept)
    return sorted([*kept, *(next(free) for _ in range(count - len(kept)))])
