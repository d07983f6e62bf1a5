"""Moves buckets from one host's arena to another host's, one round of buckets at a time. Pure.

Rules:

1. A bucket is copied only while its PS sees every change of its rows. So no worker may change them in place meanwhile.
2. Training continues during the copy. Only the hand-over at the end stops requests to these buckets.
3. The move is committed by one line of the journal, after every new owner has all rows and before workers get the map.
   Before this line a round can be aborted: the buckets stay with, or go back to, their old owners.
4. The old owners free the memory only after the commit; after an abort the new owners free their copies.
5. A round has at most ROUND_BYTES, or one larger bucket, so that its hand-over is short.

States:

    planned [-> unmapping] -> copying -> draining -> committed -> released
       \\-----------\\-----------\\----------\\----> aborted

Theory of operation. `planned`: the old owners report the sizes of the buckets, and one round of them is chosen.
`unmapping` (only where workers use rows in place): a shard map marks the buckets as served, and every worker on their
hosts answers when it changes none of their rows in place any more. `copying`: the new owners fetch the rows.
`draining`: the hand-over of these buckets runs (`core.handover`); a new owner answers Ready when it has the last rows.
`committed`: the journal has the line, and workers are sent the map. `released`: the old owners have freed the memory.

A kill: the next incarnation of a PS gets the same request again, and copies from or to the dead incarnation are made
again. After more than MOST_DEATHS deaths the round is aborted. A worker that ends counts as unmapped. When a host is
lost (`gone`), a round that includes it or is draining is aborted; after the commit the round ends without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from elastichost.errors import IllegalTransitionError
from elastichost.plan import ProcessId

__all__ = [
    "ROUND_BYTES",
    "TRANSITIONS",
    "CallBack",
    "Copy",
    "Forget",
    "Keep",
    "Measure",
    "Migration",
    "MigrationEffect",
    "MigrationState",
    "Move",
]

ROUND_BYTES = 128 << 20  # a hand-over of this size takes about 0.1 s; a larger bucket is a round of its own
MOST_DEATHS = 4  # deaths of PS that take part in a round; one more aborts it


class MigrationState(StrEnum):
    PLANNED = "planned"
    UNMAPPING = "unmapping"
    COPYING = "copying"
    DRAINING = "draining"
    COMMITTED = "committed"
    RELEASED = "released"
    ABORTED = "aborted"


TRANSITIONS: dict[tuple[MigrationState, str], MigrationState] = {
    # all sizes are reported, and only PS change these buckets ...
    (MigrationState.PLANNED, "measured"): MigrationState.COPYING,
    # ... or workers may change them in place
    (MigrationState.PLANNED, "measured, mapped"): MigrationState.UNMAPPING,
    # no worker changes them in place any more
    (MigrationState.UNMAPPING, "unmapped"): MigrationState.COPYING,
    # all rows are copied, except those that changed since: the hand-over begins
    (MigrationState.COPYING, "drain"): MigrationState.DRAINING,
    # every new owner has all rows; the line of the journal follows
    (MigrationState.DRAINING, "adopted"): MigrationState.COMMITTED,
    # every old owner has freed the memory
    (MigrationState.COMMITTED, "all forgotten"): MigrationState.RELEASED,
    # the plan changed, a new owner has no memory left, PS died too often, or a host is lost
    (MigrationState.PLANNED, "abort"): MigrationState.ABORTED,
    (MigrationState.UNMAPPING, "abort"): MigrationState.ABORTED,
    (MigrationState.COPYING, "abort"): MigrationState.ABORTED,
    (MigrationState.DRAINING, "abort"): MigrationState.ABORTED,
}


class Move(msgspec.Struct, frozen=True, order=True):
    """A bucket of a table, the PS that owns it and the PS that will own it."""

    table: int
    bucket: int
    source: int
    target: int

    @property
    def key(self) -> tuple[int, int]:
        return self.table, self.bucket


class Measure(msgspec.Struct, frozen=True):
    """Ask this incarnation for the sizes of these buckets."""

    server: ProcessId
    request: int
    buckets: tuple[tuple[int, int], ...]


class Copy(msgspec.Struct, frozen=True):
    """Ask this incarnation to fetch buckets. moves: each with the incarnation that has its rows."""

    server: ProcessId
    number: int
    moves: tuple[tuple[Move, ProcessId], ...]


class CallBack(msgspec.Struct, frozen=True):
    """Call back the hand-over that has begun."""

    reason: str


class Forget(msgspec.Struct, frozen=True):
    """Ask this incarnation to free the memory of these buckets."""

    server: ProcessId
    request: int
    buckets: tuple[tuple[int, int], ...]


class Keep(msgspec.Struct, frozen=True):
    """Tell this incarnation that its buckets are not copied any more."""

    server: ProcessId
    buckets: tuple[tuple[int, int], ...]


MigrationEffect = Measure | Copy | CallBack | Forget | Keep


class Migration:
    """One round of moves. Every method returns the effects to perform, in order. moves: all moves to make; the
    attribute has those of this round only after `planned`. numbers: of requests, increasing. are_mapped: workers use
    these rows in place."""

    def __init__(
        self,
        moves: Iterable[Move],
        connected: Iterable[ProcessId],
        numbers: Iterator[int],
        *,
        are_mapped: bool = False,
    ) -> None:
        self.state = MigrationState.PLANNED
        self.moves = tuple(sorted(moves))
        self.bytes = 0  # bytes that were fetched: rows, their state and index
        self.reason = ""  # why it was aborted
        self._numbers = numbers
        self._connected = {server.index: server for server in connected}
        self._sizes: dict[tuple[int, int], int] = {}
        self._requests: dict[int, int] = {}  # PS -> number of its unanswered request
        self._last_copy: dict[int, int] = {}  # PS -> number of its last Copy
        self._copied: dict[int, int] = {}  # PS -> bytes
        self._deaths = 0
        self._are_mapped = are_mapped
        self._served_epoch = 0  # epoch of the shard map that marks these buckets as served; 0: none yet
        self._mapping: set[ProcessId] = set()  # workers that may still use these buckets in place

    # --- facts ----------------------------------------------------------------------------------------------

    @property
    def sources(self) -> frozenset[int]:
        return frozenset(move.source for move in self.moves)

    @property
    def targets(self) -> frozenset[int]:
        return frozenset(move.target for move in self.moves)

    @property
    def buckets(self) -> tuple[tuple[int, int], ...]:
        """(table, bucket) pairs."""
        return tuple(move.key for move in self.moves)

    @property
    def has_to_be_served(self) -> bool:
        """A shard map that marks these buckets as served has to be published."""
        return self.state == MigrationState.UNMAPPING and not self._served_epoch

    @property
    def is_copied(self) -> bool:
        """Every new owner has answered Copy: the hand-over may begin."""
        return self.state == MigrationState.COPYING and self.targets <= set(self._copied)

    @property
    def is_over(self) -> bool:
        """The round has ended, and no request is unanswered."""
        if self.state == MigrationState.ABORTED:
            return not self._requests
        return self.state == MigrationState.RELEASED

    @property
    def needed(self) -> frozenset[int]:
        """PS that must run, whether or not they own buckets."""
        match self.state:
            case MigrationState.COMMITTED | MigrationState.ABORTED:
                return frozenset(self._requests)
            case MigrationState.RELEASED:
                return frozenset()
            case _:
                return self.sources | self.targets

    # --- events ---------------------------------------------------------------------------------------------

    def begin(self) -> tuple[MigrationEffect, ...]:
        return tuple(effect for index in sorted(self.sources) for effect in self._measure(index))

    def measured(self, server: ProcessId, request: int, sizes: Sequence[int]) -> tuple[MigrationEffect, ...]:
        if self.state != MigrationState.PLANNED or not self._answers(server, request):
            return ()
        asked = [move.key for move in self.moves if move.source == server.index]
        self._sizes.update(zip(asked, sizes, strict=False))
        if len(self._sizes) < len(self.moves):
            return ()
        self._move("measured, mapped" if self._are_mapped else "measured")
        self._requests.clear()  # of incarnations that came meanwhile, and are asked what is known already
        self.moves = tuple(self._one_round())
        return () if self._are_mapped else self._copy(self.targets)

    def served(self, epoch: int, workers: Iterable[ProcessId]) -> tuple[MigrationEffect, ...]:
        """The map of this epoch, in which the buckets are served, was sent to workers. workers: those that may have an
        older map, and so may still use the buckets in place. Workers that connect later never do."""
        if not self.has_to_be_served:
            return ()
        self._served_epoch, self._mapping = epoch, set(workers)
        return self._unmapped()

    def unmapped(self, worker: ProcessId, epoch: int) -> tuple[MigrationEffect, ...]:
        """A worker uses no row in place by a map older than `epoch` any more."""
        if self.state != MigrationState.UNMAPPING or not 0 < self._served_epoch <= epoch:
            return ()
        self._mapping.discard(worker)
        return self._unmapped()

    def worker_lost(self, worker: ProcessId) -> tuple[MigrationEffect, ...]:
        """A worker incarnation has ended, so it changes no rows any more."""
        if self.state != MigrationState.UNMAPPING or worker not in self._mapping:
            return ()
        self._mapping.discard(worker)
        return self._unmapped()

    def copied(self, server: ProcessId, number: int, bytes_: int, failure: str = "") -> tuple[MigrationEffect, ...]:
        """A PS has answered Copy. It may also report a failure later, during the hand-over."""
        is_asked = self.state in (MigrationState.COPYING, MigrationState.DRAINING)
        if not is_asked or number != self._last_copy.get(server.index):
            return ()
        if failure:
            return self.abort(f"{server} cannot take its buckets: {failure}")
        if self._answers(server, number):
            self._copied[server.index] = bytes_
        return ()

    def drain(self) -> None:
        """The hand-over of the buckets of this round begins."""
        self._move("drain")

    def adopted(self) -> None:
        """Every new owner has all rows. The caller then writes the line of the journal and sends workers the map."""
        self._move("adopted")
        self.bytes = sum(self._copied.values())
        self._requests.clear()

    def published(self) -> tuple[MigrationEffect, ...]:
        """Workers were sent the new map: the old owners may free the memory, because they refuse older requests."""
        return self._forget(self.sources)

    def forgotten(self, server: ProcessId, request: int) -> None:
        """A PS has freed the memory of its buckets."""
        if self._answers(server, request) and self.state == MigrationState.COMMITTED and not self._requests:
            self._move("all forgotten")

    def abort(self, reason: str) -> tuple[MigrationEffect, ...]:
        """Ends the round without moving its buckets. Allowed before the commit only."""
        was = self.state
        self._move("abort")
        self.reason = reason
        self._requests.clear()
        if was in (MigrationState.PLANNED, MigrationState.UNMAPPING):
            return ()
        back = (CallBack(reason),) if was == MigrationState.DRAINING else ()
        keeps = (
            Keep(self._connected[index], self._of(source=index))
            for index in sorted(self.sources & set(self._connected))
        )
        return (*back, *keeps, *self._forget(self.targets))

    def connected(self, server: ProcessId) -> tuple[MigrationEffect, ...]:
        """A PS incarnation has connected: it gets the request that the incarnation before had."""
        self._connected[server.index] = server
        match self.state:
            case MigrationState.PLANNED if server.index in self.sources:
                return self._measure(server.index)
            case MigrationState.COPYING | MigrationState.DRAINING:
                gainers = {move.target for move in self.moves if server.index in (move.source, move.target)}
                return self._copy(gainers)
            case MigrationState.COMMITTED | MigrationState.ABORTED if server.index in self._requests:
                return self._forget({server.index})
            case _:
                return ()

    def lost(self, server: ProcessId) -> tuple[MigrationEffect, ...]:
        """A PS incarnation has ended. Copies from it or to it have to be made again."""
        if self._connected.get(server.index) != server:
            return ()
        del self._connected[server.index]
        if server.index not in self.needed or self.state in (MigrationState.COMMITTED, MigrationState.ABORTED):
            return ()
        for move in self.moves:
            if server.index in (move.source, move.target):
                self._copied.pop(move.target, None)
                self._requests.pop(move.target, None)
        self._deaths += 1
        if self._deaths > MOST_DEATHS:
            return self.abort(f"parameter servers that take part in it died {self._deaths} times")
        return ()

    def gone(self, servers: frozenset[int], reason: str) -> tuple[MigrationEffect, ...]:
        """These PS are lost with their host. The round is aborted, or ends without them."""
        for index in servers:
            self._connected.pop(index, None)
        is_early = (self.state, "abort") in TRANSITIONS
        # The loss of any PS calls a hand-over back, so a round that is draining is aborted with it.
        is_hit = bool(servers & (self.sources | self.targets)) or self.state == MigrationState.DRAINING
        effects = self.abort(reason) if is_early and is_hit else ()
        for index in servers:
            self._requests.pop(index, None)
        if self.state == MigrationState.COMMITTED and not self._requests:
            self._move("all forgotten")
        return effects

    # --- inside ---------------------------------------------------------------------------------------------

    def _move(self, event: str) -> None:
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            raise IllegalTransitionError("a round of moves", self.state.value, event) from None

    def _unmapped(self) -> tuple[MigrationEffect, ...]:
        if self._mapping:
            return ()
        self._move("unmapped")
        return self._copy(self.targets)

    def _answers(self, server: ProcessId, request: int) -> bool:
        """Whether this answers the last request to this incarnation; the request is then done."""
        if self._connected.get(server.index) != server or self._requests.get(server.index) != request:
            return False
        del self._requests[server.index]
        return True

    def _of(self, *, source: int | None = None, target: int | None = None) -> tuple[tuple[int, int], ...]:
        return tuple(move.key for move in self.moves if source == move.source or target == move.target)

    def _one_round(self) -> Iterator[Move]:
        """The first moves that fit into ROUND_BYTES; at least one."""
        total_bytes = 0
        for number, move in enumerate(self.moves):
            total_bytes += self._sizes[move.key]
            if number and total_bytes > ROUND_BYTES:
                return
            yield move

    def _measure(self, index: int) -> tuple[MigrationEffect, ...]:
        if index not in self._connected:
            return ()
        self._requests[index] = next(self._numbers)
        return (Measure(self._connected[index], self._requests[index], self._of(source=index)),)

    def _copy(self, targets: Iterable[int]) -> tuple[MigrationEffect, ...]:
        """Requests a copy for each target that is connected with all its sources."""
        effects: list[MigrationEffect] = []
        for target in sorted(targets):
            moves = [move for move in self.moves if move.target == target]
            if not {target, *(move.source for move in moves)} <= set(self._connected):
                continue
            self._copied.pop(target, None)
            self._requests[target] = self._last_copy[target] = next(self._numbers)
            pairs = tuple((move, self._connected[move.source]) for move in moves)
            effects.append(Copy(self._connected[target], self._requests[target], pairs))
        return tuple(effects)

    def _forget(self, servers: Iterable[int]) -> tuple[MigrationEffect, ...]:
        """Asks these PS to free memory; a PS that is not connected is asked when it connects."""
        effects: list[MigrationEffect] = []
        for index in sorted(servers):
            self._requests[index] = next(self._numbers)
            if index in self._connected:
                is_done = self.state == MigrationState.COMMITTED
                buckets = self._of(source=index) if is_done else self._of(target=index)
                effects.append(Forget(self._connected[index], self._requests[index], buckets))
        return tuple(effects)
