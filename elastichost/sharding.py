"""Id -> bucket -> PS: which parameter server owns which bucket. Pure.

The buckets of a fixed table are consecutive row ranges of equal size. The buckets of a dynamic table are classes of the
key's hash. The shard map names the owner of every bucket and has an epoch that only grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heapreplace
from itertools import cycle

import msgspec

from elastichost.specs import MAX_SERVERS, TableSpec

__all__ = [
    "BUCKETS_PER_TABLE",
    "MAX_SERVERS",
    "NOBODY",
    "ShardMap",
    "bucket_count",
    "bucket_of_hash",
    "even_shard_map",
    "mix64",
    "moved_buckets",
    "rebalanced_shard_map",
    "rows_per_bucket",
    "taken_over",
    "without_moving",
    "without_servers",
]

# Enough to spread a table over 16 PS, and few enough that a tiny table wastes little: a page per bucket and file.
BUCKETS_PER_TABLE = 16
MIN_ROWS_PER_BUCKET = 1024
NOBODY = 0xFFFF  # the owner of a bucket during a hand-over; no PS has this index
_MASK = (1 << 64) - 1


def bucket_count(table: TableSpec) -> int:
    """The number of buckets of a table: 16, or fewer for small fixed tables. A power of two for dynamic tables."""
    if table.is_dynamic:
        return BUCKETS_PER_TABLE
    return max(1, min(BUCKETS_PER_TABLE, -(-table.rows // MIN_ROWS_PER_BUCKET)))


def rows_per_bucket(table: TableSpec) -> int:
    """The number of rows in each bucket of a fixed table; the last bucket may hold fewer."""
    if table.is_dynamic:
        raise ValueError(f"table {table.name!r} is dynamic: its buckets have no fixed number of rows")
    return -(-table.rows // bucket_count(table))


def mix64(key: int) -> int:
    """splitmix64's finaliser of an int64 key, as an unsigned 64-bit number. The numba kernels compute the same."""
    x = key & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def bucket_of_hash(mixed: int, buckets: int) -> int:
    """The bucket of a dynamic table's key: the top bits of `mix64(key)`. The low bits are its place in the index."""
    return mixed >> (64 - buckets.bit_length() + 1)


class ShardMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`owners[table][bucket]` is the index of a PS, or NOBODY during a hand-over. `dense_owner` owns the dense vector.
    served: the (table, bucket) pairs whose rows no worker may use in place, because they will move to another host."""

    epoch: int
    owners: tuple[tuple[int, ...], ...]
    dense_owner: int
    served: tuple[tuple[int, int], ...] = ()

    def buckets_of(self, server: int) -> tuple[tuple[int, int], ...]:
        """The (table, bucket) pairs that this PS owns."""
        return tuple(
            (table, bucket)
            for table, row in enumerate(self.owners)
            for bucket, owner in enumerate(row)
            if owner == server
        )

    def servers(self) -> frozenset[int]:
        """The PS that own a bucket or the dense vector."""
        return frozenset({self.dense_owner, *(owner for row in self.owners for owner in row)} - {NOBODY})


def even_shard_map(tables: tuple[TableSpec, ...], servers: tuple[int, ...], epoch: int) -> ShardMap:
    """Assigns buckets to PS round-robin. Each table starts at the next PS, so that small tables are spread too."""
    if not servers:
        raise ValueError("a shard map needs at least one PS")
    owners = tuple(
        tuple(servers[(bucket + table.index) % len(servers)] for bucket in range(bucket_count(table)))
        for table in tables
    )
    return ShardMap(epoch=epoch, owners=owners, dense_owner=servers[0])


def rebalanced_shard_map(present: ShardMap, servers: Sequence[int]) -> ShardMap:
    """The same buckets over these PS, with the fewest moves: afterwards the PS' numbers of buckets differ by at most
    one. The moved buckets are chosen so that each table stays spread. The dense vector moves only when its owner
    leaves, to the lowest index. The result depends only on the arguments; the epoch stays. Raises ValueError without
    PS."""
    if not servers:
        raise ValueError("a shard map needs at least one PS")
    staying = sorted(set(servers))
    owners = [list(row) for row in present.owners]
    held = {server: [row.count(server) for row in owners] for server in staying}
    room = _room(held, sum(map(len, owners)))
    for table, bucket in _to_move(owners, held, room):
        taker = min((s for s in staying if room[s] > 0), key=lambda s: (held[s][table], -room[s], s))
        owners[table][bucket] = taker
        held[taker][table] += 1
        room[taker] -= 1
    dense_owner = present.dense_owner if present.dense_owner in held else staying[0]
    return ShardMap(epoch=present.epoch, owners=tuple(map(tuple, owners)), dense_owner=dense_owner)


def _room(held: dict[int, list[int]], buckets: int) -> dict[int, int]:
    """The number of buckets that each PS gains, or gives away if negative. When the buckets do not divide evenly, the
    PS with the most buckets keep one more."""
    least, odd = divmod(buckets, len(held))
    ranked = sorted(held, key=lambda server: (-sum(held[server]), server))
    return {server: least + (rank < odd) - sum(held[server]) for rank, server in enumerate(ranked)}


def _to_move(owners: list[list[int]], held: dict[int, list[int]], room: dict[int, int]) -> Iterator[tuple[int, int]]:
    """The (table, bucket) pairs to move: first those whose owner leaves, then the surplus of each PS, each time from
    the table of which that PS holds the largest share. Updates `held` and `room` of the PS that gives."""
    for table, row in enumerate(owners):
        for bucket, owner in enumerate(row):
            if owner not in held:
                yield table, bucket
    for giver in sorted(held):
        mine = held[giver]
        heap = [(-count / len(owners[table]), table) for table, count in enumerate(mine) if count]
        heapify(heap)
        while room[giver] < 0:
            _, table = heap[0]
            mine[table] -= 1
            room[giver] += 1
            heapreplace(heap, (-mine[table] / len(owners[table]), table))
            yield table, max(bucket for bucket, owner in enumerate(owners[table]) if owner == giver)


def moved_buckets(before: ShardMap, after: ShardMap) -> int:
    """The number of buckets whose owner differs between the two maps."""
    pairs = zip(before.owners, after.owners, strict=True)
    return sum(old != new for row, now in pairs for old, new in zip(row, now, strict=True))


def without_moving(before: ShardMap, after: ShardMap) -> ShardMap:
    """The owners on which both maps agree; all else is NOBODY's. The epoch is that of `before`."""

    def common(old: int, new: int) -> int:
        return old if old == new else NOBODY

    return ShardMap(
        epoch=before.epoch,
        owners=tuple(tuple(map(common, old, new)) for old, new in zip(before.owners, after.owners, strict=True)),
        dense_owner=common(before.dense_owner, after.dense_owner),
    )


def without_servers(present: ShardMap, gone: frozenset[int]) -> ShardMap:
    """The map in which the buckets of the given PS are NOBODY's. The epoch stays."""
    owners = tuple(tuple(NOBODY if owner in gone else owner for owner in row) for row in present.owners)
    return msgspec.structs.replace(present, owners=owners)


def taken_over(present: ShardMap, takers: Sequence[int]) -> ShardMap:
    """The map in which the buckets of NOBODY go to the takers in turn; no other bucket moves. The epoch stays. Raises
    ValueError without takers."""
    if not takers:
        raise ValueError("no PS is left to take buckets over")
    following = cycle(sorted(takers))
    owners = tuple(tuple(next(following) if owner == NOBODY else owner for owner in row) for row in present.owners)
    return msgspec.structs.replace(present, owners=owners)
