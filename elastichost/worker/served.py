"""Served access: the batch's unique rows come as messages, their gradients go back as messages.

Key values are positions among the batch's unique rows of their table. The gradients of equal rows are summed here;
the PS applies the optimizer to unique rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.kernels import pool_bags, scatter_gradients
from elastichost.specs import EmbeddingSpec
from elastichost.worker.bags import BagCall, BagPlan, look_up_bags, look_up_sequences

__all__ = ["PulledRows", "ServedLookup"]


@dataclass(frozen=True, slots=True)
class PulledRows:
    """Unique rows of one batch: `rows[table]` int64 [unique] row numbers in the table's row space (ascending by
    nothing: in order of first appearance), `weights[embedding]` float32 [unique of its table, padded_dim]."""

    rows: dict[int, npt.NDArray[np.int64]]
    weights: dict[int, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The rows of one batch, embedding after embedding, and the sums of their gradients: float32, flat."""

    rows: npt.NDArray[np.float32]
    sums: npt.NDArray[np.float32]

    def read(self, call: BagCall, output: npt.NDArray[np.float32]) -> None:
        """`RowSource.read`."""
        pool_bags(self.rows, call.entries, call.values, call.offsets, output)

    def learn(self, call: BagCall, gradient: npt.NDArray[np.float32]) -> None:
        """`RowSource.learn`: added to the sums."""
        scatter_gradients(self.sums, call.entries, call.values, call.offsets, gradient)


class ServedLookup:
    """Lookup of one collection over rows pulled for the present batch."""

    def __init__(self, embeddings: Sequence[EmbeddingSpec], device: torch.device) -> None:
        self._plan = BagPlan(embeddings)
        self._device = device
        self._leaf = torch.zeros(())
        empty = np.zeros(0, np.float32)
        self._loaded = _Loaded(empty, empty)
        self._bounds = [0] * (len(embeddings) + 1)  # where each embedding's rows begin in the flat rows, and the end

    def load(self, pulled: PulledRows, *, requires_grad: bool) -> None:
        """Takes the rows of the next batch. Must be called before the model's forward."""
        parts = [pulled.weights[e.index].reshape(-1) for e in self._plan.embeddings]
        self._bounds = list(itertools.accumulate((len(part) for part in parts), initial=0))
        self._plan.place(self._bounds[:-1])
        rows = np.concatenate(parts)
        self._loaded = _Loaded(rows, np.zeros_like(rows) if requires_grad else rows[:0])
        self._leaf = torch.zeros((), requires_grad=requires_grad)

    def gradients(self) -> dict[int, npt.NDArray[np.float32]]:
        """Embedding index -> float32 [unique, padded_dim], after backward; zeros for what had no part in the loss."""
        sums = self._loaded.sums
        return {
            e.index: sums[start:stop].reshape(-1, e.padded_dim)
            for e, (start, stop) in zip(self._plan.embeddings, itertools.pairwise(self._bounds), strict=True)
        }

    def pooled(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """float32 [batch, sum of dims]."""
        return look_up_bags(self._plan, features, self._loaded, self._leaf, self._device)

    def sequence(self, features: KeyedJaggedTensor) -> list[torch.Tensor]:
        """Per (embedding, feature): float32 [ids, dim]."""
        return look_up_sequences(self._plan, features, self._loaded, self._leaf, self._device)
