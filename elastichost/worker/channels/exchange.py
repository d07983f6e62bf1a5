"""What a worker has sent and not yet seen confirmed. Pure, so that it can be tested and replayed.

`RowStream` is what comes before and after a commit with served access: the batch's row push, cut into a request for
each PS, and the news of the commit.
`DenseStream` is the life of a worker's commits. A batch is committed when the dense owner acknowledges its
DensePushMsg. Up to WINDOW pushes may be on the way (the two halves of the mailbox); after a new PS incarnation has
taken over, all of them are sent again under the same sequence numbers, and the PS recognises those it has applied.
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
    """Which half of the mailbox a push of this sequence number uses."""
    return sequence % WINDOW


@dataclass(slots=True)
class DenseStream:
    """Outstanding dense pushes of one worker incarnation, oldest first."""

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
        """Notes a push that is about to be sent. Raises ProtocolError when the window is full or numbers skip."""
        if self.is_full:
            raise ProtocolError(f"{WINDOW} dense pushes are already on the way")
        if message.sequence != self.sequence + 1:
            raise ProtocolError(f"dense push {message.sequence} follows {self.sequence}")
        self.sequence = message.sequence
        self._outstanding[message.sequence] = message

    def acknowledge(self, message: DensePushedMsg) -> tuple[DensePushMsg, ...]:
        """The pushes this acknowledges, in order; none if they were acknowledged before. Commits are consecutive: an
        answer speaks for the pushes before as well, whose own answers may be lost, or late."""
        if message.sequence > self.sequence:
            raise ProtocolError(f"acknowledgement of dense push {message.sequence}, which was never sent")
        done = tuple(number for number in self._outstanding if number <= message.sequence)
        self.acknowledged = max(self.acknowledged, message.sequence if done else 0)
        return tuple(self._outstanding.pop(number) for number in done)

    def withdraw(self, request: int) -> DensePushMsg | None:
        """The newest push, if this is its request: it was refused and will be sent again, as another request."""
        push = self._outstanding.get(self.sequence)
        if push is None or push.request != request:
            return None
        del self._outstanding[self.sequence]
        self.sequence -= 1
        return push

    def to_resend(self) -> tuple[DensePushMsg, ...]:
        """What a new incarnation of the dense owner has to be sent again, in order."""
        return tuple(self._outstanding.values())


@dataclass(slots=True)
class RowStream:
    """The one batch whose rows are on their way to their owners, and its commit, which waits until they are staged.

    `begin`, then `cut` into requests; when all of them are answered `take` hands the commit out. When the shard map
    changes, or a PS refuses a request, the rows are cut anew under the batch's sequence number; answers to an older cut
    count no more. When the commit itself is refused, because its rows were staged under an older map, `begin` begins
    anew. `confirm` notes that the owners of the rows have to hear of the commit, and `confirmed` that one has.
    """

    epoch: int = 0  # of the shard map that the rows are cut by; 0: not cut yet
    is_refused: bool = False  # a PS knows another shard map: the present cut leads to nothing
    commit: DensePushMsg | None = None
    committed: int = 0  # sequence of the last batch known to be committed
    _waiting: set[int] = field(default_factory=set)
    _servers: tuple[int, ...] = ()  # of the present cut
    _unconfirmed: dict[int, int] = field(default_factory=dict)  # PS -> sequence of the commit it has to hear of

    @property
    def is_empty(self) -> bool:
        return self.commit is None

    @property
    def unconfirmed(self) -> Mapping[int, int]:
        """Which PS have not answered that they know of which commit."""
        return self._unconfirmed

    def begin(self, commit: DensePushMsg) -> None:
        """Raises ProtocolError while rows of another batch are on their way."""
        if self.commit is not None:
            raise ProtocolError(f"rows of batch {commit.sequence} before those of {self.commit.sequence} are staged")
        self.commit, self.epoch = commit, 0

    def cut(self, epoch: int, requests: Mapping[int, int]) -> None:
        """The rows leave as these requests (request -> PS), instead of all before."""
        if self.commit is None:
            raise ProtocolError("there are no rows to cut")
        self.epoch, self.is_refused = epoch, False
        self._waiting, self._servers = set(requests), tuple(requests.values())

    def answer(self, request: int) -> None:
        """A PS has staged its part."""
        self._waiting.discard(request)

    def refuse(self, request: int) -> None:
        """A PS wants its part cut by another shard map."""
        if request in self._waiting:
            self.is_refused = True

    def take(self) -> DensePushMsg | None:
        """The commit that is due: all rows are staged. It says under which shard map."""
        if self.commit is None or self.epoch == 0 or self._waiting:
            return None
        commit, self.commit = self.commit, None
        return msgspec.structs.replace(commit, shard_map_epoch=self.epoch)

    def confirm(self, sequence: int, but: int) -> None:
        """The batch is committed: its owners have to hear of it, `but` not the one that committed it."""
        self.committed = max(self.committed, sequence)
        self._unconfirmed.update({server: sequence for server in self._servers if server != but})

    def confirmed(self, server: int, sequence: int) -> None:
        """A PS has applied everything up to this sequence number."""
        if self._unconfirmed.get(server, sequence + 1) <= sequence:
            del self._unconfirmed[server]

    def forget(self, server: int) -> None:
        """This PS is there no more; it settled what it had when it gave its buckets up."""
        self._unconfirmed.pop(server, None)


@dataclass(slots=True)
class PauseGate:
    """The cut a worker is asked to stand still for, and whether it has said that it does. On its way to the batch
    boundary it reads messages: Proceed, and even the next Pause, may come before its answer."""

    asked: int | None = None
    _answered: int = 0  # cuts are numbered from 1

    def proceed(self, cut: int) -> None:
        if self.asked == cut:
            self.asked = None

    def due(self) -> int | None:
        """The cut that waits for an answer."""
        return self.asked if self.asked != self._answered else None

    def answer(self, cut: int) -> bool:
        """At the boundary: whether Paused(cut) is to be sent now. False when it was called off meanwhile."""
        if self.asked != cut:
            return False
        self._answered = cut
        return True


@dataclass(slots=True)
class MapsLeft:
    """Mixed access: by which shard maps rows may still be used in place. Batches are trained in the order in which they
    were prepared, so once one is over that was prepared by some map, nothing that is to come is by an older one."""

    _trained: int = 0  # epoch of the map by which the last batch was prepared
    _told: int = 0

    def trained(self, epoch: int) -> None:
        self._trained = max(self._trained, epoch)

    def due(self, present: int, *, is_idle: bool) -> int | None:
        """Between two batches: the epoch to be told that nothing here is older than. present: of the newest map;
        is_idle: nothing is prepared or being prepared."""
        reached = present if is_idle else self._trained
        if reached <= self._told:
            return None
        self._told = reached
        return reached


@dataclass(slots=True)
class LeaseAccount:
    """How far each lease of this worker is committed; turns acknowledgements into LeaseProgressMsg."""

    _progress: OrderedDict[int, LeaseProgressMsg] = field(default_factory=OrderedDict)
    _changed: set[int] = field(default_factory=set)

    def committed(self, push: DensePushMsg) -> None:
        """A batch is committed."""
        self._advance(push.lease_id, push.stop, push.samples, push.skipped)

    def skipped(self, lease_id: int, stop: int, skipped: int) -> None:
        """Bad rows that no commit accounts for: nothing of them is trained."""
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
        """Progress not yet reported, in the order of the leases; forgets that it was unreported."""
        changed = tuple(p for lease, p in self._progress.items() if lease in self._changed)
        self._changed.clear()
        return changed

    def forget(self, lease_id: int) -> None:
        """The lease is finished and reported."""
        self._progress.pop(lease_id, None)
