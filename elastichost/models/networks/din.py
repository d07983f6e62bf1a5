"""DIN: Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", KDD 2018."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingCollection
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor

from .layers import FieldEmbeddings, check_sizes, initialise_linear, mlp, one_logit_per_label

__all__ = ["Din", "TargetAttention", "build"]


def _samples(lengths: torch.Tensor, count: int) -> torch.Tensor:
    """The sample that each of `count` ids belongs to: int64 [count], ascending. lengths: [B]."""
    places = torch.arange(lengths.shape[0], device=lengths.device)
    return torch.repeat_interleave(places, lengths.long(), output_size=count)


def _sum_of_each_sample(vectors: torch.Tensor, samples: torch.Tensor, size: int) -> torch.Tensor:
    """[n, D] -> [size, D]: the sum of the vectors of each sample; zeros for a sample without any."""
    return vectors.new_zeros((size, vectors.shape[1])).index_add(0, samples, vectors)


class TargetAttention(nn.Module):
    """v_U(A) = sum_j a(e_j, v_A) e_j      (equation 3)

    a(e, v) is an MLP over [e, v, e - v, e * v] that ends in one number. As in the paper the numbers are not normalised:
    their sum tells how strong the interest is. The ids of a sequence stay ragged, one line for each id, so nothing is
    padded, and no sample sees the ids of another one.
    """

    def __init__(self, dim: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.weight = nn.Sequential(mlp(4 * dim, hidden), nn.Linear(hidden[-1], 1))

    def forward(self, target: torch.Tensor, sequence: JaggedTensor) -> torch.Tensor:
        """target float32 [B, D]; sequence: values float32 [n, D], lengths [B] -> float32 [B, D]"""
        vectors = sequence.values()
        samples = _samples(sequence.lengths(), vectors.shape[0])
        wanted = target.index_select(0, samples)
        weights = self.weight(torch.cat((vectors, wanted, vectors - wanted, vectors * wanted), dim=1))
        return _sum_of_each_sample(weights * vectors, samples, target.shape[0])


class Din(nn.Module):
    """An MLP over the pooled fields, the dense features, the target vectors and the attention over each sequence.

    A target and its sequences share a table of an `EmbeddingCollection`. The hidden layers have ReLU, where the paper
    compares PReLU and Dice.
    """

    def __init__(
        self,
        tables: Sequence[EmbeddingBagConfig],
        num_dense: int,
        num_labels: int,
        attention: Mapping[str, str],
        attention_hidden: Sequence[int],
        hidden: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention = dict(attention)
        self.targets = tuple(dict.fromkeys(self.attention.values()))
        ragged, pooled = _divided(tables, self.attention)
        self.sequences = EmbeddingCollection(
            tables=[
                EmbeddingConfig(
                    name=table.name,
                    embedding_dim=table.embedding_dim,
                    num_embeddings=table.num_embeddings,
                    feature_names=table.feature_names,
                    init_fn=table.init_fn,
                )
                for table in ragged
            ]
        )
        self.embeddings = FieldEmbeddings(pooled) if pooled else None
        dims = {feature: int(table.embedding_dim) for table in ragged for feature in table.feature_names}
        self.units = nn.ModuleList(TargetAttention(dims[name], attention_hidden) for name in self.attention)
        width = num_dense + sum(dims[name] for name in (*self.targets, *self.attention))
        self.over = mlp(width + (0 if self.embeddings is None else self.embeddings.width), hidden, dropout)
        self.head = nn.Linear(hidden[-1], num_labels)
        initialise_linear(self)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        found: Mapping[str, JaggedTensor] = self.sequences(sparse)
        size = dense.shape[0]
        targets = {name: self._target(found[name], size) for name in self.targets}
        parts = [dense] if self.embeddings is None else [dense, self.embeddings(sparse)]
        parts += targets.values()
        for unit, (sequence, target) in zip(self.units, self.attention.items(), strict=True):
            parts.append(unit(targets[target], found[sequence]))
        return one_logit_per_label(self.head(self.over(torch.cat(parts, dim=1))))

    @staticmethod
    def _target(ids: JaggedTensor, size: int) -> torch.Tensor:
        """float32 [B, D]. A sample without a target, a null in the data, has zeros."""
        vectors = ids.values()
        return _sum_of_each_sample(vectors, _samples(ids.lengths(), vectors.shape[0]), size)


def _divided(
    tables: Sequence[EmbeddingBagConfig], attention: Mapping[str, str]
) -> tuple[list[EmbeddingBagConfig], list[EmbeddingBagConfig]]:
    """(tables of targets and sequences, the other tables). Raises ValueError where `attention` does not fit them."""
    owners = {feature: table for table in tables for feature in table.feature_names}
    if not attention:
        raise ValueError('attention is empty: name the sequences and their targets, as { recent_items = "item" }')
    for sequence, target in attention.items():
        for name in (sequence, target):
            if name not in owners:
                raise ValueError(f"attention names {name!r}, which is no categorical feature: {', '.join(owners)}")
        if sequence == target or owners[sequence] is not owners[target]:
            raise ValueError(
                f"{sequence!r} and its target {target!r} must be two features of one table: write both into the "
                "features of a section [tables.NAME]"
            )
    used = {*attention, *attention.values()}
    ragged = [table for table in tables if not used.isdisjoint(table.feature_names)]
    for table in ragged:
        for feature in table.feature_names:
            if feature not in used:
                raise ValueError(f"table {table.name!r} has the feature {feature!r}, which attention does not name")
    return ragged, [table for table in tables if used.isdisjoint(table.feature_names)]


def build(
    tables: list[EmbeddingBagConfig],
    num_dense: int,
    *,
    attention: Mapping[str, str],
    num_labels: int = 1,
    attention_hidden: Sequence[int] = (36,),
    hidden: Sequence[int] = (128, 64),
    dropout: float = 0.0,
) -> nn.Module:
    """DIN. `attention`: the target of each sequence, as {"recent_items": "item"}: a list column and a column of single
    ids that share a table. `attention_hidden`, `hidden`: sizes of the layers of the attention and of the MLP after it.

    Raises ValueError when a column of `attention` does not exist or shares no table with its target, for sizes out of
    range.
    """
    sizes = check_sizes("attention_hidden", attention_hidden), check_sizes("hidden", hidden)
    return Din(tables, num_dense, num_labels, attention, *sizes, dropout)
