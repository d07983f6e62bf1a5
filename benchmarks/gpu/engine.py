"""The step engine of `elastichost.gpu` with a DLRM on random batches, with rows in memory of the GPU or of the host."""

from __future__ import annotations

import mmap
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from elastichost.arena.dense.store import DenseOptimizerSpec
from elastichost.gpu.dense_updates import DenseUpdate
from elastichost.gpu.lookup import DeviceLookup
from elastichost.gpu.memory.registered_memory import RegisteredMemory
from elastichost.gpu.row_placement import RowPlacement
from elastichost.gpu.step import DeviceStep, StepSwitches
from elastichost.gpu.step_inputs import StepInputs
from elastichost.models import dlrm
from elastichost.specs import EmbeddingSpec, RowOptimizerSpec
from elastichost.worker.model.dense_vector import FlatDense, describe_dense, initial_vector
from elastichost.worker.model.embedding import CollectionLookup, meta_collections, replace_collections
from elastichost.worker.model.fusion import fuse_modules

__all__ = [
    "PLACES",
    "DeviceRows",
    "Engine",
    "EngineShape",
    "HostRows",
    "Place",
    "Rows",
    "allocate_rows",
    "build_engine",
    "loss_of",
    "model_on",
    "random_batches",
]

Place = Literal["device", "host"]
PLACES: tuple[Place, ...] = ("device", "host")
COLLECTION = "network.sparse_arch.embedding_bag_collection"


@dataclass(frozen=True, slots=True)
class EngineShape:
    """The shape of the model and of its batches: a DLRM with one id for each table and sample."""

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


class DeviceRows:
    """Rows float32 and their state in memory of the GPU."""

    def __init__(self, rows: int, state: int, device: torch.device) -> None:
        self.rows = torch.empty(rows, device=device).uniform_(-0.01, 0.01)
        self.state = torch.zeros(state, device=device)

    def close(self) -> None:
        """Nothing to do: torch frees the memory."""


class HostRows:
    """Rows float32 and their state in files on tmpfs, registered with the GPU. `close` removes them."""

    def __init__(self, rows: int, state: int) -> None:
        self._directory = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="elastichost-bench-")
        self._registered = RegisteredMemory()
        self.rows = self._map("rows", rows).fill_(0.01)  # random numbers would take ten times as long
        self.state = self._map("state", state).fill_(0.0)
        for part in (self.rows, self.state):
            self._registered.register(part.data_ptr(), part.numel() * 4)

    def _map(self, name: str, floats: int) -> torch.Tensor:
        with (Path(self._directory.name) / name).open("wb+") as file:
            file.truncate(-(-4 * floats // mmap.PAGESIZE) * mmap.PAGESIZE)
            return torch.from_numpy(np.frombuffer(mmap.mmap(file.fileno(), 0), np.float32))

    def close(self) -> None:
        self._registered.close()
        self._directory.cleanup()


Rows = DeviceRows | HostRows


@dataclass(slots=True)
class Engine:
    """An engine that is ready to train."""

    shape: EngineShape
    step: DeviceStep
    dense: FlatDense
    lookup: DeviceLookup
    memory: Rows

    def train(self, batch: StepInputs, half: int) -> None:
        """One step: eager at first, then with a graph."""
        self.step.halves[half].copy_from(batch)
        self.step.run(half)

    def train_eagerly(self, batch: StepInputs, half: int) -> None:
        """One step, kernel by kernel."""
        self.step.halves[half].copy_from(batch)
        self.step.body(half)


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


def allocate_rows(shape: EngineShape, place: Place, device: torch.device) -> Rows:
    """New rows with the state of row-wise Adagrad."""
    state = shape.tables * shape.rows
    return HostRows(state * shape.dim, state) if place == "host" else DeviceRows(state * shape.dim, state, device)


def model_on(shape: EngineShape, lookup: CollectionLookup) -> nn.Module:
    """The DLRM on the CPU, with its collection replaced by a lookup."""
    configs = [
        EmbeddingBagConfig(name=f"t{n}", embedding_dim=shape.dim, num_embeddings=shape.rows, feature_names=[feature])
        for n, feature in enumerate(shape.features)
    ]
    torch.manual_seed(1)
    with meta_collections():
        model = dlrm(configs, shape.num_dense, bottom=[*shape.bottom, shape.dim], top=[*shape.top, 1])
    replace_collections(model, {COLLECTION: lookup})
    return model


def loss_of(model: nn.Module, shape: EngineShape, inputs: StepInputs) -> torch.Tensor:
    """The mean loss of a batch."""
    sparse = KeyedJaggedTensor(
        keys=shape.features, values=inputs.values, offsets=inputs.offsets, stride=shape.batch_size
    )
    with torch.autocast(inputs.dense.device.type, torch.bfloat16, enabled=shape.is_narrow):
        logits = model(inputs.dense, sparse)
    return functional.binary_cross_entropy_with_logits(logits.float(), inputs.labels.view(-1))


def build_engine(shape: EngineShape, memory: Rows, device: torch.device) -> Engine:
    """An engine for these rows, with Adam for the dense part in memory of the GPU."""
    switches = StepSwitches.allocate(device)
    offsets = [number * shape.rows for number in range(shape.tables)]
    placement = RowPlacement(
        memory.rows.data_ptr(),
        memory.state.data_ptr(),
        tuple(offset * shape.dim for offset in offsets),
        tuple(offsets),
        (shape.rows,) * shape.tables,
    )
    embeddings = [_embedding(number, feature, shape) for number, feature in enumerate(shape.features)]
    pooled = torch.bfloat16 if shape.is_narrow else torch.float32
    lookup = DeviceLookup(embeddings, placement, switches.rate_scale, switches.is_refused, pooled)
    model = model_on(shape, lookup)
    fuse_modules(model)
    spec = describe_dense(model)
    initial = initial_vector(model, spec)
    is_narrow = shape.is_narrow and device.type == "cuda"  # on a CPU other layers would be fused
    dense = FlatDense(model, spec, device, "bfloat16" if is_narrow else None)
    dense.values[:] = initial
    dense.loaded()
    vectors = dense.device_values[: spec.parameters], dense.gradients, dense.low
    update = DenseUpdate(DenseOptimizerSpec(), *vectors, switches.rate_scale, switches.is_refused)
    halves = tuple(random_batches(shape, 1, device, 1)[0].empty_like(device) for _ in range(2))
    how = (dense.gradients, dense.backward_pass.running, switches, halves)
    step = DeviceStep(lambda inputs: loss_of(model, shape, inputs), lambda *_: update.apply(), *how)
    return Engine(shape, step, dense, lookup, memory)


def _embedding(number: int, feature: str, shape: EngineShape) -> EmbeddingSpec:
    return EmbeddingSpec(
        name=f"t{number}",
        index=number,
        table=number,
        module=COLLECTION,
        kind="bag",
        features=(feature,),
        dim=shape.dim,
        pooling="sum",
        optimizer=RowOptimizerSpec(),
        init_low=-0.01,
        init_high=0.01,
    )
