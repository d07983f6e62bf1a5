"""Performs the effects of `core.migration`: moves buckets to the arena of another host, one round after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator

from elastichost.clock.backoff import backoff_s
from elastichost.plan import ProcessId
from elastichost.runs.events import BucketsMoved, MoveAborted
from elastichost.sharding import NOBODY, ShardMap
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.core.backoff import Retries, failed, may_try, succeeded, waits_s
from elastichost.supervisor.core.lifecycle import State
from elastichost.supervisor.core.migration import (
    CallBack,
    Copy,
    Forget,
    Keep,
    Measure,
    Migration,
    MigrationEffect,
    MigrationState,
    Move,
)
from elastichost.wire.control import (
    BucketsMeasuredMsg,
    CopiedMsg,
    CopyBucketsMsg,
    ForgetBucketsMsg,
    ForgottenMsg,
    KeepBucketsMsg,
    MeasureBucketsMsg,
)
from elastichost.wire.crash import crash_point
from elastichost.wire.facts import BucketMove, ServerAddress

__all__ = ["MigrationController", "moves_between", "partly_moved"]

RETRY_S = 1.0  # wait after a round that was aborted; doubled with each further one in a row, up to MOST_RETRY_S
MOST_RETRY_S = 60.0


class MigrationController:
    """Runs one round at a time. call_back: calls back the hand-over of the present round."""

    def __init__(self, run: RunContext, call_back: Callable[[str], None]) -> None:
        self._run, self._call_back = run, call_back
        self._numbers = itertools.count(1)
        self._round: Migration | None = None
        self._began_s = self._drained_s = 0.0
        self.cause = ""  # cause of the journal lines of the round
        self._given_up = 0  # rounds in a row that were aborted
        self._not_before_s = 0.0
        self._retries = Retries()  # of hosts that had no memory left
        self._full_host: int | None = None  # the host that had no memory left in the last round; None: none
        self.left_bytes: dict[int, int] = {}  # host -> free part of its memory budget, where it is known
        self.full_s = -math.inf  # when a round was last aborted for lack of memory

    # --- facts ----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """A round is under way, or its memory is being freed."""
        return self._round is not None

    @property
    def to_serve(self) -> tuple[tuple[int, int], ...]:
        """(table, bucket) that a shard map has to mark as served before they can be copied."""
        return self._round.buckets if self._round is not None and self._round.has_to_be_served else ()

    @property
    def is_copied(self) -> bool:
        """The hand-over of `moves` may begin."""
        return self._round is not None and self._round.is_copied

    @property
    def is_draining(self) -> bool:
        return self._round is not None and self._round.state == MigrationState.DRAINING

    @property
    def moves(self) -> tuple[Move, ...]:
        return self._round.moves if self._round is not None else ()

    @property
    def needed(self) -> frozenset[int]:
        """PS that must run, whether or not they own buckets."""
        return self._round.needed if self._round is not None else frozenset()

    @property
    def waits(self) -> bool:
        """A round was aborted, and the wait before the next one is not over."""
        return self._run.now_s() < self._not_before_s

    @property
    def is_full(self) -> bool:
        """The last round was aborted for lack of memory, and none has become free since."""
        return self._full_host is not None and not self.may_go_to(self._full_host)

    def may_go_to(self, host: int) -> bool:
        """Whether buckets may be moved to this host: it did not lack memory lately, or some has become free."""
        return may_try(self._retries, _name(host), self._run.now_s(), self.left_bytes.get(host))

    def has_failed(self, hosts: Iterable[int]) -> bool:
        """Whether the last move to one of these hosts failed for lack of memory."""
        return any(_name(host) in self._retries.known for host in hosts)

    def refuse(self, host: int) -> bool:
        """Records that a host has no memory left. Returns True for the first time since a move to it succeeded."""
        self._retries, is_news = failed(self._retries, _name(host), self._run.now_s(), self.left_bytes.get(host))
        return is_news

    # --- the course of a round ------------------------------------------------------------------------------

    def begin(self, moves: tuple[Move, ...], cause: str) -> None:
        """Begins a round with as many of these moves as it may have. cause: of its journal lines."""
        self._began_s, self.cause = self._run.now_s(), cause
        there = [record.process for record in self._run.fleet.live("server") if record.address]
        self._round = Migration(moves, there, self._numbers, are_mapped=self._run.plan.access == "mixed")
        self._perform(self._round.begin())

    def drain(self) -> None:
        """The hand-over of `moves` begins."""
        assert self._round is not None
        self._drained_s = self._run.now_s()
        self._round.drain()

    def give_up(self, reason: str) -> None:
        """Aborts a round that is not draining yet. A later one is not stopped, because it is soon done."""
        early = (MigrationState.PLANNED, MigrationState.UNMAPPING, MigrationState.COPYING)
        if self._round is not None and self._round.state in early:
            self._perform(self._round.abort(reason))

    def commit(self, shard_map: ShardMap) -> None:
        """Every PS has this map, and no worker has it yet. The line of the journal written here commits the moves."""
        if not self.is_draining:
            return
        assert self._round is not None
        crash_point("supervisor.move.before_commit")
        self._round.adopted()
        now_s, moves = self._run.now_s(), self._round.moves
        self._run.note(
            BucketsMoved(
                buckets=len(moves),
                bytes=self._round.bytes,
                seconds=now_s - self._began_s,
                drained_s=now_s - self._drained_s,
                epoch=shard_map.epoch,
            ),
            self.cause,
        )
        self._given_up, self._full_host = 0, None
        for host in {self._host(target) for target in self._round.targets}:
            self._retries = succeeded(self._retries, _name(host))
        crash_point("supervisor.move.after_commit")

    def published(self, shard_map: ShardMap) -> None:
        """Workers were sent this map."""
        if self._round is None:
            return
        if self._round.state == MigrationState.COMMITTED:
            self._perform(self._round.published())
        elif self.to_serve and set(self.to_serve) <= set(shard_map.served):
            self._perform(self._round.served(shard_map.epoch, self._mapping_workers()))

    def _mapping_workers(self) -> Iterator[ProcessId]:
        """Workers on the hosts that the buckets leave, if they may have an older map."""
        assert self._round is not None
        hosts = {self._host(source) for source in self._round.sources}
        for record in self._run.fleet.live("worker"):
            if record.spec.host in hosts and record.state not in (State.REQUESTED, State.STARTED):
                yield record.process

    # --- workers --------------------------------------------------------------------------------------------

    def unmapped(self, worker: ProcessId, epoch: int) -> None:
        """A worker uses no row in place by a shard map older than `epoch` any more."""
        if self._round is not None:
            self._perform(self._round.unmapped(worker, epoch))

    def worker_lost(self, worker: ProcessId) -> None:
        if self._round is not None:
            self._perform(self._round.worker_lost(worker))

    # --- PS -------------------------------------------------------------------------------------------------

    def connected(self, server: ProcessId) -> None:
        if self._round is not None:
            self._perform(self._round.connected(server))

    def lost(self, server: ProcessId) -> None:
        if self._round is not None:
            self._perform(self._round.lost(server))

    def gone(self, servers: frozenset[int], reason: str) -> None:
        """The host of these PS is lost."""
        if self._round is not None:
            self._perform(self._round.gone(servers, reason))

    def heard(self, server: ProcessId, message: BucketsMeasuredMsg | CopiedMsg | ForgottenMsg) -> None:
        """Takes an answer of a PS. An answer to a round that is over has no effect."""
        if self._round is None:
            return
        match message:
            case BucketsMeasuredMsg(request=request, bytes=sizes):
                self._perform(self._round.measured(server, request, sizes))
            case CopiedMsg(copy=number, bytes=copied_bytes, failure=failure, is_full=is_full):
                effects = self._round.copied(server, number, copied_bytes, failure)
                has_failed_for_it = bool(self._round.reason) and is_full
                self._perform(effects, full_host=self._host(server.index) if has_failed_for_it else None)
            case ForgottenMsg(request=request):
                self._round.forgotten(server, request)
                self._perform(())

    # --- effects --------------------------------------------------------------------------------------------

    def _perform(self, effects: tuple[MigrationEffect, ...], *, full_host: int | None = None) -> None:
        assert self._round is not None
        if self._round.state == MigrationState.ABORTED and self._round.reason:
            self._note_given_up(self._round, full_host)
        for effect in effects:
            match effect:
                case Measure(server=server, request=request, buckets=buckets):
                    self._run.send(server, MeasureBucketsMsg(request, buckets))
                case Copy(server=server, number=number, moves=moves):
                    found = tuple(BucketMove(move.table, move.bucket, self._address(source)) for move, source in moves)
                    self._run.send(server, CopyBucketsMsg(number, found))
                case CallBack(reason=reason):
                    self._call_back(reason)
                case Keep(server=server, buckets=buckets):
                    self._run.send(server, KeepBucketsMsg(buckets))
                case Forget(server=server, request=request, buckets=buckets):
                    self._run.send(server, ForgetBucketsMsg(request, buckets))
        if self._round.is_over:
            self._round = None

    def _note_given_up(self, given_up: Migration, full_host: int | None) -> None:
        """Journals an aborted round and sets the wait before the next one. Repeated failures for lack of memory are
        journalled once."""
        reason, given_up.reason = given_up.reason, ""
        now_s, self._full_host = self._run.now_s(), full_host
        if full_host is None:
            self._given_up += 1
            wait_s = backoff_s(self._given_up, RETRY_S, MOST_RETRY_S)
            self._not_before_s = now_s + wait_s
        else:
            self.full_s = now_s
            if not self.refuse(full_host):
                return
            wait_s = waits_s(self._retries, _name(full_host), now_s)
        self._run.note(MoveAborted(len(given_up.moves), reason, wait_s, full_host), self.cause)

    def _host(self, server: int) -> int:
        record = self._run.fleet.named("server", server)
        return record.spec.host if record is not None else 0

    def _address(self, server: ProcessId) -> ServerAddress:
        return self._run.address_of(self._run.fleet.find(server), server)


def _name(host: int) -> str:
    return f"host {host}"


def moves_between(before: ShardMap, after: ShardMap, hosts: dict[int, int]) -> tuple[Move, ...]:
    """The buckets whose owners before and after are on different hosts. hosts: PS -> host."""
    return tuple(
        Move(table, bucket, old, new)
        for table, (row, now) in enumerate(zip(before.owners, after.owners, strict=True))
        for bucket, (old, new) in enumerate(zip(row, now, strict=True))
        if NOBODY not in (old, new) and hosts[old] != hosts[new]
    )


def partly_moved(before: ShardMap, moves: tuple[Move, ...]) -> ShardMap:
    """The shard map `before` after these moves."""
    owners = [list(row) for row in before.owners]
    for move in moves:
        owners[move.table][move.bucket] = move.target
    return ShardMap(before.epoch, tuple(map(tuple, owners)), before.dense_owner)
