"""Changes which PS own which buckets: performs the effects of `core.handover`, and publishes shard maps and the list of
workers (the membership)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.plan import ProcessId, ProcessSpec
from elastichost.runs.events import BucketsMoving, HandoverReverted, HandoverStarted, ShardMapPublished
from elastichost.sharding import ShardMap, even_shard_map, rebalanced_shard_map
from elastichost.specs import TableSpec
from elastichost.supervisor.context import RunContext
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
    """Publishes shard maps and memberships. restore_from: the checkpoint that PS fill their buckets from at the start.
    left: after a supervisor that died, the batches that its workers had committed."""

    def __init__(
        self,
        run: RunContext,
        tables: tuple[TableSpec, ...],
        restore_from: Path | None,
        left: tuple[CommittedBatch, ...] | None = None,
    ) -> None:
        self._run = run
        servers = tuple(spec.index for spec in run.plan.servers)
        self._hand_over = HandOver(even_shard_map(tables, servers, epoch=0), left)
        self._made_for = frozenset(servers)  # the PS that buckets were last divided among; some may own none
        self._is_moving = False  # some of their buckets still have to move, in further rounds
        self._before = (self._made_for, False)  # both values before the hand-over that is under way
        self._mover = MigrationController(run, self._call_back)
        # requested owners among the PS of the plan, the reason, and the cause of the journal lines
        self._relocation: tuple[ShardMap, str, str] | None = None
        self._handover_cause = ""
        self._round_for, self._is_relocating = self._made_for, False  # of the last round that began
        self._is_over = self._stays = False
        self._restore_from = restore_from
        self._restored: set[int] = set()
        self._remake_from: Path | None = None  # the checkpoint from which buckets of lost hosts are rebuilt
        self._made_anew: dict[tuple[int, int], int] = {}  # (table, bucket) of lost hosts -> epoch of the rebuilding map
        self._published: tuple[ProcessId, ...] = ()
        self._moves: list[tuple[int, float]] = []
        self._members: dict[int, int] = {}
        self._delivery = ShardMapDelivery(run)
        self._member_epoch = 0

    # --- PS -------------------------------------------------------------------------------------------------

    @property
    def shard_map(self) -> ShardMap:
        """The shard map that workers have."""
        return self._hand_over.present

    @property
    def was_published(self) -> bool:
        """A first shard map was published. Workers wait themselves for a PS that is being replaced."""
        return bool(self._published)

    @property
    def is_published(self) -> bool:
        """No hand-over is under way, and every PS incarnation of the published map serves."""
        serving = {record.process for record in self._run.fleet.working("server")}
        return self._hand_over.is_settled and serving >= set(self._published)

    @property
    def holdings(self) -> Holdings:
        """The PS that must run, and whether the PS of the plan own all buckets, for `reconcile`."""
        if self._is_over:
            return Holdings()
        owners = self._hand_over.owners | self._mover.needed
        return Holdings(owners, self._hand_over.is_settled and self._is_reached and not self._mover.is_open)

    @property
    def _is_reached(self) -> bool:
        """The PS of the plan own the buckets, or a hand-over that gives them the buckets is under way."""
        is_there = self._relocation is None and not self._is_moving
        return self._made_for == self._wanted() and (self._stays or is_there)

    @property
    def may_cut(self) -> bool:
        """Whether a checkpoint may be taken: no hand-over is under way or due. The copy of rows to another host does
        not prevent it."""
        waits = self._mover.is_open or self._waits
        return self._hand_over.is_settled and (self._is_reached or waits)

    @property
    def dense_owner(self) -> ProcessId | None:
        """The incarnation that owns the dense vector; None while it is not at work."""
        record = self._run.fleet.named("server", self.shard_map.dense_owner)
        return record.process if record is not None and record.can_work else None

    @property
    def servers(self) -> tuple[ProcessSpec, ...]:
        """The PS that buckets were last divided among, including those that own none."""
        known = {record.process.index: record.spec for record in self._run.fleet if record.process.role == "server"}
        known |= {spec.index: spec for spec in self._run.plan.servers}
        return tuple(known[index] for index in sorted(self._made_for) if index in known)

    def take_moves(self) -> list[tuple[int, float]]:
        """(buckets, seconds from freeze to publish) of the hand-overs since the last call."""
        moves, self._moves = self._moves, []
        return moves

    def retire(self) -> None:
        """The run ends: PS need not own buckets any more, so they may stop."""
        self._is_over = True

    def stay(self) -> None:
        """The run was asked to stop: no further hand-over begins; one that is under way goes on."""
        self._stays = True

    def follow_plan(self) -> None:
        """Begins the hand-over or the round of moves that is due because the plan has other PS or a relocation was
        requested. It waits until all PS of the plan are connected, and until rows are copied that move to another host.
        Call it while no checkpoint is open."""
        wanted, fleet = self._wanted(), self._run.fleet
        if self._is_over or not self._hand_over.is_settled or not wanted:
            return
        if wanted != self._made_for:
            self._relocation = None
        if self._mover.is_open:
            self._follow_round(wanted)
            return
        if self.shard_map.served and not self._stays:
            self._mark(())  # left from a round that was aborted
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
        """The cause of the hand-over that is due."""
        return self._run.plan_cause if self._relocation is None else self._relocation[2]

    @property
    def _reason(self) -> str:
        return self._run.plan.reason if self._relocation is None else self._relocation[1]

    @property
    def _waits(self) -> bool:
        """The wait after an aborted round is not over."""
        is_wanted = self._relocation is None and self._wanted() == self._round_for
        return self._mover.waits or (is_wanted and self._mover.is_full)

    @property
    def full_s(self) -> float:
        """When a move to another host last failed for lack of memory."""
        return self._mover.full_s

    def may_take(self, host: int) -> bool:
        """Whether buckets may be moved to this host: it did not lack memory lately, or some has become free."""
        return self._mover.may_go_to(host)

    def refuse(self, host: int) -> bool:
        """Records that a host has no memory left. Returns True for the first time since a move to it succeeded."""
        return self._mover.refuse(host)

    def know_room(self, left_bytes: dict[int, int]) -> None:
        """left_bytes: host -> free part of its memory budget."""
        self._mover.left_bytes = left_bytes

    def relocate(self, target: ShardMap, reason: str) -> bool:
        """Requests these owners, which are PS of the plan on any host. `follow_plan` begins the moves; a plan with
        other PS cancels them. Returns False, and does nothing, while another hand-over is under way or due."""
        may_begin = self._hand_over.is_settled and self._is_reached and not (self._is_over or self._stays)
        if not may_begin or self._mover.is_open or not target.servers() <= self._made_for:
            return False
        self._relocation = target, reason, self._run.cause
        return True

    def rebalance(self, target: ShardMap, reason: str) -> bool:
        """Begins a hand-over to these owners, on the same hosts. Returns False, and does nothing, while another
        hand-over is under way or due. Call it while no checkpoint is open."""
        may_begin = self._hand_over.is_settled and self._is_reached and not (self._is_over or self._stays)
        if not may_begin or self._mover.is_open or moves_between(self.shard_map, target, self.hosts):
            return False
        self._begin(target, self._made_for, reason=reason, cause=self._run.cause)
        return True

    def _follow_round(self, wanted: frozenset[int]) -> None:
        if self._stays or wanted != self._round_for:
            self._mover.give_up("the plan has changed, or the run was asked to stop")
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
        """Publishes the same owners, with the buckets marked that workers may not use in place."""
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
        """The shard map to reach."""
        if self._relocation is None:
            goal = rebalanced_shard_map(self.shard_map, sorted(wanted))
        else:
            goal = msgspec.structs.replace(self._relocation[0], epoch=self.shard_map.epoch, served=())
        return with_dense_owner_on_host_0(goal, wanted, self.hosts)

    @property
    def hosts(self) -> dict[int, int]:
        """PS -> host, for all PS that run or are in the plan."""
        known = {record.process.index: record.spec for record in self._run.fleet if record.process.role == "server"}
        known |= {spec.index: spec for spec in self._run.plan.servers}
        return {index: spec.host for index, spec in known.items()}

    def _wanted(self) -> frozenset[int]:
        return frozenset(spec.index for spec in self._run.plan.servers)

    def server_connected(self, record: ProcessRecord) -> None:
        """A PS has connected: it is sent the checkpoint to restore from, the shard map and the membership."""
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
        """A PS has adopted a map. Returns the map that is published now; None: none is."""
        self._restored.add(record.process.index)
        return self._perform(self._hand_over.ready(record.process, message.shard_map_epoch, message.committed))

    def server_gone(self, process: ProcessId) -> None:
        """A PS incarnation has ended."""
        self._hand_over.lost(process)
        self._mover.lost(process)

    def lose(self, servers: frozenset[int], checkpoint: Path | None, reason: str) -> None:
        """The host of these PS is lost, with all their rows; the plan does not have them any more. PS of host 0 rebuild
        their buckets, from `checkpoint` if it is not None. Then the buckets are divided as the plan requires."""
        self._remake_from = checkpoint
        self._relocation, self._is_moving = None, False
        self._mover.gone(servers, reason)
        wanted, hosts = self._wanted(), self.hosts
        takers = frozenset(index for index in wanted if hosts[index] == 0)
        self._made_for = takers if servers & self.shard_map.servers() else self._made_for - servers
        self._perform(self._hand_over.gone(servers, sorted(takers), self._run.now_s()))

    def moving(self, record: ProcessRecord, message: BucketsMeasuredMsg | CopiedMsg | ForgottenMsg) -> None:
        """Takes a PS' answer to a request of a move."""
        full_s = self._mover.full_s
        self._mover.heard(record.process, message)
        if self._mover.full_s > full_s and self._is_relocating:  # no memory: the rebalancer decides again
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
        """Sends workers the map that every PS has. PS refuse requests with any other map."""
        self._published = published.incarnations
        self._made_anew |= dict.fromkeys(published.remade, published.shard_map.epoch)
        shard_map, now_s = published.shard_map, self._run.now_s()
        for record in self._run.fleet.working("server"):
            if record.process in published.incarnations:
                self._run.fleet.apply(record, LifecycleEvent.WORK, now_s)
        silent = (State.REQUESTED, State.STARTED, State.KILLING)
        workers = [record.process for record in self._run.fleet.live("worker") if record.state not in silent]
        self._delivery.tell_workers(workers, shard_map, self._made_anew)
        took_s = now_s - published.began_s
        if published.moved and shard_map.epoch > 1:
            self._moves.append((published.moved, took_s))
        # without a hand-over of this controller, the map is published because a PS was replaced
        cause, self._handover_cause = self._handover_cause or self._run.cause, ""
        incarnations = tuple(map(str, published.incarnations))
        self._run.note(ShardMapPublished(shard_map.epoch, incarnations, published.moved, took_s), cause)

    # --- workers --------------------------------------------------------------------------------------------

    def worker_connected(self, record: ProcessRecord) -> None:
        """A worker has connected and is a member from now on. It is sent the map now, or when all PS serve."""
        self._members[record.process.index] = record.process.incarnation
        self._publish_members()
        if self.is_published:
            self._delivery.tell_workers((record.process,), self.shard_map, self._made_anew)

    def admitted(self) -> None:
        """A PS has admitted a process. Workers that waited for this are sent the map."""
        if self.is_published and (waiting := self._delivery.waiting):
            self._delivery.tell_workers(waiting, self.shard_map, self._made_anew)

    def unmapped(self, worker: ProcessId, shard_map_epoch: int) -> None:
        """A worker uses no row in place by a map older than `shard_map_epoch` any more."""
        self._mover.unmapped(worker, shard_map_epoch)

    def worker_gone(self, process: ProcessId) -> None:
        """A worker incarnation has ended: it is not a member any more."""
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
    """Sorted indices of the PS that own buckets or the dense vector."""
    return tuple(sorted(shard_map.servers()))
