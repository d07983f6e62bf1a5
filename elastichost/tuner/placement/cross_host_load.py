"""What buckets are asked for where workers use the rows of their own host in place. Pure.

With access by place only workers of other hosts ask the PS of host h: with a_h, the share of the samples that workers
of host h train, it is asked for

    A_b = T_b (1 - a_h)

keys of bucket b, of T_b that all workers need; with served access for all of them. A bucket that goes to host g is
asked for T_b (1 - a_g) keys there. How much crosses the links is hardly a reason to move it: with R for the traffic of
all rows and R_h for that of host h,

    R_h (1 - a_h) + a_h (R - R_h)  =  a_h R + (1 - 2 a_h) R_h

go through the link of host h each way. Of two equal hosts that is R / 2 wherever the rows are, of three it is 4/9 R
when they are spread evenly and (1 + s) / 3 R with a share s there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from elastichost.tuner.placement.heat import BucketKey

__all__ = ["Requesters", "keys_needed", "requesters_of"]


class Requesters(msgspec.Struct, frozen=True):
    """hosts: PS -> host. workers: host -> share of the samples that its workers train. is_by_place: workers ask no PS
    of their own host."""

    hosts: Mapping[int, int]
    workers: Mapping[int, float]
    is_by_place: bool

    def share(self, server: int) -> float:
        """Of all keys that workers need of this PS' buckets, what it is asked for."""
        return 1.0 - self.workers.get(self.hosts[server], 0.0) if self.is_by_place else 1.0


def requesters_of(hosts: Mapping[int, int], workers: Iterable[tuple[int, float]], *, is_by_place: bool) -> Requesters:
    """hosts: PS -> host; workers: host and samples/s of each."""
    rates: dict[int, float] = {}
    for host, samples_per_s in workers:
        rates[host] = rates.get(host, 0.0) + samples_per_s
    total = sum(rates.values())
    return Requesters(hosts, {host: rate / total for host, rate in rates.items()} if total > 0 else {}, is_by_place)


def keys_needed(
    asked: Mapping[BucketKey, float], owners: Mapping[BucketKey, int], askers: Requesters
) -> dict[BucketKey, float]:
    """Keys of each bucket that all workers need, from those that its PS was asked for. Of a PS that nobody asks nothing
    is known, and its buckets count nothing."""
    shares = {server: askers.share(server) for server in set(owners.values())}
    return {key: asked[key] / share if (share := shares[owners[key]]) > 0 else 0.0 for key in owners}
