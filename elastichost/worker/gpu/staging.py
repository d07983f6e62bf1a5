"""Copies batches to the GPU ahead of training, in the thread that reads ahead.

A ring of slots holds the batches: each slot has page-locked memory of the host and memory of the GPU. A slot is used
again only when more batches have been staged than can wait for training, so the step that read it has ended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from elastichost.gpu.step_inputs import StepInputs
from elastichost.worker.access.rows import PreparedBatch

__all__ = ["StagedBatch", "Stager", "inputs_of"]


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A batch on its way to the GPU. arrived: an event of the copying stream; None on the CPU."""

    inputs: StepInputs
    arrived: torch.cuda.Event | None


class _RingSlot:
    def __init__(self, like: StepInputs, device: torch.device) -> None:
        is_gpu = device.type == "cuda"
        self.host = like.empty_like(torch.device("cpu"), pinned=is_gpu)
        self.inputs = like.empty_like(device) if is_gpu else self.host


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
    """Stages batches of one shape. slots: more than the batches that can wait, and the one that trains."""

    def __init__(self, like: StepInputs, slots: int, device: torch.device) -> None:
        self._slots = [_RingSlot(like, device) for _ in range(slots)]
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._staged = 0

    def stage(self, inputs: StepInputs) -> StagedBatch:
        """Begins to copy a batch. Its values may be fewer than the slot has room for."""
        slot = self._slots[self._staged % len(self._slots)]
        self._staged += 1
        for mine, theirs in zip(slot.host.tensors(), inputs.tensors(), strict=True):
            mine[: len(theirs)].copy_(theirs)
        if self._stream is None:
            return StagedBatch(slot.inputs, None)
        with torch.cuda.stream(self._stream):
            slot.inputs.copy_from(slot.host)
            arrived = torch.cuda.Event()
            arrived.record(self._stream)
        return StagedBatch(slot.inputs, arrived)
