"""The model in memory of the GPU while a worker trains there: rows of fixed tables, their state, and the dense vector.

The worker is the only one of its run, so no other process changes the model. The memory outlives it
(`gpu.memory.device_memory`).

Order of events:

    open         memory made -> model uploaded -> the holder has descriptors -> record (`device_residence`) -> batches
    write back   everything committed -> model copied to the arena -> record with the version of the dense vector
    for good     the same -> record removed -> the holder forgets the memory

What a kill of the worker leaves:
- before the record: the model in the arena, which no batch has changed. The successor begins anew;
- after it: the model in the GPU's memory, which the holder keeps. The successor maps the same memory. A batch that was
  torn is torn there as in the arena (`commit.direct_commit`, `device_dense`): the driver ends the kernels of a process
  before the process is reaped;
- while the model is written back: an arena that is partly newer. The record still says that it is older than the GPU's
  memory, and no checkpoint is taken from it;
- between removing the record and forgetting: an arena with the job's model, and memory without use that the holder
  keeps until it gets other descriptors or the arena is removed.

When a checkpoint finds no worker alive, another process writes the model back (`gpu.memory.write_back`). A kill of the
holder alone loses nothing: the worker starts another one (`look`). The holder killed before a successor has the memory,
or the GPU lost: the model is lost, and the run goes back to its newest checkpoint (ModelLostError).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence

import msgspec
import torch

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.arena.recovery.device_residence import (
    NEVER,
    DeviceResidence,
    forget_residence,
    read_residence,
    write_residence,
)
from elastichost.errors import ArenaError, GpuMemoryError, ModelLostError
from elastichost.gpu.memory.arena_copies import download, mapped, placed, upload
from elastichost.gpu.memory.device_layout import DeviceLayout
from elastichost.gpu.memory.device_memory import DeviceMemory
from elastichost.gpu.memory.held_memory import drop_memory, hold_memory, is_held, take_memory
from elastichost.gpu.row_placement import RowPlacement
from elastichost.gpu.step import StepSwitches
from elastichost.specs import EmbeddingSpec
from elastichost.wire.crash import crash_point
from elastichost.worker.gpu.device_dense import DeviceDense
from elastichost.worker.model.dense_vector import FlatDense

__all__ = ["ResidentModel"]

LOOK_EVERY_S = 0.5


class ResidentModel:
    """Implements `ModelResidence`. pump: sends heartbeats that are due. Raises GpuMemoryError when the GPU has too
    little memory, ModelLostError when the model is in memory that this process cannot have."""

    def __init__(self, arena: Arena, dense: DenseStore, device: torch.device, pump: Callable[[], None]) -> None:
        self._arena, self._dense, self._pump = arena, dense, pump
        self._directory, self._is_cuda = arena.directory, device.type == "cuda"
        self._device = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        self._resident = read_residence(self._directory)
        self._memory = mapped(arena, is_cuda=self._is_cuda) if self._resident is None else self._taken(self._resident)
        self._looked_s = 0.0
        self._dense_part: DeviceDense | None = None
        self._is_open = False

    def dense_part(self, flat: FlatDense, optimizer: DenseOptimizerSpec, switches: StepSwitches) -> DeviceDense:
        """The dense part in this memory. `open` restores it. Raises ConfigError for an optimizer that the GPU does not
        have."""
        self._dense_part = DeviceDense(self._arena, self._memory, flat, optimizer, switches)
        return self._dense_part

    def restore(self) -> None:
        """Takes the dense part that the predecessor has left, until this worker has begun (`DeviceDense.restore`)."""
        if self._is_open and self._dense_part is not None:
            self._dense_part.restore()

    @property
    def device_bytes(self) -> int:
        """Implements `ModelResidence.device_bytes`."""
        return DeviceLayout.of(self._arena.layout).size_bytes

    def _taken(self, resident: DeviceResidence) -> DeviceMemory:
        if resident.device != self._device:
            raise ModelLostError(
                f"the model was in memory of GPU {resident.device}, and this worker has GPU {self._device}"
            )
        held = take_memory(self._directory, resident.token)
        if held is None:
            raise ModelLostError(f"no process holds the model in memory of GPU {resident.device} any more")
        try:
            return mapped(self._arena, is_cuda=self._is_cuda, descriptors=held.descriptors)
        except GpuMemoryError as error:
            raise ModelLostError(
                f"the memory of GPU {resident.device} with the model cannot be used: {error}"
            ) from error
        finally:
            held.close()

    def placement(self, embeddings: Sequence[EmbeddingSpec]) -> RowPlacement:
        """Where these embeddings lie."""
        return placed(self._arena, self._memory, embeddings)

    def open(self) -> None:
        """Implements `ModelResidence.open`. Raises ModelLostError when the memory has no whole dense part, ArenaError
        when another worker has the model."""
        if self._resident is None:
            upload(self._arena, self._memory, self._pump)
            token = secrets.token_hex(8)
            self._hold(token)
            crash_point("worker.model.held")
            if read_residence(self._directory) is not None:
                raise ArenaError(f"the model of {self._directory} is in memory of another worker's GPU")
            self._note(DeviceResidence(token, self._device))
            crash_point("worker.model.resident")
        elif self._resident.written_version != NEVER:  # a torn batch of the predecessor may have changed rows since
            self._note(msgspec.structs.replace(self._resident, written_version=NEVER))
        self._is_open = True
        self.restore()

    def look(self, now_s: float) -> None:
        """Implements `ModelResidence.look`: gives the memory to another holder when the present one has ended."""
        if self._resident is None or now_s - self._looked_s < LOOK_EVERY_S or not self._directory.exists():
            return
        self._looked_s = now_s
        try:
            if not is_held(self._directory, self._resident.token):
                self._hold(self._resident.token)
        except (GpuMemoryError, OSError) as error:  # this process has the memory: it tries again later
            print(f"warning: the memory of the GPU has no other holder now: {error}", flush=True)

    def write_back(self, *, for_good: bool) -> None:
        """Implements `ModelResidence.write_back`."""
        if self._resident is None:
            return
        version = self._dense.version()
        if self._resident.written_version != version:
            download(self._arena, self._memory, self._pump)
            crash_point("worker.model.written")
            self._note(msgspec.structs.replace(self._resident, written_version=version))
        if for_good:
            forget_residence(self._directory)
            drop_memory(self._directory, self._resident.token)
            self._resident = None

    def _hold(self, token: str) -> None:
        descriptors = self._memory.descriptors()
        try:
            hold_memory(self._directory, token, self._memory.sizes, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _note(self, resident: DeviceResidence) -> None:
        if self._directory.exists():  # removed: the supervisor ends the run with a checkpoint
            write_residence(self._directory, resident)
        self._resident = resident
