"""The interface of a commit strategy, as the worker lifecycle uses it.

`worker.setup` chooses the strategy once, by the access mode and the training mode. `lease_commit` is the base of the
strategies for leased batches.

Rules of every strategy
1. A batch (in sync mode a step) counts when the dense owner has published the dense vector that contains it. That one
   store is the commit point; parameters, optimizer state and the applied record are published together.
2. The worker reports only committed work to the supervisor.
3. After a kill at any point, committed work is complete in all stores or is completed by the PS, and work that is not
   committed is trained again. Only rows that were updated in place may keep a part of a batch that is not committed (a
   torn batch): at most one batch per killed worker, and it is counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from elastichost.worker.channels.channel import Channel

__all__ = ["CommitStrategy"]


class CommitStrategy(ABC):
    """The commit strategy of one worker incarnation. Belongs to the thread that trains."""

    @property
    @abstractmethod
    def channels(self) -> tuple[Channel, ...]:
        """The strategy's connections to the PS."""

    @abstractmethod
    def fetch(self) -> None:
        """Copies the newest dense vector into the model, from the arena or, where it is not mapped, from the dense
        owner. Called at the start and before an evaluation. Raises StoppedError."""

    def close(self) -> None:
        for channel in self.channels:
            channel.close()
