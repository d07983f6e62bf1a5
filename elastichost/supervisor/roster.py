"""Who owns which buckets and who counts as a worker: performs what `handover` decides, publishes memberships."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elastichost.plan import ProcessId, ProcessSpec
from elastichost.sharding import ShardMap, even_shard_map, rebalanced_shard_map
from elastichost.specs import TableSpec
from elastichost.supervisor.handover import HandOver, HandOverEffect, Publish, SendMap
from elastichost.supervisor.lifecycle import Event, State
from elastichost.supervisor.observed import ProcessRecord
from elastichost.supervisor.recovery import Holdings
from elastichost.supervisor.run import Run
from elastichost.wire.control import Membership, Ready, Restore, ShardMapUpdate
from elastichost.wire.facts import CommittedBatch, ServerAddress

__all__ = ["Roster"]


class Roster:
    """Publishes owners and members. `restore_from`: the checkpoint that PS fill their buckets from at first."""

    def __init__(self, run: Run, tables: tuple[TableSpec, ...], restore_from: Path | None) -> None:
        self._run = run
        servers = tuple(spec.index for spec in run.plan.servers)
        self._hand_over = HandOver(even_shard_map(tables, servers, epoch=0))
        self._made_for = frozenset(servers)  # the PS of the plan that the owners were chosen by; some may own nothing
        self._is_over = False
        self._restore_from = restore_from
        self._restored: set[int] = set()
        self._published: tuple[ProcessId, ...] = ()
        self._moves: list[tuple[int, float]] = []
        self._members: dict[int, int] = {}
        self._member_epoch = 0

    # --- PS -------------------------------------------------------------------------------------------------

    @property
    def shard_map(self) -> ShardMap:
        """As workers know it."""
        return self._hand_over.present

    @property
    def was_published(self) -> bool:
        """Workers know where the PS are, or were: they wait by themselves for one that is being replaced."""
        return bool(self._published)

    @property
    def is_published(self) -> bool:
        """Every PS serves, nothing changes hands, and everyone was told of exactly these lives."""
        serving = {record.process for record in self._run.fleet.working("server")}
        return self._hand_over.is_settled and serving >= set(self._published)

    @property
    def holdings(self) -> Holdings:
        """Who may not be missing, for `reconcile`."""
        if self._is_over:
            return Holdings()
        return Holdings(self._hand_over.owners, self._hand_over.is_settled and self._made_for == self._wanted())

    @property
    def dense_owner(self) -> ProcessId | None:
        """The life that owns the dense vector now; None while there is none."""
        record = self._run.fleet.named("server", self.shard_map.dense_owner)
        return record.process if record is not None and record.can_work else None

    @property
    def servers(self) -> tuple[ProcessSpec, ...]:
        """The PS that buckets were shared out to last, owners or not."""
        known = {record.process.index: record.spec for record in self._run.fleet if record.process.role == "server"}
        known |= {spec.index: spec for spec in self._run.plan.servers}
        return tuple(known[index] for index in sorted(self._made_for))

    def take_moves(self) -> list[tuple[int, float]]:
        """(buckets, seconds from freeze to publish) of the hand-overs since the last call."""
        moves, self._moves = self._moves, []
        return moves

    def retire(self) -> None:
        """The run ends: nobody has to own anything any more."""
        self._is_over = True

    def follow_plan(self) -> None:
        """Begins to hand over when the plan wants other PS and those have come. Call it while no checkpoint is open."""
        wanted, fleet = self._wanted(), self._run.fleet
        if not self._hand_over.is_settled or wanted == self._made_for or not wanted:
            return
        there = {r.process.index for r in fleet.live("server") if r.state == State.CONNECTED or r.can_work}
        if not wanted <= there:
            return
        target = rebalanced_shard_map(self.shard_map, sorted(wanted))
        self._made_for = wanted
        self._run.note(
            "decision",
            f"hand over: {_named(self.shard_map)} -> {_named(target)}: {self._run.plan.reason}",
            data={"servers": sorted(target.servers()), "epoch": self.shard_map.epoch},
        )
        self._perform(self._hand_over.begin(target, self._run.now_s()))

    def _wanted(self) -> frozenset[int]:
        return frozenset(spec.index for spec in self._run.plan.servers)

    def server_connected(self, record: ProcessRecord) -> None:
        """A PS said Hello: it learns its buckets (and what to fill them from), and answers Ready."""
        is_first = not self.was_published and record.process.index not in self._restored
        if self._restore_from is not None and is_first:
            self._run.send(record.process, Restore(str(self._restore_from)))
        self._perform(self._hand_over.connected(record.process, self._run.now_s()))
        self._run.send(record.process, self._membership())

    def server_ready(self, record: ProcessRecord, message: Ready) -> Publish | None:
        """A PS has a map. Returns what this publishes."""
        self._restored.add(record.process.index)
        return self._perform(self._hand_over.ready(record.process, message.shard_map_epoch, message.committed))

    def server_gone(self, process: ProcessId) -> None:
        self._hand_over.lost(process)

    def _perform(self, effects: tuple[HandOverEffect, ...]) -> Publish | None:
        published = None
        for effect in effects:
            match effect:
                case SendMap(servers=servers, shard_map=shard_map, committed=committed):
                    update, frames = self._update(shard_map, committed), _frames(shard_map)
                    self._run.send_all(servers, update, frames)
                case Publish():
                    published = effect
                    self._publish(effect)
        return published

    def _publish(self, published: Publish) -> None:
        """Workers get the map that every PS has: PS refuse requests of any other."""
        self._published = published.lives
        update, frames, now_s = self._update(published.shard_map), _frames(published.shard_map), self._run.now_s()
        for record in self._run.fleet.working("server"):
            if record.process in published.lives:
                self._run.fleet.apply(record, Event.WORK, now_s)
        for record in self._run.fleet.live("worker"):
            if record.state not in (State.REQUESTED, State.STARTED, State.KILLING):
                self._run.send(record.process, update, frames)
        took_s = now_s - published.began_s
        if published.moved and published.shard_map.epoch > 1:
            self._moves.append((published.moved, took_s))
        self._run.note(
            "shard_map",
            f"epoch {update.epoch}: {', '.join(map(str, published.lives))}"
            + (f"; {published.moved} buckets changed hands in {1000 * took_s:.0f} ms" if published.moved else ""),
            data={
                "epoch": update.epoch,
                "moved": published.moved,
                "took_s": took_s,
                "servers": [process.index for process in published.lives],
            },
        )

    def _addresses(self, shard_map: ShardMap) -> tuple[ServerAddress, ...]:
        owners = shard_map.servers()
        return tuple(
            ServerAddress(record.process.index, record.process.life, record.address)
            for record in sorted(self._run.fleet.live("server"), key=lambda record: record.process.index)
            if record.address and record.process.index in owners
        )

    def _update(self, shard_map: ShardMap, committed: tuple[CommittedBatch, ...] = ()) -> ShardMapUpdate:
        return ShardMapUpdate(shard_map.epoch, self._addresses(shard_map), shard_map.dense_owner, committed)

    # --- workers --------------------------------------------------------------------------------------------

    def worker_connected(self, record: ProcessRecord) -> None:
        """A worker said Hello: it counts from now on. While a PS is missing it gets the map when that is ready."""
        self._members[record.process.index] = record.process.life
        self._publish_members()
        if self.is_published:
            self._run.send(record.process, self._update(self.shard_map), _frames(self.shard_map))

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


def _frames(shard_map: ShardMap) -> list[bytes]:
    """Owner of each bucket, uint16, a frame for each table."""
    return [np.asarray(row, dtype=np.uint16).tobytes() for row in shard_map.owners]


def _named(shard_map: ShardMap) -> str:
    """`server-0: 52, server-1: 52 buckets`"""
    owners = sorted(shard_map.servers())
    return ", ".join(f"server-{index}: {len(shard_map.buckets_of(index))}" for index in owners) + " buckets"
