"""Wide & Deep: Cheng et al., "Wide & Deep Learning for Recommender Systems", DLRS 2016."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from .layers import FieldEmbeddings, FirstOrder, check_sizes, initialise_linear, mlp, one_logit_per_label

__all__ = ["WideDeep", "build"]


class WideDeep(nn.Module):
    """P(Y = 1 | x) = sigmoid(w_wide^T x + w_deep^T a^(lf) + b)      (equation 3)

    The wide part is linear in the ids and the dense features. Cross-product features phi(x) must be columns of the
    data: an id column made from two others. The deep part is equation 2: a^(l+1) = relu(W^(l) a^(l) + b^(l)) over the
    concatenated embeddings and dense features.
    """

    def __init__(
        self,
        tables: Sequence[EmbeddingBagConfig],
        num_dense: int,
        num_labels: int,
        hidden: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__()
        self.wide = FirstOrder(tables, num_dense, num_labels, suffix="_wide")
        self.embeddings = FieldEmbeddings(tables)
        self.deep = mlp(self.embeddings.width + num_dense, hidden, dropout)
        # No bias: equation 3 has one bias for both parts, and it is in the wide part.
        self.head = nn.Linear(hidden[-1], num_labels, bias=False)
        initialise_linear(self.head)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        deep = self.deep(torch.cat((self.embeddings(sparse), dense), dim=1))
        return one_logit_per_label(self.wide(dense, sparse) + self.head(deep))


def build(
    tables: list[EmbeddingBagConfig],
    num_dense: int,
    *,
    num_labels: int = 1,
    hidden: Sequence[int] = (256, 128, 64),
    dropout: float = 0.0,
) -> nn.Module:
    """Wide & Deep. `hidden`: sizes of the deep part's layers. Raises ValueError for sizes out of range."""
    return WideDeep(tables, num_dense, num_labels, check_sizes("hidden", hidden), dropout)
