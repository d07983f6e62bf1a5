"""Trains a job as a user would without elastichost: one process, torch and torchrec, the same mathematics.

The tables are torchrec's own, in ordinary memory. Adam is torch's. Row-wise Adagrad is written out below. The
initial values are those of elastichost for the same seed, so that the two differ in nothing but the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional
from torchrec.datasets.utils import Batch
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from benchmarks.models.samples import Rows, Samples, batch_of, read_samples, rows_of
from elastichost.arena.index.hashing import initial_stream
from elastichost.arena.rows.row_kernels import initialise_rows
from elastichost.batches import batch_ranges
from elastichost.config.job import JobSpec
from elastichost.config.tables import parse_init, resolve_tables, table_settings
from elastichost.datasets import open_reader
from elastichost.micro_batches import micro_ranges
from elastichost.quality.binary import auc
from elastichost.user_model.build import build_model
from elastichost.worker.model.embedding import collections_of, meta_collections

__all__ = ["PlainRun", "train_plainly"]

SCORED_ROWS = 4096


@dataclass(frozen=True, slots=True)
class PlainRun:
    """A trained model. losses: the mean loss of each step; aucs: of each label in the test data."""

    model: nn.Module
    losses: tuple[float, ...]
    aucs: tuple[float, ...]
    job: JobSpec
    rows: dict[str, Rows]

    def vectors(self, column: str, file: Path) -> npt.NDArray[np.float32]:
        """The model's vectors of a column for each row of the file: float32 [n, D]."""
        samples = read_samples(file, self.job.data.dense, (), self.job.data.categorical)
        dense, sparse, _ = batch_of(samples, self.rows, 0, len(samples.dense))
        with torch.no_grad():
            found: npt.NDArray[np.float32] = self.model.vectors(column, dense, sparse).numpy()  # type: ignore[operator]
        return found


@dataclass(frozen=True, slots=True)
class _Table:
    """The weights of a table, and for each row the sum over steps of its mean squared gradient, [rows, 1]."""

    weight: nn.Parameter
    state: torch.Tensor
    rate: float
    eps: float

    def step(self) -> None:
        """Row-wise Adagrad. A row that is not in the batch has the gradient 0, which changes nothing."""
        gradient = self.weight.grad
        assert gradient is not None
        with torch.no_grad():
            self.state.add_(gradient.square().mean(dim=1, keepdim=True))
            self.weight.sub_(self.rate * gradient / (self.state.sqrt() + self.eps))
        self.weight.grad = None


def train_plainly(job: JobSpec) -> PlainRun:
    """Trains and tests a job with dynamic tables, row-wise Adagrad and Adam. With `train.mode = "sync"` each step is
    the sum of the gradients of its micro-batches; else each batch is a step."""
    data = job.data
    samples = read_samples(Path(data.train[0]), data.dense, data.labels, data.categorical)
    torch.set_num_threads(1)  # the nets are small: threads would only wait for each other
    model, tables, rows = _build(job, samples)
    held = {id(table.weight) for table in tables}
    asked = job.train.optimizer_dense
    dense = [parameter for parameter in model.parameters() if id(parameter) not in held]
    optimizer = torch.optim.Adam(dense, asked.lr, (asked.beta1, asked.beta2), asked.eps)
    losses = []
    for ranges in _steps(job, samples):
        optimizer.zero_grad()
        total, first, last = 0.0, ranges[0][0], ranges[-1][1]
        for start, stop in ranges:
            loss = _loss(job, model, *batch_of(samples, rows, start, stop)) * ((stop - start) / (last - first))
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        optimizer.step()
        for table in tables:
            table.step()
        losses.append(total)
    return PlainRun(model.eval(), tuple(losses), _aucs(job, model, rows), job, rows)


def _steps(job: JobSpec, samples: Samples) -> Iterator[tuple[tuple[int, int], ...]]:
    """The ranges of samples of each step. No batch goes over the end of a row group."""
    train = job.train
    for _ in range(train.epochs):
        begin = 0
        for size in samples.groups:
            for start, stop in batch_ranges(begin, begin + size, train.batch_size):
                yield micro_ranges(start, stop, train.micro_batches) if train.mode == "sync" else ((start, stop),)
            begin += size


def _loss(
    job: JobSpec, model: nn.Module, dense: torch.Tensor, sparse: KeyedJaggedTensor, labels: torch.Tensor
) -> torch.Tensor:
    if job.model.outputs == "loss":
        loss: torch.Tensor = model(Batch(dense_features=dense, sparse_features=sparse, labels=labels.squeeze(1)))[0]
        return loss
    logits = model(dense, sparse)
    return functional.binary_cross_entropy_with_logits(logits, labels.view(logits.shape))


def _aucs(job: JobSpec, model: nn.Module, rows: dict[str, Rows]) -> tuple[float, ...]:
    data = job.data
    samples = read_samples(Path(data.test[0]), data.dense, data.labels, data.categorical)
    parts = []
    model.eval()
    with torch.no_grad():
        for start in range(0, len(samples.dense), SCORED_ROWS):
            dense, sparse, labels = batch_of(samples, rows, start, min(start + SCORED_ROWS, len(samples.dense)))
            if job.model.outputs == "loss":
                given = Batch(dense_features=dense, sparse_features=sparse, labels=labels.squeeze(1))
                logits = model(given)[1][1]
            else:
                logits = model(dense, sparse)
            parts.append(logits.reshape(labels.shape))
    scores, truth = torch.cat(parts).numpy(), samples.labels.numpy()
    return tuple(auc(truth[:, task], scores[:, task]) for task in range(truth.shape[1]))


def _build(job: JobSpec, samples: Samples) -> tuple[nn.Module, list[_Table], dict[str, Rows]]:
    """(the model with torchrec's own tables, these tables, the rows of each id column)"""
    specs = resolve_tables(job, open_reader(job, "train").describe().key_kinds)
    found = {spec.name: rows_of(samples, spec.features, frozenset()) for spec in specs}
    torch.manual_seed(job.job.seed)
    with meta_collections():
        sizes = {name: len(rows.known) + 1 for name, rows in found.items()}
        model = build_model(job, specs, sizes, len(job.data.dense), len(job.data.labels))
    owners = {feature: spec.name for spec in specs for feature in spec.features}
    tables = []
    places: set[str] = set()
    for _, collection in collections_of(model):
        is_bag = isinstance(collection, EmbeddingBagCollection)
        configs: Any = collection.embedding_bag_configs() if is_bag else collection.embedding_configs()
        held = collection.embedding_bags if is_bag else collection.embeddings
        for config in configs:
            name = owners[config.feature_names[0]]
            table = _table(job, name, config.name, config.embedding_dim, found[name].known)
            held[config.name].weight = table.weight
            tables.append(table)
            places |= set() if is_bag else set(config.feature_names)
    rows = {name: Rows(found[owners[name]].known, frozenset(places)) for name in job.data.categorical}
    return model, tables, rows


def _table(job: JobSpec, name: str, embedding: str, dim: int, keys: npt.NDArray[np.int64]) -> _Table:
    """The initial values of an embedding: those of elastichost for the seed of the job. The last row is zeros."""
    settings = table_settings(job, name)
    weights = np.zeros((len(keys) + 1, dim), dtype=np.float32)
    stream = initial_stream(job.job.seed, embedding)
    initialise_rows(weights, np.arange(len(keys)), keys, dim, *parse_init(settings.init), stream)
    state = torch.zeros(len(weights), 1)
    return _Table(nn.Parameter(torch.from_numpy(weights)), state, settings.optimizer.lr, settings.optimizer.eps)
