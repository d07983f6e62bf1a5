"""Hand-overs of buckets while workers push updates to them: every update is applied exactly once.

The model's output is 0 for any rows, and its gradient with respect to a row is (1/2 - label) / batch for each
time the row is looked up. With SGD the rows are thus a sum over the batches that were committed, in any order.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from elastichost.checkpoint.format import latest, read_block
from elastichost.config.job import load_job
from elastichost.datasets import open_reader
from elastichost.ps.applied_log import read_applied
from tests.system.test_run import Supervised, folder
from tests.system.test_scale import Moving, scale, stop

pytestmark = [pytest.mark.system, pytest.mark.thorough]

__all__ = ["folder"]

BATCH = 128
TABLES, ROWS, EPOCH = 3, 400, 40_000
COUNTING_MODEL = """
import time

import torch
from torchrec.modules.embedding_modules import EmbeddingBagCollection


class Counting(torch.nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.rows = EmbeddingBagCollection(tables=tables)
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def forward(self, dense, sparse):
        time.sleep(0.004)
        sums = self.rows(sparse).values().sum(1)
        return sums - sums.detach() + 0 * self.nothing


def build(tables, num_dense, **args):
    return Counting(tables)
"""
JOB = f"""
[job]
name = "count-updates"
seed = 7
[model]
build = "{{build}}"
[data]
format = "synthetic"
synthetic = {{{{ rows = {EPOCH}, test_rows = 500, tables = {TABLES}, table_rows = {ROWS}, unit_rows = 4096 }}}}
[tables.default]
dim = 4
rows = "dynamic"
init = "constant(0)"
[train]
access = "served"
batch_size = {BATCH}
epochs = {{epochs}}
optimizer_rows = {{{{ name = "sgd", lr = {BATCH}.0 }}}}
[tuner]
mode = "off"
[resources]
workers = 2
restarts = {{restarts}}
[checkpoint]
every_s = {{every_s}}
"""


@pytest.mark.parametrize(
    ("crash_at", "kind"),
    [
        ("", Supervised),
        ("ps.handover.before_release", Moving),
        ("ps.handover.after_release", Moving),
        ("ps.handover.after_adopt,worker.batch.before_commit:300", Moving),
    ],
)
def test_no_update_is_lost_or_doubled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, crash_at: str, kind: type[Supervised]
) -> None:
    monkeypatch.setenv("ELASTICHOST_CRASH_AT", crash_at)
    (folder / "model.py").write_text(COUNTING_MODEL)
    run = kind(folder, template=JOB, build=f"{folder}/model.py:build", epochs=10_000, restarts=20)
    run.wait_trained(1)
    for servers in (3, 1, 2):
        scale(run, servers=servers)
    stop(run)
    wanted, found = expected_rows(folder, run.run_dir), saved_rows(run.run_dir)
    assert set(found) == set(wanted)
    for table_and_key, value in wanted.items():
        assert found[table_and_key] == pytest.approx(value, abs=0.01)


def expected_rows(folder: Path, run_dir: Path) -> dict[tuple[int, int], float]:
    """(table, key) -> the expected value of its row, computed from the log of the PS and the data."""
    reader = open_reader(load_job(folder / "job.toml", environ={}), "train")
    applied, wanted = read_applied(run_dir), dict[tuple[int, int], float]()
    for unit in reader.describe().units:
        (whole,) = reader.batches(unit, 0, unit.samples, unit.samples)
        assert whole.size == unit.samples and (whole.lengths == 1).all()
        weights = np.zeros(unit.samples)
        for record in applied[(applied["unit"] == unit.index) & (applied["samples"] > 0)]:
            weights[record["start"] : record["stop"]] += BATCH / record["samples"]
        changes = weights * (whole.labels[:, 0] - 0.5)
        for table, keys in enumerate(whole.keys.reshape(TABLES, unit.samples)):
            different, places = np.unique(keys, return_inverse=True)
            for key, change in zip(different.tolist(), np.bincount(places, changes).tolist(), strict=True):
                wanted[table, key] = wanted.get((table, key), 0.0) + change
    return wanted


def saved_rows(run_dir: Path) -> dict[tuple[int, int], float]:
    """(table, key) -> the value that all elements of its row have in the newest checkpoint."""
    checkpoint = latest(run_dir / "checkpoints")
    assert checkpoint is not None
    blocks = checkpoint.manifest.by_key()
    found: dict[tuple[int, int], float] = {}
    for embedding in checkpoint.manifest.model.embeddings:
        for bucket in range(checkpoint.manifest.bucket_counts[embedding.table]):
            keys, rows = (
                read_block(checkpoint.directory, blocks[key])
                for key in (("ids", embedding.table, bucket), ("rows", embedding.index, bucket))
            )
            values: npt.NDArray[np.float32] = np.asarray(rows)[:, : embedding.dim]
            assert (values == values[:, :1]).all()
            for key, value in zip(keys.tolist(), values[:, 0].tolist(), strict=True):
                found[embedding.table, key] = value
    return found
