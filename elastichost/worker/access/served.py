"""Served access: the batch's unique rows come as messages, and their gradients go back as messages.

Key values are positions among the batch's unique rows of their table. The worker sums the gradients of equal rows; the
PS applies the optimizer to unique rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.kernels import pool_bags, scatter_gradients
from elastichost.specs import EmbeddingSpec
from elastichost.worker.model.bags import BagCall, BagPlan, look_up_bags, look_up_sequences

__all__ = ["NOTHING_PULLED", "NO_GRADIENTS", "GradientSums", "PulledRows", "RowGradients", "ServedLookup"]

Float32Array = npt.NDArray[np.float32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PulledRows:
    """The unique rows of one batch, table after table: table t has rows[bounds[t] : bounds[t + 1]].

    rows int64 [n]: row numbers in their table's row space, in order of first appearance; below 0: no row
    (`arena.tables.dynamic_table.LEFT_OUT`: because there was no memory).
    weights float32, flat, read-only (it may be a received message): embedding e has [rows of its table, padded_dim]
    from weights[offsets[e]] on; offsets has one more entry for the end. Without requested weights it is empty.
    epoch: of the shard map by which the rows were pulled.
    """

    rows: Int64Array
    bounds: Int64Array
    weights: Float32Array
    offsets: Int64Array
    epoch: int


NOTHING_PULLED = PulledRows(
    np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.float32), np.zeros(0, np.int64), 0
)


@dataclass(frozen=True, slots=True)
class RowGradients:
    """The gradients of one batch for the owners of its rows. sums float32, laid out as `pulled.weights`."""

    pulled: PulledRows
    sums: Float32Array


NO_GRADIENTS = RowGradients(NOTHING_PULLED, np.zeros(0, np.float32))


class GradientSums:
    """Two buffers for gradient sums, used in turn. While a batch is computed, the sums of the previous batch may still
    be on their way; those of the batch before it are no longer needed."""

    def __init__(self) -> None:
        self._buffers = [np.empty(0, np.float32), np.empty(0, np.float32)]

    def zeros(self, sequence: int, elements: int) -> Float32Array:
        """float32 zeros [elements] for the push with this sequence number. The push two numbers later reuses them."""
        number = sequence % len(self._buffers)
        if len(self._buffers[number]) < elements:
            self._buffers[number] = np.empty(elements + elements // 8, np.float32)
        sums = self._buffers[number][:elements]
        sums.fill(0.0)
        return sums


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The pulled rows of one batch and the sums of their gradients, both float32, flat."""

    rows: Float32Array
    sums: Float32Array

    def read(self, call: BagCall, output: Float32Array) -> None:
        """Implements `RowSource.read`."""
        pool_bags(self.rows, call.entries, call.values, call.offsets, output)

    def apply_gradients(self, call: BagCall, gradient: Float32Array) -> None:
        """Implements `RowSource.apply_gradients`: adds the gradients to the sums."""
        scatter_gradients(self.sums, call.entries, call.values, call.offsets, gradient)


class ServedLookup:
    """The lookup of one collection in the rows that were pulled for the present batch."""

    def __init__(
        self,
        embeddings: Sequence[EmbeddingSpec],
        device: torch.device,
        sequence_features: frozenset[str] = frozenset(),
    ) -> None:
        """sequence_features: those of the whole model, not only of this collection."""
        self._plan = BagPlan(embeddings, sequence_features)
        self._indices = [e.index for e in embeddings]
        self._device = device
        self._leaf = torch.zeros(())
        empty = np.zeros(0, np.float32)
        self._loaded = _Loaded(empty, empty)

    def load(self, pulled: PulledRows, sums: Float32Array | None) -> None:
        """Takes the pulled rows of the next batch. Call it before the forward pass.

        The backward pass adds the rows' gradients to `sums`: float32, laid out as the pulled weights; None for an
        evaluation, in which there is no backward pass.
        """
        self._plan.place(pulled.offsets[self._indices].tolist())
        self._loaded = _Loaded(pulled.weights, pulled.weights[:0] if sums is None else sums)
        self._leaf = torch.zeros((), requires_grad=sums is not None)

    def pooled(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """float32 [batch, sum of dims]."""
        return look_up_bags(self._plan, features, self._loaded, self._leaf, self._device)

    def sequence(self, features: KeyedJaggedTensor) -> list[torch.Tensor]:
        """Per (embedding, feature): float32 [ids, dim]."""
        return look_up_sequences(self._plan, features, self._loaded, self._leaf, self._device)
