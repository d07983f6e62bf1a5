"""The models and steps that the torch peers share: unchanged torchrec modules and torch's Adam."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

import elastichost.models
from benchmarks.peers.common import PeerMode
from benchmarks.workload.samples import Batch
from benchmarks.workload.shape import DENSE, ModelName, Shape

__all__ = [
    "DENSE_RATE",
    "INIT_BOUND",
    "ROW_EPS",
    "ROW_RATE",
    "Features",
    "adam",
    "build_network",
    "dims_of",
    "padded_dim",
    "padded_rate",
    "replace_collections",
    "step_loss",
]

ROW_RATE, ROW_EPS, DENSE_RATE = 0.1, 1e-8, 1e-3
INIT_BOUND = 0.01
Made = TypeVar("Made", bound=nn.Module)


def build_network(model: ModelName, shape: Shape) -> nn.Module:
    """A network with forward(dense [B, 13], KeyedJaggedTensor) -> logits [B]. Its tables have one row, because every
    peer replaces the collections."""
    torch.manual_seed(0)
    build: Callable[..., nn.Module] = getattr(elastichost.models, model)
    tables = [
        EmbeddingBagConfig(name=f"{column}_rows", embedding_dim=shape.dim, num_embeddings=1, feature_names=[column])
        for column in shape.columns
    ]
    layers = {"bottom": shape.bottom, "top": shape.top} if model == "dlrm" else {}
    return build(tables, DENSE, **layers)


def dims_of(collection: EmbeddingBagCollection) -> list[int]:
    """Row width of each table, in feature order: every feature of this workload has one table of each collection."""
    return [int(config.embedding_dim) for config in collection.embedding_bag_configs()]


def padded_dim(dim: int) -> int:
    """The row width rounded up to a multiple of four elements, which fbgemm needs."""
    return -(-dim // 4) * 4


def padded_rate(dim: int) -> float:
    """The learning rate of row-wise Adagrad for padded rows: its mean of squares is over all elements, but only `dim`
    of them have gradients."""
    return ROW_RATE * math.sqrt(dim / padded_dim(dim))


def replace_collections(network: nn.Module, make: Callable[[EmbeddingBagCollection], Made]) -> list[Made]:
    """Replaces every collection by make(collection); returns the new modules, in module order."""
    found = [(path, module) for path, module in network.named_modules() if isinstance(module, EmbeddingBagCollection)]
    made = [make(module) for _, module in found]
    for (path, _), replacement in zip(found, made, strict=True):
        network.set_submodule(path, replacement)
    return made


class Features:
    """Makes KeyedJaggedTensors of batches. All samples have the same number of ids, so lengths and offsets are
    computed once."""

    def __init__(self, shape: Shape, batch_size: int) -> None:
        self._shape, self._stride = shape, batch_size
        self._lengths = torch.full((shape.tables * batch_size,), shape.ids, dtype=torch.int64)
        self._offsets = torch.arange(0, shape.tables * batch_size * shape.ids + 1, shape.ids, dtype=torch.int64)

    def __call__(self, ids: torch.Tensor) -> KeyedJaggedTensor:
        """ids int64 [tables * B * ids], feature-major."""
        return KeyedJaggedTensor(
            keys=list(self._shape.columns),
            values=ids,
            lengths=self._lengths,
            offsets=self._offsets,
            stride=self._stride,
            length_per_key=[self._stride * self._shape.ids] * self._shape.tables,
        )


def adam(network: nn.Module) -> torch.optim.Adam:
    """Adam of the dense part, in torch's fastest form on a CPU."""
    return torch.optim.Adam(network.parameters(), lr=DENSE_RATE, fused=True)


def step_loss(network: nn.Module, batch: Batch, sparse: Any, mode: PeerMode | None = None) -> torch.Tensor:
    """The mean binary cross-entropy of a batch: a scalar with its autograd graph. mode: sets the number of threads, and
    whether the network computes under torch.autocast."""
    if mode is not None and torch.get_num_threads() != mode.threads:
        torch.set_num_threads(mode.threads)
    with torch.autocast("cpu", torch.bfloat16, enabled=mode is not None and mode.is_bfloat16):
        logits = network(torch.from_numpy(batch.dense), sparse)
    return functional.binary_cross_entropy_with_logits(logits.float().view(-1), torch.from_numpy(batch.labels))
