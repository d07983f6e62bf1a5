"""A shard map as PS and workers are told of it, and as people are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from elastichost.sharding import ShardMap
from elastichost.supervisor.core.handover import SendMap
from elastichost.wire.control import ShardMapUpdateMsg
from elastichost.wire.facts import ServerAddress

__all__ = ["for_servers", "for_workers", "owner_frames"]


def for_workers(
    shard_map: ShardMap, addresses: tuple[ServerAddress, ...], made_anew: Mapping[tuple[int, int], int]
) -> ShardMapUpdateMsg:
    """made_anew: (table, bucket) whose rows were lost -> epoch of the map by which they were made anew."""
    return ShardMapUpdateMsg(
        epoch=shard_map.epoch,
        servers=addresses,
        dense_owner=shard_map.dense_owner,
        made_anew=tuple((table, bucket, epoch) for (table, bucket), epoch in sorted(made_anew.items())),
        served=shard_map.served,
    )


def for_servers(sent: SendMap, addresses: tuple[ServerAddress, ...], checkpoint: Path | None) -> ShardMapUpdateMsg:
    """checkpoint: that lost buckets are filled from; None: there is none."""
    return ShardMapUpdateMsg(
        epoch=sent.shard_map.epoch,
        servers=addresses,
        dense_owner=sent.shard_map.dense_owner,
        committed=sent.committed,
        moved=sent.moved,
        settles=sent.settles,
        remade=sent.remade,
        checkpoint=str(checkpoint) if sent.remade and checkpoint is not None else "",
    )


def owner_frames(shard_map: ShardMap) -> list[bytes]:
    """Owner of each bucket, uint16, a frame for each table."""
    return [np.asarray(row, dtype=np.uint16).tobytes() for row in shard_map.owners]
