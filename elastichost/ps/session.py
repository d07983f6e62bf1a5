"""The state that a PS keeps of its peers: members, fences, the clock of bounded mode. Pure.

Rules
1. A message of a fenced incarnation is refused finally. A fence includes all earlier incarnations of the worker and is
   never lifted.
2. A pull or push must name exactly the shard map epoch of this PS. It is refused otherwise; the worker may repeat it.
3. A membership replaces an older one only if its epoch is greater.
4. The clock: the request "I have finished b batches, staleness s" is answered when every worker on the clock has
   finished at least b - s batches. A worker joins the clock with its first such request. It leaves the clock with batch
   -1 (idle), with its fence, or when it is no longer a member.
5. An incarnation that joins the clock starts level with the slowest worker on it: `base` is added to its own count.
   So a newcomer does not make the others wait until it has caught up. The worker names its base from then on, so that
   the successor of a killed dense owner knows how far the workers are from each other.
6. A worker has one waiting request: a newer one replaces it, and one older than the newest received is ignored.

Theory of operation. Inputs are facts: a fence, a membership, a request. Outputs are facts (refuse or not) and effects
(`Reply`: send ClockReachedMsg). After every input that can raise the slowest count, or remove a worker from the clock,
`_due` returns the replies whose condition now holds; the caller sends them.

The state is lost when the PS is killed. The successor starts with an empty session and gets the shard map, the
membership and all open fences from the supervisor; workers send their waiting clock requests again. What decides which
batches count (applied records, staged pushes) is in the arena, not here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elastichost.plan import ProcessId

__all__ = ["Reply", "RequestRefusal", "Session"]


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """Why a request is answered with RetryMsg. final: the incarnation is fenced and must not try again."""

    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """Effect: send ClockReachedMsg(request, slowest, base) to this peer. base: of this worker; 0: it is idle."""

    peer: bytes
    request: int
    slowest: int
    base: int = 0


@dataclass(slots=True)
class _Waiter:
    peer: bytes
    request: int
    worker: int
    batch: int
    staleness: int


@dataclass(slots=True)
class Session:
    """The session of one PS incarnation. The shard map epoch and the membership come from the supervisor.

    members: worker -> incarnation; empty: not known yet.
    """

    shard_map_epoch: int = 0
    membership_epoch: int = 0
    members: dict[int, int] = field(default_factory=dict)
    _fenced: dict[int, int] = field(default_factory=dict)
    _finished: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # worker -> incarnation, base, batches
    _waiters: list[_Waiter] = field(default_factory=list)
    _newest: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # worker -> incarnation, number of its newest clock request

    # --- admission of messages ------------------------------------------------------------------------------

    def fence(self, worker: int, incarnation: int) -> tuple[Reply, ...]:
        """Refuses messages of this incarnation and all earlier ones from now on. Returns replies that became due."""
        self._fenced[worker] = max(incarnation, self._fenced.get(worker, 0))
        return self._leave(worker, incarnation)

    def refuse(self, sender: ProcessId, shard_map_epoch: int | None) -> RequestRefusal | None:
        """The reason to refuse a data message; None: it is accepted. shard_map_epoch None: the message names no shard
        map."""
        if sender.incarnation <= self._fenced.get(sender.index, 0):
            return RequestRefusal(f"{sender} is fenced", final=True)
        if shard_map_epoch is not None and shard_map_epoch != self.shard_map_epoch:
            return RequestRefusal(
                f"the request is for shard map epoch {shard_map_epoch}, this PS has epoch {self.shard_map_epoch}"
            )
        return None

    def counts(self, sender: ProcessId) -> bool:
        """Whether the sender is a member. True for every sender while the members are not known."""
        return not self.members or self.members.get(sender.index) == sender.incarnation

    def set_members(self, epoch: int, workers: tuple[tuple[int, int], ...]) -> tuple[Reply, ...]:
        """Takes a membership with a greater epoch. Workers that are no longer members leave the clock. Returns replies
        that became due."""
        if epoch <= self.membership_epoch:
            return ()
        self.membership_epoch = epoch
        self.members = dict(workers)
        for worker, (incarnation, _, _) in list(self._finished.items()):
            if self.members.get(worker) != incarnation:
                del self._finished[worker]
        return self._due()

    # --- the clock of bounded mode --------------------------------------------------------------------------

    def advanced(
        self, sender: ProcessId, peer: bytes, request: int, batch: int, staleness: int, base: int | None = None
    ) -> tuple[Reply, ...]:
        """A worker has finished `batch` batches (-1: it is idle and leaves the clock). base: that it got when it joined
        the clock; None: it joins now. Returns the replies that are due now; its own is due when every worker on the
        clock has finished at least `batch - staleness`.

        A request older than the newest one of the worker is ignored: the worker may have left the clock since.
        """
        if (sender.incarnation, request) < self._newest.get(sender.index, (0, 0)):
            return ()
        self._newest[sender.index] = sender.incarnation, request
        if batch < 0:
            left = self._leave(sender.index, sender.incarnation)
            return (*left, Reply(peer, request, self.slowest()))
        known = self._finished.get(sender.index)
        if known is None or known[0] != sender.incarnation:
            if base is None:
                base = (self.slowest() if self._finished else batch) - batch
            self._finished[sender.index] = (sender.incarnation, base, batch)
        else:
            self._finished[sender.index] = (sender.incarnation, known[1], batch)
        # A repeated request replaces the first one.
        self._waiters = [waiter for waiter in self._waiters if waiter.worker != sender.index]
        self._waiters.append(_Waiter(peer, request, sender.index, batch, staleness))
        return self._due()

    def slowest(self) -> int:
        """Batches finished by the slowest worker on the clock; 0 when no worker is on it."""
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
                due.append(Reply(waiter.peer, waiter.request, slowest, 0 if known is None else known[1]))
            else:
                waiting.append(waiter)
        self._waiters = waiting
        return tuple(due)
