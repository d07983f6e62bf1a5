"""Direct access: rows change in place in the mapped arena; dense gradients are released in the worker's mailbox there.

Rules
1. No row changes for batch n before the watermark (incarnation, n) is stored.
2. Batch n is released when its message is posted in half n % 2 of the mailbox: the vector and the message are written
   first, the sequence word last. A released batch is committed even if the worker dies.
3. Batch n is written into its half only when batch n - 2 is acknowledged, so a half never loses an uncommitted push.
   The backward pass writes there, so the wait is before it.

Theory of operation. For batch n, in this order:

    batch n - 2 acknowledged -> watermark := n -> rows and the mailbox's vector change (backward pass) -> posted
    (released) -> DensePushMsg sent -> dense owner publishes (committed) -> acknowledged

A kill of the worker
- before the watermark is stored: nothing was written; the ledger gives the positions to another worker;
- between watermark and release: batch n is torn. Its rows are updated in part or in full and no commit follows. The
  supervisor sees a watermark beyond the applied record, counts the torn batch, and its positions are trained again;
- after the release: the dense owner, when it fences the incarnation, commits what lies in the mailbox beyond the
  applied record, in order (`DataService.commit_posted`). The message itself may be lost.

So a killed worker tears at most one batch. A kill of the dense owner loses nothing: the worker sends the push again to
the successor, which has the mailbox and the applied record in the arena. When the supervisor and the whole run die,
released batches that no PS had committed count as torn.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from elastichost.wire.codec import Frame
from elastichost.wire.crash import crash_point
from elastichost.wire.data import DensePushMsg
from elastichost.worker.channels.channel import DirectoryHolder, Pump
from elastichost.worker.channels.exchange import half_of
from elastichost.worker.commit.dense_transport import InPlaceVector, MappedParameters
from elastichost.worker.commit.lease_commit import BatchRange, ModelCommit

if TYPE_CHECKING:
    from elastichost.arena.dense.store import DenseStore
    from elastichost.arena.watermarks import Watermarks
    from elastichost.worker.access.rows import PreparedBatch

__all__ = ["DirectCommit", "RatedLookup"]


class RatedLookup(Protocol):
    """A lookup whose backward pass updates rows in place."""

    def set_learning_rate_scale(self, scale: float) -> None:
        """Sets the schedule's factor, which multiplies the learning rate of every table."""
        ...


class DirectCommit(ModelCommit):
    """Commits with up to two outstanding batches, one in each half of the mailbox."""

    def __init__(
        self,
        holder: DirectoryHolder,
        pump: Pump,
        flat: InPlaceVector,
        dense: DenseStore,
        watermarks: Watermarks,
        lookups: Sequence[RatedLookup],
        parameters: MappedParameters | None = None,
    ) -> None:
        super().__init__(holder, parameters or MappedParameters(flat, dense), pump)
        self._flat, self._dense, self._watermarks = flat, dense, watermarks
        self._lookups = lookups

    def load(self, batch: PreparedBatch, learning_rate_scale: float) -> None:
        """Implements `ModelCommit.load`. The rows are in the arena already."""
        for lookup in self._lookups:
            lookup.set_learning_rate_scale(learning_rate_scale)

    def before_backward(self) -> float:
        """Implements `ModelCommit.before_backward`: waits while two batches are outstanding, then lets the backward
        pass write into the mailbox. Stores the watermark, so that a kill from here on is counted as a torn batch."""
        began_s = time.monotonic()
        self._await_room()
        waited_s = time.monotonic() - began_s
        self._direct_gradients()
        self._watermarks.note_begun(self._process.index, self._process.incarnation, self.next_sequence)
        return waited_s

    def _direct_gradients(self) -> None:
        """Lets the backward pass write into the free half of the mailbox."""
        self._flat.write_into(self._dense.mailbox(self._process.index, half_of(self.next_sequence)).vector)

    def commit(self, batch: BatchRange, learning_rate_scale: float) -> None:
        """Implements `LeaseCommit.commit`. Waits while two batches are outstanding."""
        self._await_room()
        half = half_of(self.next_sequence)
        self._flat.write_push(self._dense.mailbox(self._process.index, half).vector)
        self._post(self._push_of(batch, learning_rate_scale, mailbox=half), half)

    def _post(self, push: DensePushMsg, half: int) -> None:
        """Releases the batch of this push in a half of the mailbox, and sends the push."""
        crash_point("worker.batch.before_commit")
        self._stream.push(push)
        mailbox = self._dense.mailbox(self._process.index, half)
        mailbox.post(self._process.incarnation, push.sequence, msgspec.msgpack.encode(push))
        crash_point("worker.batch.posted")
        self._send_first(push)

    def _frames_of(self, push: DensePushMsg) -> tuple[Frame, ...]:
        """Implements `LeaseCommit._frames_of`: none, because the vector lies in the mailbox."""
        return ()
