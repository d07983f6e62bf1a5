"""What PS are asked for where workers use the rows of their own host in place, and what of it crosses links. Pure.

Symbols, for host h: a_h share of the workers; of bucket b on host h: T_b keys a second that all workers need, d_b bytes
of a row. With access by place only workers of other hosts ask its PS, for

    A_b = T_b (1 - a_h)

and with served access all do: A_b = T_b. With both, through the link of host h go each way (rows one way, their
gradients the other)

    sum_{b on h} T_b d_b (1 - a_h)  +  a_h sum_{b not on h} T_b d_b
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from elastichost.tuner.heat import BucketKey

__all__ = ["Askers", "askers_of", "busiest_link", "keys_needed"]


class Askers(msgspec.Struct, frozen=True):
    """hosts: PS -> host. workers: host -> share of all workers. is_by_place: workers ask no PS of their own host."""

    hosts: Mapping[int, int]
    workers: Mapping[int, float]
    is_by_place: bool

    def elsewhere(self, server: int) -> float:
        """Share of the workers that are on other hosts than this PS."""
        return 1.0 - self.workers.get(self.hosts[server], 0.0)

    def share(self, server: int) -> float:
        """Of the workers, those that ask this PS."""
        return self.elsewhere(server) if self.is_by_place else 1.0


def askers_of(hosts: Mapping[int, int], workers: Iterable[int], *, is_by_place: bool) -> Askers:
    """hosts: PS -> host; workers: the host of each."""
    counts = Counter(workers)
    total = max(1, counts.total())
    return Askers(hosts, {host: count / total for host, count in counts.items()}, is_by_place)


def keys_needed(
    asked: Mapping[BucketKey, float], owners: Mapping[BucketKey, int], askers: Askers
) -> dict[BucketKey, float]:
    """Keys of each bucket that all workers need, from those that its PS was asked for. Of a PS that nobody asks nothing
    is known, and its buckets count nothing."""
    shares = {server: askers.share(server) for server in set(owners.values())}
    return {key: asked[key] / share if (share := shares[owners[key]]) > 0 else 0.0 for key in owners}


def busiest_link(
    needed: Mapping[BucketKey, float],
    owners: Mapping[BucketKey, int],
    askers: Askers,
    row_bytes: Mapping[int, int],
    bytes_per_s: Mapping[int, float],
) -> float:
    """How much of its speed the busiest link is used, from 0 up; 0 where none is known. needed: keys a second;
    row_bytes: of a row of each table; bytes_per_s: of the links of hosts, each way."""
    there, total = dict[int, float](), 0.0
    for key, owner in owners.items():
        size = needed[key] * row_bytes[key[0]]
        there[askers.hosts[owner]] = there.get(askers.hosts[owner], 0.0) + size
        total += size
    used = [0.0]
    for host, speed in bytes_per_s.items():
        own, share = there.get(host, 0.0), askers.workers.get(host, 0.0)
        if speed > 0:
            used.append((own * (1.0 - share) + share * (total - own)) / speed)
    return max(used)
