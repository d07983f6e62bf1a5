"""fbgemm's table-batched embedding (TBE) under torchrec's DLRM: what users of a GPU have today.

The model is torchrec's, in bfloat16 under `torch.autocast`; Adam is torch's fused one. Rows lie in memory of the GPU
(`device`), in memory of the host that the GPU reads and writes (`managed`; `uvm_host_mapped`, not CUDA's managed
memory), or there with a cache of a tenth of them on the GPU (`caching`).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from benchmarks.gpu.engine import EngineShape, loss_of, model_on
from elastichost.gpu.step_inputs import StepInputs

__all__ = ["TBE_PLACES", "TbeLookup", "TbeTraining", "make_tables"]

TbePlace = Literal["device", "managed", "caching"]
TBE_PLACES: tuple[TbePlace, ...] = ("device", "managed", "caching")
CACHED_SHARE = 0.1
WARM_UP_STEPS = 5


def make_tables(shape: EngineShape, place: TbePlace, device: torch.device) -> Any:
    """The tables of a shape, with row-wise Adagrad. Raises ImportError without fbgemm's CUDA build."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    where = {
        "device": EmbeddingLocation.DEVICE,
        "managed": EmbeddingLocation.MANAGED,
        "caching": EmbeddingLocation.MANAGED_CACHING,
    }[place]
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        [(shape.rows, shape.dim, where, ComputeDevice.CUDA)] * shape.tables,
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=0.1,
        eps=1e-8,
        pooling_mode=PoolingMode.SUM,
        cache_load_factor=CACHED_SHARE,
        stochastic_rounding=False,
        bounds_check_mode=BoundsCheckMode.NONE,
        uvm_host_mapped=True,
        device=device,
    )
    for weights in tables.split_embedding_weights():
        weights.fill_(0.01)
    return tables


class TbeLookup:
    """Implements `CollectionLookup` with TBE."""

    def __init__(self, tables: Any) -> None:
        self._tables = tables

    def pooled(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """float32 [batch, sum of dims]."""
        output: torch.Tensor = self._tables(features.values(), features.offsets())
        return output

    def sequence(self, features: KeyedJaggedTensor) -> list[torch.Tensor]:
        raise NotImplementedError("the model of this benchmark has pooled features only")


class TbeTraining:
    """Trains batches of one shape, eagerly or with a graph."""

    def __init__(self, shape: EngineShape, tables: Any, inputs: StepInputs) -> None:
        device = inputs.dense.device
        self._shape, self._model = shape, model_on(shape, TbeLookup(tables)).to(device)
        self._adam = torch.optim.Adam(self._model.parameters(), lr=1e-3, fused=True, capturable=True)
        self._inputs = inputs.empty_like(device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._step(inputs)
        self._inputs.copy_from(inputs)

    def train_eagerly(self, batch: StepInputs, half: int) -> None:
        """One step, operation by operation."""
        self._step(batch)

    def train(self, batch: StepInputs, half: int) -> None:
        """One step with a graph."""
        if self._graph is None:
            self._graph = self._capture()
        self._inputs.copy_from(batch)
        self._graph.replay()

    def _capture(self) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                self._step(self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(self._inputs)
        return graph

    def _step(self, batch: StepInputs) -> None:
        self._adam.zero_grad(set_to_none=True)
        loss_of(self._model, self._shape, batch).backward()
        self._adam.step()
