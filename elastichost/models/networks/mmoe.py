"""MMoE, for several labels.

Ma et al., "Modeling Task Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts", KDD 2018.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from .layers import FieldEmbeddings, check_sizes, initialise_linear, mlp, one_logit_per_label

__all__ = ["Mmoe", "build"]


class Mmoe(nn.Module):
    """y_k = h^k(f^k(x)),  f^k(x) = sum_i g^k(x)_i f_i(x)      (equation 6)

    g^k(x) = softmax(W_gk x)      (equation 7)

    x is the concatenation of the field embeddings and the dense features. The n experts f_i are MLPs that all tasks
    share. Each task k, which is one label, has a gate W_gk without bias and a tower h^k: an MLP that ends in one logit.
    """

    def __init__(
        self,
        tables: Sequence[EmbeddingBagConfig],
        num_dense: int,
        num_labels: int,
        experts: int,
        hidden: Sequence[int],
        tower: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__()
        if experts < 1:
            raise ValueError(f"experts = {experts} must be at least 1")
        self.embeddings = FieldEmbeddings(tables)
        width = self.embeddings.width + num_dense
        self.experts = nn.ModuleList(mlp(width, hidden, dropout) for _ in range(experts))
        self.gates = nn.ModuleList(nn.Linear(width, experts, bias=False) for _ in range(num_labels))
        self.towers = nn.ModuleList(
            nn.Sequential(mlp(hidden[-1], tower, dropout), nn.Linear(tower[-1], 1)) for _ in range(num_labels)
        )
        initialise_linear(self)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        inputs = torch.cat((self.embeddings(sparse), dense), dim=1)
        experts = torch.stack([expert(inputs) for expert in self.experts], dim=1)  # [B, experts, hidden[-1]]
        logits = []
        for gate, tower in zip(self.gates, self.towers, strict=True):
            shares = torch.softmax(gate(inputs), dim=1)  # [B, experts]
            logits.append(tower((shares.unsqueeze(2) * experts).sum(dim=1)))
        return one_logit_per_label(torch.cat(logits, dim=1))


def build(
    tables: list[EmbeddingBagConfig],
    num_dense: int,
    *,
    num_labels: int = 1,
    experts: int = 4,
    hidden: Sequence[int] = (128, 64),
    tower: Sequence[int] = (32,),
    dropout: float = 0.0,
) -> nn.Module:
    """MMoE. `experts`: number of experts. `hidden`: sizes of each expert's layers. `tower`: sizes of the layers of each
    task's tower, without the last one, which gives the logit. Raises ValueError for sizes out of range."""
    sizes = check_sizes("hidden", hidden), check_sizes("tower", tower)
    return Mmoe(tables, num_dense, num_labels, experts, *sizes, dropout)
