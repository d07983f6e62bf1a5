"""Sends the shard map to PS and workers, when they may have it.

With PS on several machines, a worker is sent their addresses only after all of them have admitted its key. ZeroMQ does
not retry a connection that was rejected: a worker that connects to a PS before the PS has its key stays rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from elastichost.plan import ProcessId
from elastichost.sharding import ShardMap
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.core.handover import SendMap
from elastichost.wire.control import ShardMapUpdateMsg
from elastichost.wire.facts import ServerAddress

__all__ = ["ShardMapDelivery"]


class ShardMapDelivery:
    """Sends shard maps. On one machine every process is sent them at once."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._kept_out: set[ProcessId] = set()

    @property
    def waiting(self) -> tuple[ProcessId, ...]:
        """Workers that some PS have not admitted yet."""
        return tuple(sorted(self._kept_out))

    @property
    def servers_know_each_other(self) -> bool:
        """Each PS has admitted the others, so buckets can be copied between them."""
        keyring = self._run.keyring
        incarnations = [record.process for record in self._run.fleet.live("server") if record.address]
        return keyring is None or all(keyring.is_known_to(one, other) for one in incarnations for other in incarnations)

    def greet(self, server: ProcessId) -> None:
        """A PS has connected: before anything else it is sent the keys that it may admit."""
        if self._run.keyring is not None:
            self._run.send(server, self._run.keyring.message())

    def tell_servers(self, sent: SendMap, checkpoint: Path | None) -> None:
        """Sends PS the map of a hand-over step. checkpoint: lost buckets are rebuilt from it; None: there is none."""
        shard_map = sent.shard_map
        update = ShardMapUpdateMsg(
            epoch=shard_map.epoch,
            servers=self._addresses(shard_map),
            dense_owner=shard_map.dense_owner,
            committed=sent.committed,
            moved=sent.moved,
            settles=sent.settles,
            remade=sent.remade,
            checkpoint=str(checkpoint) if sent.remade and checkpoint is not None else "",
        )
        self._run.send_all(sent.servers, update, _owner_frames(shard_map))

    def tell_workers(
        self, workers: Iterable[ProcessId], shard_map: ShardMap, made_anew: Mapping[tuple[int, int], int]
    ) -> None:
        """Sends the map to these workers. A worker that some PS has not admitted yet is kept in `waiting` instead; the
        caller calls again for it. made_anew: (table, bucket) whose rows were lost -> epoch of the map with which they
        were rebuilt."""
        update = ShardMapUpdateMsg(
            epoch=shard_map.epoch,
            servers=self._addresses(shard_map),
            dense_owner=shard_map.dense_owner,
            made_anew=tuple((table, bucket, epoch) for (table, bucket), epoch in sorted(made_anew.items())),
            served=shard_map.served,
        )
        frames = _owner_frames(shard_map)
        for worker in workers:
            self._kept_out.discard(worker)
            if self._is_admitted(worker, update.servers):
                self._run.send(worker, update, frames)
            else:
                self._kept_out.add(worker)

    def forget(self, worker: ProcessId) -> None:
        """A worker incarnation has ended."""
        self._kept_out.discard(worker)

    def _is_admitted(self, worker: ProcessId, servers: tuple[ServerAddress, ...]) -> bool:
        keyring = self._run.keyring
        incarnations = (ProcessId("server", server.index, server.incarnation) for server in servers)
        return keyring is None or all(keyring.is_known_to(worker, incarnation) for incarnation in incarnations)

    def _addresses(self, shard_map: ShardMap) -> tuple[ServerAddress, ...]:
        owners = shard_map.servers()
        return tuple(
            self._run.address_of(record, record.process)
            for record in sorted(self._run.fleet.live("server"), key=lambda record: record.process.index)
            if record.address and record.process.index in owners
        )


def _owner_frames(shard_map: ShardMap) -> list[bytes]:
    """One frame for each table: the owner of each bucket as uint16."""
    return [np.asarray(row, dtype=np.uint16).tobytes() for row in shard_map.owners]
