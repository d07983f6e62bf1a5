"""The first plan of a job that nothing is known about yet, and the same plan in another size."""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.plan import Access, Plan, ProcessSpec
from elastichost.resources import GpuDevice, Parallelism, bounds_of
from elastichost.tuner.gpu_shares import most_sharing, share_of

__all__ = ["host_of_worker", "initial_plan", "resized_plan"]


def initial_plan(
    *,
    cores: tuple[int, ...],
    workers: Parallelism = "auto",
    servers: Parallelism = "auto",
    gpus: tuple[GpuDevice, ...] = (),
    gpu_memory_fraction: float = 0.9,
    access: Literal["auto", "direct", "served"] = "auto",
    hosts: int = 1,
    capacity: tuple[int, ...] = (),
) -> Plan:
    """Processes and threads before anything was measured; which core each gets is `supervisor.pinning`'s.

    Workers: one a core, each with one thread whatever their number: on CPU more one-thread workers beat fewer
    many-thread ones, because a recommendation model's dense part is too small to share out, and two threads on
    cores that others use too collapse to 0.2-0.4 of one (measured). Servers: one, because with direct access a PS
    only makes new rows and applies dense updates. A [min, max] starts at its bound nearest to that.
    GPUs are dealt to workers round-robin, and of `gpu_memory_fraction` of its memory each worker on one gets the share
    that it would have with as many workers as there may ever be (`gpu_shares`). With several hosts PS are dealt to them
    round-robin, and workers use the rows of their own host in place. capacity: cores of each host, where workers are
    dealt to them by that; (): they are all on host 0.
    """
    worker_count = _clamp(workers, sum(capacity) or len(cores))
    server_count = _clamp(servers, 1)
    one_kind: Access = "mixed" if hosts > 1 else "direct"
    chosen: Access = "served" if access == "served" else one_kind
    devices = tuple(gpu.index for gpu in gpus)
    share = share_of(gpu_memory_fraction, most_sharing(workers, len(cores)), len(devices))
    workers_specs = [_worker(index, 1, devices, share, capacity) for index in range(worker_count)]
    processes = (*workers_specs, *(_server(index, hosts) for index in range(server_count)))
    return Plan(processes=processes, access=chosen, reason=_reason(worker_count, server_count, cores, chosen))


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
    """The plan with so many workers and PS, and so many threads a worker (None: as it is). Which core each gets is
    `supervisor.pinning`'s.

    Those that stay keep their indices; the highest go first, the lowest that are free come first. `gpus`: those of
    the job, (): those that the plan has; newcomers are dealt to them as `initial_plan` does, with the same share as
    all. New PS and workers are dealt to the hosts as there; a PS of host 0, which the dense vector needs, always stays.
    Raises ValueError for a plan without workers or PS.
    """
    worker_count = len(plan.workers) if workers is None else workers
    server_count = len(plan.servers) if servers is None else servers
    if min(worker_count, server_count, len(plan.workers), 1 if worker_cores is None else worker_cores) < 1:
        raise ValueError(f"{worker_count} workers and {server_count} PS are no plan")
    first = plan.workers[0]
    devices = gpus or tuple(sorted({spec.gpu for spec in plan.workers if spec.gpu is not None}))
    devices = devices if first.gpu is not None else ()
    share = first.gpu_memory_fraction if devices else 1.0
    threads = first.threads if worker_cores is None else worker_cores
    present = {(spec.role, spec.index): spec for spec in plan.processes}
    processes = []
    for index in _indices([spec.index for spec in plan.workers], worker_count):
        made = _worker(index, threads, devices, share, capacity)
        known = present.get(("worker", index), made)
        processes.append(msgspec.structs.replace(made, cores=known.cores))
    for index in _indices([spec.index for spec in plan.servers], server_count):
        processes.append(present.get(("server", index), _server(index, hosts)))
    return Plan(tuple(processes), plan.access, reason)


def _indices(present: list[int], count: int) -> list[int]:
    kept = sorted(present)[:count]
    free = (index for index in range(len(kept) + count) if index not in kept)
    return sorted([*kept, *(next(free) for _ in range(count - len(kept)))])


def _worker(
    index: int, threads: int, gpus: tuple[int, ...], gpu_memory_fraction: float, capacity: tuple[int, ...]
) -> ProcessSpec:
    host = host_of_worker(index, capacity)
    return ProcessSpec(
        role="worker",
        index=index,
        cores=(),
        threads=threads,
        gpu=gpus[index % len(gpus)] if gpus and host == 0 else None,
        gpu_memory_fraction=gpu_memory_fraction,
        host=host,
    )


def host_of_worker(index: int, capacity: tuple[int, ...]) -> int:
    """By D'Hondt's rule: each next worker goes to the host with most cores for each it would then have; of equals to
    the first. So a worker is where it is however many there are, and any number of them is spread by cores."""
    given = [0] * len(capacity)
    host = 0
    for _ in range(index + 1 if capacity else 0):
        host = max(range(len(capacity)), key=lambda one: (capacity[one] / (given[one] + 1), -one))
        given[host] += 1
    return host


def _server(index: int, hosts: int) -> ProcessSpec:
    return ProcessSpec(role="server", index=index, cores=(), threads=1, host=index % hosts)


def _clamp(setting: Parallelism, wish: int) -> int:
    low, high = bounds_of(setting, max(1, wish))
    return max(1, min(max(wish, low), high))


def _reason(workers: int, servers: int, cores: tuple[int, ...], access: Access) -> str:
    some = "core" if len(cores) == 1 else "cores"
    first = f"cold start: {workers} worker{'s' * (workers != 1)} on {len(cores)} {some}"
    if workers == len(cores):
        first += ", one each"
    how = {
        "direct": "rows in shared memory",
        "served": "rows served over sockets",
        "mixed": "rows of a worker's own host in shared memory, others served over sockets",
    }[access]
    return f"{first}; {servers} PS, {how}; nothing measured yet"
