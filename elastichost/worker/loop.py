"""The loop of a worker: control messages, leases, batches, commits. The only place of a worker that does I/O."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque

import numpy as np
import torch

from elastichost.config import JobSpec
from elastichost.datasets.api import SampleBatch
from elastichost.errors import ProtocolError, SampleRange
from elastichost.wire.affinity import move_to_cores
from elastichost.wire.child import ChildArguments
from elastichost.wire.codec import Envelope
from elastichost.wire.control import (
    ControlMessage,
    Crew,
    Drain,
    Drained,
    EvaluationGrant,
    Heartbeat,
    Hello,
    LeaseGrant,
    LeaseRequest,
    Membership,
    Pause,
    Paused,
    Proceed,
    Ready,
    Repin,
    Repinned,
    ShardMapUpdate,
    StepsGrant,
    Stop,
)
from elastichost.wire.crash import crash_point
from elastichost.wire.facts import HEARTBEAT_S, Lease
from elastichost.wire.sockets import ControlClient, wait_readable
from elastichost.worker.channel import DirectoryHolder, StoppedError
from elastichost.worker.commit import BatchRange
from elastichost.worker.crew import CrewMember
from elastichost.worker.device import gpu_memory_bytes
from elastichost.worker.evaluate import score_range
from elastichost.worker.exchange import PauseGate
from elastichost.worker.finite import backward, leave_out
from elastichost.worker.meter import StepMeter
from elastichost.worker.pipeline import PREFETCH_BATCHES, PREFETCH_PULLED, LeaseFinished, Pipeline
from elastichost.worker.routing import Directory
from elastichost.worker.rows import PreparedBatch
from elastichost.worker.served import RowGradients
from elastichost.worker.setup import WorkerParts, build_parts
from elastichost.worker.step_queue import StepQueue

__all__ = ["WorkerLoop"]

IDLE_S = 0.05


class WorkerLoop:
    """One worker life, from Hello to Stop."""

    def __init__(self, arguments: ChildArguments, job: JobSpec) -> None:
        self._arguments = arguments
        self._job = job
        self._process = arguments.process
        self._holder = DirectoryHolder()
        self.control = ControlClient(arguments.control_address, arguments.job_id, self._process)
        self._parts: WorkerParts | None = None
        self._pipeline: Pipeline[PreparedBatch] | None = None
        self._evaluations: deque[EvaluationGrant] = deque()
        self._pause = PauseGate()
        self._repin: Repin | None = None
        self._steps = StepQueue(self._process.index, job.train.batch_size, job.train.micro_batches)
        self._crew: CrewMember | None = None  # sync mode: in place of pipeline, leases and commits of its own
        self._draining = False
        self._drained = False
        self._running = True
        self._requested = False
        self._newest_lease = 0
        self._idle_told = True
        self._carried: dict[int, int] = {}  # lease -> bad rows skipped that no commit accounts for yet
        self._batches = 0
        self._progress = 0
        self._beat_at_s = 0.0
        self._state = "starting"
        self._meter = StepMeter(time.monotonic())

    # --- life -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Returns after Stop. Raises typed errors, which `main` reports."""
        a = self._arguments
        self.control.send(Hello(a.role, a.index, a.life, pid=os.getpid()))
        parts = self._parts = build_parts(a, self._job, self._holder, self._pump)
        while self._holder.epoch == 0 and self._running:
            wait_readable([self.control.socket], IDLE_S)
            self._pump()
        if not self._running:
            return
        with contextlib.suppress(StoppedError):
            self._work(parts)

    def _work(self, parts: WorkerParts) -> None:
        """From the first dense vector on. Raises StoppedError when Stop comes while it waits for an answer."""
        parts.committer.fetch()
        if self._job.train.mode == "sync":
            how = (self._arguments, self._job, parts, self._holder, self._steps)
            self._crew = CrewMember(*how, self._pump, lambda: self._meter)
        self._pipeline = Pipeline(
            parts.train_reader,
            parts.train_description.units,
            self._job.train.batch_size,
            self._prepare,
            PREFETCH_PULLED if parts.served else PREFETCH_BATCHES,
        )
        self.control.send(Ready(shard_map_epoch=self._holder.epoch))
        parts.runner.train(True)
        while self._running:
            self._turn(parts, self._pipeline)

    def close(self) -> None:
        """Ends the threads and sockets; queued control messages still leave."""
        self._holder.stop()
        if self._pipeline is not None:
            self._pipeline.close()
        if self._crew is not None:
            self._crew.close()
        if self._parts is not None:
            self._parts.committer.close()
            self._parts.push.close()
        self.control.flush(1.0)

    def _turn(self, parts: WorkerParts, pipeline: Pipeline[PreparedBatch]) -> None:
        """One round of the loop: at most one batch."""
        self._pump()
        self._change_cores()
        parts.committer.poll()
        if self._pause.asked is not None or self._draining:
            self._stand_still(parts, pipeline)
            return
        if self._evaluations:
            self._evaluate(parts, self._evaluations.popleft())
            return
        if self._crew is not None:
            self._crew.turn()
            self._state = self._crew.state
            return
        self._request_lease(pipeline)
        match self._next_result(pipeline):
            case PreparedBatch() as batch:
                self._train(parts, batch)
            case LeaseFinished(lease=lease):
                self._finish_lease(parts, lease)
            case None if pipeline.is_idle:
                self._state = "idle"
                self._leave_clock(parts)

    def _change_cores(self) -> None:
        """At a batch boundary: threads of a batch under way would not know what happens to them."""
        if self._repin is None:
            return
        asked, self._repin = self._repin, None
        move_to_cores(asked.cores)
        torch.set_num_threads(asked.threads)
        self.control.send(Repinned(asked.cores))

    def _next_result(self, pipeline: Pipeline[PreparedBatch]) -> PreparedBatch | LeaseFinished | None:
        """None: there was nothing for a while. Without a lease the next thing to come is a message, not a batch."""
        began_s = time.perf_counter()
        if pipeline.is_idle:
            wait_readable([self.control.socket], IDLE_S)
            self._pump()
        result = None if pipeline.is_idle else pipeline.get(IDLE_S)
        self._meter.wait_input_s += time.perf_counter() - began_s
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
            case ShardMapUpdate() as update:
                self._holder.publish(
                    Directory(
                        epoch=update.epoch,
                        servers={server.index: server for server in update.servers},
                        dense_owner=update.dense_owner,
                        owners=tuple(np.frombuffer(frame, dtype=np.uint16) for frame in envelope.frames),
                    )
                )
            case LeaseGrant(lease=lease, shuffle_seed=seed):
                self._requested = False
                if lease.lease_id <= self._newest_lease:
                    return  # it came twice
                self._newest_lease = lease.lease_id
                if self._pipeline is not None and not self._draining:
                    self._pipeline.add(lease, None if seed < 0 else seed)
            case StepsGrant() as steps:
                self._steps.grant(steps)
            case Crew() as crew:
                self._steps.crew(crew)
            case EvaluationGrant() as grant:
                self._evaluations.append(grant)
            case Pause(cut=cut):
                self._pause.asked = cut
            case Proceed(cut=cut):
                self._pause.proceed(cut)
            case Repin() as repin:
                self._repin = repin
            case Drain():
                self._draining = True
            case Stop():
                self._running = False
                self._holder.stop()
            case Membership():
                pass  # what peers there are matters to the PS only
            case other:
                raise ProtocolError(f"the supervisor sent a {type(other).__name__} to a worker")

    def _beat(self) -> None:
        now_s = time.monotonic()
        if now_s < self._beat_at_s:
            return
        self._beat_at_s = now_s + HEARTBEAT_S
        sent, received, gpu = self._traffic()
        reading = self._crew if self._crew is not None else self._pipeline
        read_s = reading.take_read_s() if reading is not None else 0.0
        sample, self._meter = self._meter.beat(now_s, sent, received, read_s)
        self._report_progress()
        self._progress += 1
        self.control.send(Heartbeat(progress=self._progress, sample=sample, state=self._state, gpu_memory_bytes=gpu))

    def _traffic(self) -> tuple[int, int, int]:
        parts = self._parts
        if parts is None:
            return 0, 0, 0
        sent = received = 0
        own = (channel.traffic for channel in (parts.committer.channel, parts.push, parts.train_rows.channel))
        for traffic in (*own, *(self._crew.traffic if self._crew is not None else ())):
            sent, received = sent + traffic.sent, received + traffic.received
            traffic.sent = traffic.received = 0
        return sent, received, gpu_memory_bytes(parts.device)

    def _report_progress(self) -> None:
        if self._parts is not None:
            for progress in self._parts.committer.progress():
                self.control.send(progress)

    # --- leases ---------------------------------------------------------------------------------------------

    def _prepare(self, samples: SampleBatch, lease: Lease) -> PreparedBatch:
        assert self._parts is not None
        clock = self._parts.committer.samples_applied
        return self._parts.train_rows.prepare(
            samples, lease_id=lease.lease_id, epoch=lease.epoch, create=True, clock=clock
        )

    def _request_lease(self, pipeline: Pipeline[PreparedBatch]) -> None:
        if not self._requested and pipeline.leases_waiting == 0:
            self._requested = True
            self.control.send(LeaseRequest(samples_per_s=self._meter.rate))

    def _finish_lease(self, parts: WorkerParts, lease: Lease) -> None:
        """All batches of the lease are sent; report it as soon as they are committed."""
        parts.committer.settle()
        skipped = self._carried.pop(lease.lease_id, 0)
        if skipped:
            parts.committer.skip(lease.lease_id, lease.stop, skipped)
        self._report_progress()
        parts.committer.finished(lease.lease_id)

    def _stand_still(self, parts: WorkerParts, pipeline: Pipeline[PreparedBatch]) -> None:
        """Pause and drain: at a batch boundary, everything committed and reported."""
        if self._draining and not self._drained:
            pipeline.discard()
            if self._crew is not None:
                self._crew.discard()
            parts.committer.settle()
            self._report_progress()
            self._leave_clock(parts)
            self._drained = True
            self.control.send(Drained())
        elif (cut := self._pause.due()) is not None:
            parts.committer.settle()
            self._report_progress()
            self._leave_clock(parts)  # a peer that waits for this one could not come to its own boundary
            if self._pause.answer(cut):
                self.control.send(Paused(cut=cut))
        self._state = "drained" if self._drained else "paused"
        wait_readable([self.control.socket], IDLE_S)

    def _leave_clock(self, parts: WorkerParts) -> None:
        """Bounded mode: a worker that does not train must not hold the others up."""
        if self._job.train.mode == "bounded" and not self._idle_told:
            self._idle_told = True
            parts.committer.wait_for_peers(-1, self._job.train.staleness)

    # --- one batch ------------------------------------------------------------------------------------------

    def _train(self, parts: WorkerParts, batch: PreparedBatch) -> None:
        samples = batch.samples
        if samples.size == 0:
            self._carried[batch.lease_id] = self._carried.get(batch.lease_id, 0) + samples.skipped
            return
        self._state = "training"
        if self._job.train.mode == "bounded":
            self._wait_for_peers(parts)
        crash_point("worker.batch.begin")
        began_s = time.perf_counter()
        committer = parts.committer
        committer.refresh()
        scale = self._learning_rate_scale(committer.samples_applied)
        rows = self._load_rows(parts, batch)
        loss = self._forward_backward(parts, batch, scale)
        computed_s = time.perf_counter()
        if loss is None:
            self._carried[batch.lease_id] = self._carried.get(batch.lease_id, 0) + samples.size + samples.skipped
            return
        crash_point("worker.batch.before_push")
        skipped = samples.skipped + self._carried.pop(batch.lease_id, 0)
        committer.commit(
            BatchRange(batch.lease_id, batch.epoch, samples.unit, samples.start, samples.stop, samples.size, skipped),
            scale,
            rows,
        )
        self._batches += 1
        self._meter.count(batch, loss, computed_s - began_s, time.perf_counter() - computed_s)

    def _load_rows(self, parts: WorkerParts, batch: PreparedBatch) -> RowGradients | None:
        """Served access: gives the model its rows, and the rows' gradients a place, where they are after backward."""
        if batch.pulled is None:
            return None
        sums = parts.sums.zeros(parts.committer.next_sequence, len(batch.pulled.weights))
        for served in parts.served:
            served.load(batch.pulled, sums)
        return RowGradients(batch.pulled, sums)

    def _forward_backward(self, parts: WorkerParts, batch: PreparedBatch, scale: float) -> float | None:
        """Mean loss, or None when it or a gradient was not finite and the job says to skip such batches. Gradients
        stay in the model; with direct access the rows are updated, those of a skipped batch perhaps in part, but with
        numbers only."""
        for direct in parts.direct:
            direct.set_learning_rate_scale(scale)
        parts.committer.flat.zero_gradients()
        loss = parts.runner.loss(batch)
        value = loss.item()
        for warning in parts.runner.warnings:
            print(f"warning: {warning}", flush=True)
        parts.runner.warnings.clear()
        trouble = "" if np.isfinite(value) else f"the loss is {value}"
        if not trouble:
            if parts.direct:
                begun = parts.committer.next_sequence
                parts.watermarks.note_begun(self._process.index, self._process.life, begun)
            parts.committer.poll_rows()
            trouble = backward(loss, parts.committer.flat)
        if not trouble:
            return value
        batch_range = SampleRange(batch.epoch, batch.samples.unit, batch.samples.start, batch.samples.stop)
        leave_out(trouble, batch_range, self._job.train.non_finite)
        parts.committer.forget_vector()  # the forward pass may have spoilt the model's buffers
        return None

    def _wait_for_peers(self, parts: WorkerParts) -> None:
        began_s = time.perf_counter()
        self._idle_told = False
        parts.committer.wait_for_peers(self._batches, self._job.train.staleness)
        self._meter.wait_peers_s += time.perf_counter() - began_s

    def _learning_rate_scale(self, samples_applied: int) -> float:
        warmup = self._job.train.schedule.warmup_samples
        return 1.0 if warmup <= 0 else min(1.0, (samples_applied + self._job.train.batch_size) / warmup)

    # --- evaluation -----------------------------------------------------------------------------------------

    def _evaluate(self, parts: WorkerParts, grant: EvaluationGrant) -> None:
        self._state = "evaluating"
        parts.committer.settle()
        self._leave_clock(parts)
        if self._crew is not None and parts.served:
            parts.test_rows.channel.step = self._crew.present_step()
        parts.committer.fetch()
        message, frames = score_range(parts, grant, self._between_scores)
        self.control.send(message, frames)

    def _between_scores(self) -> None:
        self._pump()
        if not self._running:
            raise StoppedError("the worker is stopping")
