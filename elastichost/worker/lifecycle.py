"""A worker's life apart from what it computes: control messages, leases, pauses, commits settled, heartbeats."""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

import numpy as np

from elastichost.config.job import JobSpec
from elastichost.errors import ProtocolError
from elastichost.wire.child import ChildArguments
from elastichost.wire.codec import Envelope
from elastichost.wire.control import (
    ControlMessage,
    DrainedMsg,
    DrainMsg,
    HeartbeatMsg,
    HelloMsg,
    LeaseGrantMsg,
    LeaseRequestMsg,
    MembershipMsg,
    PausedMsg,
    PauseMsg,
    ProceedMsg,
    ReadyMsg,
    RepinMsg,
    RepinnedMsg,
    ShardMapUpdateMsg,
    StopMsg,
    UnmappedMsg,
)
from elastichost.wire.facts import HEARTBEAT_S, Lease
from elastichost.wire.sockets import Caller, ControlClient, wait_readable
from elastichost.worker.channels.channel import DirectoryHolder, StoppedError
from elastichost.worker.channels.exchange import MapsLeft, PauseGate
from elastichost.worker.channels.routing import Directory
from elastichost.worker.commit.committer import Committer
from elastichost.worker.meter import StepMeter
from elastichost.worker.pipeline import LeaseFinished

__all__ = ["IDLE_S", "Batches", "WorkerLifecycle"]

IDLE_S = 0.05
Batch = TypeVar("Batch")
BatchOut = TypeVar("BatchOut", covariant=True)


class Batches(Protocol[BatchOut]):
    """Leases in, batches out, in order; `worker.pipeline.Pipeline` reads them in a thread."""

    def add(self, lease: Lease, shuffle_seed: int | None) -> None: ...

    def get(self, timeout_s: float) -> BatchOut | LeaseFinished | None: ...

    @property
    def leases_waiting(self) -> int: ...

    @property
    def is_idle(self) -> bool: ...

    def take_read_s(self) -> float: ...

    def discard(self) -> None: ...

    def close(self) -> None: ...


class WorkerLifecycle(ABC, Generic[Batch]):
    """One worker incarnation, from Hello to Stop. A subclass says what its batches are and how they are trained."""

    def __init__(self, arguments: ChildArguments, job: JobSpec) -> None:
        self._arguments = arguments
        self._job = job
        self._process = arguments.process
        self._holder = DirectoryHolder(Caller(arguments.job_id, self._process, arguments.host, arguments.keys))
        self.control = ControlClient(
            arguments.control_address, arguments.job_id, self._process, arguments.to_supervisor
        )
        self._committer: Committer | None = None
        self._batches: Batches[Batch] | None = None
        self._pause = PauseGate()
        self._maps = MapsLeft()
        self._repin: RepinMsg | None = None
        self._draining = False
        self._drained = False
        self._running = True
        self._requested = False
        self._newest_lease = 0
        self._idle_told = True
        self._carried: dict[int, int] = {}  # lease -> bad rows skipped that no commit accounts for yet
        self._finished = 0  # batches
        self._progress = 0
        self._beat_at_s = 0.0
        self._state = "starting"
        self._meter = StepMeter(time.monotonic())

    # --- what a subclass computes ---------------------------------------------------------------------------

    @abstractmethod
    def _build(self) -> Committer:
        """Makes everything that training needs. Raises typed errors."""

    @abstractmethod
    def _open(self) -> Batches[Batch]:
        """Begins to read. There is a shard map, and the committer has the dense vector."""

    @abstractmethod
    def _train(self, committer: Committer, batch: Batch) -> None:
        """One batch, up to its commit."""

    @abstractmethod
    def _move(self, asked: RepinMsg) -> None:
        """Other cores, another number of threads; at a batch boundary."""

    def _does_other_work(self, committer: Committer) -> bool:
        """Something that is no batch of a lease was done, or waited for."""
        return False

    def _takes(self, message: ControlMessage) -> bool:
        """Whether this message is a subclass' own, and was taken."""
        return False

    def _traffic(self) -> tuple[int, int, int]:
        """Bytes sent and received since the last call, and memory held on a GPU."""
        return 0, 0, 0

    def _take_read_s(self) -> float:
        """Seconds spent reading since the last call."""
        return self._batches.take_read_s() if self._batches is not None else 0.0

    def _settle(self, committer: Committer) -> None:
        """Returns when everything trained is committed."""
        committer.settle()

    def _discard(self) -> None:
        """What was read ahead is not wanted any more."""
        if self._batches is not None:
            self._batches.discard()

    def _close_parts(self) -> None:
        """What `_build` made, the committer apart."""

    # --- life -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Returns after Stop. Raises typed errors, which `main` reports."""
        a = self._arguments
        self.control.send(HelloMsg(a.role, a.index, a.incarnation, pid=os.getpid()))
        committer = self._committer = self._build()
        while self._holder.epoch == 0 and self._running:
            wait_readable([self.control.socket], IDLE_S)
            self._pump()
        if not self._running:
            return
        with contextlib.suppress(StoppedError):
            committer.fetch()
            batches = self._batches = self._open()
            self.control.send(ReadyMsg(shard_map_epoch=self._holder.epoch))
            while self._running:
                self._turn(committer, batches)

    def close(self) -> None:
        """Ends the threads and sockets; queued control messages still leave."""
        self._holder.stop()
        if self._batches is not None:
            self._batches.close()
        self._close_parts()
        if self._committer is not None:
            self._committer.close()
        self.control.flush(1.0)

    def _turn(self, committer: Committer, batches: Batches[Batch]) -> None:
        """One round of the loop: at most one batch."""
        self._pump()
        self._change_cores()
        committer.poll()
        self._leave_maps(batches)
        if self._pause.asked is not None or self._draining:
            self._stand_still(committer)
            return
        if self._does_other_work(committer):
            return
        self._request_lease(batches)
        result = self._next_result(batches)
        if isinstance(result, LeaseFinished):
            self._finish_lease(committer, result.lease)
        elif result is not None:
            self._train(committer, result)
        elif batches.is_idle:
            self._state = "idle"
            self._leave_clock(committer)

    def _leave_maps(self, batches: Batches[Batch]) -> None:
        """Buckets that are to go to another host are copied once nobody changes rows of them in place any more."""
        if self._arguments.access != "mixed":
            return
        is_idle = batches.is_idle  # before the epoch is looked at: what begins later is by that map, or a newer one
        epoch = self._maps.due(self._holder.epoch, is_idle=is_idle)
        if epoch is not None:
            self.control.send(UnmappedMsg(epoch))

    def _change_cores(self) -> None:
        """At a batch boundary: threads of a batch under way would not know what happens to them."""
        if self._repin is None:
            return
        asked, self._repin = self._repin, None
        self._move(asked)
        self.control.send(RepinnedMsg(asked.cores))

    def _next_result(self, batches: Batches[Batch]) -> Batch | LeaseFinished | None:
        """None: there was nothing for a while. Without a lease the next thing to come is a message, not a batch."""
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

    # --- control --------------------------------------------------------------------------------------------

    def _pump(self, timeout_s: float = 0.0) -> None:
        """Reads all control messages and sends a heartbeat when it is due; called wherever the loop waits."""
        if timeout_s > 0:
            wait_readable([self.control.socket], timeout_s)
        while (envelope := self.control.receive()) is not None:
            self._handle(envelope)
        self._beat()

    def _handle(self, envelope: Envelope[ControlMessage]) -> None:
        match envelope.message:
            case ShardMapUpdateMsg() as update:
                self._holder.publish(
                    Directory(
                        epoch=update.epoch,
                        servers={server.index: server for server in update.servers},
                        dense_owner=update.dense_owner,
                        owners=tuple(np.frombuffer(frame, dtype=np.uint16) for frame in envelope.frames),
                        served=update.served,
                        made_anew=update.made_anew,
                    )
                )
            case LeaseGrantMsg(lease=lease, shuffle_seed=seed):
                self._requested = False
                if lease.lease_id <= self._newest_lease:
                    return  # it came twice
                self._newest_lease = lease.lease_id
                if self._batches is not None and not self._draining:
                    self._batches.add(lease, None if seed < 0 else seed)
            case PauseMsg(cut=cut):
                self._pause.asked = cut
            case ProceedMsg(cut=cut):
                self._pause.proceed(cut)
            case RepinMsg() as repin:
                self._repin = repin
            case DrainMsg():
                self._draining = True
            case StopMsg():
                self._running = False
                self._holder.stop()
            case MembershipMsg():
                pass  # what peers there are matters to the PS only
            case other if not self._takes(other):
                raise ProtocolError(f"the supervisor sent a {type(other).__name__} to a worker")

    def _beat(self) -> None:
        now_s = time.monotonic()
        if now_s < self._beat_at_s:
            return
        self._beat_at_s = now_s + HEARTBEAT_S
        sent, received, gpu = self._traffic()
        sample, self._meter = self._meter.beat(now_s, sent, received, self._take_read_s())
        self._report_progress()
        self._progress += 1
        self.control.send(HeartbeatMsg(progress=self._progress, sample=sample, state=self._state, gpu_memory_bytes=gpu))

    def _report_progress(self) -> None:
        if self._committer is not None:
            for progress in self._committer.progress():
                self.control.send(progress)

    # --- leases ---------------------------------------------------------------------------------------------

    def _request_lease(self, batches: Batches[Batch]) -> None:
        if not self._requested and batches.leases_waiting == 0:
            self._requested = True
            self.control.send(LeaseRequestMsg(samples_per_s=self._meter.rate))

    def _finish_lease(self, committer: Committer, lease: Lease) -> None:
        """All batches of the lease are sent; report it as soon as they are committed."""
        self._settle(committer)
        skipped = self._carried.pop(lease.lease_id, 0)
        if skipped:
            committer.skip(lease.lease_id, lease.stop, skipped)
        self._report_progress()
        committer.finished(lease.lease_id)

    def _stand_still(self, committer: Committer) -> None:
        """Pause and drain: at a batch boundary, everything committed and reported."""
        if self._draining and not self._drained:
            self._discard()
            self._settle(committer)
            self._report_progress()
            self._leave_clock(committer)
            self._drained = True
            self.control.send(DrainedMsg())
        elif (cut := self._pause.due()) is not None:
            self._settle(committer)
            self._report_progress()
            self._leave_clock(committer)  # a peer that waits for this one could not come to its own boundary
            if self._pause.answer(cut):
                self.control.send(PausedMsg(cut=cut))
        self._state = "drained" if self._drained else "paused"
        wait_readable([self.control.socket], IDLE_S)

    # --- bounded mode ---------------------------------------------------------------------------------------

    def _wait_for_peers(self, committer: Committer) -> None:
        """Returns when no member is too far behind. Nothing to wait for in the other modes."""
        if self._job.train.mode != "bounded":
            return
        began_s = time.perf_counter()
        self._idle_told = False
        committer.wait_for_peers(self._finished, self._job.train.staleness)
        self._meter.wait_peers_s += time.perf_counter() - began_s

    def _leave_clock(self, committer: Committer) -> None:
        """Bounded mode: a worker that does not train must not hold the others up."""
        if self._job.train.mode == "bounded" and not self._idle_told:
            self._idle_told = True
            committer.wait_for_peers(-1, self._job.train.staleness)
