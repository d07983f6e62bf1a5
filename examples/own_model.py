"""A model of your own. It is plain torch and torchrec, and imports nothing of elastichost.

Each worker calls `build` once, with one EmbeddingBagConfig for each table of the job file (name, features, dimension
and pooling are set) and the arguments of `[model] args`. The module holds no rows: while `build` runs, embedding
collections are made without memory, and elastichost connects them to the rows in shared memory.
"""

from __future__ import annotations

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor


class TwoTowers(nn.Module):
    """One tower for ids and one for numbers; a sigmoid of the second one weights the first one."""

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
    """Builds the model. A job file names this function: `model.build = "own_model.py:build"`."""
    return TwoTowers(tables, num_dense, hidden, dropout)
