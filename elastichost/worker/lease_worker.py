"""A worker that trains leases: requests ranges of positions, trains them batch by batch, and reports its progress.

Order of events for one lease: LeaseRequestMsg, LeaseGrantMsg, batches in order, each committed by the strategy,
LeaseProgressMsg for committed batches only (with each heartbeat and at the end of the lease). The worker requests the
next lease when the reading thread has taken the last one, and earlier where units are decoded ahead.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Generic, Protocol, TypeVar

from elastichost.config.job import JobSpec
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import ControlMessage, LeaseGrantMsg, LeaseRequestMsg
from elastichost.wire.facts import Lease, StageSample
from elastichost.wire.sockets import wait_readable
from elastichost.worker.commit.lease_commit import LeaseCommit
from elastichost.worker.commit.peer_clock import FreeClock, PeerClock, peer_clock
from elastichost.worker.lifecycle import IDLE_S, WorkerLifecycle
from elastichost.worker.pipeline import LeaseFinished

__all__ = ["Batches", "LeaseWorker"]

Strategy = TypeVar("Strategy", bound=LeaseCommit)
Batch = TypeVar("Batch")
BatchOut = TypeVar("BatchOut", covariant=True)


class Batches(Protocol[BatchOut]):
    """A source of batches: takes leases and gives their batches in order, as `worker.pipeline.Pipeline` does."""

    def add(self, lease: Lease, shuffle_seed: int | None) -> None: ...

    def get(self, timeout_s: float) -> BatchOut | LeaseFinished | None: ...

    @property
    def leases_waiting(self) -> int: ...

    @property
    def is_idle(self) -> bool: ...

    def take_read_s(self) -> float: ...

    def take_stages(self) -> tuple[StageSample, ...]: ...

    def discard(self) -> None: ...

    def close(self) -> None: ...


class LeaseWorker(WorkerLifecycle[Strategy], Generic[Strategy, Batch]):
    """A worker on leases. A subclass defines what a batch is (`_open_batches`) and how it is trained (`_train`)."""

    def __init__(self, arguments: ChildArguments, job: JobSpec) -> None:
        super().__init__(arguments, job)
        self._opened: Batches[Batch] | None = None
        self._clock: PeerClock = FreeClock()
        self._requested = False
        self._newest_lease = 0
        self._carried: dict[int, int] = {}  # lease -> skipped samples that no commit accounts for yet
        self._finished = 0  # batches of this incarnation that were handed to `commit`

    @abstractmethod
    def _open_batches(self) -> Batches[Batch]:
        """Starts the reader. Called once, when there is a shard map and the model has the dense vector."""

    @abstractmethod
    def _train(self, strategy: Strategy, batch: Batch) -> None:
        """Trains one batch and hands it to `strategy.commit`."""

    # --- hooks of the lifecycle -------------------------------------------------------------------------------

    @property
    def _batches(self) -> Batches[Batch]:
        assert self._opened is not None
        return self._opened

    def _open(self, strategy: Strategy) -> None:
        self._opened = self._open_batches()
        self._clock = peer_clock(self._job.train, strategy)

    def _poll(self, strategy: Strategy) -> None:
        strategy.poll()

    def _work(self, strategy: Strategy) -> None:
        self._request_lease()
        result = self._next_result()
        if isinstance(result, LeaseFinished):
            self._finish_lease(strategy, result.lease)
        elif result is not None:
            self._train(strategy, result)
        elif self._batches.is_idle:
            self._state = "idle"
            self._clock.leave()

    def _settle(self, strategy: Strategy) -> None:
        """Returns when every trained batch is committed."""
        strategy.settle()

    def _come_to_rest(self, strategy: Strategy) -> None:
        self._settle(strategy)
        self._report_progress()
        self._clock.leave()  # otherwise a peer that waits for this worker would never reach its own batch boundary

    def _discard(self) -> None:
        self._batches.discard()

    def _takes(self, message: ControlMessage) -> bool:
        match message:
            case LeaseGrantMsg(lease=lease, shuffle_seed=seed):
                self._requested = False
                if lease.lease_id <= self._newest_lease:
                    return True  # the grant was delivered twice
                self._newest_lease = lease.lease_id
                if self._opened is not None and not self._draining:
                    self._opened.add(lease, None if seed < 0 else seed)
            case _:
                return super()._takes(message)
        return True

    def _take_read_s(self) -> float:
        return self._opened.take_read_s() if self._opened is not None else 0.0

    def _take_stages(self) -> tuple[StageSample, ...]:
        return self._opened.take_stages() if self._opened is not None else ()

    def _close_parts(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _report_progress(self) -> None:
        if self._strategy is not None:
            for progress in self._strategy.progress():
                self.control.send(progress)

    # --- leases ---------------------------------------------------------------------------------------------

    @property
    def _leases_ahead(self) -> int:
        """Leases that may wait to be read: one, and more where several units are decoded ahead, in threads or by
        readers."""
        if self._input is None:
            return 1
        knobs = self._input.knobs
        return max(knobs.decode_threads if knobs.prefetch_bytes else 1, self._input.readers)

    def _request_lease(self) -> None:
        if not self._requested and self._batches.leases_waiting < self._leases_ahead:
            self._requested = True
            self.control.send(LeaseRequestMsg(self._meter.rate, self._leases_ahead))

    def _next_result(self) -> Batch | LeaseFinished | None:
        """The next batch or end of a lease; None when none came within IDLE_S. Without a lease it waits for a control
        message (the grant) instead of a batch."""
        batches = self._batches
        began_s = time.perf_counter()
        if batches.is_idle:
            wait_readable([self.control.socket], IDLE_S)
            self._pump()
        idle_s = time.perf_counter() - began_s
        result = None if batches.is_idle else batches.get(IDLE_S)
        waited_s = time.perf_counter() - began_s
        self._meter.wait_input_s += waited_s
        self._meter.wait_reader_s += waited_s - idle_s
        return result

    def _finish_lease(self, strategy: Strategy, lease: Lease) -> None:
        """All batches of the lease are handed to `commit`: waits until they are committed, then reports the lease."""
        self._settle(strategy)
        skipped = self._carried.pop(lease.lease_id, 0)
        if skipped:
            strategy.skip(lease.lease_id, lease.stop, skipped)
        self._report_progress()
        strategy.finished(lease.lease_id)

    def _wait_for_peers(self) -> None:
        """Bounded mode: returns when no member is more than `train.staleness` batches behind."""
        waited_s = self._clock.wait_for_peers(self._finished)  # heartbeats are sent meanwhile, and reset the meter
        self._meter.wait_peers_s += waited_s
