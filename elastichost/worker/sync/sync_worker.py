"""Sync mode: one worker of a crew. Computes its micro-batches of the step under way, then waits for the step's end.

A micro-batch's gradient is a function of the step's rows and dense vector and of its samples: whoever computes it, in
whatever order, comes to the same bits. So everything random is seeded by (seed, step, micro-batch), and the dense
vector is brought in anew for each, because a forward pass may change the model's buffers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import numpy as np

from elastichost.config.job import JobSpec
from elastichost.datasets.api import SampleBatch
from elastichost.datasets.remote import remote_rate
from elastichost.errors import SampleRange
from elastichost.micro_batches import MicroBatch
from elastichost.plan import ProcessId
from elastichost.sharding import mix64
from elastichost.wire.crash import crash_point
from elastichost.wire.facts import Lease
from elastichost.wire.sockets import wait_readable
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.access.served_rows import KeyedBatch
from elastichost.worker.channels.channel import POLL_S, DirectoryHolder, Pump, StaleDirectoryError
from elastichost.worker.channels.routing import Directory
from elastichost.worker.commit.step_channel import StepStart
from elastichost.worker.meter import StepMeter
from elastichost.worker.model.device import seed_generators, training_cpu_since
from elastichost.worker.model.gradient_check import backward, leave_out
from elastichost.worker.pipeline import Pipeline
from elastichost.worker.setup import SyncParts
from elastichost.worker.sync.step_queue import StepQueue

__all__ = ["CrewMember"]

AHEAD = 3  # micro-batches whose samples are read ahead


class CrewMember:
    """`turn` does one thing of a worker in sync mode: a micro-batch, or a while of waiting."""

    def __init__(
        self,
        process: ProcessId,
        job: JobSpec,
        parts: SyncParts,
        holder: DirectoryHolder,
        queue: StepQueue,
        pump: Pump,
        meter: Callable[[], StepMeter],
    ) -> None:
        self._process = process
        self._job, self._parts, self._holder, self._queue, self._pump = job, parts, holder, queue, pump
        self._strategy, self._channel = parts.strategy, parts.strategy.channel
        self._pulls = parts.train_rows.channel
        units = parts.train_description.units
        self._pipeline: Pipeline[KeyedBatch] = Pipeline(
            parts.train_reader, units, job.train.batch_size, self._find_keys, AHEAD, remote_rate(job)
        )
        self._fed: deque[int] = deque()  # keys of the micro-batches in the pipeline
        self._epoch = 0  # of the shard map that the present step is done under
        self._meter = meter
        self.state = "starting"

    def turn(self) -> None:
        """Raises typed errors; StoppedError when Stop comes."""
        directory = self._holder.current()
        if directory.epoch != self._epoch:
            self._reopen(directory)
        try:
            self._advance(directory)
        except StaleDirectoryError:
            self._epoch = 0
            self._channel.wait_newer(directory.epoch)

    def _reopen(self, directory: Directory) -> None:
        self._epoch = directory.epoch
        self._queue.reopen()
        self._channel.forget()

    def _advance(self, directory: Directory) -> None:
        if (reached := self._channel.reached(directory)) is not None:
            self._begin(reached)
        task = self._queue.due()
        if task is not None:
            self._feed()
            batch = None if task.is_left_out else self._next_batch(task)
            if batch is not None or task.is_left_out:
                self._compute(directory, task, batch)
            return
        self.state = "waiting" if self._queue.has_grant else "idle"
        self._feed()
        began_s = time.perf_counter()
        self._wait(directory)
        self._meter().wait_peers_s += time.perf_counter() - began_s

    def _begin(self, reached: StepStart) -> None:
        self._queue.reached(reached.step)
        self._pulls.step = reached.step
        self._strategy.begin_step(reached)

    def present_step(self) -> int:
        """The first step that is not committed, asked of the dense owner now; for an evaluation."""
        self._epoch = 0
        while self._queue.step == 0 or self._epoch != self._holder.epoch:
            directory = self._holder.current()
            if directory.epoch != self._epoch:
                self._reopen(directory)
            try:
                self._wait(directory)
                if (reached := self._channel.reached(directory)) is not None:
                    self._begin(reached)
            except StaleDirectoryError:
                self._epoch = 0
        self._epoch = 0  # and ask again before the next micro-batch
        return self._queue.step

    def _wait(self, directory: Directory) -> None:
        """A while, for the answer of the dense owner."""
        if self._queue.step == 0 or self._queue.has_grant:
            self._channel.ask(directory, self._queue.step + 1)
        wait_readable([self._channel.client(directory, directory.dense_owner).socket], POLL_S / 5)
        self._pump()

    # --- reading ahead ------------------------------------------------------------------------------------------

    def _find_keys(self, samples: SampleBatch, lease: Lease) -> KeyedBatch:
        return self._parts.train_rows.find_keys(samples, lease.lease_id)

    def _feed(self) -> None:
        """Keeps the next micro-batches in the pipeline; when they are others than thought, it begins anew."""
        wanted: list[MicroBatch] = []
        for task in self._queue.ahead():
            if not task.is_left_out:
                wanted.append(task)
            if len(wanted) > AHEAD:
                break
        keys = [task.key for task in wanted]
        if list(self._fed)[: len(keys)] != keys[: len(self._fed)]:
            self._pipeline.discard()
            self._fed.clear()
        for task in wanted[len(self._fed) :]:
            self._fed.append(task.key)
            lease = Lease(task.key, task.epoch, task.unit, task.start, task.stop)
            self._pipeline.add(lease, None if task.shuffle_seed < 0 else task.shuffle_seed)

    def _next_batch(self, task: MicroBatch) -> KeyedBatch | None:
        """None: it is not read yet."""
        began_s = time.perf_counter()
        result = self._pipeline.get(POLL_S)
        self._meter().wait_input_s += time.perf_counter() - began_s
        if not isinstance(result, KeyedBatch):
            return None
        if result.tag != task.key:
            self.discard()
            return None
        self._fed.popleft()
        return result

    def discard(self) -> None:
        """Nothing that was read ahead is wanted any more."""
        self._pipeline.discard()
        self._fed.clear()

    # --- one micro-batch ------------------------------------------------------------------------------------------

    def _compute(self, directory: Directory, task: MicroBatch, batch: KeyedBatch | None) -> None:
        self.state = "training"
        parts, train = self._parts, self._job.train
        scale = train.schedule.scale(self._strategy.samples_applied + train.batch_size)
        parts.watermarks.note_begun(self._process.index, self._process.incarnation, task.key)
        crash_point("worker.batch.begin")
        self._strategy.begin()
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        samples, loss, prepared = 0, 0.0, None
        if batch is not None and batch.samples.size:
            unique = batch.unique
            pulled = self._pulls.pull_once(
                directory, unique.keys, unique.bounds, weights=True, create=True, clock=self._strategy.samples_applied
            )
            prepared = parts.train_rows.with_rows(batch, pulled, epoch=task.epoch, lookup_s=batch.lookup_s)
            samples, loss = self._train(directory, task, prepared, scale)
        if task.is_left_out:
            self._channel.leave_out(directory, task)
        computed_s = time.perf_counter()
        self._strategy.push(directory, task, scale, samples, loss)
        self._queue.pushed(task)
        if prepared is not None:
            cpu_s = training_cpu_since(began_cpu_s, parts.device)
            self._meter().count(prepared, loss, computed_s - began_s, time.perf_counter() - computed_s, cpu_s)

    def _train(self, directory: Directory, task: MicroBatch, batch: PreparedBatch, scale: float) -> tuple[int, float]:
        """Forward and backward; the rows' gradients are staged, the dense ones lie in the model. (samples, mean loss);
        no samples when the loss or a gradient was not finite and such batches are skipped."""
        parts = self._parts
        self._strategy.load(batch.pulled)
        seed_generators(parts.device, mix64(self._job.job.seed ^ mix64(task.key)) & ((1 << 63) - 1))
        loss = parts.runner.loss(batch)
        value = loss.item()
        for warning in parts.runner.warnings:
            print(f"warning: {warning}", flush=True)
        parts.runner.warnings.clear()
        trouble = "" if np.isfinite(value) else f"the loss is {value}"
        if not trouble:
            # The step's gradient is that of the mean over its positions: every micro-batch gives its share.
            share = batch.samples.size / task.positions
            trouble = backward(loss if share == 1.0 else loss * share, parts.flat)
        if trouble:
            where = SampleRange(task.epoch, task.unit, task.start, task.stop)
            leave_out(trouble, where, self._job.train.non_finite)
            self._strategy.leave_out()
            return 0, 0.0
        crash_point("worker.batch.before_push")
        self._strategy.stage(directory, task, scale)
        return batch.samples.size, value

    def take_read_s(self) -> float:
        """Seconds spent reading since the last call."""
        return self._pipeline.take_read_s()

    def close(self) -> None:
        self._pipeline.close()
        self._pulls.close()
