"""Id -> bucket -> PS: pure arithmetic on who owns what.

A fixed table's buckets are equal consecutive row ranges; a dynamic table's are classes of the key's hash.
The shard map gives every bucket an owner and carries an epoch that only grows.
"""

from __future__ import annotations

import msgspec

from elastichost.specs import TableSpec

__all__ = [
    "BUCKETS_PER_TABLE",
    "ShardMap",
    "bucket_count",
    "bucket_of_hash",
    "even_shard_map",
    "mix64",
    "rows_per_bucket",
]

# Enough to spread a table over 16 PS and small enough that a tiny table wastes little (a page per bucket and file).
BUCKETS_PER_TABLE = 16
MIN_ROWS_PER_BUCKET = 1024
_MASK = (1 << 64) - 1


def bucket_count(table: TableSpec) -> int:
    """Number of buckets of a table: 16, fewer for small fixed tables. A power of two for dynamic tables."""
    if table.is_dynamic:
        return BUCKETS_PER_TABLE
    return max(1, min(BUCKETS_PER_TABLE, -(-table.rows // MIN_ROWS_PER_BUCKET)))


def rows_per_bucket(table: TableSpec) -> int:
    """Rows of each bucket of a fixed table (the last one may hold fewer)."""
    if table.is_dynamic:
        raise ValueError(f"table {table.name!r} is dynamic: its buckets grow")
    return -(-table.rows // bucket_count(table))


def mix64(key: int) -> int:
    """splitmix64's finaliser of an int64 key, as an unsigned 64-bit number (the numba kernels do the same)."""
    x = key & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def bucket_of_hash(mixed: int, buckets: int) -> int:
    """Bucket of a dynamic table's key: the top bits of `mix64(key)`; the low bits place it in the index."""
    return mixed >> (64 - buckets.bit_length() + 1)


class ShardMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`owners[table][bucket]` is a PS index; `dense_owner` owns the dense vector."""

    epoch: int
    owners: tuple[tuple[int, ...], ...]
    dense_owner: int

    def buckets_of(self, server: int) -> tuple[tuple[int, int], ...]:
        """(table, bucket) pairs that this PS owns."""
        return tuple(
            (table, bucket)
            for table, row in enumerate(self.owners)
            for bucket, owner in enumerate(row)
            if owner == server
        )

    def servers(self) -> frozenset[int]:
        return frozenset({self.dense_owner, *(owner for row in self.owners for owner in row)})


def even_shard_map(tables: tuple[TableSpec, ...], servers: tuple[int, ...], epoch: int) -> ShardMap:
    """Deals buckets round-robin, the start shifted from table to table so that small tables spread too."""
    if not servers:
        raise ValueError("a shard map needs at least one PS")
    owners = tuple(
        tuple(servers[(bucket + table.index) % len(servers)] for bucket in range(bucket_count(table)))
        for table in tables
    )
    return ShardMap(epoch=epoch, owners=owners, dense_owner=servers[0])
