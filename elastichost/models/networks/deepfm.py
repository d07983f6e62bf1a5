"""DeepFM: Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction", IJCAI 2017."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from .layers import (
    FieldEmbeddings,
    FirstOrder,
    check_sizes,
    equal_dim,
    factorization_machine,
    initialise_linear,
    mlp,
    one_logit_per_label,
)

__all__ = ["DeepFm", "build"]


class DeepFm(nn.Module):
    """y = sigmoid(y_FM + y_DNN)      (equation 1)

    y_FM  = <w, x> + sum_{i<j} <V_i, V_j> x_i x_j      (equation 2)
    y_DNN = W a^(H) + b over a^(0) = [e_1, ..., e_m]     (equations 3 and 4)

    Both parts share the field embeddings e_i. A dense feature is also a field: e_j = x_j V_j. The second-order term has
    no weights of its own, so with several labels it is the same in every label's logit.
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
        self.dim = equal_dim(tables, "deepfm")
        self.first_order = FirstOrder(tables, num_dense, num_labels, suffix="_first")
        self.embeddings = FieldEmbeddings(tables)
        self.dense_factors = nn.Parameter(torch.empty(num_dense, self.dim)) if num_dense else None
        if self.dense_factors is not None:
            nn.init.uniform_(self.dense_factors, -0.01, 0.01)
        self.deep = mlp(self.embeddings.width + num_dense * self.dim, hidden, dropout)
        self.head = nn.Linear(hidden[-1], num_labels, bias=False)
        initialise_linear(self.head)

    def fields(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """float32 [B, F + num_dense, D]: the embeddings e_i"""
        fields: torch.Tensor = self.embeddings(sparse).view(-1, len(self.embeddings.dims), self.dim)
        if self.dense_factors is None:
            return fields
        return torch.cat((fields, dense.unsqueeze(2) * self.dense_factors), dim=1)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        fields = self.fields(dense, sparse)
        second_order = factorization_machine(fields).unsqueeze(1)
        deep = self.head(self.deep(fields.flatten(1)))
        return one_logit_per_label(self.first_order(dense, sparse) + second_order + deep)


def build(
    tables: list[EmbeddingBagConfig],
    num_dense: int,
    *,
    num_labels: int = 1,
    hidden: Sequence[int] = (256, 128, 64),
    dropout: float = 0.0,
) -> nn.Module:
    """DeepFM. `hidden`: sizes of the deep part's layers. Raises ValueError when the tables' dimensions differ."""
    return DeepFm(tables, num_dense, num_labels, check_sizes("hidden", hidden), dropout)
