"""A shard map as it is sent: to PS within a hand-over, to workers when it is published."""

from __future__ import annotations

import numpy as np

from elastichost.sharding import ShardMap
from elastichost.supervisor.run import Run
from elastichost.wire.control import ShardMapUpdate
from elastichost.wire.facts import CommittedBatch, ServerAddress

__all__ = ["map_frames", "map_update"]


def map_update(
    run: Run,
    shard_map: ShardMap,
    committed: tuple[CommittedBatch, ...] = (),
    moved: tuple[tuple[int, int], ...] = (),
    *,
    settles: bool = False,
) -> ShardMapUpdate:
    """With the addresses that its PS have now."""
    return ShardMapUpdate(
        epoch=shard_map.epoch,
        servers=_addresses(run, shard_map),
        dense_owner=shard_map.dense_owner,
        committed=committed,
        moved=moved,
        settles=settles,
        served=shard_map.served,
    )


def map_frames(shard_map: ShardMap) -> list[bytes]:
    """Owner of each bucket, uint16, a frame for each table."""
    return [np.asarray(row, dtype=np.uint16).tobytes() for row in shard_map.owners]


def _addresses(run: Run, shard_map: ShardMap) -> tuple[ServerAddress, ...]:
    owners = shard_map.servers()
    return tuple(
        run.address_of(record, record.process)
        for record in sorted(run.fleet.live("server"), key=lambda record: record.process.index)
        if record.address and record.process.index in owners
    )
