"""One process: fbgemm's fused table-batched embedding kernel with torchrec's dense modules.

Forward, backward and row-wise Adagrad of all tables take one kernel call each. This is the fastest form of one torch
process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torch import nn
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from benchmarks.peers.common import Counter, PeerSettings, endless
from benchmarks.peers.torch_parts import (
    INIT_BOUND,
    ROW_EPS,
    Features,
    adam,
    build_network,
    dims_of,
    padded_dim,
    padded_rate,
    replace_collections,
    step_loss,
)

__all__ = ["FusedCollection", "main"]


class FusedCollection(nn.Module):
    """Replaces a collection whose tables all have the same row width. rows: of each table."""

    def __init__(self, replaced: EmbeddingBagCollection, rows: int) -> None:
        super().__init__()
        dims = dims_of(replaced)
        self._names = [name for config in replaced.embedding_bag_configs() for name in config.feature_names]
        self._dim = dims[0]
        self._padded = padded_dim(self._dim)
        self._kernel: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
        kernel = SplitTableBatchedEmbeddingBagsCodegen(
            [(rows, self._padded, EmbeddingLocation.HOST, ComputeDevice.CPU)] * len(dims),
            optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            learning_rate=padded_rate(self._dim),
            eps=ROW_EPS,
            bounds_check_mode=BoundsCheckMode.NONE,
            device=torch.device("cpu"),
        )
        kernel.init_embedding_weights_uniform(-INIT_BOUND, INIT_BOUND)
        # not registered as a submodule, because the kernel itself trains its parameters
        object.__setattr__(self, "_kernel", kernel)

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        values = self._kernel(features.values(), features.offsets())
        if self._padded != self._dim:
            values = values.view(-1, len(self._names), self._padded)[:, :, : self._dim].flatten(1)
        return KeyedTensor(keys=self._names, length_per_key=[self._dim] * len(self._names), values=values)


def main(settings: PeerSettings) -> None:
    """Trains until it is killed."""
    torch.set_num_threads(settings.threads)
    network = build_network(settings.model, settings.shape)
    replace_collections(network, lambda collection: FusedCollection(collection, settings.shape.rows))
    optimizer, features = adam(network), Features(settings.shape, settings.batch_size)
    counter = Counter(Path(settings.counter))
    for batch in endless(settings.open_batches()):
        loss = step_loss(network, batch, features(torch.from_numpy(batch.ids)), counter.mode)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        counter.add(0, settings.batch_size)
