"""Which PS owns which buckets, from one shard map to the next. The right to write a bucket moves, not its bytes. Pure.

Rules:

1. At most one PS may write a bucket. A bucket that moves has no owner between its release and its adoption.
2. Before buckets move, the dense owner freezes: it commits no batch of an older epoch, and reports what is committed.
   A PS that gives buckets up first applies the staged pushes of committed batches, and drops the other ones.
3. Workers are sent a new map only when every PS of that map has adopted it. PS refuse requests of any other epoch.
4. Each step has an epoch of its own. An answer counts only from the connected incarnation and for the present step.

States:

    new -----------------------------------------> adopting -> settled
    settled -> freezing [-> releasing] -> adopting -> settled

Theory of operation. In `freezing` the only participant is the dense owner. In `releasing` the participants are the PS
that lose buckets (or the dense vector); the step is left out when no PS loses any. In `adopting` they are all PS of the
new map; a PS that gains buckets of another host fetches their last changed rows first (`core.migration`). When all
participants of a step have answered Ready with its epoch, the next step begins. The last one returns `Publish`: workers
get the map. Until then `call_back` returns all buckets to the present owners: PS that may have taken buckets release
them, and the present owners adopt them.

A kill: a participant that dies is waited for again, and its next incarnation is sent the map of the present step. A PS
that dies while nothing is under way starts a hand-over to the same owners, because the new incarnation needs the
committed batches to settle the pushes that its predecessor staged. PS of a lost host have no next incarnation (`gone`):
a hand-over under way is called back, and PS that are left own the lost buckets and rebuild them. After the death of a
supervisor, the first map settles all pushes that dead workers staged (`left`).
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
    SETTLED = "settled"  # every PS has the map that workers have


TRANSITIONS: dict[tuple[HandOverState, str], HandOverState] = {
    # the first PS has connected: nothing was ever staged, so no PS has to release buckets
    (HandOverState.NEW, "first map"): HandOverState.ADOPTING,
    # the plan has other PS, buckets are balanced, or a PS was replaced
    (HandOverState.SETTLED, "begin"): HandOverState.FREEZING,
    # the dense owner has reported the committed batches, and some PS loses buckets
    (HandOverState.FREEZING, "buckets move"): HandOverState.RELEASING,
    # ... or no PS does
    (HandOverState.FREEZING, "nothing moves"): HandOverState.ADOPTING,
    # the buckets that move have no owner now
    (HandOverState.RELEASING, "all released"): HandOverState.ADOPTING,
    # every PS of the new map has it: workers get it
    (HandOverState.ADOPTING, "all adopted"): HandOverState.SETTLED,
    # the present owners keep or get back all buckets: the committed batches must be reported first ...
    (HandOverState.FREEZING, "call back"): HandOverState.FREEZING,
    # ... then PS that may have taken buckets release them
    (HandOverState.RELEASING, "call back"): HandOverState.RELEASING,
    (HandOverState.ADOPTING, "call back"): HandOverState.RELEASING,
    # PS are lost with their host: their buckets go to other PS, which rebuild them; all others go back
    (HandOverState.NEW, "gone"): HandOverState.NEW,
    (HandOverState.SETTLED, "gone"): HandOverState.FREEZING,
    (HandOverState.FREEZING, "gone"): HandOverState.FREEZING,
    (HandOverState.RELEASING, "gone"): HandOverState.RELEASING,
    (HandOverState.ADOPTING, "gone"): HandOverState.RELEASING,
}


class SendMap(msgspec.Struct, frozen=True):
    """Send this map to these incarnations, which answer Ready with its epoch. moved: (table, bucket) whose rows come
    from another host. remade: (table, bucket) whose rows are lost, and which the new owner rebuilds."""

    servers: tuple[ProcessId, ...]
    shard_map: ShardMap
    committed: tuple[CommittedBatch, ...] = ()
    moved: tuple[tuple[int, int], ...] = ()
    settles: bool = False  # staged pushes of batches that are not in `committed` are dropped
    remade: tuple[tuple[int, int], ...] = ()


class Publish(msgspec.Struct, frozen=True):
    """Send this map to the workers. moved: number of buckets with a new owner. began_s: when the hand-over began.
    remade: (table, bucket) whose rows were rebuilt."""

    shard_map: ShardMap
    incarnations: tuple[ProcessId, ...]
    moved: int
    began_s: float
    remade: tuple[tuple[int, int], ...] = ()


HandOverEffect = SendMap | Publish


class HandOver:
    """The shard map of a run, and the hand-over under way. Every method returns the effects to perform, in order.

    shard_map: the first owners, with epoch 0. left: after the death of a supervisor, the batches that its workers had
    committed; PS settle all staged pushes by it before anything else.
    """

    def __init__(self, shard_map: ShardMap, left: tuple[CommittedBatch, ...] | None = None) -> None:
        self.state = HandOverState.NEW
        self.present = shard_map  # the map that workers have; before the first one is published, the one they will get
        self._target = shard_map
        self._step = shard_map  # the map of this step, with its epoch
        self._committed: tuple[CommittedBatch, ...] = left or ()
        self._settles = left is not None  # until the first map is published
        self._moved: tuple[tuple[int, int], ...] = ()
        self._remade: frozenset[tuple[int, int]] = frozenset()
        self._is_released = False  # all releases are done: new owners may have taken the buckets
        self._participants: frozenset[int] = frozenset()  # of this step
        self._waiting: set[int] = set()
        self._connected: dict[int, ProcessId] = {}
        self._told: set[ProcessId] = set()  # connected incarnations that were sent a map
        self._owners: tuple[ShardMap, frozenset[int]] | None = None  # of the target
        self._began_s = 0.0

    # --- facts ----------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """No hand-over is under way. The PS of the map are the incarnations it was published with; some may have just
        died."""
        return self.state == HandOverState.SETTLED

    @property
    def owners(self) -> frozenset[int]:
        """PS that must run, whether or not the plan has them: they own buckets, or their predecessor left staged pushes
        that only they may settle."""
        if self.state in (HandOverState.FREEZING, HandOverState.RELEASING):
            return self.present.servers() | self._target.servers() | self._participants
        if self._owners is None or self._owners[0] is not self._target:  # cached: read every turn, thousands of buckets
            self._owners = self._target, self._target.servers()
        return self._owners[1]

    # --- events ---------------------------------------------------------------------------------------------

    def begin(
        self, target: ShardMap, now_s: float, moved: tuple[tuple[int, int], ...] = ()
    ) -> tuple[HandOverEffect, ...]:
        """Begins a hand-over from the present owners to those of `target` (its epoch is ignored). Allowed in state
        `settled` only. moved: (table, bucket) whose rows come from another host."""
        self._move("begin")
        self._target, self._began_s, self._moved = target, now_s, moved
        return self._ask(self.present, {self.present.dense_owner})

    def call_back(self) -> tuple[HandOverEffect, ...]:
        """Returns all buckets to the present owners. Allowed until the hand-over is settled."""
        before, self._target, self._moved = self._target, self.present, ()
        self._move("call back")
        if self.state == HandOverState.FREEZING:
            return ()
        # PS that have not answered Ready are included: they may adopt their buckets before this message arrives.
        concerned = _losers(self.present, before) | _losers(before, self.present)
        return self._ask(without_moving(self.present, before), concerned)

    def gone(self, servers: frozenset[int], takers: Sequence[int], now_s: float) -> tuple[HandOverEffect, ...]:
        """These PS and all their rows are lost. takers: PS that own and rebuild the lost buckets. The dense owner must
        not be one of the lost PS."""
        before, was = without_servers(self._target, servers), self.state
        self.present = without_servers(self.present, servers)
        self._remade |= set(self.present.buckets_of(NOBODY))
        self._target, self._moved = taken_over(self.present, takers), ()
        for server in servers & set(self._connected):
            self._told.discard(self._connected.pop(server))
        self._move("gone")
        if was == HandOverState.NEW:  # no rows exist yet
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
        """A PS incarnation has connected. A new incarnation of an owner starts a hand-over or joins the one under way;
        any other PS is only sent the map."""
        self._connected[server.index] = server
        if self.state == HandOverState.NEW:
            self._move("first map")
            self._began_s = now_s
            first = self._ask(self._target, self._target.servers())
            return first if server.index in self._participants else self._send((server,))
        if server.index in self._participants or server.index not in self.owners:
            return self._send((server,))
        return self.begin(self.present, now_s) if self.is_settled else ()  # a later step sends it the map

    def ready(
        self, server: ProcessId, shard_map_epoch: int, committed: tuple[CommittedBatch, ...] = ()
    ) -> tuple[HandOverEffect, ...]:
        """A PS has adopted the map of this epoch. An answer that is not awaited has no effect."""
        is_asked = self._connected.get(server.index) == server and server.index in self._waiting
        if not is_asked or shard_map_epoch != self._step.epoch:
            return ()
        if self.state == HandOverState.FREEZING:
            self._committed = committed
        self._waiting.discard(server.index)
        return () if self._waiting else self._step_done()

    def lost(self, server: ProcessId) -> None:
        """A PS incarnation has ended. If it takes part in this step, the step waits for its next incarnation."""
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
        """Begins a step with a new epoch, and sends its map to the participants that are connected."""
        self._step = msgspec.structs.replace(shard_map, epoch=self._step.epoch + 1)
        self._participants = frozenset(participants)
        self._waiting = set(self._participants)
        return self._send(
            tuple(self._connected[index] for index in sorted(self._participants) if index in self._connected)
        )

    def _send(self, servers: tuple[ProcessId, ...]) -> tuple[SendMap, ...]:
        """Sends the map of this step. A new incarnation that has to release buckets is first sent the map in which it
        owns them, so that it applies the pushes that its predecessor staged; not, however, in a call back after all
        releases, because the predecessor had released its buckets already."""
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
    """PS that own a bucket or the dense vector in `before` and do not own it in `after`."""
    pairs = [(before.dense_owner, after.dense_owner)]
    for row, now in zip(before.owners, after.owners, strict=True):
        pairs += zip(row, now, strict=True)
    return frozenset(old for old, new in pairs if old not in (new, NOBODY))


def with_dense_owner_on_host_0(goal: ShardMap, wanted: Collection[int], hosts: Mapping[int, int]) -> ShardMap:
    """The same map, with a PS of host 0 as dense owner, because the dense vector is in the arena of host 0. wanted: the
    PS of the plan. hosts: PS -> its host. Raises JobFailedError when no PS of the plan is on host 0."""
    if hosts[goal.dense_owner] == 0:
        return goal
    owners = [index for index in sorted(wanted) if hosts[index] == 0]
    if not owners:
        raise JobFailedError(
            f"no PS of the plan ({sorted(wanted)}) is on host 0, but the dense vector needs a PS there",
            hint="this is a bug in elastichost; please report it with the run directory",
        )
    return msgspec.structs.replace(goal, dense_owner=owners[0])
