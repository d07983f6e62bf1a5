"""Which PS owns which key of a batch, and the batch cut along those lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled
from elastichost.arena.kernels import mix64
from elastichost.sharding import bucket_count, rows_per_bucket
from elastichost.specs import TableSpec
from elastichost.wire.messages import ServerAddress

__all__ = ["Directory", "ServerPart", "split_by_server"]


@dataclass(frozen=True, slots=True)
class Directory:
    """One epoch of the shard map with the addresses of that moment; `owners[table]` uint16 [buckets]."""

    epoch: int
    servers: dict[int, ServerAddress]
    dense_owner: int
    owners: tuple[npt.NDArray[np.uint16], ...]


@dataclass(frozen=True, slots=True)
class ServerPart:
    """The part of a batch's keys that one PS owns. `positions[table]`: where they stand in the table's keys, or
    None when that PS owns them all, in order."""

    server: int
    keys: dict[int, npt.NDArray[np.int64]]
    positions: dict[int, npt.NDArray[np.int64] | None]


@compiled
def _owners_dynamic(keys: npt.NDArray[np.int64], owners: npt.NDArray[np.uint16], shift: int) -> npt.NDArray[np.uint16]:
    out = np.empty(len(keys), dtype=np.uint16)
    for i in range(len(keys)):
        out[i] = owners[np.int64(mix64(keys[i]) >> np.uint64(shift))]
    return out


def owners_of(table: TableSpec, keys: npt.NDArray[np.int64], owners: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """PS index of every key (for a fixed table a key is its row), uint16 [keys]."""
    if table.is_dynamic:
        shift = 64 - bucket_count(table).bit_length() + 1
        return np.asarray(_owners_dynamic(keys, owners, shift))
    return np.asarray(owners[keys // rows_per_bucket(table)])


def split_by_server(
    tables: tuple[TableSpec, ...], keys: Mapping[int, npt.NDArray[np.int64]], directory: Directory
) -> tuple[ServerPart, ...]:
    """Cuts `keys` (table index -> unique keys) by owner; a PS that owns nothing of them is left out."""
    if len(directory.servers) == 1:
        (only,) = directory.servers
        return (ServerPart(only, dict(keys), dict.fromkeys(keys)),)
    parts: dict[int, ServerPart] = {}
    for table, table_keys in keys.items():
        owner = owners_of(tables[table], table_keys, directory.owners[table])
        for server in np.unique(owner):
            positions = np.flatnonzero(owner == server)
            part = parts.setdefault(int(server), ServerPart(int(server), {}, {}))
            part.keys[table] = table_keys[positions]
            part.positions[table] = positions
    return tuple(parts[server] for server in sorted(parts))
