"""A model with batch normalisation trains on data whose units have one sample more than whole batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.results.export import export
from tests.system.test_run import Supervised, folder

pytestmark = pytest.mark.system

__all__ = ["folder"]

MODEL = """\
import torch
from torchrec import EmbeddingBagCollection


class Normalised(torch.nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.bags = EmbeddingBagCollection(tables=tables)
        self.norm = torch.nn.BatchNorm1d(8, track_running_stats=False)
        self.top = torch.nn.Linear(8, 1)

    def forward(self, dense, sparse):
        return self.top(self.norm(self.bags(sparse).values())).squeeze(1)


def build(tables, num_dense):
    return Normalised(tables)
"""
JOB = """
[job]
name = "small-tails"
seed = 3
[model]
build = "{model}:build"
[data]
train = ["{train}"]
label = "label"
categorical = ["user"]
[tables.default]
dim = 8
rows = "dynamic"
[train]
batch_size = 128
epochs = 2
{settings}
[resources]
workers = {workers}
[tuner]
mode = "off"
"""
UNIT = 5 * 128 + 1
ROWS = 4 * UNIT


def weights(folder: Path, settings: str, workers: int) -> bytes:
    """The exported model of a run. Checks that every sample was trained."""
    folder.mkdir()
    (folder / "normalised.py").write_text(MODEL)
    generator = np.random.default_rng(1)
    users = generator.integers(0, 300, ROWS)
    labels = ((users % 3 == 0) ^ (generator.random(ROWS) < 0.2)).astype(np.int64)
    pq.write_table(pa.table({"label": labels, "user": users}), folder / "train.parquet", row_group_size=UNIT)
    run = Supervised(
        folder,
        template=JOB,
        model=folder / "normalised.py",
        train=folder / "train.parquet",
        settings=settings,
        workers=workers,
    )
    code, errors = run.finish()
    assert code == 0, errors
    samples = run.result()["samples"]
    assert samples == {"planned": 2 * ROWS, "trained": 2 * ROWS, "skipped": 0, "quarantined": 0}
    return (export(run.run_dir, folder / "model").directory / "model.safetensors").read_bytes()


def test_every_sample_is_trained_by_workers_with_leases(folder: Path) -> None:
    weights(folder / "async", "", 2)


def test_every_sample_is_trained_in_sync_mode_with_the_same_bits(folder: Path) -> None:
    sync = 'mode = "sync"\nmicro_batches = 4'
    assert weights(folder / "one", sync, 1) == weights(folder / "three", sync, 3)
