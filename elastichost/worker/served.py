"""Served access: the batch's unique rows come as messages, their gradients go back as messages.

Key values are positions among the batch's unique rows of their table. A group's rows form one leaf tensor, so
autograd sums the gradients of repeated ids; the PS applies the optimizer to unique rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.specs import EmbeddingSpec
from elastichost.worker.groups import GroupedCollection, group_embeddings

__all__ = ["PulledRows", "ServedLookup"]


@dataclass(frozen=True, slots=True)
class PulledRows:
    """Unique rows of one batch: `rows[table]` int64 [unique] row numbers in the table's row space (ascending by
    nothing: in order of first appearance), `weights[embedding]` float32 [unique of its table, padded_dim]."""

    rows: dict[int, npt.NDArray[np.int64]]
    weights: dict[int, npt.NDArray[np.float32]]


def _shape_key(embedding: EmbeddingSpec) -> object:
    return (embedding.padded_dim, embedding.pooling)


class ServedLookup:
    """Lookup of one collection over rows pulled for the present batch."""

    def __init__(self, embeddings: Sequence[EmbeddingSpec], device: torch.device) -> None:
        self._plan = GroupedCollection(embeddings, group_embeddings(embeddings, _shape_key))
        self._device = device
        self._leaves: list[torch.Tensor] = []
        self._bounds: list[list[int]] = []  # per group: where each embedding's rows begin in the leaf, and the end

    def load(self, pulled: PulledRows, *, requires_grad: bool) -> None:
        """Takes the rows of the next batch. Must be called before the model's forward."""
        self._leaves, self._bounds = [], []
        for group in self._plan.groups:
            parts = [pulled.weights[e.index] for e in group.embeddings]
            joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
            self._leaves.append(torch.from_numpy(joined).to(self._device).requires_grad_(requires_grad))
            self._bounds.append(list(itertools.accumulate((len(part) for part in parts), initial=0)))

    def gradients(self) -> dict[int, npt.NDArray[np.float32]]:
        """Embedding index -> float32 [unique, padded_dim], after backward; zeros for what had no part in the loss."""
        result: dict[int, npt.NDArray[np.float32]] = {}
        for group, leaf, bounds in zip(self._plan.groups, self._leaves, self._bounds, strict=True):
            gradient = leaf.grad if leaf.grad is not None else torch.zeros_like(leaf)
            flat = gradient.cpu().numpy()
            for position, embedding in enumerate(group.embeddings):
                result[embedding.index] = flat[bounds[position] : bounds[position + 1]]
        return result

    def pooled(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """float32 [batch, sum of dims]."""
        outputs: list[torch.Tensor] = []
        for number, given in enumerate(self._plan.inputs(features)):
            group, leaf = self._plan.groups[number], self._leaves[number]
            values = self._positions(number, given).to(self._device)
            bags = functional.embedding_bag(
                values,
                leaf,
                given.offsets().to(torch.int64).to(self._device),
                mode="mean" if group.embeddings[0].pooling == "mean" else "sum",
                include_last_offset=True,
            )
            fields = len(group.features)
            outputs.append(bags.view(fields, -1, leaf.shape[1]).transpose(0, 1).reshape(-1, fields * leaf.shape[1]))
        return self._plan.pooled(outputs)

    def sequence(self, features: KeyedJaggedTensor) -> list[torch.Tensor]:
        """Per (embedding, feature): float32 [ids, dim]."""
        outputs: list[Sequence[torch.Tensor]] = []
        for number, given in enumerate(self._plan.inputs(features)):
            values = self._positions(number, given).to(self._device)
            outputs.append(torch.split(self._leaves[number].index_select(0, values), given.length_per_key()))
        return self._plan.sequences(outputs)

    def _positions(self, number: int, features: KeyedJaggedTensor) -> torch.Tensor:
        """Positions in the group's leaf: each feature's values shifted by where its table's rows begin."""
        values: torch.Tensor = features.values()
        bounds = self._bounds[number]
        starts = [bounds[position] for position in self._plan.groups[number].feature_embeddings]
        if not any(starts):
            return values
        lengths = torch.tensor(features.length_per_key())
        return values + torch.repeat_interleave(torch.tensor(starts), lengths)
