"""DCN-V2: Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for Web-scale Learning to Rank
Systems", WWW 2021."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from .layers import CrossNetwork, FieldEmbeddings, check_sizes, initialise_linear, mlp, one_logit_per_label

__all__ = ["DeepCross", "build"]

STRUCTURES = ("stacked", "parallel")


class DeepCross(nn.Module):
    """x_0 = [x_embed,1; ...; x_embed,n; x_dense] -> cross layers (equations 1 and 2) and deep layers -> w^T x_final

    stacked:  x_final = deep(cross(x_0))
    parallel: x_final = [cross(x_0); deep(x_0)]      (figure 1)

    The embedding dimensions may differ from table to table.
    """

    def __init__(
        self,
        tables: Sequence[EmbeddingBagConfig],
        num_dense: int,
        num_labels: int,
        hidden: Sequence[int],
        cross: CrossNetwork,
        is_stacked: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embeddings = FieldEmbeddings(tables)
        width = self.embeddings.width + num_dense
        self.cross = cross
        self.deep = mlp(width, hidden, dropout)
        self.is_stacked = is_stacked
        self.head = nn.Linear(hidden[-1] if is_stacked else width + hidden[-1], num_labels)
        initialise_linear(self.head)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        start = torch.cat((self.embeddings(sparse), dense), dim=1)
        crossed = self.cross(start)
        final = self.deep(crossed) if self.is_stacked else torch.cat((crossed, self.deep(start)), dim=1)
        return one_logit_per_label(self.head(final))


def build(
    tables: list[EmbeddingBagConfig],
    num_dense: int,
    *,
    num_labels: int = 1,
    cross_layers: int = 3,
    rank: int | None = None,
    structure: str = "stacked",
    hidden: Sequence[int] = (256, 128, 64),
    dropout: float = 0.0,
) -> nn.Module:
    """DCN-V2. `rank`: rank of the cross layers' matrices (default: full rank). `structure`: "stacked" or "parallel".

    Raises ValueError for arguments out of range.
    """
    if structure not in STRUCTURES:
        raise ValueError(f"structure = {structure!r} must be one of {', '.join(map(repr, STRUCTURES))}")
    width = sum(int(table.embedding_dim) * len(table.feature_names) for table in tables) + num_dense
    cross = CrossNetwork(width, cross_layers, rank)
    return DeepCross(
        tables, num_dense, num_labels, check_sizes("hidden", hidden), cross, structure == "stacked", dropout
    )
