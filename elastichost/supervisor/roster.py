"""Who owns which buckets and who counts as a worker: shard maps and memberships, published with growing epochs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from elastichost.plan import ProcessId
from elastichost.sharding import ShardMap, even_shard_map
from elastichost.specs import TableSpec
from elastichost.supervisor.lifecycle import Event, State
from elastichost.supervisor.observed import ProcessRecord
from elastichost.supervisor.run import Run
from elastichost.wire.control import Membership, Restore, ShardMapUpdate
from elastichost.wire.facts import ServerAddress

__all__ = ["Roster"]


class Roster:
    """Publishes owners and members. `restore_from`: the checkpoint that PS fill their buckets from at first."""

    def __init__(self, run: Run, tables: tuple[TableSpec, ...], restore_from: Path | None) -> None:
        self._run = run
        servers = tuple(spec.index for spec in run.plan.servers)
        self.shard_map: ShardMap = even_shard_map(tables, servers, epoch=0)
        self._frames = [np.asarray(row, dtype=np.uint16).tobytes() for row in self.shard_map.owners]
        self._restore_from = restore_from
        self._restored: set[int] = set()
        self._published: tuple[ServerAddress, ...] = ()
        self._members: dict[int, int] = {}
        self._member_epoch = 0

    # --- PS -------------------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Every PS of the map is ready."""
        ready = {record.process.index for record in self._run.fleet.working("server")}
        return self.shard_map.servers() <= ready

    @property
    def was_published(self) -> bool:
        """Workers know where the PS are, or were: they wait by themselves for one that is being replaced."""
        return bool(self._published)

    @property
    def is_published(self) -> bool:
        """Every PS is ready and everyone was told of exactly these lives."""
        return self.is_complete and self._published == self._addresses()

    def server_connected(self, record: ProcessRecord) -> None:
        """A PS said Hello: it learns its buckets (and what to fill them from), and answers Ready."""
        if self._restore_from is not None and record.process.index not in self._restored:
            self._run.send(record.process, Restore(str(self._restore_from)))
        self._next_epoch()
        self._run.send(record.process, self._update(), self._frames)
        self._run.send(record.process, self._membership())

    def server_ready(self, record: ProcessRecord) -> None:
        self._restored.add(record.process.index)
        if self.is_complete and not self.is_published:
            self._publish()

    def _publish(self) -> None:
        """Everyone gets the same new epoch, PS first: they refuse requests of any other."""
        self._next_epoch()
        self._published = self._addresses()
        update, now_s = self._update(), self._run.now_s()
        for record in (*self._run.fleet.working("server"), *self._run.fleet.live("worker")):
            if record.process.role == "server":
                self._run.fleet.apply(record, Event.WORK, now_s)
            if record.pid and record.state.value not in ("requested", "started"):
                self._run.send(record.process, update, self._frames)
        lives = ", ".join(f"server-{server.index}.{server.life}" for server in self._published)
        self._run.note("shard_map", f"epoch {self.shard_map.epoch}: {lives}", data={"epoch": self.shard_map.epoch})

    def _next_epoch(self) -> None:
        self.shard_map = msgspec.structs.replace(self.shard_map, epoch=self.shard_map.epoch + 1)

    def _addresses(self) -> tuple[ServerAddress, ...]:
        return tuple(
            ServerAddress(record.process.index, record.process.life, record.address)
            for record in sorted(self._run.fleet.live("server"), key=lambda record: record.process.index)
            if record.address
        )

    def _update(self) -> ShardMapUpdate:
        return ShardMapUpdate(self.shard_map.epoch, self._addresses(), self.shard_map.dense_owner)

    @property
    def dense_owner(self) -> ProcessId | None:
        """The life that owns the dense vector now; None while there is none."""
        record = self._run.fleet.named("server", self.shard_map.dense_owner)
        return record.process if record is not None and record.can_work else None

    # --- workers --------------------------------------------------------------------------------------------

    def worker_connected(self, record: ProcessRecord) -> None:
        """A worker said Hello: it counts from now on. While a PS is missing it gets the map when that is ready."""
        self._members[record.process.index] = record.process.life
        self._publish_members()
        if self.is_published:
            self._run.send(record.process, self._update(), self._frames)

    def worker_gone(self, process: ProcessId) -> None:
        if self._members.get(process.index) == process.life:
            del self._members[process.index]
            self._publish_members()

    def _publish_members(self) -> None:
        self._member_epoch += 1
        message = self._membership()
        for record in (*self._run.fleet.live("server"), *self._run.fleet.live("worker")):
            if record.state in (State.CONNECTED, State.READY, State.RUNNING):
                self._run.send(record.process, message)

    def _membership(self) -> Membership:
        return Membership(self._member_epoch, tuple(sorted(self._members.items())))
