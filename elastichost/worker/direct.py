"""Direct access: fbgemm's fused table-batched kernel over the mapped arena.

The kernel is constructed with placeholder tables of 64 rows; then its offsets and its two host tensors are pointed
at the arena. Nothing is allocated for the rows, however many there are. The fused optimizer updates rows and
state in place during the backward pass, lock-free with the other workers (Hogwild).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
    BoundsCheckMode,
    EmbeddingLocation,
    PoolingMode,
)
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.arena import Arena
from elastichost.arena.layout import MAX_REGION_BYTES
from elastichost.errors import ArenaError
from elastichost.specs import EmbeddingSpec, RowOptimizer
from elastichost.worker.groups import Group, GroupedCollection, group_embeddings

__all__ = ["DirectLookup", "arena_kernel"]

_PLACEHOLDER_ROWS = 64
_OPTIMIZERS: dict[RowOptimizer, EmbOptimType] = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}


def arena_kernel(arena: Arena, group: Group) -> SplitTableBatchedEmbeddingBagsCodegen:
    """A fused kernel whose tables are the group's regions of the arena."""
    first = group.embeddings[0]
    for e in group.embeddings:
        region_bytes = 4 * arena.layout.row_space(e.table) * e.padded_dim
        if region_bytes > MAX_REGION_BYTES:
            raise ArenaError(
                f"table {e.name!r} takes {region_bytes / 2**30:.1f} GiB of rows; fbgemm's kernel addresses "
                f"{MAX_REGION_BYTES >> 30} GiB per table",
                hint='use train.access = "served" for this job, or give the table fewer rows',
            )
    kernel = SplitTableBatchedEmbeddingBagsCodegen(
        [(_PLACEHOLDER_ROWS, e.padded_dim, EmbeddingLocation.HOST, ComputeDevice.CPU) for e in group.embeddings],
        feature_table_map=list(group.feature_embeddings),
        optimizer=_OPTIMIZERS[first.optimizer.name],
        learning_rate=first.kernel_learning_rate,
        eps=first.optimizer.eps,
        # A sequence is a bag of one: PoolingMode.NONE's backward is 10 to 30 times slower than SUM's.
        pooling_mode=PoolingMode.MEAN if first.pooling == "mean" else PoolingMode.SUM,
        bounds_check_mode=BoundsCheckMode.NONE,  # rows come from the index or were checked against the table
        device=torch.device("cpu"),
    )
    rows = [arena.layout.row_space(e.table) for e in group.embeddings]
    starts = [sum(rows[:position]) for position in range(len(rows))]
    total = sum(rows)
    of_feature = list(group.feature_embeddings)
    kernel.rows_per_table = torch.tensor([rows[t] for t in of_feature], dtype=torch.int64)
    kernel.hash_size_cumsum = torch.tensor([*(starts[t] for t in of_feature), total], dtype=torch.int64)
    kernel.total_hash_size = total
    kernel.total_hash_size_bits = int(math.log2(float(total)) + 1)
    offsets = [arena.layout.rows_offset(e.index) for e in group.embeddings]
    kernel.weights_offsets = torch.tensor([offsets[t] for t in of_feature], dtype=torch.int64)
    kernel.weights_physical_offsets = offsets
    kernel.weights_host = torch.nn.Parameter(torch.from_numpy(arena.rows_flat))
    if first.state_floats_per_row:
        state_offsets = [arena.layout.state_offset(e.index) for e in group.embeddings]
        kernel.momentum1_offsets = torch.tensor([state_offsets[t] for t in of_feature], dtype=torch.int64)
        kernel.momentum1_physical_offsets = state_offsets
        kernel.momentum1_host = torch.nn.Parameter(torch.from_numpy(arena.state_flat), requires_grad=False)
    return kernel


def _kernel_key(embedding: EmbeddingSpec) -> object:
    return (embedding.optimizer, embedding.kernel_learning_rate, embedding.pooling)


class DirectLookup:
    """Lookup of one collection through fused kernels. Key values are row numbers in each table's row space."""

    def __init__(self, arena: Arena, embeddings: Sequence[EmbeddingSpec], device: torch.device) -> None:
        groups = group_embeddings(embeddings, _kernel_key)
        self._plan = GroupedCollection(embeddings, groups)
        self._kernels = [arena_kernel(arena, group) for group in groups]
        self._learning_rates = [group.embeddings[0].kernel_learning_rate for group in groups]
        self._scale = 1.0
        self._device = device

    def set_learning_rate_scale(self, scale: float) -> None:
        """The schedule's factor on every row learning rate."""
        if scale == self._scale:
            return
        self._scale = scale
        for kernel, learning_rate in zip(self._kernels, self._learning_rates, strict=True):
            kernel.set_learning_rate(learning_rate * scale)

    def pooled(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """float32 [batch, sum of dims]; rows and state are updated when gradients reach it."""
        outputs = [
            kernel(given.values(), given.offsets())
            for kernel, given in zip(self._kernels, self._plan.inputs(features), strict=True)
        ]
        return self._plan.pooled(outputs).to(self._device)

    def sequence(self, features: KeyedJaggedTensor) -> list[torch.Tensor]:
        """Per (embedding, feature): float32 [ids, dim]."""
        outputs: list[list[torch.Tensor]] = []
        for kernel, given, group in zip(self._kernels, self._plan.inputs(features), self._plan.groups, strict=True):
            outputs.append([part.to(self._device) for part in _bags_of_one(kernel, given, group)])
        return self._plan.sequences(outputs)


def _bags_of_one(
    kernel: SplitTableBatchedEmbeddingBagsCodegen, features: KeyedJaggedTensor, group: Group
) -> list[torch.Tensor]:
    """fbgemm wants the same number of bags for every feature: shorter features get empty bags at their end."""
    counts = features.length_per_key()
    longest = max([*counts, 1])
    lengths = torch.zeros(len(counts), longest, dtype=torch.int64)
    for position, count in enumerate(counts):
        lengths[position, :count] = 1
    offsets = torch.zeros(lengths.numel() + 1, dtype=torch.int64)
    torch.cumsum(lengths.view(-1), 0, out=offsets[1:])
    pooled = kernel(features.values(), offsets)
    dims = [group.embeddings[position].padded_dim for position in group.feature_embeddings]
    parts = torch.split(pooled, dims, dim=1)
    return [part[:count] for part, count in zip(parts, counts, strict=True)]
