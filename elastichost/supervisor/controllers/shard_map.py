"""Who owns which buckets and who counts as a worker: performs what `handover` decides, publishes memberships."""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.plan import ProcessId, ProcessSpec
from elastichost.runs.events import BucketsMoving, HandoverReverted, HandoverStarted, ShardMapPublished
from elastichost.sharding import ShardMap, even_shard_map, rebalanced_shard_map
from elastichost.specs import TableSpec
from elastichost.supervisor.context import Run
from elastichost.supervisor.controllers.migration import MigrationController, moves_between, partly_moved
from elastichost.supervisor.controllers.processes import Holdings
from elastichost.supervisor.controllers.shard_map_delivery import ShardMapDelivery
from elastichost.supervisor.core.fleet import ProcessRecord
from elastichost.supervisor.core.handover import HandOver, HandOverEffect, Publish, SendMap, with_dense_owner_on_host_0
from elastichost.supervisor.core.lifecycle import LifecycleEvent, State
from elastichost.supervisor.remote.hosts import RESTORED
from elastichost.wire.control import (
    BucketsMeasuredMsg,
    CopiedMsg,
    ForgottenMsg,
    MembershipMsg,
    ReadyMsg,
    RestoreMsg,
)
from elastichost.wire.facts import CommittedBatch

__all__ = ["ShardMapController"]


class ShardMapController:
    """Publishes owners and members. `restore_from`: the checkpoint that PS fill their buckets from at first. left:
    after a supervisor that died, what its workers had committed of what is staged."""

    def __init__(
        self,
        run: Run,
        tables: tuple[TableSpec, ...],
        restore_from: Path | None,
        left: tuple[CommittedBatch, ...] | None = None,
    ) -> None:
        self._run = run
        servers = tuple(spec.index for spec in run.plan.servers)
        self._hand_over = HandOver(even_shard_map(tables, servers, epoch=0), left)
        self._made_for = frozenset(servers)  # the PS of the plan that the owners were chosen by; some may own nothing
        self._is_moving = False  # ... and do not all own yet what they are to: the rest goes in further rounds
        self._before = (self._made_for, False)  # both, before the hand-over that is under way
        self._mover = MigrationController(run, self._call_back)
        # other owners than the plan's, among the same PS; why; and the cause of the lines that tell of it
        self._relocation: tuple[ShardMap, str, str] | None = None
        self._handover_cause = ""
        self._round_for, self._is_relocating = self._made_for, False  # of the round that was begun last
        self._is_over = self._stays = False
        self._restore_from = restore_from
        self._restored: set[int] = set()
        self._remake_from: Path | None = None  # the checkpoint that buckets of lost hosts are filled from
        self._made_anew: dict[tuple[int, int], int] = {}  # of lost hosts: (table, bucket) -> epoch of the map
        self._published: tuple[ProcessId, ...] = ()
        self._moves: list[tuple[int, float]] = []
        self._members: dict[int, int] = {}
        self._delivery = ShardMapDelivery(run)
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
        """Every PS serves, nothing changes hands, and everyone was told of exactly these incarnations."""
        serving = {record.process for record in self._run.fleet.working("server")}
        return self._hand_over.is_settled and serving >= set(self._published)

    @property
    def holdings(self) -> Holdings:
        """Who may not be missing, for `reconcile`."""
        if self._is_over:
            return Holdings()
        owners = self._hand_over.owners | self._mover.needed
        return Holdings(owners, self._hand_over.is_settled and self._is_reached and not self._mover.is_open)

    @property
    def _is_reached(self) -> bool:
        """The buckets are where the plan wants them, or soon will be."""
        is_there = self._relocation is None and not self._is_moving
        return self._made_for == self._wanted() and (self._stays or is_there)

    @property
    def may_cut(self) -> bool:
        """A checkpoint can be taken: nothing changes hands, nor is about to. It need not wait for rows that are only
        being copied."""
        waits = self._mover.is_open or self._waits
        return self._hand_over.is_settled and (self._is_reached or waits)

    @property
    def dense_owner(self) -> ProcessId | None:
        """The incarnation that owns the dense vector now; None while there is none."""
        record = self._run.fleet.named("server", self.shard_map.dense_owner)
        return record.process if record is not None and record.can_work else None

    @property
    def servers(self) -> tuple[ProcessSpec, ...]:
        """The PS that buckets were shared out to last, owners or not."""
        known = {record.process.index: record.spec for record in self._run.fleet if record.process.role == "server"}
        known |= {spec.index: spec for spec in self._run.plan.servers}
        return tuple(known[index] for index in sorted(self._made_for) if index in known)

    def take_moves(self) -> list[tuple[int, float]]:
        """(buckets, seconds from freeze to publish) of the hand-overs since the last call."""
        moves, self._moves = self._moves, []
        return moves

    def retire(self) -> None:
        """The run ends: nobody has to own anything any more."""
        self._is_over = True

    def stay(self) -> None:
        """The run is asked to stop: nothing is to change hands any more but what is being handed over."""
        self._stays = True

    def follow_plan(self) -> None:
        """Begins to hand over when the plan wants other PS and those have come, and the rows that go to another host
        are there. Call it while no checkpoint is open."""
        wanted, fleet = self._wanted(), self._run.fleet
        if self._is_over or not self._hand_over.is_settled or not wanted:
            return
        if wanted != self._made_for:
            self._relocation = None
        if self._mover.is_open:
            self._follow_round(wanted)
            return
        if self.shard_map.served and not self._stays:
            self._mark(())  # of a round that was given up
            return
        if self._is_reached or self._waits:
            return
        there = {r.process.index for r in fleet.live("server") if r.state == State.CONNECTED or r.can_work}
        if not wanted <= there or not self._delivery.servers_know_each_other:
            return
        goal = self._goal(wanted)
        hosts = self.hosts
        moves = moves_between(self.shard_map, goal, hosts)
        if not moves:
            self._begin(goal, wanted)
            return
        self._round_for, self._is_relocating = wanted, self._relocation is not None
        if not self._mover.has_failed({hosts[move.target] for move in moves}):
            self._run.note(BucketsMoving(len(moves), self._reason), self._cause)
        self._mover.begin(moves, self._cause)

    @property
    def _cause(self) -> str:
        """Of the hand-over that is wanted."""
        return self._run.plan_cause if self._relocation is None else self._relocation[2]

    @property
    def _reason(self) -> str:
        return self._run.plan.reason if self._relocation is None else self._relocation[1]

    @property
    def _waits(self) -> bool:
        """It is too soon to try again what was given up last."""
        is_wanted = self._relocation is None and self._wanted() == self._round_for
        return self._mover.waits or (is_wanted and self._mover.is_full)

    @property
    def full_s(self) -> float:
        """When rows could not go to another host for want of memory, the last time."""
        return self._mover.full_s

    def may_take(self, host: int) -> bool:
        """Rows may be tried to go to that host: they did not fail to lately, or memory has become free since."""
        return self._mover.may_go_to(host)

    def refuse(self, host: int) -> bool:
        """Nothing can go to that host for now. Whether that is news."""
        return self._mover.refuse(host)

    def know_room(self, left_bytes: dict[int, int]) -> None:
        """host -> memory of its budget that is left."""
        self._mover.left_bytes = left_bytes

    def relocate(self, target: ShardMap, reason: str) -> bool:
        """Has buckets go to these owners, PS of the plan, whichever host they are on, as `follow_plan` is called; a
        plan with other PS takes its place. False, and nothing happens, while something else is to change hands."""
        may_begin = self._hand_over.is_settled and self._is_reached and not (self._is_over or self._stays)
        if not may_begin or self._mover.is_open or not target.servers() <= self._made_for:
            return False
        self._relocation = target, reason, self._run.cause
        return True

    def rebalance(self, target: ShardMap, reason: str) -> bool:
        """Hands buckets over to other owners on the same host. False, and nothing happens, while something else is to
        change hands. Call it while no checkpoint is open."""
        may_begin = self._hand_over.is_settled and self._is_reached and not (self._is_over or self._stays)
        if not may_begin or self._mover.is_open or moves_between(self.shard_map, target, self.hosts):
            return False
        self._begin(target, self._made_for, reason=reason, cause=self._run.cause)
        return True

    def _follow_round(self, wanted: frozenset[int]) -> None:
        if self._stays or wanted != self._round_for:
            self._mover.give_up("the plan is another one now")
        elif to_serve := self._mover.to_serve:
            self._mark(to_serve)
        elif self._mover.is_copied:
            goal, moves = self._goal(wanted), self._mover.moves
            is_last = len(moves) == len(moves_between(self.shard_map, goal, self.hosts))
            target = goal if is_last else partly_moved(self.shard_map, moves)
            self._mover.drain()
            made_for = wanted if is_last else self._made_for | wanted
            self._begin(target, made_for, tuple(move.key for move in moves), is_last=is_last)

    def _mark(self, served: tuple[tuple[int, int], ...]) -> None:
        """The same owners; workers learn which buckets they may not use in place."""
        marked = msgspec.structs.replace(self.shard_map, served=served)
        self._perform(self._hand_over.begin(marked, self._run.now_s()))

    def _begin(
        self,
        target: ShardMap,
        made_for: frozenset[int],
        moved: tuple[tuple[int, int], ...] = (),
        *,
        is_last: bool = True,
        reason: str = "",
        cause: str = "",
    ) -> None:
        self._before = (self._made_for, self._is_moving)
        self._made_for, self._is_moving = made_for, not is_last
        why, self._handover_cause = reason or self._reason, cause or self._cause
        self._relocation = None if is_last else self._relocation
        before, after = _owners(self.shard_map), _owners(target)
        self._run.note(HandoverStarted(self.shard_map.epoch, before, after, why), self._handover_cause)
        self._perform(self._hand_over.begin(target, self._run.now_s(), moved))

    def _call_back(self, reason: str) -> None:
        self._made_for, self._is_moving = self._before
        self._run.note(HandoverReverted(reason), self._handover_cause)
        self._perform(self._hand_over.call_back())

    def _goal(self, wanted: frozenset[int]) -> ShardMap:
        """Who is to own what."""
        if self._relocation is None:
            goal = rebalanced_shard_map(self.shard_map, sorted(wanted))
        else:
            goal = msgspec.structs.replace(self._relocation[0], epoch=self.shard_map.epoch, served=())
        return with_dense_owner_on_host_0(goal, wanted, self.hosts)

    @property
    def hosts(self) -> dict[int, int]:
        """PS -> host, of all there are or are to be."""
        known = {record.process.index: record.spec for record in self._run.fleet if record.process.role == "server"}
        known |= {spec.index: spec for spec in self._run.plan.servers}
        return {index: spec.host for index, spec in known.items()}

    def _wanted(self) -> frozenset[int]:
        return frozenset(spec.index for spec in self._run.plan.servers)

    def server_connected(self, record: ProcessRecord) -> None:
        """A PS said Hello: it learns its buckets (and what to fill them from), and answers Ready."""
        self._delivery.greet(record.process)
        is_first = not self.was_published and record.process.index not in self._restored
        if self._restore_from is not None and is_first:
            place = self._run.elsewhere.get(record.spec.host)
            source = str(self._restore_from) if place is None else f"{place.run_dir}/{RESTORED}"
            self._run.send(record.process, RestoreMsg(source))
        self._perform(self._hand_over.connected(record.process, self._run.now_s()))
        self._run.send(record.process, self._membership())
        self._mover.connected(record.process)

    def server_ready(self, record: ProcessRecord, message: ReadyMsg) -> Publish | None:
        """A PS has a map. Returns what this publishes."""
        self._restored.add(record.process.index)
        return self._perform(self._hand_over.ready(record.process, message.shard_map_epoch, message.committed))

    def server_gone(self, process: ProcessId) -> None:
        self._hand_over.lost(process)
        self._mover.lost(process)

    def lose(self, servers: frozenset[int], checkpoint: Path | None, reason: str) -> None:
        """The host of these PS is lost, with all their rows; the plan is without them already. PS of host 0 make what
        was theirs anew, from the checkpoint if there is one; then it is shared out as the plan wants it."""
        self._remake_from = checkpoint
        self._relocation, self._is_moving = None, False
        self._mover.gone(servers, reason)
        wanted, hosts = self._wanted(), self.hosts
        takers = frozenset(index for index in wanted if hosts[index] == 0)
        self._made_for = takers if servers & self.shard_map.servers() else self._made_for - servers
        self._perform(self._hand_over.gone(servers, sorted(takers), self._run.now_s()))

    def moving(self, record: ProcessRecord, message: BucketsMeasuredMsg | CopiedMsg | ForgottenMsg) -> None:
        """A PS answers what it was asked for a move to another host."""
        full_s = self._mover.full_s
        self._mover.heard(record.process, message)
        if self._mover.full_s > full_s and self._is_relocating:  # whoever wanted it may want something else now
            self._relocation, self._is_moving = None, False

    def _perform(self, effects: tuple[HandOverEffect, ...]) -> Publish | None:
        published = None
        for effect in effects:
            match effect:
                case SendMap():
                    self._delivery.tell_servers(effect, self._remake_from)
                case Publish():
                    published = effect
                    self._mover.commit(effect.shard_map)
                    self._publish(effect)
                    self._mover.published(effect.shard_map)
        return published

    def _publish(self, published: Publish) -> None:
        """Workers get the map that every PS has: PS refuse requests of any other."""
        self._published = published.incarnations
        self._made_anew |= dict.fromkeys(published.remade, published.shard_map.epoch)
        shard_map, now_s = published.shard_map, self._run.now_s()
        for record in self._run.fleet.working("server"):
            if record.process in published.incarnations:
                self._run.fleet.apply(record, LifecycleEvent.WORK, now_s)
        for record in self._run.fleet.live("worker"):
            if record.state not in (State.REQUESTED, State.STARTED, State.KILLING):
                self._delivery.tell_worker(record.process, shard_map, self._made_anew)
        took_s = now_s - published.began_s
        if published.moved and shard_map.epoch > 1:
            self._moves.append((published.moved, took_s))
        # without a hand-over of our own it is published because a parameter server has come back
        cause, self._handover_cause = self._handover_cause or self._run.cause, ""
        incarnations = tuple(map(str, published.incarnations))
        self._run.note(ShardMapPublished(shard_map.epoch, incarnations, published.moved, took_s), cause)

    # --- workers --------------------------------------------------------------------------------------------

    def worker_connected(self, record: ProcessRecord) -> None:
        """A worker said Hello: it counts from now on. While a PS is missing it gets the map when that is ready."""
        self._members[record.process.index] = record.process.incarnation
        self._publish_members()
        if self.is_published:
            self._tell(record.process)

    def admitted(self) -> None:
        """A PS has let somebody in: workers that waited for that learn where the PS are."""
        for process in self._delivery.waiting if self.is_published else ():
            self._tell(process)

    def _tell(self, worker: ProcessId) -> None:
        self._delivery.tell_worker(worker, self.shard_map, self._made_anew)

    def unmapped(self, worker: ProcessId, shard_map_epoch: int) -> None:
        """It uses no row in place any more by a map older than this one."""
        self._mover.unmapped(worker, shard_map_epoch)

    def worker_gone(self, process: ProcessId) -> None:
        self._delivery.forget(process)
        self._mover.worker_lost(process)
        if self._members.get(process.index) == process.incarnation:
            del self._members[process.index]
            self._publish_members()

    def _publish_members(self) -> None:
        self._member_epoch += 1
        message = self._membership()
        for record in self._run.fleet.live("server"):
            if record.state in (State.CONNECTED, State.READY, State.RUNNING):
                self._run.send(record.process, message)

    def _membership(self) -> MembershipMsg:
        return MembershipMsg(self._member_epoch, tuple(sorted(self._members.items())))


def _owners(shard_map: ShardMap) -> tuple[int, ...]:
    """Indices of the PS that own buckets, or the dense vector."""
    return tuple(sorted(shard_map.servers()))
