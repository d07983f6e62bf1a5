"""xDeepFM: Lian et al., "xDeepFM: Combining Explicit and Implicit Feature Interactions for Recommender Systems",
KDD 2018."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from .layers import (
    CompressedInteraction,
    FieldEmbeddings,
    FirstOrder,
    check_sizes,
    equal_dim,
    initialise_linear,
    mlp,
    one_logit_per_label,
)

__all__ = ["XDeepFm", "build"]


class XDeepFm(nn.Module):
    """y = sigmoid(w_linear^T a + w_dnn^T x_dnn + w_cin^T p+ + b)      (section 3.3)

    a: the raw features (one weight per id and dense feature); p+: the pooled compressed interactions of the field
    embeddings (section 3.2); x_dnn: the deep layers over embeddings and dense features.
    """

    def __init__(
        self,
        tables: Sequence[EmbeddingBagConfig],
        num_dense: int,
        num_labels: int,
        interactions: Sequence[int],
        hidden: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__()
        self.dim = equal_dim(tables, "xdeepfm")
        self.linear = FirstOrder(tables, num_dense, num_labels, suffix="_first")
        self.embeddings = FieldEmbeddings(tables)
        self.interaction = CompressedInteraction(len(self.embeddings.dims), interactions)
        self.deep = mlp(self.embeddings.width + num_dense, hidden, dropout)
        self.interaction_head = nn.Linear(sum(interactions), num_labels, bias=False)
        self.deep_head = nn.Linear(hidden[-1], num_labels, bias=False)
        initialise_linear(self.interaction_head)
        initialise_linear(self.deep_head)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        embedded = self.embeddings(sparse)
        pooled = self.interaction(embedded.view(-1, len(self.embeddings.dims), self.dim))
        deep = self.deep(torch.cat((embedded, dense), dim=1))
        return one_logit_per_label(self.linear(dense, sparse) + self.interaction_head(pooled) + self.deep_head(deep))


def build(
    tables: list[EmbeddingBagConfig],
    num_dense: int,
    *,
    num_labels: int = 1,
    interactions: Sequence[int] = (64, 64),
    hidden: Sequence[int] = (256, 128, 64),
    dropout: float = 0.0,
) -> nn.Module:
    """xDeepFM. `interactions`: number of feature maps of each compressed interaction layer. `hidden`: sizes of the deep
    part's layers.

    Raises ValueError when the tables' dimensions differ.
    """
    return XDeepFm(
        tables,
        num_dense,
        num_labels,
        check_sizes("interactions", interactions),
        check_sizes("hidden", hidden),
        dropout,
    )
