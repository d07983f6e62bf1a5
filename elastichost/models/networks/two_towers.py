"""Two towers for retrieval, trained with the other items of the batch as negatives.

Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations", RecSys 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torchrec.datasets.utils import Batch
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from .layers import FieldEmbeddings, check_sizes, initialise_linear, mlp

__all__ = ["Side", "Tower", "TwoTowers", "build", "in_batch_loss"]


def in_batch_loss(
    users: torch.Tensor, items: torch.Tensor, ids: torch.Tensor, labels: torch.Tensor, log_q: torch.Tensor | None
) -> torch.Tensor:
    """The softmax loss over the items of the batch, a scalar:

    s^c_ij = <u_i, v_j> - log q_j      loss = -sum_i r_i log(exp(s^c_ii) / sum_j exp(s^c_ij)) / sum_i r_i
                                                                                      (equations 3, 5 and 6)

    users, items: float32 [B, D], with <u, v> already divided by the temperature. ids: int64 [B]; a negative with the
    item of the sample itself is left out, because it is no negative. labels: r, float32 [B]; a sample with label 0
    gives its item as a negative only. log_q: log of the probability that an item is in a batch, float32 [B]; a constant
    that is added to all of it changes nothing.
    """
    logits = users @ items.T
    if log_q is not None:
        logits = logits - log_q
    own = torch.eye(len(ids), dtype=torch.bool, device=ids.device)
    logits = logits.masked_fill((ids.unsqueeze(0) == ids.unsqueeze(1)) & ~own, -torch.inf)
    losses = functional.cross_entropy(logits, torch.arange(len(ids), device=ids.device), reduction="none")
    return (labels * losses).sum() / labels.sum().clamp_min(1.0)


class Side(NamedTuple):
    """The columns that a tower reads: names of id columns, places of dense features."""

    features: tuple[str, ...]
    dense: tuple[int, ...]


class Tower(nn.Module):
    """An MLP with ReLU between its layers whose output has length 1: [B, width] -> [B, hidden[-1]]."""

    def __init__(self, width: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            mlp(width, hidden[:-1]), nn.Linear(hidden[-2] if len(hidden) > 1 else width, hidden[-1])
        )
        initialise_linear(self)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.normalize(self.layers(inputs), dim=1)


class TwoTowers(nn.Module):
    """One vector of the user's features and one of the item's. The logit of a sample is their product, <u, v> / T."""

    def __init__(
        self,
        tables: Sequence[EmbeddingBagConfig],
        user: Side,
        item: Side,
        log_q: int | None,
        hidden: Sequence[int],
        temperature: float,
    ) -> None:
        super().__init__()
        self.embeddings = FieldEmbeddings(tables)
        self.features = tuple(feature for table in tables for feature in table.feature_names)
        dims = dict(zip(self.features, self.embeddings.dims, strict=True))
        self.user, self.item, self.log_q, self.temperature = user, item, log_q, temperature
        self.user_tower, self.item_tower = (
            Tower(sum(dims[name] for name in side.features) + len(side.dense), hidden) for side in (user, item)
        )

    def vectors(self, column: str, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """The vectors of users or of items, float32 [B, hidden[-1]], each of length 1. `column`: the first one of
        `user` or of `item`. The other tower's columns are not read. Raises ValueError for another column."""
        if column not in (self.user.features[0], self.item.features[0]):
            raise ValueError(
                f"there are vectors of {self.user.features[0]} and {self.item.features[0]}, not of {column}"
            )
        embedded = self.embeddings(sparse)
        return self._users(dense, embedded) if column == self.user.features[0] else self._items(dense, embedded)

    def forward(self, batch: Batch) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """(loss, (detached loss, logits [B], labels [B])), as torchrec's DLRMTrain. In evaluation mode the loss is 0:
        it needs memory for B x B products, and depends on the samples that happen to be in the batch."""
        dense, labels = batch.dense_features, batch.labels
        embedded = self.embeddings(batch.sparse_features)
        users, items = self._users(dense, embedded) / self.temperature, self._items(dense, embedded)
        logits = (users * items).sum(dim=1)
        if not self.training:
            loss = logits.new_zeros(())
        else:
            ids = _ids(batch.sparse_features, self.item.features[0], dense.shape[0]).to(logits.device)
            log_q = None if self.log_q is None else dense[:, self.log_q]
            loss = in_batch_loss(users.float(), items.float(), ids, labels, log_q)
        return loss, (loss.detach(), logits.detach(), labels)

    def _users(self, dense: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = self.user_tower(self._inputs(self.user, dense, embedded))
        return vectors

    def _items(self, dense: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = self.item_tower(self._inputs(self.item, dense, embedded))
        return vectors

    def _inputs(self, side: Side, dense: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        fields = dict(zip(self.features, torch.split(embedded, list(self.embeddings.dims), dim=1), strict=True))
        numbers = (dense[:, place : place + 1] for place in side.dense)
        return torch.cat([*(fields[name] for name in side.features), *numbers], dim=1)


def _ids(sparse: KeyedJaggedTensor, column: str, size: int) -> torch.Tensor:
    """A number for each sample that is equal where the id is: int64 [B]. Samples without an id have different ones; of
    several ids the last one counts."""
    # `sparse[column]` reads lengths on the host, which the graph of a step on a GPU does not allow
    first, values = sparse.keys().index(column) * size, sparse.values()
    bounds = sparse.offsets()[first : first + size + 1].long()
    without = torch.arange(-1, -size - 1, -1, device=values.device)
    if len(values) == 0:
        return without
    last = values.index_select(0, (bounds[1:] - 1).clamp_min(0)).long()
    return torch.where(bounds[1:] > bounds[:-1], last, without)


def build(
    tables: list[EmbeddingBagConfig],
    num_dense: int,
    *,
    user: Sequence[str],
    item: Sequence[str],
    user_dense: Sequence[int] = (),
    item_dense: Sequence[int] = (),
    log_q: int | None = None,
    hidden: Sequence[int] = (64, 32),
    temperature: float = 0.1,
    num_labels: int = 1,
) -> nn.Module:
    """Two towers; the job needs `model.outputs = "loss"`.

    user, item: the id columns of each tower. The first of `item` is the item's id. user_dense, item_dense: places of
    dense features in `data.dense`, from 0. log_q: the place of a dense feature with the log of each item's frequency,
    which corrects the loss for popular items. hidden: sizes of the layers of each tower; the last is that of a vector.

    Raises ValueError when a column or a place does not exist, when a column is in both towers or in none, for several
    labels, and for sizes out of range.
    """
    sizes = check_sizes("hidden", hidden)
    features = [feature for table in tables for feature in table.feature_names]
    if num_labels != 1:
        raise ValueError(f"two_towers has one label, not {num_labels}")
    if not temperature > 0:
        raise ValueError(f"temperature = {temperature} must be greater than 0")
    for name, columns in (("user", user), ("item", item)):
        if not columns:
            raise ValueError(f"{name} = [] needs at least one id column: {', '.join(features)}")
        for column in columns:
            if column not in features:
                raise ValueError(f"{name} names {column!r}, which is no categorical feature: {', '.join(features)}")
    for column in features:
        if (column in user) == (column in item):
            raise ValueError(f"column {column!r} must be in one of user and item")
    places = {
        "user_dense": tuple(user_dense),
        "item_dense": tuple(item_dense),
        "log_q": () if log_q is None else (log_q,),
    }
    for name, numbers in places.items():
        for place in numbers:
            if not 0 <= place < num_dense:
                raise ValueError(f"{name} names the dense feature {place}, but there are {num_dense}, from 0 on")
    sides = Side(tuple(user), places["user_dense"]), Side(tuple(item), places["item_dense"])
    return TwoTowers(tables, *sides, log_q, sizes, temperature)
