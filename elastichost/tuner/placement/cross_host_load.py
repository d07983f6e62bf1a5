"""Converts the requested keys of buckets to needed keys, where workers access rows of their own host in place. Pure.

With access by place, only workers of other hosts send requests to the PS of host h. Let

    a_h   share of the samples that workers of host h train
    T_b   keys of bucket b that all workers need
    A_b   keys of bucket b that its PS, on host h, is requested for

    A_b = T_b (1 - a_h)

With served access A_b = T_b. A bucket that moves to host g gets requests for T_b (1 - a_g) keys there.

The traffic on links is hardly a reason to move a bucket. Let R be the traffic of all rows and R_h that of the rows on
host h. The link of host h carries each way

    R_h (1 - a_h) + a_h (R - R_h)  =  a_h R + (1 - 2 a_h) R_h

With two equal hosts that is R / 2 for any place of the rows. With three equal hosts it is 4/9 R if the rows are spread
evenly, and (1 + s) / 3 R if host h has the share s of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from elastichost.tuner.placement.heat import BucketKey

__all__ = ["Requesters", "keys_needed", "requesters_of"]


class Requesters(msgspec.Struct, frozen=True):
    """The processes that send requests to PS. hosts: PS -> host. workers: host -> share of the samples that its workers
    train. is_by_place: workers send no requests to PS of their own host."""

    hosts: Mapping[int, int]
    workers: Mapping[int, float]
    is_by_place: bool

    def share(self, server: int) -> float:
        """The share of the needed keys of this PS' buckets that the PS gets requests for: 1 - a_h, or 1."""
        return 1.0 - self.workers.get(self.hosts[server], 0.0) if self.is_by_place else 1.0


def requesters_of(hosts: Mapping[int, int], workers: Iterable[tuple[int, float]], *, is_by_place: bool) -> Requesters:
    """Computes the shares of hosts. hosts: PS -> host. workers: (host, samples/s) of each worker."""
    rates: dict[int, float] = {}
    for host, samples_per_s in workers:
        rates[host] = rates.get(host, 0.0) + samples_per_s
    total = sum(rates.values())
    return Requesters(hosts, {host: rate / total for host, rate in rates.items()} if total > 0 else {}, is_by_place)


def keys_needed(
    asked: Mapping[BucketKey, float], owners: Mapping[BucketKey, int], askers: Requesters
) -> dict[BucketKey, float]:
    """Returns the keys of each bucket that all workers need, T_b, from the requested keys A_b. A PS without requests
    from other hosts gives no information, so the result of its buckets is 0."""
    shares = {server: askers.share(server) for server in set(owners.values())}
    return {key: asked[key] / share if (share := shares[owners[key]]) > 0 else 0.0 for key in owners}
