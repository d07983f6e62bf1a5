"""Mixed access: rows of the worker's own host are used in the mapped arena; all other rows are pulled and pushed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from elastichost.arena.arena import Arena
from elastichost.arena.kernels import pool_placed_bags, scatter_pulled
from elastichost.specs import EmbeddingSpec
from elastichost.worker.access.direct import DirectLookup
from elastichost.worker.access.served import PulledRows
from elastichost.worker.model.bags import BagCall

__all__ = ["MixedLookup"]

Float32Array = npt.NDArray[np.float32]
Int64Array = npt.NDArray[np.int64]


class MixedLookup(DirectLookup):
    """The lookup of one collection in both places. Key values are described in `arena.rows.place_kernels`."""

    def __init__(self, arena: Arena, embeddings: Sequence[EmbeddingSpec], device: torch.device) -> None:
        super().__init__(arena, embeddings, device)
        # The embedding index of each entry, in the order of the plan.
        self._indices = np.array([e.index for e in embeddings for _ in e.features], np.int64)
        self._pulled = self._sums = np.zeros(0, np.float32)
        self._pulled_at: Int64Array = np.zeros(len(self._indices), np.int64)

    def load(self, pulled: PulledRows, sums: Float32Array | None) -> None:
        """Takes the pulled rows of the next batch, as `ServedLookup.load` does. Call it before the forward pass.

        The backward pass adds the gradients of pulled rows to `sums` and updates mapped rows in place. sums: float32,
        laid out as the pulled weights; None for an evaluation, in which no backward pass may run.
        """
        self._pulled, self._sums = pulled.weights, pulled.weights[:0] if sums is None else sums
        self._pulled_at = pulled.offsets[self._indices]

    def read(self, call: BagCall, output: Float32Array) -> None:
        """Implements `RowSource.read`."""
        for part in self._parts:
            entries, pulled_at = call.entries[part.entries], self._pulled_at[part.entries]
            pool_placed_bags(part.rows, self._pulled, entries, pulled_at, call.values, call.offsets, output)

    def apply_gradients(self, call: BagCall, gradient: Float32Array) -> None:
        """Implements `RowSource.apply_gradients`: updates each distinct mapped row once; adds the gradients of pulled
        rows to the sums."""
        super().apply_gradients(call, gradient)
        scatter_pulled(self._sums, call.entries, self._pulled_at, call.values, call.offsets, gradient)
