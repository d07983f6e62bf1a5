"""Finds the owner of each key or row of a batch, and splits the batch into one part per PS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.arena.kernels import kernel_ready, split_by_owner
from elastichost.errors import ProtocolError
from elastichost.sharding import bucket_count, rows_per_bucket
from elastichost.specs import TableSpec
from elastichost.wire.facts import ServerAddress

__all__ = ["Directory", "Router", "ServerPart", "key_divisors", "key_router", "row_router"]

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Directory:
    """One epoch of the shard map, with the addresses of the PS in that epoch.

    owners: per table uint16 [buckets], the index of the owning PS. made_anew: (table, bucket, epoch) of buckets whose
    rows were lost and were made anew in that epoch. served: (table, bucket) pairs whose rows no worker may use in
    place.
    """

    epoch: int
    servers: dict[int, ServerAddress]
    dense_owner: int
    owners: tuple[npt.NDArray[np.uint16], ...]
    made_anew: tuple[tuple[int, int, int], ...] = ()
    served: tuple[tuple[int, int], ...] = ()

    def is_traffic(self, server: int, host: int) -> bool:
        """Whether bytes between a process on `host` and this PS count as traffic: the PS is on another host, or all PS
        are on this one."""
        known = self.servers.get(server)
        is_elsewhere = known is not None and known.host != host
        return is_elsewhere or all(one.host == host for one in self.servers.values())

    def lost_since(self, epoch: int) -> tuple[tuple[int, int], ...]:
        """(table, bucket) pairs that were made anew after that epoch: rows pulled under it are no longer valid."""
        return tuple((table, bucket) for table, bucket, made in self.made_anew if made > epoch)


@dataclass(frozen=True, slots=True)
class ServerPart:
    """The items of a batch that one PS owns, table after table.

    items int64 [n]; bounds int64 [tables + 1]: table t has items[bounds[t] : bounds[t + 1]]; positions int64 [n]: the
    place of each item in the batch, or None when the part is the whole batch in its order.
    """

    server: int
    items: Int64
    bounds: Int64
    positions: Int64 | None


@dataclass(frozen=True, slots=True)
class _Owners:
    """A Directory in the kernel's form.

    owners uint16: of the buckets of all tables, table after table; first_owners: where each table begins in it;
    part_of_server: from PS index to number of the part.
    """

    epoch: int
    servers: tuple[int, ...]
    owners: npt.NDArray[np.uint16]
    first_owners: Int64
    part_of_server: Int64


def _owners(directory: Directory) -> _Owners:
    servers, owners = tuple(sorted(directory.servers)), np.concatenate(directory.owners)
    if not set(np.unique(owners).tolist()) <= set(servers):
        raise ProtocolError(f"shard map {directory.epoch} gives buckets to a PS that it does not list: {servers}")
    part_of_server = np.zeros(servers[-1] + 1, np.int64)
    part_of_server[list(servers)] = np.arange(len(servers))
    first_owners = np.cumsum([0, *(len(of_table) for of_table in directory.owners[:-1])])
    return _Owners(directory.epoch, servers, owners, first_owners, part_of_server)


class Router:
    """Splits items (keys or row numbers) by owner.

    The bucket of an item of table t is item // divisors[t] when the divisor is positive, otherwise the item's hash
    shifted right by -divisors[t]. With `may_miss` an item may be -1 (no row); it belongs to no part.
    """

    def __init__(self, divisors: Sequence[int], *, may_miss: bool) -> None:
        self._divisors = np.array(divisors, np.int64)
        self._may_miss = may_miss
        self._owners: _Owners | None = None

    def split(self, items: Int64, bounds: Int64, directory: Directory) -> tuple[ServerPart, ...]:
        """One part for each PS that owns some of the items. items int64 [n]; table t has items[bounds[t] :
        bounds[t + 1]]."""
        if len(items) == 0:
            return ()
        if len(directory.servers) == 1 and not (self._may_miss and items.min() < 0):
            (only,) = directory.servers
            return (ServerPart(only, items, bounds, None),)
        if self._owners is None or self._owners.epoch != directory.epoch:
            self._owners = _owners(directory)
        known = self._owners
        counts = np.zeros((len(known.servers), len(self._divisors)), np.int64)
        positions, sorted_items, workspace = (np.empty(len(items), np.int64) for _ in range(3))
        split_by_owner(
            kernel_ready(items),
            bounds,
            self._divisors,
            known.owners,
            known.first_owners,
            known.part_of_server,
            workspace,
            counts,
            positions,
            sorted_items,
        )
        return tuple(_parts(known.servers, counts, positions, sorted_items))


def _parts(servers: Sequence[int], counts: Int64, positions: Int64, sorted_items: Int64) -> list[ServerPart]:
    parts: list[ServerPart] = []
    start = 0
    for server, of_tables in zip(servers, counts, strict=True):
        bounds = np.concatenate([[0], np.cumsum(of_tables)])
        stop = start + int(bounds[-1])
        if stop > start:
            parts.append(ServerPart(server, sorted_items[start:stop], bounds, positions[start:stop]))
        start = stop
    return parts


def key_divisors(tables: Sequence[TableSpec]) -> list[int]:
    """The `Router` divisors for keys. The key of a fixed table is its row number."""
    return [bucket_count(t).bit_length() - 65 if t.is_dynamic else rows_per_bucket(t) for t in tables]


def key_router(tables: Sequence[TableSpec]) -> Router:
    """A router for keys. The key of a fixed table is its row number."""
    return Router(key_divisors(tables), may_miss=False)


def row_router(bucket_rows: Sequence[int]) -> Router:
    """A router for row numbers, which may be -1. bucket_rows: per table, row numbers per bucket of its row space."""
    return Router(bucket_rows, may_miss=True)
