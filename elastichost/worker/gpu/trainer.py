"""The step of a worker with a GPU: one CUDA graph for each half of the worker's mailbox.

The order of events for batch n, with direct access:

    batch n - 2 acknowledged -> watermark := n -> the graph runs: rows are updated, the gradients are written into half
    n % 2 of the mailbox -> the step has ended -> posted (`DirectCommit.commit`)

So the rules of `worker.commit.direct_commit` hold: no row changes before the watermark, and a half is written only when
its last push is acknowledged. When this process is killed, the driver ends the running kernels before the process is
reaped; the batch is then torn, as a kill within the backward pass on a CPU tears it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from elastichost.arena.dense.store import DenseStore
from elastichost.gpu.dense_updates import copy_to_address, report
from elastichost.gpu.step import DeviceStep, StepSwitches
from elastichost.gpu.step_inputs import StepInputs
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.channels.exchange import half_of
from elastichost.worker.commit.lease_commit import ModelCommit
from elastichost.worker.gpu.device_dense import DeviceDense
from elastichost.worker.gpu.staging import StagedBatch, Stager, inputs_of
from elastichost.worker.model.dense_vector import FlatDense
from elastichost.worker.steps.batch_step import StepResult
from elastichost.worker.steps.model_runner import ModelRunner

__all__ = ["DeviceTrainer"]

MOST_INT32 = 2**31 - 1
LEAST_ROOM = 64  # values
MOST_SIZES = 8  # of staging; each one more costs eager steps and another capture


class DeviceTrainer:
    """Implements `BatchStep` for one model on one device. batch_size: of the batches that are captured; others, as the
    last one of a lease may be, run eagerly. resident: the dense vector in memory of the GPU; None: the parameter
    servers update it."""

    def __init__(
        self,
        runner: ModelRunner,
        flat: FlatDense,
        dense: DenseStore,
        worker: int,
        switches: StepSwitches,
        *,
        batch_size: int,
        most_rows: int,
        resident: DeviceDense | None = None,
    ) -> None:
        self._runner, self._flat = runner, flat
        self._batch_size = batch_size
        self._device = flat.device_values.device
        self._value_type = torch.int32 if most_rows <= MOST_INT32 else torch.int64
        self._switches, self._resident = switches, resident
        self._vectors = [dense.mailbox(worker, half).vector for half in (0, 1)]
        is_gpu = self._device.type == "cuda"
        # what the host reads after a step: loss, and whether the batch was refused
        self._results = [torch.zeros(2, pin_memory=is_gpu) for _ in (0, 1)]
        self._step: DeviceStep | None = None
        self._stager: Stager | None = None
        self._room = self._sizes = 0  # values that a staged batch may have, and how often this has grown

    # --- the thread that reads ahead ----------------------------------------------------------------------------

    def stage(self, batch: PreparedBatch) -> PreparedBatch:
        """Implements `BatchStep.stage`: begins to copy a batch of the usual shape to the GPU."""
        if batch.samples.size != self._batch_size:
            return batch
        inputs = inputs_of(batch, self._value_type)
        stager = self._stager_for(inputs)
        return batch if stager is None else dataclasses.replace(batch, staged=stager.stage(inputs))

    def _stager_for(self, inputs: StepInputs) -> Stager | None:
        """A stager with room for these values; None: it has grown as often as it may."""
        if self._stager is None or len(inputs.values) > self._room:
            if self._sizes == MOST_SIZES:
                return None
            if self._stager is not None:
                self._stager.drain()
            self._sizes += 1
            self._room = _room_for(inputs)
            values = torch.zeros(self._room, dtype=self._value_type)
            self._stager = Stager(dataclasses.replace(inputs, values=values), self._device)
        return self._stager

    # --- the thread that trains ---------------------------------------------------------------------------------

    def run(self, batch: PreparedBatch, strategy: ModelCommit) -> StepResult:
        """Implements `BatchStep.run`."""
        half = half_of(strategy.next_sequence)
        waited_s = strategy.before_backward()
        if isinstance(batch.staged, StagedBatch):
            self._run_staged(batch.staged, half)
        else:
            inputs = inputs_of(batch, self._value_type)
            on_device = inputs.empty_like(self._device)
            on_device.copy_from(inputs)
            self._make_step((on_device, on_device)).body(half)
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        if isinstance(batch.staged, StagedBatch):
            batch.staged.is_trained = True
        loss, refused = (float(number) for number in self._results[half])
        if refused or not np.isfinite(loss):
            what = "a gradient is not finite" if np.isfinite(loss) else f"the loss is {loss}"
            if self._resident is not None:
                self._resident.leave_out(half)
            return StepResult(loss, what, waited_s)
        if self._resident is None:
            self._flat.pushed_into(self._vectors[half])
        return StepResult(loss, "", waited_s)

    def _run_staged(self, staged: StagedBatch, half: int) -> None:
        if staged.arrived is not None:
            torch.cuda.current_stream().wait_event(staged.arrived)
        step, inputs = self._step, staged.inputs
        if step is None or len(inputs.values) > len(step.halves[half].values):
            if step is not None and step.cannot_be_captured:  # nor could one with more room
                self._make_step((inputs, inputs)).body(half)
                return
            step = self._step = self._make_step((inputs.empty_like(self._device), inputs.empty_like(self._device)))
        step.halves[half].copy_from(inputs)
        step.run(half)

    def _make_step(self, halves: tuple[StepInputs, ...]) -> DeviceStep:
        where = (self._flat.gradients, self._flat.backward_pass.running, self._switches, halves)
        return DeviceStep(self._runner.loss_of, self._finish, *where, self._runner.warnings.append)

    def _finish(self, half: int, loss: torch.Tensor) -> None:
        """Writes gradients, buffers, loss and flag to where the host reads them. With the dense vector in memory of the
        GPU, makes the step of its optimizer instead of writing gradients and buffers."""
        if self._resident is not None:
            self._resident.step(half)
            report(loss, self._switches.is_refused, self._results[half].data_ptr())
            return
        address, gradients, values = self._vectors[half].ctypes.data, self._flat.gradients, self._flat.device_values
        copy_to_address(gradients, address)
        if len(values) > len(gradients):
            copy_to_address(values[len(gradients) :], address + 4 * len(gradients))
        report(loss, self._switches.is_refused, self._results[half].data_ptr())


def _room_for(inputs: StepInputs) -> int:
    """How many values there is room for in batches of which this one is the first: a quarter more than it has, because
    lists of ids vary. Where each column has one id, the number of values does not vary."""
    values = len(inputs.values)
    return values if values == len(inputs.offsets) - 1 else max(LEAST_ROOM, values + -(-values // 4))
