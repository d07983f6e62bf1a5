"""The loop of a worker that trains the user's model on leases."""

from __future__ import annotations

import time
from collections import deque

from elastichost.config.job import JobSpec
from elastichost.datasets.api import SampleBatch
from elastichost.datasets.remote import remote_rate
from elastichost.datasets.sources.control import InputControl
from elastichost.errors import SampleRange
from elastichost.wire.child import ChildArguments
from elastichost.wire.control import ControlMessage, EvaluationGrantMsg, RepinMsg, UnmappedMsg
from elastichost.wire.crash import crash_point
from elastichost.wire.facts import Lease
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.commit.lease_commit import BatchRange, ModelCommit
from elastichost.worker.evaluation import score_range
from elastichost.worker.lease_worker import LeaseWorker
from elastichost.worker.model.device import gpu_memory_bytes, move_training, training_cpu_since
from elastichost.worker.model.gradient_check import leave_out
from elastichost.worker.pipeline import Pipeline
from elastichost.worker.setup import LeaseParts, build_parts

__all__ = ["WorkerLoop"]


class WorkerLoop(LeaseWorker[ModelCommit, PreparedBatch]):
    """One worker incarnation on leases: reads samples, trains the user's model, scores test data.

    Each batch, in order: wait for peers (bounded mode), `strategy.refresh` (newest dense vector), `load` (rows),
    forward, `before_backward`, backward, `commit`; a batch whose loss or gradient is not finite ends with `leave_out`
    instead. Its samples then count as skipped in the next commit of the lease.
    """

    def __init__(self, arguments: ChildArguments, job: JobSpec) -> None:
        super().__init__(arguments, job)
        self._made: LeaseParts | None = None
        self._evaluations: deque[EvaluationGrantMsg] = deque()

    # --- the parts it trains with ---------------------------------------------------------------------------

    @property
    def _parts(self) -> LeaseParts:
        assert self._made is not None
        return self._made

    def _build(self) -> ModelCommit:
        self._made = build_parts(self._arguments, self._job, self._holder, self._pump, self._waiting)
        return self._made.strategy

    def _open(self, strategy: ModelCommit) -> None:
        self._parts.residence.open()
        super()._open(strategy)

    def _open_batches(self) -> Pipeline[PreparedBatch]:
        parts = self._parts
        parts.runner.train(True)
        return Pipeline(
            parts.train_reader,
            parts.train_description.units,
            self._job.train.batch_size,
            self._prepare,
            parts.train_rows.batches_ahead,
            remote_rate(self._job),
            parts.input,
            parts.readers,
        )

    def _prepare(self, samples: SampleBatch, lease: Lease) -> PreparedBatch:
        clock = self._parts.strategy.samples_applied
        prepared = self._parts.train_rows.prepare(
            samples, lease_id=lease.lease_id, epoch=lease.epoch, create=True, clock=clock
        )
        return self._parts.step.stage(prepared)

    # --- control --------------------------------------------------------------------------------------------

    def _takes(self, message: ControlMessage) -> bool:
        if isinstance(message, EvaluationGrantMsg):
            self._evaluations.append(message)
            return True
        return super()._takes(message)

    def _poll(self, strategy: ModelCommit) -> None:
        super()._poll(strategy)
        is_idle = (
            self._batches.is_idle
        )  # read before the epoch: a batch whose preparation begins later uses that shard map or a newer one
        if (epoch := strategy.unmapped_epoch(is_idle=is_idle)) is not None:
            self.control.send(UnmappedMsg(epoch))

    def _pump(self, timeout_s: float = 0.0) -> None:
        super()._pump(timeout_s)
        if self._made is not None:
            self._made.residence.look(time.monotonic())

    def _come_to_rest(self, strategy: ModelCommit) -> None:
        super()._come_to_rest(strategy)
        self._parts.residence.write_back(for_good=self._draining)

    def _work(self, strategy: ModelCommit) -> None:
        if self._evaluations:
            self._evaluate(strategy, self._evaluations.popleft())
        else:
            super()._work(strategy)

    def _move(self, asked: RepinMsg) -> None:
        move_training(asked)

    @property
    def _input(self) -> InputControl | None:
        return self._made.input if self._made is not None else None

    def _take_traffic(self) -> tuple[int, int, int]:
        if self._made is None:
            return 0, 0, 0
        made = self._made
        return *made.take_traffic(), gpu_memory_bytes(made.device) + made.residence.device_bytes

    # --- one batch ------------------------------------------------------------------------------------------

    def _train(self, strategy: ModelCommit, batch: PreparedBatch) -> None:
        samples = batch.samples
        if samples.size == 0:
            self._carried[batch.lease_id] = self._carried.get(batch.lease_id, 0) + samples.skipped
            return
        self._state = "training"
        self._wait_for_peers()
        crash_point("worker.batch.begin")
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        strategy.refresh()
        scale = self._parts.rate_factor(strategy.samples_applied + self._job.train.batch_size)
        strategy.load(batch, scale)
        loss, waited_s = self._forward_backward(strategy, batch)
        computed_s = time.perf_counter()
        if loss is None:
            self._carried[batch.lease_id] = self._carried.get(batch.lease_id, 0) + samples.size + samples.skipped
            return
        crash_point("worker.batch.before_push")
        skipped = samples.skipped + self._carried.pop(batch.lease_id, 0)
        place = batch.lease_id, batch.epoch, samples.unit, samples.start, samples.stop
        strategy.commit(BatchRange(*place, samples.size, skipped, loss * samples.size), scale)
        self._finished += 1
        self._parts.watermarks.note_lookups(self._process.index, len(samples.keys), batch.without_row)
        pushed_s = time.perf_counter() - computed_s
        training_cpu_s = training_cpu_since(began_cpu_s, self._parts.device)
        self._meter.count(batch, loss, computed_s - began_s - waited_s, pushed_s + waited_s, training_cpu_s)

    def _forward_backward(self, strategy: ModelCommit, batch: PreparedBatch) -> tuple[float | None, float]:
        """(mean loss, seconds spent waiting for the commit of the previous batch). The loss is None when it or a
        gradient was not finite and train.non_finite is "skip"."""
        parts = self._parts
        result = parts.step.run(batch, strategy)
        for warning in parts.runner.warnings:
            print(f"warning: {warning}", flush=True)
        parts.runner.warnings.clear()
        if not result.trouble:
            return result.loss, result.waited_s
        batch_range = SampleRange(batch.epoch, batch.samples.unit, batch.samples.start, batch.samples.stop)
        leave_out(result.trouble, batch_range, self._job.train.non_finite)
        strategy.leave_out()
        return None, 0.0

    # --- evaluation -----------------------------------------------------------------------------------------

    def _evaluate(self, strategy: ModelCommit, grant: EvaluationGrantMsg) -> None:
        self._state = "evaluating"
        self._settle(strategy)
        self._clock.leave()
        strategy.fetch()
        message, frames = score_range(self._parts, grant, self._pump_or_stop)
        self.control.send(message, frames)
