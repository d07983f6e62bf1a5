"""A model of one's own: plain torch and torchrec, no word of elastichost in it.

`build` is called once in every worker. It gets one EmbeddingBagConfig per table of the job file (names, features,
dimensions and pooling are set) and the arguments of `[model] args`. The rows never live in this module: while
`build` runs, embedding collections are made without memory, and elastichost puts the shared rows behind them.
"""

from __future__ import annotations

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor


class TwoTowers(nn.Module):
    """Two towers with gates: what the numbers say weighs what the ids say, and the other way round."""

    def __init__(self, tables: list[EmbeddingBagConfig], num_dense: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.embeddings = EmbeddingBagCollection(tables=tables)
        embedded = sum(table.embedding_dim * len(table.feature_names) for table in tables)
        self.ids = nn.Sequential(nn.Linear(embedded, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, hidden))
        self.numbers = nn.Sequential(nn.Linear(num_dense, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.over = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """dense float32 [B, num_dense], sparse with all features of all tables -> logits [B]."""
        ids = self.ids(self.embeddings(sparse).values())
        numbers = self.numbers(dense)
        logits: torch.Tensor = self.over(torch.cat([ids, numbers, ids * numbers.sigmoid()], dim=1))
        return logits.squeeze(1)


def build(tables: list[EmbeddingBagConfig], num_dense: int, hidden: int = 64, dropout: float = 0.0) -> nn.Module:
    """What `model.build = "own_model.py:build"` names."""
    return TwoTowers(tables, num_dense, hidden, dropout)
