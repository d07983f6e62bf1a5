"""Training steps of a model before the job runs: their tensors and their times are measured, and nothing is learnt.

No arena is needed: every id is mapped to row 0 of its table, whose weights are constant. That changes no tensor's size,
and not the work of the dense part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from elastichost.config.job import JobSpec
from elastichost.datasets import SampleBatch
from elastichost.specs import EmbeddingSpec, ModelSpec
from elastichost.worker.access.rows import PreparedBatch
from elastichost.worker.access.served import PulledRows, ServedLookup
from elastichost.worker.model.dense_vector import FlatDense
from elastichost.worker.model.embedding import replace_collections
from elastichost.worker.model.fusion import fuse_modules, layer_precision
from elastichost.worker.model.gradient_check import backward
from elastichost.worker.steps.model_runner import ModelRunner

__all__ = ["TrialStep"]

STAND_IN = 0.01  # the value of every weight of a row; not 0, because a model may divide by a norm


class TrialStep:
    """A model on the CPU, and batches that it trains or scores. `module` was built on the meta device; its collections
    are replaced in place."""

    def __init__(self, job: JobSpec, module: nn.Module, model: ModelSpec) -> None:
        device = torch.device("cpu")
        paths = list(dict.fromkeys(e.module for e in model.embeddings))
        self._lookups = {path: ServedLookup(_of(model, path), device, model.sequence_features) for path in paths}
        replace_collections(module, self._lookups)
        if job.model.fused:
            fuse_modules(module)
        self._flat = FlatDense(module, model.dense, device, layer_precision(job))
        self._runner = ModelRunner(module, tuple(job.data.categorical), job.model.outputs, device, job.train.precision)
        offsets = np.cumsum([0, *(e.padded_dim for e in model.embeddings)])
        tables = len(model.tables)
        weights = np.full(int(offsets[-1]), STAND_IN, np.float32)
        self._pulled = PulledRows(np.zeros(tables, np.int64), np.arange(tables + 1), weights, offsets, 0)
        self._sums = np.zeros_like(weights)

    def train(self, batch: SampleBatch) -> None:
        self._flat.zero_gradients()
        self._load(self._sums)
        self._runner.train(True)
        backward(self._runner.loss(self._prepared(batch)), self._flat)

    def score(self, batch: SampleBatch) -> None:
        self._load(None)
        self._runner.train(False)
        self._runner.scores(self._prepared(batch))

    def _load(self, sums: Any) -> None:
        for lookup in self._lookups.values():
            lookup.load(self._pulled, sums)

    def _prepared(self, batch: SampleBatch) -> PreparedBatch:
        lengths = batch.lengths.astype(np.int64)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return PreparedBatch(
            samples=batch,
            lease_id=0,
            epoch=0,
            values=np.zeros(len(batch.keys), np.int64),
            lengths=lengths,
            offsets=offsets,
            length_per_key=lengths.reshape(-1, batch.size).sum(axis=1).tolist() if len(lengths) else [],
            pulled=self._pulled,
            lookup_s=0.0,
        )


def _of(model: ModelSpec, path: str) -> tuple[EmbeddingSpec, ...]:
    return tuple(e for e in model.embeddings if e.module == path)
