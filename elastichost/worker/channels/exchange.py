"""State machines for what one worker incarnation has sent and what is not confirmed yet. Pure: they send nothing.

Rules
1. Sequence numbers of an incarnation are consecutive (1, 2, 3 ...). A batch keeps its number however often it is sent.
2. A batch is committed when the dense owner acknowledges its DensePushMsg, and not before. Commits are consecutive: the
   acknowledgement of batch n acknowledges all batches before n.
3. At most WINDOW dense pushes are outstanding: one per half of the mailbox (n goes into half n % 2).
4. Served access: the DensePushMsg of a batch leaves only when every owner has staged its part of the batch's rows, all
   under one shard map epoch, which the DensePushMsg names.
5. Lease progress is reported for committed batches only.

Theory of operation
`DenseStream` holds the outstanding dense pushes. When the dense owner is another PS or another incarnation, the caller
sends `to_resend` again under the same numbers; a successor finds the applied record in the arena and answers pushes
that its predecessor committed as duplicates. With served access a
refused push is withdrawn (`withdraw`); its number is used again.

`RowStream` holds the one batch whose rows are being staged: `begin`, then `cut` into one request per PS, `answer` for
each; when all are answered, `take` hands the commit out. When the shard map changes or a PS refuses a request, the rows
are cut again under the same number; answers to an older cut are ignored. When the commit is refused, because its rows
were staged under an older map, `begin` starts again. After the commit, `confirm` lists the owners to notify;
the entry of a PS is removed by its RowsAppliedMsg (`confirmed`) or when the PS leaves the shard map (`forget`).

A killed worker loses all of this state. Nothing has to be repaired here: the dense owner's applied record decides which
batches count, and the PS then apply or drop what this incarnation had staged. `PauseGate`, `MapsLeft` and
`LeaseAccount` hold the smaller conversations with the supervisor: pauses, shard maps left behind, lease progress.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from elastichost.errors import ProtocolError
from elastichost.wire.control import LeaseProgressMsg
from elastichost.wire.data import DensePushedMsg, DensePushMsg

__all__ = ["WINDOW", "DenseStream", "LeaseAccount", "MapsLeft", "PauseGate", "RowStream", "half_of"]

WINDOW = 2


def half_of(sequence: int) -> int:
    """The half of the mailbox (0 or 1) for the push with this sequence number."""
    return sequence % WINDOW


@dataclass(slots=True)
class DenseStream:
    """Outstanding dense pushes of one worker incarnation, oldest first.

    sequence: number of the newest push; acknowledged: number of the newest acknowledged one.
    """

    sequence: int = 0
    acknowledged: int = 0
    _outstanding: OrderedDict[int, DensePushMsg] = field(default_factory=OrderedDict)

    @property
    def is_full(self) -> bool:
        return len(self._outstanding) >= WINDOW

    @property
    def is_empty(self) -> bool:
        return not self._outstanding

    def push(self, message: DensePushMsg) -> None:
        """Notes a push that is about to be sent. Raises ProtocolError when the window is full, and for a number that is
        not the next one."""
        if self.is_full:
            raise ProtocolError(f"{WINDOW} dense pushes are already outstanding")
        if message.sequence != self.sequence + 1:
            raise ProtocolError(f"dense push {message.sequence} follows {self.sequence}, not {self.sequence + 1}")
        self.sequence = message.sequence
        self._outstanding[message.sequence] = message

    def acknowledge(self, message: DensePushedMsg) -> tuple[DensePushMsg, ...]:
        """Removes and returns the pushes that this answer acknowledges, in order; none if there are no new ones.

        Commits are consecutive, so the answer also acknowledges all earlier pushes; their own answers may be lost or
        late. Raises ProtocolError for a number that was never sent.
        """
        if message.sequence > self.sequence:
            raise ProtocolError(f"acknowledgement of dense push {message.sequence}, which was never sent")
        done = tuple(number for number in self._outstanding if number <= message.sequence)
        self.acknowledged = max(self.acknowledged, message.sequence if done else 0)
        return tuple(self._outstanding.pop(number) for number in done)

    def withdraw(self, request: int) -> DensePushMsg | None:
        """Removes and returns the newest push if `request` is its request: it was refused, and its sequence number will
        be used again under another request. None: the request is not that of the newest push."""
        push = self._outstanding.get(self.sequence)
        if push is None or push.request != request:
            return None
        del self._outstanding[self.sequence]
        self.sequence -= 1
        return push

    def to_resend(self) -> tuple[DensePushMsg, ...]:
        """The pushes to send again to a new dense owner or a new incarnation of it, in order."""
        return tuple(self._outstanding.values())


@dataclass(slots=True)
class RowStream:
    """Served access: the batch whose rows are being staged, its commit, and the owners to notify of past commits."""

    epoch: int = 0  # of the shard map that the rows are cut by; 0: not cut yet
    is_refused: bool = False  # a PS has another shard map: the present cut cannot succeed
    commit: DensePushMsg | None = None
    committed: int = 0  # sequence of the last batch known to be committed
    _waiting: set[int] = field(default_factory=set)  # requests of the present cut without an answer
    _servers: tuple[int, ...] = ()  # the PS of the present cut
    _unconfirmed: dict[int, int] = field(default_factory=dict)  # PS -> sequence of the commit to notify it of

    @property
    def is_empty(self) -> bool:
        """Whether no rows are being staged."""
        return self.commit is None

    @property
    def unconfirmed(self) -> Mapping[int, int]:
        """PS index -> sequence number of the commit that this PS has not confirmed yet."""
        return self._unconfirmed

    def begin(self, commit: DensePushMsg) -> None:
        """Starts the batch of this commit. Raises ProtocolError while the rows of another batch are being staged."""
        if self.commit is not None:
            raise ProtocolError(
                f"rows of batch {commit.sequence} are pushed before those of batch {self.commit.sequence} are staged"
            )
        self.commit, self.epoch = commit, 0

    def cut(self, epoch: int, requests: Mapping[int, int]) -> None:
        """The rows are sent as these requests (request -> PS) under this shard map epoch; earlier cuts are void."""
        if self.commit is None:
            raise ProtocolError("no batch was begun, so there are no rows to push")
        self.epoch, self.is_refused = epoch, False
        self._waiting, self._servers = set(requests), tuple(requests.values())

    @property
    def waiting(self) -> tuple[int, ...]:
        """The requests of the present cut that have no answer yet, in order."""
        return tuple(sorted(self._waiting))

    def answer(self, request: int) -> None:
        """A PS has staged the part of this request. Requests of older cuts are ignored."""
        self._waiting.discard(request)

    def refuse(self, request: int) -> None:
        """A PS refused its part because it has another shard map. Requests of older cuts are ignored."""
        if request in self._waiting:
            self.is_refused = True

    def take(self) -> DensePushMsg | None:
        """The commit, once all rows are staged, with the shard map epoch of the staging. None: not yet."""
        if self.commit is None or self.epoch == 0 or self._waiting:
            return None
        commit, self.commit = self.commit, None
        return msgspec.structs.replace(commit, shard_map_epoch=self.epoch)

    def confirm(self, sequence: int, but: int) -> None:
        """The batch is committed by PS `but`: all other owners of its rows must be notified."""
        self.committed = max(self.committed, sequence)
        self._unconfirmed.update({server: sequence for server in self._servers if server != but})

    def confirmed(self, server: int, sequence: int) -> None:
        """This PS has applied everything up to this sequence number."""
        if self._unconfirmed.get(server, sequence + 1) <= sequence:
            del self._unconfirmed[server]

    def forget(self, server: int) -> None:
        """This PS is no longer in the shard map. It settled its staged pushes when it gave its buckets up."""
        self._unconfirmed.pop(server, None)


@dataclass(slots=True)
class PauseGate:
    """The checkpoint cut for which a worker must stand still, and whether it has answered Paused.

    The worker reads messages on its way to the batch boundary, so Proceed, and even the next Pause, may arrive before
    it has answered.
    """

    asked: int | None = None
    _answered: int = 0  # cuts are numbered from 1

    def proceed(self, cut: int) -> None:
        """Ends the pause for this cut. A Proceed of another cut is ignored."""
        if self.asked == cut:
            self.asked = None

    def due(self) -> int | None:
        """The cut that waits for an answer; None: none does."""
        return self.asked if self.asked != self._answered else None

    def answer(self, cut: int) -> bool:
        """At the batch boundary: whether Paused(cut) is to be sent now. False: the cut was called off meanwhile."""
        if self.asked != cut:
            return False
        self._answered = cut
        return True


@dataclass(slots=True)
class MapsLeft:
    """Mixed access: the oldest shard map by which this worker may still use rows in place.

    Batches are trained in the order in which they were prepared. So when a batch that was prepared by map e is over, no
    later batch uses a map older than e.
    """

    _trained: int = 0  # epoch of the map by which the last trained batch was prepared
    _told: int = 0  # the last epoch that `due` returned

    def trained(self, epoch: int) -> None:
        """A batch that was prepared by the map of this epoch is over (committed or left out)."""
        self._trained = max(self._trained, epoch)

    def due(self, present: int, *, is_idle: bool) -> int | None:
        """Between two batches: epoch e for the report "this worker uses no map older than e"; None: nothing new.

        present: epoch of the newest map. is_idle: no batch is prepared or being prepared.
        """
        reached = present if is_idle else self._trained
        if reached <= self._told:
            return None
        self._told = reached
        return reached


@dataclass(slots=True)
class LeaseAccount:
    """How far each lease of this worker is committed. Turns commits into LeaseProgressMsg."""

    _progress: OrderedDict[int, LeaseProgressMsg] = field(default_factory=OrderedDict)
    _changed: set[int] = field(default_factory=set)

    def committed(self, push: DensePushMsg) -> None:
        """A batch is committed."""
        self._advance(push.lease_id, push.stop, push.samples, push.skipped)

    def skipped(self, lease_id: int, stop: int, skipped: int) -> None:
        """Accounts for skipped samples up to `stop` that belong to no commit: none of them is trained."""
        self._advance(lease_id, stop, 0, skipped)

    def _advance(self, lease_id: int, stop: int, samples: int, skipped: int) -> None:
        before = self._progress.get(lease_id)
        self._progress[lease_id] = LeaseProgressMsg(
            lease_id=lease_id,
            stop=stop,
            samples=samples + (before.samples if before else 0),
            skipped=skipped + (before.skipped if before else 0),
        )
        self._changed.add(lease_id)

    def changes(self) -> tuple[LeaseProgressMsg, ...]:
        """The progress that was not reported yet, in the order of the leases, and marks it as reported."""
        changed = tuple(p for lease, p in self._progress.items() if lease in self._changed)
        self._changed.clear()
        return changed

    def forget(self, lease_id: int) -> None:
        """Drops a lease that is finished and reported."""
        self._progress.pop(lease_id, None)
