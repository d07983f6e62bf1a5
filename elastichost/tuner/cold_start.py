"""The first plan of a job that nothing is known about yet, and the same plan in another size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from elastichost.plan import Access, Plan, ProcessSpec
from elastichost.resources import GpuDevice, Parallelism, bounds_of
from elastichost.tuner.placement.gpu_shares import most_sharing, share_of

__all__ = ["initial_plan", "resized_plan"]


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
    """Processes and threads before anything was measured; which core each gets is `supervisor.pinning`'s.

    Workers: one a core, each with one thread whatever their number: on CPU more one-thread workers beat fewer
    many-thread ones, because a recommendation model's dense part is too small to share out, and two threads on
    cores that others use too collapse to 0.2-0.4 of one (measured). Servers: one, because with direct access a PS
    only makes new rows and applies dense updates. A [min, max] starts at its bound nearest to that.
    GPUs are dealt to workers round-robin, and of `gpu_memory_fraction` of its memory each worker on one gets the share
    that it would have with as many workers as there may ever be (`gpu_shares`). With several hosts PS are dealt to them
    round-robin, and workers use the rows of their own host in place. capacity: cores of each host, where workers are
    dealt to them by that, 0 for a host that nothing is to be on; (): they are all on host 0.
    """
    worker_count = _clamp(workers, sum(capacity) or len(cores))
    server_count = _clamp(servers, 1)
    by_place: Access = "mixed" if hosts > 1 or access == "mixed" else "direct"
    chosen: Access = "served" if access == "served" else by_place
    devices = tuple(gpu.index for gpu in gpus)
    share = share_of(gpu_memory_fraction, most_sharing(workers, len(cores)), len(devices))
    placed = _hosts_of_workers({}, range(worker_count), capacity)
    workers_specs = [_worker(index, 1, devices, share, placed[index]) for index in range(worker_count)]
    servers_specs = _servers({}, range(server_count), _usable(hosts, capacity))
    processes = (*workers_specs, *servers_specs)
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

    Those that stay keep their indices and hosts; the highest go first, the lowest that are free come first. `gpus`:
    those of the job, (): those that the plan has; newcomers are dealt to them as `initial_plan` does, with the same
    share as all. New PS and workers are dealt to the hosts as there; a PS of host 0, which the dense vector needs,
    always stays.
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
    workers_before = {spec.index: spec for spec in plan.workers}
    processes = []
    indices = _indices(list(workers_before), worker_count)
    placed = _hosts_of_workers({spec.index: spec.host for spec in plan.workers}, indices, capacity)
    for index in indices:
        known = workers_before.get(index)
        made = _worker(index, threads, devices, share, placed[index])
        processes.append(msgspec.structs.replace(made, cores=known.cores if known is not None else ()))
    servers_before = {spec.index: spec for spec in plan.servers}
    processes += _servers(servers_before, _indices(list(servers_before), server_count), _usable(hosts, capacity))
    return Plan(tuple(processes), plan.access, reason)


def _indices(present: list[int], count: int) -> list[int]:
    kept = sorted(present)[:count]
    free = (index for index in range(len(kept) + count) if index not in kept)
    return sorted([*kept, *(next(free) for _ in range(count - len(kept)))])


def _worker(index: int, threads: int, gpus: tuple[int, ...], gpu_memory_fraction: float, host: int) -> ProcessSpec:
    return ProcessSpec(
        role="worker",
        index=index,
        cores=(),
        threads=threads,
        gpu=gpus[index % len(gpus)] if gpus and host == 0 else None,
        gpu_memory_fraction=gpu_memory_fraction,
        host=host,
    )


def _hosts_of_workers(present: dict[int, int], indices: Iterable[int], capacity: tuple[int, ...]) -> dict[int, int]:
    """index -> host. present: of the workers there are, which stay where they are.

    By D'Hondt's rule: each next worker goes to the host with most cores for each it would then have; of equals to the
    first. So any number of workers is spread by cores, and a first plan of fewer of them is a part of one of more.
    """
    wanted = sorted(indices)
    placed = {index: present[index] for index in wanted if index in present}
    given = Counter(placed.values())
    for index in wanted:
        if index not in placed:
            host = max(range(len(capacity)), key=lambda one: (capacity[one] / (given[one] + 1), -one), default=0)
            placed[index] = host
            given[host] += 1
    return placed


def _servers(present: dict[int, ProcessSpec], indices: Iterable[int], hosts: Sequence[int]) -> list[ProcessSpec]:
    """Those there are as they are; each next one on the host with fewest, the first of equals."""
    wanted = sorted(indices)
    made = {index: present[index] for index in wanted if index in present}
    given = Counter(spec.host for spec in made.values())
    for index in wanted:
        if index not in made:
            host = min(hosts, key=lambda one: (given[one], one))
            made[index] = ProcessSpec(role="server", index=index, cores=(), threads=1, host=host)
            given[host] += 1
    return [made[index] for index in wanted]


def _usable(hosts: int, capacity: tuple[int, ...]) -> tuple[int, ...]:
    """Hosts that something may be on."""
    return tuple(host for host in range(hosts) if not capacity or capacity[host] > 0)


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
