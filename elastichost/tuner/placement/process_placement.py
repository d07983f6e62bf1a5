"""Assigns the processes of a plan to hosts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from elastichost.plan import ProcessSpec

__all__ = ["hosts_of_servers", "hosts_of_workers", "server_specs", "usable_hosts", "worker_spec"]


def usable_hosts(hosts: int, capacity: Sequence[int]) -> tuple[int, ...]:
    """The hosts that may have processes. capacity: cores of each host; (): all hosts may."""
    return tuple(host for host in range(hosts) if not capacity or capacity[host] > 0)


def hosts_of_workers(present: Mapping[int, int], indices: Iterable[int], capacity: Sequence[int]) -> dict[int, int]:
    """Returns worker index -> host. present: hosts of the existing workers, which do not change. capacity: cores of
    each host; (): all workers are on host 0.

    By D'Hondt's rule, each further worker goes to the host that then has the most cores per worker; of equal hosts to
    the first. So any number of workers is spread in proportion to the cores, and a first plan with fewer workers is a
    part of one with more.
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
    """Returns server index -> host. present: hosts of the existing servers, which do not change. Each further server
    goes to the host of `hosts` with fewest servers; of equal hosts to the first."""
    wanted = sorted(indices)
    placed = {index: present[index] for index in wanted if index in present}
    given = Counter(placed.values())
    for index in wanted:
        if index not in placed:
            host = min(hosts, key=lambda one: (given[one], one))
            placed[index] = host
            given[host] += 1
    return placed


def worker_spec(index: int, threads: int, gpu: int | None, gpu_memory_fraction: float, host: int) -> ProcessSpec:
    """The specification of a worker that is not pinned to cores yet. gpu_memory_fraction: of a worker with a GPU."""
    return ProcessSpec(
        role="worker",
        index=index,
        cores=(),
        threads=threads,
        gpu=gpu,
        gpu_memory_fraction=1.0 if gpu is None else gpu_memory_fraction,
        host=host,
    )


def server_specs(
    present: Mapping[int, ProcessSpec], indices: Iterable[int], hosts: Sequence[int]
) -> tuple[ProcessSpec, ...]:
    """The specifications of servers in the order of their indices. Servers of `present` are unchanged; new ones are on
    one of `hosts`, and not pinned to cores yet."""
    placed = hosts_of_servers({index: spec.host for index, spec in present.items()}, indices, hosts)
    return tuple(
        present.get(index) or ProcessSpec(role="server", index=index, cores=(), threads=1, host=placed[index])
        for index in sorted(placed)
    )
