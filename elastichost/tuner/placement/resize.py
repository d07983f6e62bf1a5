"""Changes the size of a plan: the number of workers, servers and threads. Pure."""

from __future__ import annotations

import msgspec

from elastichost.plan import Plan
from elastichost.tuner.placement.gpu_workers import gpus_of_workers, kept_first
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

    `supervisor.core.core_assignment` assigns the cores later. Processes that stay keep their indices and hosts. Of a
    role, the processes with the highest indices are removed first, but workers with a GPU last; new ones get the lowest
    free indices. gpus: of the job; (): those in the plan. New workers are assigned to GPUs as by `initial_plan`, with
    the same share of its memory as the others. New PS and workers are assigned to hosts as by `initial_plan`. A PS on
    host 0, which the dense vector needs, always stays.
    Raises ValueError for a plan without workers or PS.
    """
    worker_count = len(plan.workers) if workers is None else workers
    server_count = len(plan.servers) if servers is None else servers
    if min(worker_count, server_count, len(plan.workers), 1 if worker_cores is None else worker_cores) < 1:
        raise ValueError(f"a plan needs workers, PS and threads: {worker_count} workers and {server_count} PS given")
    workers_before = {spec.index: spec for spec in plan.workers}
    devices = gpus or tuple(sorted({spec.gpu for spec in plan.workers if spec.gpu is not None}))
    share = min(spec.gpu_memory_fraction for spec in plan.workers)
    threads = plan.workers[0].threads if worker_cores is None else worker_cores
    processes = []
    indices = _indices(kept_first(plan.workers), worker_count)
    of_worker = gpus_of_workers({spec.index: spec.gpu for spec in plan.workers}, indices, devices)
    present = {**dict.fromkeys(of_worker, 0), **{spec.index: spec.host for spec in plan.workers}}
    placed = hosts_of_workers(present, indices, capacity)
    for index in indices:
        known = workers_before.get(index)
        made = worker_spec(index, threads, of_worker.get(index), share, placed[index])
        processes.append(msgspec.structs.replace(made, cores=known.cores if known is not None else ()))
    servers_before = {spec.index: spec for spec in plan.servers}
    processes += server_specs(
        servers_before, _indices(sorted(servers_before), server_count), usable_hosts(hosts, capacity)
    )
    return Plan(tuple(processes), plan.access, reason)


def _indices(present: list[int], count: int) -> list[int]:
    """present: in the order in which they are kept."""
    kept = present[:count]
    free = (index for index in range(len(kept) + count) if index not in kept)
    return sorted([*kept, *(next(free) for _ in range(count - len(kept)))])
