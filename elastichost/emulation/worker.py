"""The loop of an emulated worker: leases, requests and commits are real; instead of computing a batch it waits."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from elastichost.config.job import JobSpec
from elastichost.emulation.batches import EmulatedBatch, LeaseCutter
from elastichost.emulation.commit import EmulatedCommit
from elastichost.emulation.costs import scenario_of
from elastichost.emulation.exchange import Call, Exchange
from elastichost.emulation.model import INITIAL, new_ids_of_batch
from elastichost.emulation.prices import Computing, Pricing
from elastichost.emulation.timeline import WorkerTimeline
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import RepinMsg
from elastichost.wire.crash import crash_point
from elastichost.wire.facts import Lease
from elastichost.wire.sockets import DataClient, Waiter
from elastichost.worker.channels.channel import StoppedError
from elastichost.worker.commit.lease_commit import BatchRange
from elastichost.worker.lease_worker import LeaseWorker
from elastichost.worker.lifecycle import IDLE_S
from elastichost.worker.pipeline import LeaseFinished

__all__ = ["EmulatedWorker"]

AT_ONCE_S = 0.01  # a shorter wait for peers counts as none: it is the time of the messages
LATE_S = 0.1  # lateness between two heartbeats from which on the state is "late": the host is too slow


class _Vector:
    """Implements `commit.dense_transport.DenseVector` for a model that does not learn: all gradients are zero."""

    def __init__(self) -> None:
        self.values = INITIAL.copy()

    def loaded(self) -> None:
        """Does nothing: there is no device to copy the values to."""

    def write_push(self, out: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
        out[:] = 0.0


@dataclass(frozen=True, slots=True)
class _Pushing:
    """A batch that is computed, but not committed. call: its push; pull_s: duration of its pull; took: the costs of its
    computing; computed_s: the moment at which its computing ended."""

    batch: EmulatedBatch
    call: Call
    pull_s: float
    took: Computing
    computed_s: float


class EmulatedWorker(LeaseWorker[EmulatedCommit, EmulatedBatch]):
    """One incarnation of an emulated worker. The number of its threads is the number of its virtual cores."""

    def __init__(self, arguments: ChildArguments, job: JobSpec) -> None:
        super().__init__(arguments, job)
        self._scenario = scenario_of(job)
        self._cores = max(1, arguments.threads)
        seeds = np.random.SeedSequence((job.job.seed, self._process.index, self._process.incarnation))
        self._generator = np.random.default_rng(seeds)
        self._pricing = Pricing(self._scenario, self._generator)
        self._cutter = LeaseCutter(job.train.batch_size)
        emulate, skew = job.emulate, self._scenario.skew
        self._exchange = Exchange(self._holder, self._pricing, skew, emulate.new_ids)
        self._timeline = WorkerTimeline(time.monotonic())
        self._pull: tuple[EmulatedBatch, Call] | None = None  # of the next batch
        self._pushes: deque[_Pushing] = deque()
        self._begun = 0  # number of batches that were begun
        self._pushed_s: deque[float] = deque(maxlen=4)  # when the last pushes were done
        self._ending: list[Lease] = []  # leases with all batches taken, but not all committed
        self._committed: dict[int, int] = {}  # lease -> position up to which its batches are committed
        self._moved_bytes = 0
        self._read_s = 0.0
        self._meter.cpu_s = 0.0
        self._waited_on: tuple[DataClient, ...] = ()
        self._waiter = Waiter(self.control)

    # --- parts ----------------------------------------------------------------------------------------------

    def _build(self) -> EmulatedCommit:
        return EmulatedCommit(self._holder, self._pump, _Vector())

    def _open_batches(self) -> LeaseCutter:
        return self._cutter

    def _move(self, asked: RepinMsg) -> None:
        """Changes the number of virtual cores. The process itself is not moved."""
        self._cores = max(1, asked.threads)

    def _close_parts(self) -> None:
        super()._close_parts()
        self._exchange.close()

    def _take_traffic(self) -> tuple[int, int, int]:
        moved, self._moved_bytes = self._moved_bytes, 0
        return moved, moved, 0

    def _take_read_s(self) -> float:
        read_s, self._read_s = self._read_s, 0.0
        return read_s

    # --- waiting --------------------------------------------------------------------------------------------

    def _wait(self, timeout_s: float) -> None:
        """Waits for a message or `timeout_s`, then handles all messages that have come. Raises StoppedError."""
        assert self._strategy is not None
        if self._waited_on != (clients := (*self._exchange.clients, *self._strategy.channel.clients)):
            self._waited_on, self._waiter = clients, Waiter(self.control, *clients)
        timeout_s = max(0.0, min(timeout_s, self._beat_at_s - time.monotonic()))
        readable = self._waiter.ready(math.ceil(1000 * timeout_s) / 1000)
        if self.control.socket in readable:
            self._pump()
        self._beat()
        if not self._running:
            raise StoppedError("the worker is stopping")
        self._exchange.collect(readable)
        self._commit_pushed()
        if self._ending:
            self._report_progress()

    def _wait_until(self, moment_s: float) -> None:
        while (left_s := moment_s - time.monotonic()) > 0:
            self._wait(left_s)
            self._prefetch()

    # --- a batch comes --------------------------------------------------------------------------------------

    def _next_result(self) -> EmulatedBatch | LeaseFinished | None:
        began_s = time.monotonic()
        if self._cutter.is_idle:
            self._wait(IDLE_S)
            self._timeline.hold(time.monotonic())
            self._meter.wait_input_s += time.monotonic() - began_s
            return None
        if isinstance(self._cutter.head, LeaseFinished):
            return self._cutter.get()
        while self._pushes and self._scenario.overlap == "nothing":
            self._wait(IDLE_S)
        self._begin_pull()
        assert self._pull is not None
        if not self._pull[1].is_done:
            self._wait(IDLE_S)
        self._meter.wait_input_s += time.monotonic() - began_s
        return self._cutter.get() if self._pull[1].is_done else None

    def _begin_pull(self) -> None:
        """Begins the pull of the next batch, if it is not under way."""
        batch = self._cutter.next_batch
        if self._pull is not None or batch is None:
            return
        reading_s = self._pricing.reading_s(batch.samples)
        self._read_s += reading_s
        sent_s = self._timeline.pull_leaves(reading_s, time.monotonic())
        trained = self._strategy.samples_applied if self._strategy is not None else 0
        new_ids = new_ids_of_batch(self._job.emulate.new_ids, trained, batch.samples, self._generator)
        self._pull = batch, self._exchange.begin("pull", batch.samples, sent_s, new_ids)

    def _prefetch(self) -> None:
        """With overlap, begins the pull of the next batch while this one is computed. The next batch may be of a lease
        that came in the meantime."""
        if self._scenario.overlap != "nothing" and not self._draining:
            self._begin_pull()

    def _discard(self) -> None:
        super()._discard()
        if self._pull is not None:
            self._exchange.forget(self._pull[1])
            self._pull = None

    # --- one batch ------------------------------------------------------------------------------------------

    def _train(self, strategy: EmulatedCommit, batch: EmulatedBatch) -> None:
        assert self._pull is not None and self._pull[0] is batch
        pull, self._pull = self._pull[1], None
        self._state = "training"
        begins_s = self._timeline.computes(pull.done_s, time.monotonic())
        self._timeline.pull_free_s = begins_s
        self._prefetch()
        begins_s = max(begins_s, self._settled_s(), self._peers_s())
        self._begun += 1
        crash_point("worker.batch.begin")
        took = self._pricing.computing(batch.samples, self._cores)
        computed_s = self._timeline.computed_s = begins_s + took.wall_s
        self._wait_until(computed_s)
        crash_point("worker.batch.before_push")
        call = self._exchange.begin("push", batch.samples, computed_s)
        self._pushes.append(_Pushing(batch, call, pull.done_s - pull.sent_s, took, computed_s))

    def _settled_s(self) -> float:
        """Waits until all earlier batches are pushed, but for one with overlap "both". Returns the moment at which that
        was the case; 0: from the beginning."""
        needed = self._begun - (self._scenario.overlap == "both")
        while self._finished < needed:
            self._wait(IDLE_S)
        return self._pushed_s[needed - 1 - self._finished] if needed > 0 else 0.0

    def _peers_s(self) -> float:
        """Bounded mode: waits for peers. Returns the moment at which the wait ended; 0: there was no wait."""
        began_s = time.monotonic()
        self._wait_for_peers()
        ended_s = time.monotonic()
        return ended_s if ended_s - began_s > AT_ONCE_S else 0.0

    def _commit_pushed(self) -> None:
        """Commits, in order, the batches that are pushed, and takes the acknowledgements of commits."""
        strategy = self._strategy
        assert strategy is not None
        while self._pushes and self._pushes[0].call.is_done:
            pushing = self._pushes.popleft()
            self._pushed_s.append(pushing.call.done_s)
            if self._scenario.overlap == "nothing":
                self._timeline.pull_free_s = pushing.call.done_s
            batch, lease = pushing.batch, pushing.batch.lease
            place = lease.lease_id, lease.epoch, lease.unit, batch.start, batch.stop
            what = BatchRange(*place, batch.samples, skipped=0, loss_sum=0.0)
            strategy.commit(what, learning_rate_scale=1.0)
            self._finished += 1
            self._count(pushing)
        strategy.poll()

    def _count(self, pushing: _Pushing) -> None:
        meter, samples = self._meter, pushing.batch.samples
        meter.steps += 1
        meter.samples += samples
        meter.compute_s += pushing.took.wall_s
        meter.lookup_s += pushing.pull_s
        meter.push_s += pushing.call.done_s - pushing.computed_s
        meter.cpu_s = (meter.cpu_s or 0.0) + pushing.took.cpu_s
        self._moved_bytes += self._pricing.moved_bytes(samples)

    # --- leases, pauses, heartbeats -------------------------------------------------------------------------

    def _finish_lease(self, strategy: EmulatedCommit, lease: Lease) -> None:
        """The lease is reported when its last batch is committed; the next lease begins in the meantime."""
        self._ending.append(lease)

    def _report_progress(self) -> None:
        if self._strategy is None:
            return
        for progress in self._strategy.progress():
            self._committed[progress.lease_id] = progress.stop
            self.control.send(progress)
        for lease in [one for one in self._ending if self._committed.get(one.lease_id) == one.stop]:
            self._ending.remove(lease)
            del self._committed[lease.lease_id]
            self._strategy.finished(lease.lease_id)

    def _settle(self, strategy: EmulatedCommit) -> None:
        while self._pushes:
            self._wait(IDLE_S)
        super()._settle(strategy)

    def _stand_still(self, strategy: EmulatedCommit) -> None:
        super()._stand_still(strategy)
        self._timeline.hold(time.monotonic())

    def _beat(self) -> None:
        if self._meter.cpu_s is None:
            self._meter.cpu_s = 0.0  # its CPU time is always virtual, never measured
        is_due = time.monotonic() >= self._beat_at_s
        if is_due and self._timeline.late_s > LATE_S:
            self._state = "late"
        super()._beat()
        if is_due:
            self._timeline.late_s = 0.0
