"""Layers that several of the models share.

Shapes: B samples, F fields (every feature of every table is one field), D the embedding dimension, L labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

__all__ = [
    "CompressedInteraction",
    "CrossNetwork",
    "FieldEmbeddings",
    "FirstOrder",
    "check_sizes",
    "equal_dim",
    "factorization_machine",
    "initialise_linear",
    "mlp",
    "one_logit_per_label",
]


def check_sizes(name: str, sizes: Iterable[int], *, at_least: int = 1) -> tuple[int, ...]:
    """`sizes` as a tuple. Raises ValueError with the argument's name when a size is not positive, or too few are
    given."""
    checked = tuple(int(size) for size in sizes)
    if len(checked) < at_least:
        raise ValueError(f"{name} = {list(checked)} needs at least {at_least} layer size(s)")
    if any(size <= 0 for size in checked):
        raise ValueError(f"{name} = {list(checked)}: every layer size must be positive")
    return checked


def equal_dim(tables: Sequence[EmbeddingBagConfig], model: str) -> int:
    """The embedding dimension of all tables. Raises ValueError with the first table that has another one."""
    if not tables:
        raise ValueError(f"{model} needs at least one table")
    first = tables[0]
    for table in tables:
        if table.embedding_dim != first.embedding_dim:
            raise ValueError(
                f"{model} needs equal embedding dimensions: table {table.name!r} has dim {table.embedding_dim}, "
                f"table {first.name!r} has dim {first.embedding_dim}"
            )
    return int(first.embedding_dim)


def initialise_linear(module: nn.Module) -> None:
    """Sets Xavier-uniform weights and zero biases in every linear layer of `module`."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)


def mlp(in_features: int, sizes: Sequence[int], dropout: float = 0.0) -> nn.Sequential:
    """Linear + ReLU (+ dropout) for each size: [B, in_features] -> [B, sizes[-1]]; the identity when `sizes` is
    empty."""
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout = {dropout} must be in [0, 1)")
    layers: list[nn.Module] = []
    for size in sizes:
        layers += [nn.Linear(in_features, size), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        in_features = size
    stack = nn.Sequential(*layers)
    initialise_linear(stack)
    return stack


def one_logit_per_label(logits: torch.Tensor) -> torch.Tensor:
    """Changes [B, L] to [B] when L is 1."""
    return logits.squeeze(1) if logits.shape[1] == 1 else logits


class FieldEmbeddings(nn.Module):
    """The embedding vectors of all fields, concatenated in the order of tables and of each table's features."""

    def __init__(self, tables: Sequence[EmbeddingBagConfig]) -> None:
        super().__init__()
        if not tables:
            raise ValueError("the model needs at least one table")
        self.collection = EmbeddingBagCollection(tables=list(tables))
        self.dims = tuple(int(table.embedding_dim) for table in tables for _ in table.feature_names)

    @property
    def width(self) -> int:
        return sum(self.dims)

    def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """float32 [B, sum of dims]"""
        values: torch.Tensor = self.collection(sparse).values()
        return values


class FirstOrder(nn.Module):
    """<w, x> + b over all ids and dense features, with one weight for each id (and label). The tables of its collection
    are named `<table><suffix>`. An id that occurs twice in a bag counts twice, as x does in the papers."""

    def __init__(self, tables: Sequence[EmbeddingBagConfig], num_dense: int, num_labels: int, *, suffix: str) -> None:
        super().__init__()
        weights = [
            replace(table, name=f"{table.name}{suffix}", embedding_dim=num_labels, pooling=PoolingType.SUM)
            for table in tables
        ]
        self.collection = EmbeddingBagCollection(tables=weights)
        self.fields = sum(len(table.feature_names) for table in tables)
        self.dense = nn.Linear(num_dense, num_labels, bias=False) if num_dense else None
        self.bias = nn.Parameter(torch.zeros(num_labels))
        if self.dense is not None:
            # Zero, as in a regression: dense features may be large, and Xavier's bound for few inputs is about one.
            nn.init.zeros_(self.dense.weight)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """float32 [B, L]"""
        values: torch.Tensor = self.collection(sparse).values()
        logits = values.view(-1, self.fields, self.bias.shape[0]).sum(dim=1) + self.bias
        return logits if self.dense is None else logits + self.dense(dense)


def factorization_machine(fields: torch.Tensor) -> torch.Tensor:
    """Sum of all pairwise dot products of [B, F, D] -> [B], in O(F D): Rendle 2010, lemma 3.1.

    sum_{i<j} <v_i, v_j> = 1/2 sum_d ((sum_i v_id)^2 - sum_i v_id^2)
    """
    total = fields.sum(dim=1)
    return 0.5 * (total * total - (fields * fields).sum(dim=1)).sum(dim=1)


class CrossNetwork(nn.Module):
    """DCN-V2's cross layers (Wang et al. 2021, equations 1 and 2): [B, N] -> [B, N].

    full rank: x_{l+1} = x_0 * (W_l x_l + b_l) + x_l
    low rank:  x_{l+1} = x_0 * (U_l (V_l^T x_l) + b_l) + x_l, with U_l, V_l of N x rank
    """

    def __init__(self, width: int, layers: int, rank: int | None = None) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"cross_layers = {layers} must be at least 1")
        if rank is not None and rank < 1:
            raise ValueError(f"rank = {rank} must be at least 1 (leave it out for full rank)")
        self.layers = nn.ModuleList(
            nn.Linear(width, width)
            if rank is None
            else nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width))
            for _ in range(layers)
        )
        initialise_linear(self)

    def forward(self, start: torch.Tensor) -> torch.Tensor:
        crossed = start
        for layer in self.layers:
            crossed = torch.addcmul(crossed, start, layer(crossed))
        return crossed


class CompressedInteraction(nn.Module):
    """xDeepFM's compressed interaction network (Lian et al. 2018, section 3.2): [B, F, D] -> [B, sum of sizes].

    X^k_h = sum_{i, j} W^{k,h}_{ij} (X^{k-1}_i * X^0_j)      one 1x1 convolution over the outer product along fields
    p^k_h = sum_d X^k_{h, d}                                  sum pooling
    """

    def __init__(self, fields: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList()
        previous = fields
        for size in sizes:
            convolution = nn.Conv1d(previous * fields, size, kernel_size=1, bias=False)
            nn.init.xavier_uniform_(convolution.weight)
            self.convolutions.append(convolution)
            previous = size

    def forward(self, start: torch.Tensor) -> torch.Tensor:
        feature_maps, pooled = start, []
        for convolution in self.convolutions:
            outer = (feature_maps.unsqueeze(2) * start.unsqueeze(1)).flatten(1, 2)
            feature_maps = convolution(outer)
            pooled.append(feature_maps.sum(dim=2))
        return torch.cat(pooled, dim=1)
