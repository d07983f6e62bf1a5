"""The dense vector in memory of the GPU: its optimizer is part of the step there, and the parameter server only counts.

The model computes with a copy of its own, which the optimizer updates in place. Each step then writes the new vector
and its optimizer state into one of two halves in memory that outlives this process (`gpu.memory.device_layout`): into
the one that is not the newest. A half is marked unfinished, written, then marked with the number of its step, in the
order of one stream.

Order of events for batch n, with the model in memory of the GPU:

    batch n - 2 acknowledged -> watermark := n -> rows change -> half written -> the step has ended -> posted (released)

A kill of the worker
- before batch n is posted: it is torn. The half of batch n - 1 is whole, and the successor begins from it;
- after it: the dense owner counts it when it fences the incarnation, and the successor begins from its half;
- with supervisor and dense owner, after batch n was posted and not counted: batch n is torn. When batch n + 1 has begun
  to write over the half of n - 1, the successor begins from that of n, and marks it as n - 1 (`_begin`). Rows and dense
  vector have learnt from batch n then, and its samples are trained again, as with every torn batch.

A successor starts while its predecessor is being fenced, so a batch may be counted after `restore`. It gets no lease
before that is settled. So it restores again before its first batch if the step has changed, and marks nothing before.
"""

from __future__ import annotations

import ctypes

import numpy as np
import torch

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.errors import ConfigError
from elastichost.gpu.dense_updates import DenseUpdate
from elastichost.gpu.memory.arena_copies import newest_half
from elastichost.gpu.memory.device_layout import UNFINISHED, DeviceLayout
from elastichost.gpu.memory.device_memory import DeviceMemory
from elastichost.gpu.step import StepSwitches
from elastichost.worker.model.dense_vector import FlatDense

__all__ = ["DeviceDense"]


class DeviceDense:
    """The dense part of one worker. Raises ConfigError for an optimizer that the GPU does not have."""

    def __init__(
        self, arena: Arena, memory: DeviceMemory, flat: FlatDense, optimizer: DenseOptimizerSpec, switches: StepSwitches
    ) -> None:
        spec = arena.model.dense
        if spec.frozen and optimizer.weight_decay:
            raise ConfigError(
                "parameters that are not trained would shrink by weight decay in memory of the GPU",
                hint='set resources.model_memory = "host", or train.optimizer_dense.weight_decay = 0',
            )
        self._arena, self._memory, self._flat = arena, memory, flat
        self._is_refused = switches.is_refused
        self._place, device = DeviceLayout.of(arena.layout), flat.device_values.device
        parameters = flat.device_values[: spec.parameters]
        self._update = DenseUpdate(
            optimizer, parameters, flat.gradients, flat.low, switches.rate_scale, switches.is_refused
        )
        self._marks = [self._view(place, 1, torch.int64, device) for place in self._place.halves]
        self._vectors = [self._view(self._place.vector(half), spec.elements, torch.float32, device) for half in (0, 1)]
        self._states = [
            self._view(self._place.dense_state(half), 2 * spec.parameters, torch.float32, device) for half in (0, 1)
        ]
        self._unfinished = torch.full_like(self._update.step, UNFINISHED)
        self._dense = DenseStore(arena)
        self._newest, self._restored_step, self._has_begun = 0, -1, False

    def restore(self) -> None:
        """Begins from the half of the last committed step. Until the first batch it may have to begin again: a batch
        that its predecessor had released may be committed after this process has started. Raises ModelLostError when
        there is no whole half of this step."""
        step = self._dense.step()
        if self._has_begun or step == self._restored_step:
            return
        self._newest = newest_half(self._arena, self._memory)
        self._flat.device_values.copy_(self._vectors[self._newest])
        self._update.state.copy_(self._states[self._newest])
        self._update.step.fill_(step)
        self._flat.narrow()
        self._restored_step = step

    def _begin(self) -> None:
        """Before the first batch, when all that the predecessor had released is committed. Marks the half with the step
        of the arena, also where it is the one of a batch that was never counted, so that both count alike from now
        on."""
        if not self._has_begun:
            self._marks[1 - self._newest].fill_(UNFINISHED)
            self._marks[self._newest].fill_(self._restored_step)
            self._has_begun = True

    def step(self, mailbox_half: int) -> None:
        """Part of the step, after the backward pass: the optimizer, and writing its result. mailbox_half: sequence % 2
        of the batch; so batches write the halves in turns, the first one of this incarnation the older one. The half of
        a refused batch stays unfinished."""
        self._begin()
        half = (self._newest + mailbox_half) % 2
        self._update.apply()
        self._marks[half].fill_(UNFINISHED)
        self._vectors[half].copy_(self._flat.device_values)
        self._states[half].copy_(self._update.state)
        self._marks[half].copy_(torch.where(self._is_refused != 0, self._unfinished, self._update.step))

    def leave_out(self, mailbox_half: int) -> None:
        """After a refused batch: takes back what its forward pass has written into buffers."""
        last = (self._newest + mailbox_half + 1) % 2
        first = self._place.parameters
        self._flat.device_values[first:].copy_(self._vectors[last][first:])

    def _view(self, offset: int, count: int, kind: torch.dtype, device: torch.device) -> torch.Tensor:
        """A tensor over a part of the memory, which lives as long as this object."""
        address = self._memory.address + offset
        if device.type == "cuda":
            return torch.as_tensor(_DeviceArray(address, count, kind), device=device)
        width = ctypes.c_int64 if kind == torch.int64 else ctypes.c_float
        return torch.from_numpy(np.ctypeslib.as_array((width * count).from_address(address)))


class _DeviceArray:
    """Tells torch of memory that it has not allocated (the CUDA array interface, version 3)."""

    def __init__(self, address: int, count: int, kind: torch.dtype) -> None:
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "<i8" if kind == torch.int64 else "<f4",
            "data": (address, False),
            "version": 3,
        }
