"""DLRM: Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", 2019.

It is built from torchrec's classes. The architecture of the paper (section 2): a bottom MLP over the dense features,
dot products of all pairs of its output and the embeddings, and a top MLP over the bottom's output and these products.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torchrec.models.dlrm import DLRM, OverArch, SparseArch
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from .layers import check_sizes, equal_dim, initialise_linear, one_logit_per_label

__all__ = ["Dlrm", "SparseDlrm", "build"]


class Dlrm(nn.Module):
    """torchrec's DLRM, with logits [B] instead of [B, 1] when there is one label."""

    def __init__(self, tables: Sequence[EmbeddingBagConfig], num_dense: int, bottom: list[int], top: list[int]) -> None:
        super().__init__()
        self.network = DLRM(
            embedding_bag_collection=EmbeddingBagCollection(tables=list(tables)),
            dense_in_features=num_dense,
            dense_arch_layer_sizes=bottom,
            over_arch_layer_sizes=top,
        )
        initialise_linear(self)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        return one_logit_per_label(self.network(dense, sparse))


class SparseDlrm(nn.Module):
    """DLRM without dense features: dot products of all pairs of the F embeddings, and a top MLP over these F (F - 1) /
    2 products."""

    def __init__(self, tables: Sequence[EmbeddingBagConfig], top: list[int]) -> None:
        super().__init__()
        self.sparse_arch = SparseArch(EmbeddingBagCollection(tables=list(tables)))
        fields = len(self.sparse_arch.sparse_feature_names)
        if fields < 2:
            raise ValueError("dlrm without dense features needs at least two categorical features to interact")
        self.register_buffer("pairs", torch.tril_indices(fields, fields, offset=-1), persistent=False)
        self.over_arch = OverArch(fields * (fields - 1) // 2, top)
        initialise_linear(self)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        fields = self.sparse_arch(sparse)
        products = torch.bmm(fields, fields.transpose(1, 2))
        pairs = self.get_buffer("pairs")
        return one_logit_per_label(self.over_arch(products[:, pairs[0], pairs[1]]))


def build(
    tables: list[EmbeddingBagConfig],
    num_dense: int,
    *,
    num_labels: int = 1,
    bottom: Sequence[int] | None = None,
    top: Sequence[int] | None = None,
) -> nn.Module:
    """DLRM. `bottom`: sizes of the layers over the dense features; the last must be the embedding dimension (default
    [max(64, dim), dim]). `top`: sizes of the layers after the interaction; the last must be the number of labels
    (default [64, num_labels]).

    Raises ValueError when a last size is another one, or when the tables' dimensions differ.
    """
    dim = equal_dim(tables, "dlrm")
    bottom_sizes = check_sizes("bottom", (max(64, dim), dim) if bottom is None else bottom)
    top_sizes = check_sizes("top", (64, num_labels) if top is None else top, at_least=2)
    if bottom_sizes[-1] != dim:
        raise ValueError(
            f"bottom = {list(bottom_sizes)} must end in the embedding dimension {dim}: the dense features' vector "
            "is multiplied with the embeddings"
        )
    if top_sizes[-1] != num_labels:
        raise ValueError(f"top = {list(top_sizes)} must end in the number of labels, {num_labels}")
    if num_dense == 0:
        return SparseDlrm(tables, list(top_sizes))
    return Dlrm(tables, num_dense, list(bottom_sizes), list(top_sizes))
