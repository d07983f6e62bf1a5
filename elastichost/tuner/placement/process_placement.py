"""The processes of a plan, and which host each of them is on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from elastichost.plan import ProcessSpec

__all__ = ["hosts_of_servers", "hosts_of_workers", "server_specs", "usable_hosts", "worker_spec"]


def usable_hosts(hosts: int, capacity: Sequence[int]) -> tuple[int, ...]:
    """Hosts that processes may be on. capacity: cores of each host; (): all of them may."""
    return tuple(host for host in range(hosts) if not capacity or capacity[host] > 0)


def hosts_of_workers(present: Mapping[int, int], indices: Iterable[int], capacity: Sequence[int]) -> dict[int, int]:
    """index -> host. present: of the workers there are, which stay where they are. capacity: cores of each host; ():
    all workers are on host 0.

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


def hosts_of_servers(present: Mapping[int, int], indices: Iterable[int], hosts: Sequence[int]) -> dict[int, int]:
    """index -> host. present: of the servers there are, which stay where they are; each next one goes to the host of
    `hosts` with fewest servers, of equals to the first."""
    wanted = sorted(indices)
    placed = {index: present[index] for index in wanted if index in present}
    given = Counter(placed.values())
    for index in wanted:
        if index not in placed:
            host = min(hosts, key=lambda one: (given[one], one))
            placed[index] = host
            given[host] += 1
    return placed


def worker_spec(index: int, threads: int, gpus: Sequence[int], gpu_memory_fraction: float, host: int) -> ProcessSpec:
    """A worker that is not pinned yet. gpus: of the job, all on host 0; workers there are dealt to them round-robin."""
    return ProcessSpec(
        role="worker",
        index=index,
        cores=(),
        threads=threads,
        gpu=gpus[index % len(gpus)] if gpus and host == 0 else None,
        gpu_memory_fraction=gpu_memory_fraction,
        host=host,
    )


def server_specs(
    present: Mapping[int, ProcessSpec], indices: Iterable[int], hosts: Sequence[int]
) -> tuple[ProcessSpec, ...]:
    """Servers in the order of their indices: those of `present` as they are, others not pinned yet, on one of
    `hosts`."""
    placed = hosts_of_servers({index: spec.host for index, spec in present.items()}, indices, hosts)
    return tuple(
        present.get(index) or ProcessSpec(role="server", index=index, cores=(), threads=1, host=placed[index])
        for index in sorted(placed)
    )
