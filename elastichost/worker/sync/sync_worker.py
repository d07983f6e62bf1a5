"""Sync mode: one worker of a crew. It computes its micro-batches of the open step, then waits for the step's commit.

Rules
1. A micro-batch's gradient is a function of the rows and the dense vector at the beginning of the step and of its
   samples. Every worker, in any order, computes the same bits. So all random numbers (dropout) are seeded by (seed,
   step, micro-batch), and the dense vector is loaded again before each micro-batch, because a forward pass may change
   the model's buffers.
2. All requests of a micro-batch use one shard map. When it changes (StaleDirectoryError), the worker asks the dense
   owner which step is open, and computes its micro-batches again.

One turn computes one micro-batch or waits a short time: pull the rows (the PS has applied the previous step before it
answers), forward, backward, stage the rows, push the dense part. A kill at any point changes no row and no parameter:
the step stays open until another worker has pushed the missing micro-batches. The watermark (`note_begun`) names the
micro-batch that was begun last; the supervisor uses it to leave out a micro-batch on which several workers died.
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
from elastichost.wire.facts import Lease, StageSample
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
    """A worker of a crew. Each `turn` computes one micro-batch or waits a short time."""

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
        self._pipeline: Pipeline[KeyedBatch] = Pipeline(
            parts.train_reader,
            parts.train_description.units,
            job.train.batch_size,
            self._find_keys,
            AHEAD,
            remote_rate(job),
            parts.input,
            parts.readers,
        )
        self._fed: deque[int] = deque()  # keys of the micro-batches in the pipeline
        self._epoch = 0  # of the shard map under which the open step is computed; 0: ask which step is open
        self._meter = meter
        self.state = "starting"

    def turn(self) -> None:
        """Does one piece of work. Raises typed errors; StoppedError when Stop has come."""
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
        """Requests from the dense owner the first step that is not committed, and waits for the answer. Used for an
        evaluation."""
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
        self._epoch = 0  # so that the next turn asks again before it computes a micro-batch
        return self._queue.step

    def _wait(self, directory: Directory) -> None:
        """Waits a short time for the dense owner's answer."""
        if self._queue.step == 0 or self._queue.has_grant:
            self._channel.ask(directory, self._queue.step + 1)
        wait_readable([self._channel.client(directory, directory.dense_owner).socket], POLL_S / 5)
        self._pump()

    # --- reading ahead ------------------------------------------------------------------------------------------

    def _find_keys(self, samples: SampleBatch, lease: Lease) -> KeyedBatch:
        return self._parts.train_rows.find_keys(samples, lease.lease_id)

    def _feed(self) -> None:
        """Keeps the next micro-batches in the pipeline. When they differ from those it holds (a new crew or another
        step), the pipeline is emptied first."""
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
        """The samples and keys of a micro-batch from the pipeline; None: they are not read yet."""
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
        """Drops everything that was read ahead."""
        self._pipeline.discard()
        self._fed.clear()

    # --- one micro-batch ------------------------------------------------------------------------------------------

    def _compute(self, directory: Directory, task: MicroBatch, batch: KeyedBatch | None) -> None:
        self.state = "training"
        parts, train = self._parts, self._job.train
        scale = parts.rate_factor(self._strategy.samples_applied + train.batch_size)
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
        """Forward and backward pass; stages the rows' gradients and leaves the dense gradients in the model.

        Returns (samples, mean loss). 0 samples: the loss or a gradient was not finite and train.non_finite is "skip".
        """
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
            # The step's loss is the mean over its positions: each micro-batch contributes in proportion to its samples.
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

    def take_stages(self) -> tuple[StageSample, ...]:
        """What each stage of the input did since the last call."""
        return self._pipeline.take_stages()

    def close(self) -> None:
        self._pipeline.close()
        self._pulls.close()
