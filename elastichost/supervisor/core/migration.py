"""Buckets go from one host's arena to another's, a round of them at a time. Pure.

    planned [-> unmapping] -> copying -> draining -> committed -> released
       \\-----------\\-----------\\----------\\----> aborted

planned: the PS that have the buckets say how large they are, and so many are taken as one round may have. unmapping,
where workers use rows in place: a shard map says that these buckets are served to everybody, and every worker of the
hosts they are on answers once it changes no row of them by itself any more, so that their PS see every change. copying:
their new owners fetch them while they are used where they are. draining: they are handed over (`handover`); a new owner
says Ready when the last row has come. committed: a line of the journal says that they have moved, then workers learn
it. released: the old owners have given the memory back. aborted, before that line only: the buckets stay where they
are, or go back, and what was copied is thrown away. Whoever dies is asked again in its next incarnation; after several
deaths the round is given up.
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

ROUND_BYTES = 128 << 20  # their hand-over takes about 0.1 s; a bucket that is larger is a round of its own
MOST_DEATHS = 4  # of those that take part in a round


class MigrationState(StrEnum):
    PLANNED = "planned"
    UNMAPPING = "unmapping"
    COPYING = "copying"
    DRAINING = "draining"
    COMMITTED = "committed"
    RELEASED = "released"
    ABORTED = "aborted"


TRANSITIONS: dict[tuple[MigrationState, str], MigrationState] = {
    # it is known how large they are, and nobody but their PS changes them ...
    (MigrationState.PLANNED, "measured"): MigrationState.COPYING,
    # ... or workers do, too ...
    (MigrationState.PLANNED, "measured, mapped"): MigrationState.UNMAPPING,
    # ... until all that may have done so have said that they do not
    (MigrationState.UNMAPPING, "unmapped"): MigrationState.COPYING,
    # everything is copied but what changes all the time: the hand-over begins
    (MigrationState.COPYING, "drain"): MigrationState.DRAINING,
    # every new owner has all rows; the journal says so next
    (MigrationState.DRAINING, "adopted"): MigrationState.COMMITTED,
    (MigrationState.COMMITTED, "all forgotten"): MigrationState.RELEASED,
    # the plan is another one, a new owner has no room, or PS die again and again
    (MigrationState.PLANNED, "abort"): MigrationState.ABORTED,
    (MigrationState.UNMAPPING, "abort"): MigrationState.ABORTED,
    (MigrationState.COPYING, "abort"): MigrationState.ABORTED,
    (MigrationState.DRAINING, "abort"): MigrationState.ABORTED,
}


class Move(msgspec.Struct, frozen=True, order=True):
    """A bucket of a table, the PS that has it and the one that gets it."""

    table: int
    bucket: int
    source: int
    target: int

    @property
    def key(self) -> tuple[int, int]:
        return self.table, self.bucket


class Measure(msgspec.Struct, frozen=True):
    """Ask this incarnation how large these buckets are."""

    server: ProcessId
    request: int
    buckets: tuple[tuple[int, int], ...]


class Copy(msgspec.Struct, frozen=True):
    """This incarnation fetches these buckets, each from that incarnation."""

    server: ProcessId
    number: int
    moves: tuple[tuple[Move, ProcessId], ...]


class CallBack(msgspec.Struct, frozen=True):
    """The hand-over that was begun leads back to where it began."""

    reason: str


class Forget(msgspec.Struct, frozen=True):
    """This incarnation frees the memory of these buckets."""

    server: ProcessId
    request: int
    buckets: tuple[tuple[int, int], ...]


class Keep(msgspec.Struct, frozen=True):
    """Nobody copies these buckets of this incarnation any more."""

    server: ProcessId
    buckets: tuple[tuple[int, int], ...]


MigrationEffect = Measure | Copy | CallBack | Forget | Keep


class Migration:
    """One round. moves: all that are to be made; `moves` are those of this round once it copies. numbers: of requests,
    no two the same, growing. are_mapped: workers use rows of these buckets in place. Every method returns the effects
    to perform, in order."""

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
        self.bytes = 0  # of the rows and all that goes with them, as they were fetched
        self.reason = ""  # why it was aborted
        self._numbers = numbers
        self._connected = {server.index: server for server in connected}
        self._sizes: dict[tuple[int, int], int] = {}
        self._requests: dict[int, int] = {}  # PS -> number of the last request that it has not answered
        self._last_copy: dict[int, int] = {}  # PS -> number of its last Copy
        self._copied: dict[int, int] = {}  # PS -> bytes
        self._deaths = 0
        self._are_mapped = are_mapped
        self._served_epoch = 0  # since which workers know that these buckets are served
        self._mapping: set[ProcessId] = set()  # workers that may still use them in place

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
        """Workers have to learn that they may not use these buckets in place."""
        return self.state == MigrationState.UNMAPPING and not self._served_epoch

    @property
    def is_copied(self) -> bool:
        """The hand-over may begin."""
        return self.state == MigrationState.COPYING and self.targets <= set(self._copied)

    @property
    def is_over(self) -> bool:
        """Nothing is left to do."""
        if self.state == MigrationState.ABORTED:
            return not self._requests
        return self.state == MigrationState.RELEASED

    @property
    def needed(self) -> frozenset[int]:
        """PS that must not be missing, whether they own something or not."""
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
        """Workers have been told by the shard map of this epoch; these may still use the buckets in place: all that
        know an older one. Whoever comes later cannot."""
        if not self.has_to_be_served:
            return ()
        self._served_epoch, self._mapping = epoch, set(workers)
        return self._unmapped()

    def unmapped(self, worker: ProcessId, epoch: int) -> tuple[MigrationEffect, ...]:
        """It uses no row in place any more by a map older than this one."""
        if self.state != MigrationState.UNMAPPING or not 0 < self._served_epoch <= epoch:
            return ()
        self._mapping.discard(worker)
        return self._unmapped()

    def worker_lost(self, worker: ProcessId) -> tuple[MigrationEffect, ...]:
        """An incarnation has ended: it changes nothing any more."""
        if self.state != MigrationState.UNMAPPING or worker not in self._mapping:
            return ()
        self._mapping.discard(worker)
        return self._unmapped()

    def copied(self, server: ProcessId, number: int, bytes_: int, failure: str = "") -> tuple[MigrationEffect, ...]:
        """The answer to Copy. A failure may come later than that, too, within the hand-over."""
        is_asked = self.state in (MigrationState.COPYING, MigrationState.DRAINING)
        if not is_asked or number != self._last_copy.get(server.index):
            return ()
        if failure:
            return self.abort(f"{server} cannot take its buckets: {failure}")
        if self._answers(server, number):
            self._copied[server.index] = bytes_
        return ()

    def drain(self) -> None:
        """The hand-over of exactly these buckets begins."""
        self._move("drain")

    def adopted(self) -> None:
        """Every new owner has all rows. What follows at once: the line of the journal, and that workers learn it."""
        self._move("adopted")
        self.bytes = sum(self._copied.values())
        self._requests.clear()

    def published(self) -> tuple[MigrationEffect, ...]:
        """No worker asks the old owners any more, or they refuse it."""
        return self._forget(self.sources)

    def forgotten(self, server: ProcessId, request: int) -> None:
        if self._answers(server, request) and self.state == MigrationState.COMMITTED and not self._requests:
            self._move("all forgotten")

    def abort(self, reason: str) -> tuple[MigrationEffect, ...]:
        """Before it is committed only."""
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
        """An incarnation of a PS has come: it is asked what the one before was asked."""
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
        """An incarnation has ended. What was copied from it or to it is copied anew."""
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
            return self.abort(f"PS that take part in it died {self._deaths} times")
        return ()

    def gone(self, servers: frozenset[int], reason: str) -> tuple[MigrationEffect, ...]:
        """Incarnations that have ended and will have no successors: with them the round is given up, or what is left of
        it is done without them."""
        for index in servers:
            self._connected.pop(index, None)
        is_early = (self.state, "abort") in TRANSITIONS
        # A hand-over is called back, whoever of its PS are gone.
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
        """Whether this is the answer to what this incarnation was asked last."""
        if self._connected.get(server.index) != server or self._requests.get(server.index) != request:
            return False
        del self._requests[server.index]
        return True

    def _of(self, *, source: int | None = None, target: int | None = None) -> tuple[tuple[int, int], ...]:
        return tuple(move.key for move in self.moves if source == move.source or target == move.target)

    def _one_round(self) -> Iterator[Move]:
        """The first that fit, one at least."""
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
        """For those of which every PS that has something for them is there."""
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
        """Those that are not there are asked when they come."""
        effects: list[MigrationEffect] = []
        for index in sorted(servers):
            self._requests[index] = next(self._numbers)
            if index in self._connected:
                is_done = self.state == MigrationState.COMMITTED
                buckets = self._of(source=index) if is_done else self._of(target=index)
                effects.append(Forget(self._connected[index], self._requests[index], buckets))
        return tuple(effects)
