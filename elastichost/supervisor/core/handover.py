"""Which PS owns which buckets, from one shard map to the next: the right to write them moves, no bytes. Pure.

    new -----------------------------------------> adopting -> settled
    settled -> freezing [-> releasing] -> adopting -> settled

freezing: the dense owner commits nothing of older epochs any more and says what counts. releasing: those that lose
buckets let go; each of these belongs to nobody then. adopting: all PS of the new map learn it; rows that lie on another
host are fetched first (`migration`), and while they cannot be, everything can be called back. Then it is published to
the workers. A PS that dies takes its step back: its successor is asked the same, and the step goes on. A PS that died
while nothing else went on is a hand-over to the same owners: what its predecessor left must be told what counts.
PS whose host is lost have no successors: whatever goes on is called back, and what was theirs goes to others, which
make it anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from elastichost.errors import IllegalTransitionError, JobFailedError
from elastichost.plan import ProcessId
from elastichost.sharding import NOBODY, ShardMap, moved_buckets, taken_over, without_moving, without_servers
from elastichost.wire.facts import CommittedBatch

__all__ = [
    "TRANSITIONS",
    "HandOver",
    "HandOverEffect",
    "HandOverState",
    "Publish",
    "SendMap",
    "with_dense_owner_on_host_0",
]


class HandOverState(StrEnum):
    NEW = "new"  # no PS has had a map yet
    FREEZING = "freezing"
    RELEASING = "releasing"
    ADOPTING = "adopting"
    SETTLED = "settled"  # everyone has the map that workers know


TRANSITIONS: dict[tuple[HandOverState, str], HandOverState] = {
    # the first PS has connected: nothing was ever staged, nobody has to let go
    (HandOverState.NEW, "first map"): HandOverState.ADOPTING,
    # the plan wants other PS, or a PS was replaced
    (HandOverState.SETTLED, "begin"): HandOverState.FREEZING,
    # the dense owner has said what counts; somebody owns what it will not own any more
    (HandOverState.FREEZING, "buckets move"): HandOverState.RELEASING,
    # ... nobody does
    (HandOverState.FREEZING, "nothing moves"): HandOverState.ADOPTING,
    # what moves belongs to nobody now
    (HandOverState.RELEASING, "all released"): HandOverState.ADOPTING,
    # all PS of the new map have it: workers get it
    (HandOverState.ADOPTING, "all adopted"): HandOverState.SETTLED,
    # the owners of before are to have everything again: first it is known what counts ...
    (HandOverState.FREEZING, "call back"): HandOverState.FREEZING,
    # ... then whoever has taken something lets go again
    (HandOverState.RELEASING, "call back"): HandOverState.RELEASING,
    (HandOverState.ADOPTING, "call back"): HandOverState.RELEASING,
    # PS are gone for good: everything goes back but what was theirs, which others make anew
    (HandOverState.NEW, "gone"): HandOverState.NEW,
    (HandOverState.SETTLED, "gone"): HandOverState.FREEZING,
    (HandOverState.FREEZING, "gone"): HandOverState.FREEZING,
    (HandOverState.RELEASING, "gone"): HandOverState.RELEASING,
    (HandOverState.ADOPTING, "gone"): HandOverState.RELEASING,
}


class SendMap(msgspec.Struct, frozen=True):
    """These incarnations learn this map, and answer Ready with its epoch. `moved`: (table, bucket) whose rows come from
    another host; `remade`: whose rows are lost, and are made anew."""

    servers: tuple[ProcessId, ...]
    shard_map: ShardMap
    committed: tuple[CommittedBatch, ...] = ()
    moved: tuple[tuple[int, int], ...] = ()
    settles: bool = False  # everything staged is settled by `committed`
    remade: tuple[tuple[int, int], ...] = ()


class Publish(msgspec.Struct, frozen=True):
    """Workers learn this map. `moved`: buckets that have another owner than before; `began_s`: when it began;
    `remade`: (table, bucket) whose rows were made anew."""

    shard_map: ShardMap
    incarnations: tuple[ProcessId, ...]
    moved: int
    began_s: float
    remade: tuple[tuple[int, int], ...] = ()


HandOverEffect = SendMap | Publish


class HandOver:
    """Every method returns the effects to perform, in order. `shard_map`: the owners to begin with, of epoch 0. left:
    what dead workers had committed, when PS have to settle first what those had staged for other owners."""

    def __init__(self, shard_map: ShardMap, left: tuple[CommittedBatch, ...] | None = None) -> None:
        self.state = HandOverState.NEW
        self.present = shard_map  # as workers know it; until the first is published, as they will
        self._target = shard_map
        self._step = shard_map  # the map of this step, with its epoch
        self._committed: tuple[CommittedBatch, ...] = left or ()
        self._settles = left is not None  # until the first map is published
        self._moved: tuple[tuple[int, int], ...] = ()
        self._remade: frozenset[tuple[int, int]] = frozenset()
        self._is_released = False  # whoever had to has let go: others may have taken it
        self._participants: frozenset[int] = frozenset()  # of this step
        self._waiting: set[int] = set()
        self._connected: dict[int, ProcessId] = {}
        self._told: set[ProcessId] = set()  # connected incarnations that have had a map
        self._owners: tuple[ShardMap, frozenset[int]] | None = None  # of the target
        self._began_s = 0.0

    # --- facts ----------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Nothing goes on, and the PS of the map are the incarnations that it was published with, or have just died."""
        return self.state == HandOverState.SETTLED

    @property
    def owners(self) -> frozenset[int]:
        """PS that own something, or left something that only their successors may touch: none of them may be
        missing."""
        if self.state in (HandOverState.FREEZING, HandOverState.RELEASING):
            return self.present.servers() | self._target.servers() | self._participants
        if self._owners is None or self._owners[0] is not self._target:  # asked for at every turn: thousands of buckets
            self._owners = self._target, self._target.servers()
        return self._owners[1]

    # --- events ---------------------------------------------------------------------------------------------

    def begin(
        self, target: ShardMap, now_s: float, moved: tuple[tuple[int, int], ...] = ()
    ) -> tuple[HandOverEffect, ...]:
        """From the present owners to those of `target` (its epoch is of no account), in state `settled` only. moved:
        (table, bucket) whose rows come from another host."""
        self._move("begin")
        self._target, self._began_s, self._moved = target, now_s, moved
        return self._ask(self.present, {self.present.dense_owner})

    def call_back(self) -> tuple[HandOverEffect, ...]:
        """Everything goes back to the present owners; before it is settled only."""
        before, self._target, self._moved = self._target, self.present, ()
        self._move("call back")
        if self.state == HandOverState.FREEZING:
            return ()
        # Also those that have not said Ready: they may take what they are to have before they hear of this.
        concerned = _losers(self.present, before) | _losers(before, self.present)
        return self._ask(without_moving(self.present, before), concerned)

    def gone(self, servers: frozenset[int], takers: Sequence[int], now_s: float) -> tuple[HandOverEffect, ...]:
        """These PS and all their rows are lost for good: takers, PS that are left, make them anew. The owner of the
        dense vector is none of them."""
        before, was = without_servers(self._target, servers), self.state
        self.present = without_servers(self.present, servers)
        self._remade |= set(self.present.buckets_of(NOBODY))
        self._target, self._moved = taken_over(self.present, takers), ()
        for server in servers & set(self._connected):
            self._told.discard(self._connected.pop(server))
        self._move("gone")
        if was == HandOverState.NEW:  # all rows are still to be made
            self.present, self._step, self._remade = self._target, self._target, frozenset()
            return ()
        if was == HandOverState.SETTLED:
            self._began_s = now_s
            return self._ask(self.present, {self.present.dense_owner})
        if was == HandOverState.FREEZING:
            return ()
        concerned = _losers(self.present, before) | _losers(before, self.present)
        return self._ask(without_moving(self.present, before), concerned or {self.present.dense_owner})

    def connected(self, server: ProcessId, now_s: float) -> tuple[HandOverEffect, ...]:
        """A PS incarnation has come: of an owner it takes up what its predecessor left, any other learns who owns
        what."""
        self._connected[server.index] = server
        if self.state == HandOverState.NEW:
            self._move("first map")
            self._began_s = now_s
            first = self._ask(self._target, self._target.servers())
            return first if server.index in self._participants else self._send((server,))
        if server.index in self._participants or server.index not in self.owners:
            return self._send((server,))
        return self.begin(self.present, now_s) if self.is_settled else ()  # its step will come

    def ready(
        self, server: ProcessId, shard_map_epoch: int, committed: tuple[CommittedBatch, ...] = ()
    ) -> tuple[HandOverEffect, ...]:
        """A PS has the map of this epoch. Answers of incarnations and of epochs that are not asked have no effect."""
        is_asked = self._connected.get(server.index) == server and server.index in self._waiting
        if not is_asked or shard_map_epoch != self._step.epoch:
            return ()
        if self.state == HandOverState.FREEZING:
            self._committed = committed
        self._waiting.discard(server.index)
        return () if self._waiting else self._step_done()

    def lost(self, server: ProcessId) -> None:
        """A PS incarnation has ended. Whoever takes part in this step is waited for again."""
        if self._connected.get(server.index) == server:
            del self._connected[server.index]
            self._told.discard(server)
            if server.index in self._participants:
                self._waiting.add(server.index)

    # --- steps ----------------------------------------------------------------------------------------------

    def _move(self, event: str) -> None:
        try:
            self.state = TRANSITIONS[self.state, event]
        except KeyError:
            raise IllegalTransitionError("the shard map", self.state.value, event) from None

    def _ask(self, shard_map: ShardMap, participants: Iterable[int]) -> tuple[HandOverEffect, ...]:
        """A step begins, under an epoch of its own."""
        self._step = msgspec.structs.replace(shard_map, epoch=self._step.epoch + 1)
        self._participants = frozenset(participants)
        self._waiting = set(self._participants)
        return self._send(
            tuple(self._connected[index] for index in sorted(self._participants) if index in self._connected)
        )

    def _send(self, servers: tuple[ProcessId, ...]) -> tuple[SendMap, ...]:
        """The map of this step. Whoever must let go and has had no map yet takes up first all that its predecessor had,
        or pushes that this left would never be applied. (Unless that had let go before all was called back.)"""
        fresh = tuple(server for server in servers if server not in self._told)
        self._told.update(fresh)
        moved = self._moved if self.state == HandOverState.ADOPTING else ()
        remade = tuple(sorted(self._remade)) if self.state == HandOverState.ADOPTING else ()
        sends = [SendMap(servers, self._step, self._committed, moved, self._settles, remade)] if servers else []
        if fresh and self.state == HandOverState.RELEASING and not self._is_released:
            sends.insert(0, SendMap(fresh, msgspec.structs.replace(self.present, epoch=self._step.epoch - 1)))
        return tuple(sends)

    def _step_done(self) -> tuple[HandOverEffect, ...]:
        if self.state == HandOverState.ADOPTING:
            return (self._settle(),)
        losers = _losers(self.present, self._target)
        if self.state == HandOverState.FREEZING and losers:
            self._move("buckets move")
            return self._ask(without_moving(self.present, self._target), losers)
        self._is_released = self.state == HandOverState.RELEASING
        self._move("nothing moves" if self.state == HandOverState.FREEZING else "all released")
        return self._ask(self._target, self._target.servers())

    def _settle(self) -> Publish:
        self._move("all adopted")
        moved, self.present, self._target = moved_buckets(self.present, self._step), self._step, self._step
        self._participants, self._committed, self._moved, self._is_released = frozenset(), (), (), False
        self._settles = False
        remade, self._remade = tuple(sorted(self._remade)), frozenset()
        incarnations = tuple(self._connected[index] for index in sorted(self.present.servers()))
        return Publish(self.present, incarnations, moved, self._began_s, remade)


def _losers(before: ShardMap, after: ShardMap) -> frozenset[int]:
    """PS that own something before that they do not own after."""
    pairs = [(before.dense_owner, after.dense_owner)]
    for row, now in zip(before.owners, after.owners, strict=True):
        pairs += zip(row, now, strict=True)
    return frozenset(old for old, new in pairs if old not in (new, NOBODY))


def with_dense_owner_on_host_0(goal: ShardMap, wanted: Collection[int], hosts: Mapping[int, int]) -> ShardMap:
    """The dense vector lies in the arena of host 0, so a PS there has to own it. wanted: the PS of the plan; hosts:
    PS -> its host. Raises JobFailedError when no PS of the plan is there."""
    if hosts[goal.dense_owner] == 0:
        return goal
    owners = [index for index in sorted(wanted) if hosts[index] == 0]
    if not owners:
        raise JobFailedError(
            f"the plan has PS {sorted(wanted)}, none of which is on host 0, where the dense vector is",
            hint="this is a fault of whoever made the plan",
        )
    return msgspec.structs.replace(goal, dense_owner=owners[0])
