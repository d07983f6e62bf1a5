"""The loop of a worker that trains the user's model."""

from __future__ import annotations

import time
from collections import deque

import numpy as np
import torch

from elastichost.config.job import JobSpec
from elastichost.datasets.api import SampleBatch
from elastichost.datasets.remote import remote_rate
from elastichost.errors import SampleRange
from elastichost.wire.affinity import move_to_cores
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import ControlMessage, CrewMsg, EvaluationGrantMsg, RepinMsg, StepsGrantMsg
from elastichost.wire.crash import crash_point
from elastichost.wire.facts import Lease
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.access.served import RowGradients
from elastichost.worker.channels.channel import StoppedError
from elastichost.worker.commit.committer import BatchRange, Committer
from elastichost.worker.evaluation import score_range
from elastichost.worker.lifecycle import WorkerLifecycle
from elastichost.worker.model.device import gpu_memory_bytes, training_cpu_since
from elastichost.worker.model.gradient_check import backward, leave_out
from elastichost.worker.pipeline import PREFETCH_BATCHES, PREFETCH_PULLED, Pipeline
from elastichost.worker.setup import WorkerParts, build_parts
from elastichost.worker.sync.step_queue import StepQueue
from elastichost.worker.sync.sync_worker import CrewMember

__all__ = ["WorkerLoop"]


class WorkerLoop(WorkerLifecycle[PreparedBatch]):
    """One worker incarnation: reads, trains and scores with the user's model."""

    def __init__(self, arguments: ChildArguments, job: JobSpec) -> None:
        super().__init__(arguments, job)
        self._made: WorkerParts | None = None
        self._evaluations: deque[EvaluationGrantMsg] = deque()
        self._steps = StepQueue(self._process.index, job.train.batch_size, job.train.micro_batches)
        self._waited_s = 0.0  # in the present batch, for the commit of the one before
        self._crew: CrewMember | None = None  # sync mode: in place of batches, leases and commits of its own

    # --- what it trains with --------------------------------------------------------------------------------

    @property
    def _parts(self) -> WorkerParts:
        assert self._made is not None
        return self._made

    def _build(self) -> Committer:
        self._made = build_parts(self._arguments, self._job, self._holder, self._pump)
        return self._made.committer

    def _open(self) -> Pipeline[PreparedBatch]:
        parts = self._parts
        parts.runner.train(True)
        if self._job.train.mode == "sync":
            how = (self._arguments, self._job, parts, self._holder, self._steps)
            self._crew = CrewMember(*how, self._pump, lambda: self._meter)
        return Pipeline(
            parts.train_reader,
            parts.train_description.units,
            self._job.train.batch_size,
            self._prepare,
            PREFETCH_PULLED if parts.served else PREFETCH_BATCHES,
            remote_rate(self._job),
        )

    def _prepare(self, samples: SampleBatch, lease: Lease) -> PreparedBatch:
        clock = self._parts.committer.samples_applied
        return self._parts.train_rows.prepare(
            samples, lease_id=lease.lease_id, epoch=lease.epoch, create=True, clock=clock
        )

    def _close_parts(self) -> None:
        if self._crew is not None:
            self._crew.close()
        if self._made is not None:
            self._made.push.close()

    # --- control --------------------------------------------------------------------------------------------

    def _takes(self, message: ControlMessage) -> bool:
        match message:
            case StepsGrantMsg():
                self._steps.grant(message)
            case CrewMsg():
                self._steps.crew(message)
            case EvaluationGrantMsg():
                self._evaluations.append(message)
            case _:
                return False
        return True

    def _does_other_work(self, committer: Committer) -> bool:
        if self._evaluations:
            self._evaluate(self._evaluations.popleft())
            return True
        if self._crew is not None:
            self._crew.turn()
            self._state = self._crew.state
            return True
        return False

    def _move(self, asked: RepinMsg) -> None:
        move_to_cores(asked.cores)
        torch.set_num_threads(asked.threads)

    def _discard(self) -> None:
        super()._discard()
        if self._crew is not None:
            self._crew.discard()

    def _take_read_s(self) -> float:
        return self._crew.take_read_s() if self._crew is not None else super()._take_read_s()

    def _traffic(self) -> tuple[int, int, int]:
        parts = self._made
        if parts is None:
            return 0, 0, 0
        sent = received = 0
        own = (channel.traffic for channel in (parts.committer.channel, parts.push, parts.train_rows.channel))
        for traffic in (*own, *(self._crew.traffic if self._crew is not None else ())):
            sent, received = sent + traffic.sent, received + traffic.received
            traffic.sent = traffic.received = 0
        return sent, received, gpu_memory_bytes(parts.device)

    # --- one batch ------------------------------------------------------------------------------------------

    def _train(self, committer: Committer, batch: PreparedBatch) -> None:
        samples = batch.samples
        if samples.size == 0:
            self._carried[batch.lease_id] = self._carried.get(batch.lease_id, 0) + samples.skipped
            return
        self._state = "training"
        self._wait_for_peers(committer)
        crash_point("worker.batch.begin")
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        committer.refresh()
        scale = self._learning_rate_scale(committer.samples_applied)
        rows = self._load_rows(self._parts, batch)
        self._waited_s = 0.0
        loss = self._forward_backward(self._parts, batch, scale)
        self._maps.trained(batch.mapped_by)
        computed_s, waited_s = time.perf_counter(), self._waited_s
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
        self._finished += 1
        self._parts.watermarks.note_lookups(self._process.index, len(samples.keys), batch.without_row)
        pushed_s = time.perf_counter() - computed_s
        training_cpu_s = training_cpu_since(began_cpu_s, self._parts.device)
        self._meter.count(batch, loss, computed_s - began_s - waited_s, pushed_s + waited_s, training_cpu_s)

    def _load_rows(self, parts: WorkerParts, batch: PreparedBatch) -> RowGradients | None:
        """Served and mixed access: gives the model its rows, and the rows' gradients a place, where they are after
        backward."""
        if batch.pulled is None:
            return None
        sums = parts.sums.zeros(parts.committer.next_sequence, len(batch.pulled.weights))
        for served in parts.served:
            served.load(batch.pulled, sums)
        return RowGradients(batch.pulled, sums)

    def _forward_backward(self, parts: WorkerParts, batch: PreparedBatch, scale: float) -> float | None:
        """Mean loss, or None when it or a gradient was not finite and the job says to skip such batches. Gradients
        stay in the model; mapped rows are updated, those of a skipped batch perhaps in part, but with
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
                self._waited_s = parts.committer.await_commit()
                begun = parts.committer.next_sequence
                parts.watermarks.note_begun(self._process.index, self._process.incarnation, begun)
            parts.committer.poll_rows()
            trouble = backward(loss, parts.committer.flat)
        if not trouble:
            return value
        batch_range = SampleRange(batch.epoch, batch.samples.unit, batch.samples.start, batch.samples.stop)
        leave_out(trouble, batch_range, self._job.train.non_finite)
        parts.committer.forget_vector()  # the forward pass may have spoilt the model's buffers
        return None

    def _learning_rate_scale(self, samples_applied: int) -> float:
        warmup = self._job.train.schedule.warmup_samples
        return 1.0 if warmup <= 0 else min(1.0, (samples_applied + self._job.train.batch_size) / warmup)

    # --- evaluation -----------------------------------------------------------------------------------------

    def _evaluate(self, grant: EvaluationGrantMsg) -> None:
        parts = self._parts
        self._state = "evaluating"
        self._settle(parts.committer)
        self._leave_clock(parts.committer)
        if self._crew is not None and parts.served:
            parts.test_rows.channel.step = self._crew.present_step()
        parts.committer.fetch()
        message, frames = score_range(parts, grant, self._between_scores)
        self.control.send(message, frames)

    def _between_scores(self) -> None:
        self._pump()
        if not self._running:
            raise StoppedError("the worker is stopping")
