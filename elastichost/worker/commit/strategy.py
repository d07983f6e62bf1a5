"""What every way to commit has in common, so that a worker's life can be the same for all of them.

The way is chosen once, in `worker.setup`, by the access mode and the training mode. `lease_commit` is what the
strategies of leased batches share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from elastichost.worker.channels.channel import Channel

__all__ = ["CommitStrategy"]


class CommitStrategy(ABC):
    """How the work of one worker incarnation becomes part of the job's model. Belongs to the thread that trains."""

    @property
    @abstractmethod
    def channels(self) -> tuple[Channel, ...]:
        """Its connections to the PS."""

    @abstractmethod
    def fetch(self) -> None:
        """Brings the newest dense vector into the model, and asks the dense owner for it where it is not mapped: at the
        start and before an evaluation. Raises StoppedError."""

    def close(self) -> None:
        for channel in self.channels:
            channel.close()
