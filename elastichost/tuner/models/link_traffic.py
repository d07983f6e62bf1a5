"""What of a job's traffic crosses the links between hosts, from where its workers and PS are. Pure.

Symbols, for host h: a_h share of the workers, b_h share of the PS and so of the rows' traffic; R bytes of rows of a
batch each way, D bytes of the dense part each way (its owner is on host 0). Averaged over the workers, a batch moves
each way

    R sum_h a_h (1 - b_h)  +  D (1 - a_0)

to other hosts, and through the link of host h, in either direction, go

    R (a_h (1 - b_h) + (1 - a_h) b_h)  +  D (1 - a_0 for h = 0, else a_h)

for each of them: what its workers ask of others, and what others ask of its PS.
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
    """Of n configurations, float64 [n]: bytes each way that a batch of one worker moves to other hosts, and bytes each
    way through the busiest link for each batch of all workers over these (1: all of them go through it)."""

    moved_bytes: Floats
    link_share: Floats


def link_traffic(
    configurations: ConfigurationArray, capacity: tuple[int, ...], row_bytes: Floats, dense_bytes: float
) -> LinkTraffic:
    """configurations: float64 [n, 4]; capacity: cores of each host; row_bytes: float64 [n] of a batch of one worker,
    each way; dense_bytes: of the dense part."""
    shares = [_shares(int(workers), int(servers), capacity) for workers, servers in configurations[:, :2]]
    a = np.array([of_workers for of_workers, _ in shares])
    b = np.array([of_servers for _, of_servers in shares])
    rows, elsewhere = row_bytes[:, None], 1.0 - a[:, :1]
    moved = (rows * a * (1.0 - b)).sum(axis=1) + dense_bytes * elsewhere[:, 0]
    through = rows * (a * (1.0 - b) + (1.0 - a) * b) + dense_bytes * np.hstack([elsewhere, a[:, 1:]])
    busiest = through.max(axis=1)
    return LinkTraffic(moved, np.divide(busiest, moved, out=np.ones_like(moved), where=moved > 0))


def _shares(workers: int, servers: int, capacity: tuple[int, ...]) -> tuple[list[float], list[float]]:
    """Of each host, as plans deal them."""
    hosts = range(len(capacity))
    by_worker = hosts_of_workers({}, range(workers), capacity)
    by_server = hosts_of_servers({}, range(servers), usable_hosts(len(capacity), capacity))
    of_workers = [list(by_worker.values()).count(host) / workers for host in hosts]
    return of_workers, [list(by_server.values()).count(host) / servers for host in hosts]
