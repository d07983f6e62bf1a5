"""Computes the traffic of a job on the links between hosts, from the hosts of its workers and PS. Pure.

Symbols, for host h:

    a_h   share of the workers that are on host h
    b_h   share of the PS on host h, and therefore of the traffic of rows
    R     bytes of the rows of a batch, each way
    D     bytes of the dense part, each way; its owner is on host 0

Averaged over the workers, a batch moves each way to other hosts

    R sum_h a_h (1 - b_h)  +  D (1 - a_0)

bytes. For each batch, the link of host h carries in each direction

    R (a_h (1 - b_h) + (1 - a_h) b_h)  +  D (1 - a_0 for h = 0, else a_h)

bytes: the requests of its workers to other hosts, and the requests of workers of other hosts to its PS.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray
from elastichost.tuner.placement.process_placement import hosts_of_servers, hosts_of_workers, usable_hosts

__all__ = ["LinkTraffic", "link_traffic"]

Floats = npt.NDArray[np.float64]


class LinkTraffic(NamedTuple):
    """The traffic of n configurations, float64 [n].

    moved_bytes: bytes each way that a batch of one worker moves to other hosts, mean over the workers. link_share:
    share of these bytes that goes through the busiest link; 1: all of them."""

    moved_bytes: Floats
    link_share: Floats


def link_traffic(
    configurations: ConfigurationArray, capacity: tuple[int, ...], row_bytes: Floats, dense_bytes: float
) -> LinkTraffic:
    """Computes the traffic of configurations, float64 [n, 4], whose processes are placed as in plans. capacity: cores
    of each host. row_bytes: float64 [n], bytes of the rows of a batch of one worker, each way. dense_bytes: bytes of
    the dense part."""
    shares = [_shares(int(workers), int(servers), capacity) for workers, servers in configurations[:, :2]]
    a = np.array([of_workers for of_workers, _ in shares])
    b = np.array([of_servers for _, of_servers in shares])
    rows, elsewhere = row_bytes[:, None], 1.0 - a[:, :1]
    moved = (rows * a * (1.0 - b)).sum(axis=1) + dense_bytes * elsewhere[:, 0]
    through = rows * (a * (1.0 - b) + (1.0 - a) * b) + dense_bytes * np.hstack([elsewhere, a[:, 1:]])
    busiest = through.max(axis=1)
    return LinkTraffic(moved, np.divide(busiest, moved, out=np.ones_like(moved), where=moved > 0))


def _shares(workers: int, servers: int, capacity: tuple[int, ...]) -> tuple[list[float], list[float]]:
    """The share of the workers and the share of the PS on each host, placed as in plans."""
    hosts = range(len(capacity))
    by_worker = hosts_of_workers({}, range(workers), capacity)
    by_server = hosts_of_servers({}, range(servers), usable_hosts(len(capacity), capacity))
    of_workers = [list(by_worker.values()).count(host) / workers for host in hosts]
    return of_workers, [list(by_server.values()).count(host) / servers for host in hosts]
