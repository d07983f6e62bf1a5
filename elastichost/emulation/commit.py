"""The commits of an emulated worker: real pushes of a dense vector with gradients of zero. They contain no rows."""

from __future__ import annotations

from elastichost.wire.codec import Frame
from elastichost.wire.data import DensePushMsg
from elastichost.worker.channels.channel import DirectoryHolder, Pump
from elastichost.worker.commit.dense_transport import DenseVector, GradientFrames, ReceivedParameters
from elastichost.worker.commit.lease_commit import BatchRange, LeaseCommit

__all__ = ["EmulatedCommit"]


class EmulatedCommit(LeaseCommit):
    """At most two pushes are outstanding. Gradients and parameters are frames of the messages."""

    def __init__(self, holder: DirectoryHolder, pump: Pump, vector: DenseVector) -> None:
        super().__init__(holder, ReceivedParameters(vector), pump)
        self._vector = vector
        self._frames = GradientFrames(len(vector.values))

    def commit(self, batch: BatchRange, learning_rate_scale: float) -> None:
        """Implements `LeaseCommit.commit`. Waits while two pushes are outstanding."""
        self._await_room()
        self._frames.write(self._vector, self.next_sequence)
        self._release(self._push_of(batch, learning_rate_scale, mailbox=-1))

    def _frames_of(self, push: DensePushMsg) -> tuple[Frame, ...]:
        """Implements `LeaseCommit._frames_of`."""
        return (self._frames.frame(push.sequence),)
