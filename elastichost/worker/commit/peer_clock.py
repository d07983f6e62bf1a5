"""Limits how far ahead of its peers a worker may train, as `train.mode` requires: async or bounded."""

from __future__ import annotations

import time
from typing import Protocol

from elastichost.config.sections.schema import TrainSection
from elastichost.worker.commit.lease_commit import LeaseCommit

__all__ = ["BoundedClock", "FreeClock", "PeerClock", "peer_clock"]


class PeerClock(Protocol):
    """The clock that a worker calls before each batch."""

    def wait_for_peers(self, finished: int) -> float:
        """Returns when a worker that has finished `finished` batches may begin another. Returns the seconds waited."""
        ...

    def leave(self) -> None:
        """This worker pauses or ends: its peers must not wait for it."""
        ...


class FreeClock:
    """The clock of async mode: no worker waits."""

    def wait_for_peers(self, finished: int) -> float:
        """Implements `PeerClock.wait_for_peers`."""
        return 0.0

    def leave(self) -> None:
        """Implements `PeerClock.leave`: does nothing, because no peer waits."""


class BoundedClock:
    """The clock of bounded mode: a worker waits while a member is more than `staleness` batches behind it."""

    def __init__(self, strategy: LeaseCommit, staleness: int) -> None:
        self._strategy, self._staleness = strategy, staleness
        self._has_left = True

    def wait_for_peers(self, finished: int) -> float:
        """Implements `PeerClock.wait_for_peers`. Raises FencedError, StoppedError."""
        began_s = time.perf_counter()
        self._has_left = False
        self._strategy.wait_for_peers(finished, self._staleness)
        return time.perf_counter() - began_s

    def leave(self) -> None:
        """Implements `PeerClock.leave`. Raises as `wait_for_peers`."""
        if not self._has_left:
            self._has_left = True
            self._strategy.wait_for_peers(-1, self._staleness)


def peer_clock(train: TrainSection, strategy: LeaseCommit) -> PeerClock:
    """The clock for this job's training mode."""
    return BoundedClock(strategy, train.staleness) if train.mode == "bounded" else FreeClock()
