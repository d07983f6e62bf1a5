"""torchrec's DistributedModelParallel: two processes over gloo; each table is on one of them.

Fused row-wise Adagrad updates the rows; DDP and Adam update the dense part. Each process has its own batch, so a step
trains 2 B samples.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.optim import (  # type: ignore[attr-defined]
    _apply_optimizer_in_backward as apply_optimizer_in_backward,
)
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import ShardingEnv, ShardingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim import RowWiseAdagrad
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from benchmarks.peers.common import Counter, PeerSettings, endless, fork_role
from benchmarks.peers.torch_parts import (
    DENSE_RATE,
    INIT_BOUND,
    ROW_EPS,
    Features,
    build_network,
    dims_of,
    padded_dim,
    padded_rate,
    replace_collections,
    step_loss,
)

__all__ = ["main"]

RANKS = 2
NEVER = timedelta(days=30)  # no timeout: an arm is stopped while others are measured


def main(settings: PeerSettings) -> None:
    """Trains until it is killed."""
    with fork_role("worker-1") as is_second:
        _train(settings, rank=int(is_second))


def _train(settings: PeerSettings, rank: int) -> None:
    torch.set_num_threads(settings.threads)
    distributed.init_process_group(
        "gloo", init_method=f"file://{settings.folder}/gloo", rank=rank, world_size=RANKS, timeout=NEVER
    )
    model, optimizer = _shard(settings)
    features = Features(settings.shape, settings.batch_size)
    counter = Counter(Path(settings.counter))
    for batch in endless(settings.open_batches(), first=rank, step=RANKS):
        loss = step_loss(model, batch, features(torch.from_numpy(batch.ids)), counter.mode)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        counter.add(rank, settings.batch_size)


class PaddedCollection(nn.Module):
    """Replaces a collection: pads its rows to the width that fbgemm's kernels need, and cuts the output. rows: of
    each table."""

    def __init__(self, replaced: EmbeddingBagCollection, rows: int) -> None:
        super().__init__()
        configs = replaced.embedding_bag_configs()
        self._dim = dims_of(replaced)[0]
        changes = {
            "embedding_dim": padded_dim(self._dim),
            "num_embeddings": rows,
            "weight_init_min": -INIT_BOUND,
            "weight_init_max": INIT_BOUND,
            "init_fn": None,
        }
        tables = [replace(config, **changes) for config in configs]
        self.collection = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
        settings = {"lr": padded_rate(self._dim), "eps": ROW_EPS}
        apply_optimizer_in_backward(RowWiseAdagrad, self.collection.parameters(), settings)

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        pooled: KeyedTensor = self.collection(features)
        if self._dim == padded_dim(self._dim):
            return pooled
        keys = pooled.keys()
        values = pooled.values().view(-1, len(keys), padded_dim(self._dim))[:, :, : self._dim].flatten(1)
        return KeyedTensor(keys=keys, length_per_key=[self._dim] * len(keys), values=values)


def _shard(settings: PeerSettings) -> tuple[nn.Module, torch.optim.Optimizer]:
    network = build_network(settings.model, settings.shape)
    padded = replace_collections(network, lambda collection: PaddedCollection(collection, settings.shape.rows))
    collections = [one.collection for one in padded]
    names = [config.name for collection in collections for config in collection.embedding_bag_configs()]
    constraint = ParameterConstraints(
        sharding_types=[ShardingType.TABLE_WISE.value], compute_kernels=[EmbeddingComputeKernel.FUSED.value]
    )
    group = distributed.group.WORLD
    assert group is not None
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=RANKS, compute_device="cpu", local_world_size=RANKS),
        batch_size=settings.batch_size,
        constraints=dict.fromkeys(names, constraint),
    )
    sharder = EmbeddingBagCollectionSharder()
    plan = planner.collective_plan(network, [sharder], group)
    device = torch.device("cpu")
    env = ShardingEnv.from_process_group(group)
    model = DistributedModelParallel(network, env=env, device=device, plan=plan, sharders=[sharder])
    in_backward = {name for name, _ in model.fused_optimizer.params.items()}
    dense = [parameter for name, parameter in model.named_parameters() if name not in in_backward]
    return model, torch.optim.Adam(dense, lr=DENSE_RATE, fused=True)
