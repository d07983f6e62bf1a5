"""Copies batches to the GPU ahead of training, in the thread that reads ahead.

Each waiting batch has a slot: page-locked memory of the host and memory of the GPU. A slot is free again when its batch
was trained, or when nobody holds the batch any more because its lease was given back. There are as many slots as
batches have waited at the same time, which the reader bounds.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
import torch

from elastichost.gpu.step_inputs import StepInputs
from elastichost.worker.access.rows import PreparedBatch

__all__ = ["StagedBatch", "Stager", "inputs_of"]


@dataclass(eq=False)
class StagedBatch:
    """A batch on its way to the GPU. arrived: an event of the copying stream; None on the CPU. is_trained: set by the
    step that has read the inputs."""

    inputs: StepInputs
    arrived: torch.cuda.Event | None
    is_trained: bool = False


class _RingSlot:
    def __init__(self, like: StepInputs, device: torch.device) -> None:
        is_gpu = device.type == "cuda"
        self.host = like.empty_like(torch.device("cpu"), pinned=is_gpu)
        self.inputs = like.empty_like(device) if is_gpu else self.host
        self._holder: weakref.ref[StagedBatch] | None = None

    @property
    def is_free(self) -> bool:
        held = self._holder() if self._holder is not None else None
        return held is None or held.is_trained

    def hold(self, staged: StagedBatch) -> None:
        self._holder = weakref.ref(staged)


def inputs_of(batch: PreparedBatch, value_type: torch.dtype) -> StepInputs:
    """The inputs of a batch on the CPU."""
    samples = batch.samples
    return StepInputs(
        torch.from_numpy(batch.values).to(value_type),
        torch.from_numpy(batch.offsets).to(torch.int32),
        torch.from_numpy(np.ascontiguousarray(samples.dense)),
        torch.from_numpy(np.ascontiguousarray(samples.labels)),
        None if samples.weights is None else torch.from_numpy(samples.weights),
    )


class Stager:
    """Stages batches of one shape."""

    def __init__(self, like: StepInputs, device: torch.device) -> None:
        self._like, self._device = like, device
        self._slots: list[_RingSlot] = []
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @property
    def slots(self) -> int:
        """Number of slots that take memory."""
        return len(self._slots)

    def stage(self, inputs: StepInputs) -> StagedBatch:
        """Begins to copy a batch. Its values may be fewer than the slot has room for."""
        slot = next((one for one in self._slots if one.is_free), None)
        if slot is None:
            slot = _RingSlot(self._like, self._device)
            if self._stream is not None:  # the zeros of the new tensors are written in the current stream
                self._stream.wait_stream(torch.cuda.current_stream(self._device))
            self._slots.append(slot)
        for mine, theirs in zip(slot.host.tensors(), inputs.tensors(), strict=True):
            mine[: len(theirs)].copy_(theirs)
        staged = StagedBatch(slot.inputs, None if self._stream is None else self._copy(slot, self._stream))
        slot.hold(staged)
        return staged

    def drain(self) -> None:
        """Waits until all copies have arrived. Before that, memory of a slot must not be freed."""
        if self._stream is not None:
            self._stream.synchronize()

    def _copy(self, slot: _RingSlot, stream: torch.cuda.Stream) -> torch.cuda.Event:
        with torch.cuda.stream(stream):
            slot.inputs.copy_from(slot.host)
            arrived = torch.cuda.Event()
            arrived.record(stream)
        return arrived
