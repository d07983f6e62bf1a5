"""Direct access with the model in memory of the GPU: rows and dense vector change there, and a commit only counts.

Rules 1 to 3 of `direct_commit` hold, and so does its theory of operation, with one difference: what a batch releases in
the mailbox is a message without a vector. The step has written its result into memory that outlives this process
(`worker.gpu.device_dense`) before the message is posted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from elastichost.worker.channels.exchange import half_of
from elastichost.worker.commit.dense_transport import Ask, MappedParameters
from elastichost.worker.commit.direct_commit import DirectCommit
from elastichost.worker.commit.lease_commit import BatchRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from elastichost.arena.dense.store import DenseStore
    from elastichost.worker.commit.dense_transport import InPlaceVector

__all__ = ["DeviceCommit", "ResidentParameters"]


class ResidentParameters(MappedParameters):
    """Parameters that only this worker changes, in memory of its GPU, also for an evaluation: those in the arena are
    older. restore: takes those that its predecessor has left, until this worker has begun."""

    def __init__(self, flat: InPlaceVector, dense: DenseStore, restore: Callable[[], None]) -> None:
        super().__init__(flat, dense)
        self._restore = restore

    def refresh(self, ask: Ask) -> None:
        """Implements `DenseParameters.refresh`."""
        self._restore()
        self.samples_applied = self._dense.samples_applied()

    def fetch(self, ask: Ask) -> None:
        """Implements `DenseParameters.fetch`."""
        self.refresh(ask)


class DeviceCommit(DirectCommit):
    """Commits with up to two outstanding batches. Its parameters are `ResidentParameters`."""

    def _direct_gradients(self) -> None:
        """The gradients stay in memory of the GPU."""

    def commit(self, batch: BatchRange, learning_rate_scale: float) -> None:
        """Implements `LeaseCommit.commit`."""
        self._await_room()
        half = half_of(self.next_sequence)
        push = self._push_of(batch, learning_rate_scale, mailbox=half)
        self._post(msgspec.structs.replace(push, is_applied=True), half)
