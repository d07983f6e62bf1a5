"""The step engine of `elastichost.gpu` with a DLRM on random batches, with rows in memory of the GPU or of the host."""

from __future__ import annotations

import mmap
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch.nn import functional
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.dense.store import DenseOptimizerSpec
from elastichost.gpu.dense_updates import DenseUpdate
from elastichost.gpu.lookup import DeviceLookup
from elastichost.gpu.registered_memory import RegisteredMemory
from elastichost.gpu.row_placement import RowPlacement
from elastichost.gpu.step import DeviceStep, StepSwitches
from elastichost.gpu.step_inputs import StepInputs
from elastichost.models import dlrm
from elastichost.specs import EmbeddingSpec, RowOptimizerSpec
from elastichost.worker.model.dense_vector import FlatDense, describe_dense, initial_vector
from elastichost.worker.model.embedding import meta_collections, replace_collections
from elastichost.worker.model.fusion import fuse_modules

__all__ = ["Engine", "EngineShape", "build_engine", "random_batches"]

Place = Literal["device", "host"]


@dataclass(frozen=True, slots=True)
class EngineShape:
    """The shape of the model and of its batches."""

    batch_size: int
    rows: int
    dim: int
    tables: int = 26
    num_dense: int = 13
    bottom: tuple[int, ...] = (512, 256)
    top: tuple[int, ...] = (512, 256)
    is_narrow: bool = True

    @property
    def features(self) -> list[str]:
        return [f"c{number}" for number in range(self.tables)]


@dataclass(slots=True)
class Engine:
    """An engine that is ready to train. memory keeps what the rows lie in."""

    shape: EngineShape
    step: DeviceStep
    dense: FlatDense
    lookup: DeviceLookup
    memory: object

    def train(self, batch: StepInputs, half: int) -> None:
        """One step."""
        self.step.halves[half].copy_from(batch)
        self.step.run(half)


def random_batches(
    shape: EngineShape, count: int, device: torch.device, seed: int, exponent: float = 1.05
) -> list[StepInputs]:
    """Batches with ids of a Zipf distribution (exponent 0: uniform), cut at the number of rows."""
    generator = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, shape.rows + 1) ** exponent
    heights = np.cumsum(weights / weights.sum())
    found = []
    for _ in range(count):
        draws = generator.random(shape.tables * shape.batch_size)
        ranks = np.minimum(np.searchsorted(heights, draws), shape.rows - 1)
        ids = (ranks * 2654435761 + 12345) % shape.rows  # frequent ids lie apart
        offsets = np.arange(shape.tables * shape.batch_size + 1, dtype=np.int32)
        dense = generator.standard_normal((shape.batch_size, shape.num_dense)).astype(np.float32)
        labels = (generator.random((shape.batch_size, 1)) < 0.25).astype(np.float32)
        arrays = ids.astype(np.int32), offsets, dense, labels
        found.append(StepInputs(*(torch.from_numpy(array).to(device) for array in arrays)))
    return found


class _HostRows:
    """Rows and state in one file on tmpfs, registered with the GPU."""

    def __init__(self, floats: int, scale: float) -> None:
        self.directory = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="elastichost-bench-")
        path = Path(self.directory.name) / "rows"
        with path.open("wb+") as file:
            file.truncate(-(-4 * floats // 4096) * 4096)
            self._map = mmap.mmap(file.fileno(), 0)
        self.values = torch.from_numpy(np.frombuffer(self._map, np.float32))
        self.values.uniform_(-scale, scale)
        self.registered = RegisteredMemory()
        self.registered.register(self.values.data_ptr(), self.values.numel() * 4)

    def close(self) -> None:
        self.registered.close()
        self.directory.cleanup()


def build_engine(shape: EngineShape, place: Place, device: torch.device) -> Engine:
    """An engine with new rows. place: where rows and their optimizer state lie."""
    torch.manual_seed(1)
    configs = [
        EmbeddingBagConfig(name=f"t{n}", embedding_dim=shape.dim, num_embeddings=shape.rows, feature_names=[feature])
        for n, feature in enumerate(shape.features)
    ]
    with meta_collections():
        model = dlrm(configs, shape.num_dense, bottom=[*shape.bottom, shape.dim], top=[*shape.top, 1])
    embeddings = [_embedding(config, number, shape) for number, config in enumerate(configs)]
    floats = shape.tables * shape.rows
    switches = StepSwitches.allocate(device)
    memory, addresses = _memory(floats * shape.dim, floats, place, device)
    placement = RowPlacement(
        *addresses,
        tuple(n * shape.rows * shape.dim for n in range(shape.tables)),
        tuple(n * shape.rows for n in range(shape.tables)),
        (shape.rows,) * shape.tables,
    )
    pooled = torch.bfloat16 if shape.is_narrow else torch.float32
    lookup = DeviceLookup(embeddings, placement, switches.rate_scale, switches.is_refused, pooled)
    replace_collections(model, {"network.sparse_arch.embedding_bag_collection": lookup})
    fuse_modules(model)
    spec = describe_dense(model)
    initial = initial_vector(model, spec)
    dense = FlatDense(model, spec, device, "bfloat16" if shape.is_narrow else None)
    dense.values[:] = initial
    dense.loaded()
    vectors = dense.device_values[: spec.parameters], dense.gradients, dense.low
    update = DenseUpdate(DenseOptimizerSpec(), *vectors, switches.rate_scale, switches.is_refused)
    halves = tuple(random_batches(shape, 1, device, 1)[0].empty_like(device) for _ in range(2))

    def loss(inputs: StepInputs) -> torch.Tensor:
        sparse = KeyedJaggedTensor(
            keys=shape.features,
            values=inputs.values,
            offsets=inputs.offsets,
            stride=shape.batch_size,
            length_per_key=[shape.batch_size] * shape.tables,
        )
        with torch.autocast(device.type, torch.bfloat16, enabled=shape.is_narrow):
            logits = model(inputs.dense, sparse)
        return functional.binary_cross_entropy_with_logits(logits.float(), inputs.labels.view(-1))

    step = DeviceStep(loss, lambda half, loss: update.apply(), dense.gradients, switches, halves)
    return Engine(shape, step, dense, lookup, memory)


def _embedding(config: EmbeddingBagConfig, number: int, shape: EngineShape) -> EmbeddingSpec:
    return EmbeddingSpec(
        name=config.name,
        index=number,
        table=number,
        module="network.sparse_arch.embedding_bag_collection",
        kind="bag",
        features=tuple(config.feature_names),
        dim=shape.dim,
        pooling="sum",
        optimizer=RowOptimizerSpec(),
        init_low=-0.01,
        init_high=0.01,
    )


def _memory(row_floats: int, state_floats: int, place: Place, device: torch.device) -> tuple[object, tuple[int, int]]:
    """(what holds the memory, addresses of rows and of state)."""
    if place == "host":
        rows, state = _HostRows(row_floats, 0.01), _HostRows(state_floats, 0.0)
        return (rows, state), (rows.values.data_ptr(), state.values.data_ptr())
    values = torch.empty(row_floats, device=device).uniform_(-0.01, 0.01)
    states = torch.zeros(state_floats, device=device)
    return (values, states), (values.data_ptr(), states.data_ptr())
