"""Makes the arena's rows and this worker's mailboxes usable for the GPU.

Only pages that are allocated for good are registered: the rows of fixed tables, and the mailboxes. A page that is freed
after it was registered would lose what the GPU writes to it, without an error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from elastichost.arena.arena import Arena
from elastichost.arena.layout import whole_pages
from elastichost.gpu.availability import has_triton
from elastichost.gpu.memory.registered_memory import RegisteredMemory
from elastichost.gpu.row_placement import RowPlacement, optimizer_refusal
from elastichost.host.machine import PAGE_BYTES
from elastichost.specs import EmbeddingSpec, ModelSpec

__all__ = ["ArenaMemory", "reason_against"]

WIDEST_ROW = 256  # elements: `elastichost.gpu.compiled.KERNEL_WIDTHS` ends there


def reason_against(model: ModelSpec) -> str:
    """Why the GPU cannot use this model's rows in place; "" if it can."""
    if not has_triton():
        return "Triton is not installed"
    for embedding in model.embeddings:
        table = model.tables[embedding.table]
        if table.is_dynamic:
            return f"table {table.name!r} is dynamic"
        if embedding.kind != "bag":
            return f"embedding {embedding.name!r} is not pooled"
        if embedding.precision != "float32":
            return f"the rows of {embedding.name!r} are {embedding.precision}"
        if refusal := optimizer_refusal(embedding):
            return refusal
        if embedding.padded_dim > WIDEST_ROW:
            return f"the rows of {embedding.name!r} have more than {WIDEST_ROW} elements"
    return ""


class ArenaMemory:
    """The arena as the GPU of this process uses it, until the process ends. On the CPU, in Triton's interpreter,
    nothing is registered."""

    def __init__(self, arena: Arena, worker: int, device: torch.device) -> None:
        self._arena = arena
        self._registered = RegisteredMemory()
        if device.type == "cuda":
            self._register_rows()
            self._register_mailboxes(worker)

    def placement(self, embeddings: Sequence[EmbeddingSpec]) -> RowPlacement:
        """Where these embeddings lie."""
        rows, state = self._arena.rows_flat.ctypes.data, self._arena.state_flat.ctypes.data
        return RowPlacement.of(self._arena.layout, embeddings, rows, state)

    def _register_rows(self) -> None:
        layout = self._arena.layout
        rows, state = self._arena.rows_flat.ctypes.data, self._arena.state_flat.ctypes.data
        for e in self._arena.model.embeddings:
            count = layout.row_space(e.table)
            self._registered.register(rows + 4 * layout.rows_offset(e.index), whole_pages(4 * count * e.padded_dim))
            if e.state_floats_per_row:
                begin = state + 4 * layout.state_offset(e.index)
                self._registered.register(begin, whole_pages(4 * count * e.state_floats_per_row))

    def _register_mailboxes(self, worker: int) -> None:
        place, file = self._arena.layout.dense, self._arena.files.dense
        offset, size_bytes = place.mailbox_offset + 2 * worker * place.mailbox_bytes, 2 * place.mailbox_bytes
        file.allocate(offset, size_bytes, f"the mailbox of worker {worker}")
        first = file.array(np.uint8, offset, 1).ctypes.data
        begin = first // PAGE_BYTES * PAGE_BYTES
        self._registered.register(begin, whole_pages(first + size_bytes - begin))
