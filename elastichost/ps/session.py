"""What a PS remembers of its peers: memberships, fences, the clock of bounded mode. Pure.

Every method takes facts and returns facts or effects (`Reply`); nothing here knows sockets or time. A successor of
a killed PS begins with an empty session: what must not be forgotten is in the arena.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elastichost.plan import ProcessId

__all__ = ["Reply", "RequestRefusal", "Session"]


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """Why a request is answered with Retry. `final`: this incarnation is over for good."""

    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """Effect: answer ClockReachedMsg(request, slowest) to this peer."""

    peer: bytes
    request: int
    slowest: int


@dataclass(slots=True)
class _Waiter:
    peer: bytes
    request: int
    worker: int
    batch: int
    staleness: int


@dataclass(slots=True)
class Session:
    """State of one PS incarnation. `shard_map_epoch` and the membership come from the supervisor."""

    shard_map_epoch: int = 0
    membership_epoch: int = 0
    members: dict[int, int] = field(default_factory=dict)
    _fenced: dict[int, int] = field(default_factory=dict)
    _finished: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # worker -> incarnation, base, batches
    _waiters: list[_Waiter] = field(default_factory=list)
    _newest: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # worker -> incarnation, its newest request of the clock

    # --- who may speak --------------------------------------------------------------------------------------

    def fence(self, worker: int, incarnation: int) -> tuple[Reply, ...]:
        """Refuses this incarnation and all before it from now on. Returns replies that became due."""
        self._fenced[worker] = max(incarnation, self._fenced.get(worker, 0))
        return self._leave(worker, incarnation)

    def refuse(self, sender: ProcessId, shard_map_epoch: int | None) -> RequestRefusal | None:
        """Whether a data message must be refused. `shard_map_epoch` None: the message does not depend on it."""
        if sender.incarnation <= self._fenced.get(sender.index, 0):
            return RequestRefusal(f"{sender} is fenced", final=True)
        if shard_map_epoch is not None and shard_map_epoch != self.shard_map_epoch:
            return RequestRefusal(f"shard map epoch {shard_map_epoch}, this PS has {self.shard_map_epoch}")
        return None

    def counts(self, sender: ProcessId) -> bool:
        """Whether it is a member, as far as members are known."""
        return not self.members or self.members.get(sender.index) == sender.incarnation

    def set_members(self, epoch: int, workers: tuple[tuple[int, int], ...]) -> tuple[Reply, ...]:
        """A newer membership; those who left no longer hold anyone up."""
        if epoch <= self.membership_epoch:
            return ()
        self.membership_epoch = epoch
        self.members = dict(workers)
        for worker, (incarnation, _, _) in list(self._finished.items()):
            if self.members.get(worker) != incarnation:
                del self._finished[worker]
        return self._due()

    # --- the clock of bounded mode --------------------------------------------------------------------------

    def advanced(self, sender: ProcessId, peer: bytes, request: int, batch: int, staleness: int) -> tuple[Reply, ...]:
        """A worker has finished `batch` batches (-1: it idles). Returns the replies due now, its own included once
        every member has finished at least `batch - staleness`. An incarnation new to the clock starts with the slowest.
        What was overtaken by a later request of the worker is ignored: it may have left the clock."""
        if (sender.incarnation, request) < self._newest.get(sender.index, (0, 0)):
            return ()
        self._newest[sender.index] = sender.incarnation, request
        if batch < 0:
            left = self._leave(sender.index, sender.incarnation)
            return (*left, Reply(peer, request, self.slowest()))
        known = self._finished.get(sender.index)
        if known is None or known[0] != sender.incarnation:
            base = (self.slowest() if self._finished else batch) - batch
            self._finished[sender.index] = (sender.incarnation, base, batch)
        else:
            self._finished[sender.index] = (sender.incarnation, known[1], batch)
        # A request that was sent again takes the place of the first.
        self._waiters = [waiter for waiter in self._waiters if waiter.worker != sender.index]
        self._waiters.append(_Waiter(peer, request, sender.index, batch, staleness))
        return self._due()

    def slowest(self) -> int:
        """Batches finished by the slowest worker that takes part; 0 when none does."""
        return min((base + batch for _, base, batch in self._finished.values()), default=0)

    def _leave(self, worker: int, incarnation: int) -> tuple[Reply, ...]:
        known = self._finished.get(worker)
        if known is not None and known[0] <= incarnation:
            del self._finished[worker]
            self._waiters = [waiter for waiter in self._waiters if waiter.worker != worker]
        return self._due()

    def _due(self) -> tuple[Reply, ...]:
        slowest = self.slowest()
        due: list[Reply] = []
        waiting: list[_Waiter] = []
        for waiter in self._waiters:
            known = self._finished.get(waiter.worker)
            if known is None or known[1] + waiter.batch - waiter.staleness <= slowest:
                due.append(Reply(waiter.peer, waiter.request, slowest))
            else:
                waiting.append(waiter)
        self._waiters = waiting
        return tuple(due)
