"""Copies a job's model between its arena and memory of a GPU (`device_layout`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.errors import ModelLostError
from elastichost.gpu.memory.device_layout import UNFINISHED, DeviceLayout
from elastichost.gpu.memory.device_memory import DeviceMemory, memory_of
from elastichost.gpu.row_placement import RowPlacement
from elastichost.specs import EmbeddingSpec

__all__ = ["download", "mapped", "newest_half", "placed", "upload"]

COPIED_BYTES = 256 << 20  # between two calls of `pump`
_FIRST_HALF = 0  # into which the dense part is uploaded


@dataclass(frozen=True, slots=True)
class _Range:
    """A part of the rows or of their state. address: in this process' mapping of the arena. offset: in the memory of
    the GPU."""

    address: int
    offset: int
    size_bytes: int


def mapped(arena: Arena, *, is_cuda: bool, descriptors: Sequence[int] | None = None) -> DeviceMemory:
    """New memory for the model of this arena, or that of these descriptors. Raises GpuMemoryError."""
    size_bytes = DeviceLayout.of(arena.layout).size_bytes
    return memory_of(is_cuda=is_cuda, size_bytes=size_bytes, descriptors=descriptors)


def placed(arena: Arena, memory: DeviceMemory, embeddings: Sequence[EmbeddingSpec]) -> RowPlacement:
    """Where the rows of these embeddings lie in the memory of the GPU."""
    layout = arena.layout
    return RowPlacement.of(layout, embeddings, memory.address, memory.address + DeviceLayout.of(layout).state)


def upload(arena: Arena, memory: DeviceMemory, pump: Callable[[], None]) -> None:
    """Copies the model into the memory of the GPU. pump: called between pieces of rows."""
    for part in _parts(arena):
        memory.fill(part.offset, part.address, part.size_bytes)
        pump()
    place, dense = DeviceLayout.of(arena.layout), DenseStore(arena).state_copy()
    for half, step in ((_FIRST_HALF, dense.step), (1 - _FIRST_HALF, UNFINISHED)):
        header = np.array([step], np.int64)
        memory.fill(place.halves[half], header.ctypes.data, header.nbytes)
    memory.fill(place.vector(_FIRST_HALF), dense.vector.ctypes.data, dense.vector.nbytes)
    memory.fill(place.dense_state(_FIRST_HALF), dense.state.ctypes.data, dense.state.nbytes)


def download(arena: Arena, memory: DeviceMemory, pump: Callable[[], None]) -> None:
    """Copies the model back into the arena, whose dense vector no process writes meanwhile. Raises ModelLostError when
    the memory has no whole dense part."""
    for part in _parts(arena):
        memory.read(part.offset, part.address, part.size_bytes)
        pump()
    place, dense = DeviceLayout.of(arena.layout), DenseStore(arena)
    half = newest_half(arena, memory)
    vector, state = np.empty(place.elements, np.float32), np.empty(2 * place.parameters, np.float32)
    memory.read(place.vector(half), vector.ctypes.data, vector.nbytes)
    memory.read(place.dense_state(half), state.ctypes.data, state.nbytes)
    dense.overwrite(vector, state)


def newest_half(arena: Arena, memory: DeviceMemory) -> int:
    """The half that belongs to the last committed step. When a worker has died after it had released a batch that was
    never committed, it is the half of that batch, whose rows are updated, too. Raises ModelLostError without one."""
    place, committed = DeviceLayout.of(arena.layout), DenseStore(arena).step()
    found = []
    for half in (0, 1):
        header = np.empty(1, np.int64)
        memory.read(place.halves[half], header.ctypes.data, header.nbytes)
        if header[0] >= committed:
            found.append((int(header[0]), half))
    if not found:
        raise ModelLostError(f"the memory of the GPU has no dense part of step {committed} or later")
    return min(found)[1]


def _parts(arena: Arena) -> Iterator[_Range]:
    for whole in _ranges(arena):
        for begin in range(0, whole.size_bytes, COPIED_BYTES):
            yield _Range(whole.address + begin, whole.offset + begin, min(COPIED_BYTES, whole.size_bytes - begin))


def _ranges(arena: Arena) -> Iterator[_Range]:
    """The rows and the state of each embedding. Both are float32."""
    layout, place = arena.layout, DeviceLayout.of(arena.layout)
    rows, state = arena.rows_flat.ctypes.data, arena.state_flat.ctypes.data
    for e in layout.model.embeddings:
        count, begin = layout.row_space(e.table), 4 * layout.rows_offset(e.index)
        yield _Range(rows + begin, begin, 4 * count * e.padded_dim)
        if e.state_floats_per_row:
            begin = 4 * layout.state_offset(e.index)
            yield _Range(state + begin, place.state + begin, 4 * count * e.state_floats_per_row)
