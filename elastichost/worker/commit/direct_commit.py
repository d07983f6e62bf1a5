"""Direct access: rows change in place in the mapped arena, and the dense gradients lie in the worker's mailbox there.

What is released into the mailbox is committed even if its message dies with the worker: the dense owner takes it from
there when it fences the incarnation. So a killed worker tears one batch at most, the one that it computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from elastichost.wire.codec import Frame
from elastichost.wire.crash import crash_point
from elastichost.wire.data import DensePushMsg
from elastichost.worker.channels.channel import DirectoryHolder, Pump
from elastichost.worker.channels.exchange import half_of
from elastichost.worker.commit.dense_transport import DenseVector, MappedParameters
from elastichost.worker.commit.lease_commit import BatchRange, ModelCommit

if TYPE_CHECKING:
    from elastichost.arena.dense.store import DenseStore
    from elastichost.arena.watermarks import Watermarks
    from elastichost.worker.access.direct import DirectLookup
    from elastichost.worker.access.rows import PreparedBatch

__all__ = ["DirectCommit"]


class DirectCommit(ModelCommit):
    """Up to two batches are on the way, one in each half of the mailbox."""

    def __init__(
        self,
        holder: DirectoryHolder,
        pump: Pump,
        flat: DenseVector,
        dense: DenseStore,
        watermarks: Watermarks,
        lookups: Sequence[DirectLookup],
    ) -> None:
        super().__init__(holder, MappedParameters(flat, dense), pump)
        self._flat, self._dense, self._watermarks = flat, dense, watermarks
        self._lookups = lookups

    def load(self, batch: PreparedBatch, learning_rate_scale: float) -> None:
        """Implements `ModelCommit.load`: the rows are in the arena."""
        for lookup in self._lookups:
            lookup.set_learning_rate_scale(learning_rate_scale)

    def before_backward(self) -> float:
        """Implements `ModelCommit.before_backward`: whoever looks for torn batches finds that this one has begun."""
        self._watermarks.note_begun(self._process.index, self._process.incarnation, self.next_sequence)
        return 0.0

    def commit(self, batch: BatchRange, learning_rate_scale: float) -> None:
        """Implements `LeaseCommit.commit`. Waits while two batches are on the way."""
        self._await_room()
        half = half_of(self.next_sequence)
        mailbox = self._dense.mailbox(self._process.index, half)
        self._flat.write_push(mailbox.vector)
        push = self._push_of(batch, learning_rate_scale, mailbox=half)
        crash_point("worker.batch.before_commit")
        self._stream.push(push)
        mailbox.post(self._process.incarnation, push.sequence, msgspec.msgpack.encode(push))
        crash_point("worker.batch.posted")
        self._send_first(push)

    def _frames_of(self, push: DensePushMsg) -> tuple[Frame, ...]:
        """Implements `LeaseCommit._frames_of`: the vector lies in the mailbox."""
        return ()
