"""A model with attention over a sequence, on dynamic tables: training, evaluation, `predict` and an export handle ids
without a row in the same way. The attention fails if a position is missing, because lengths then differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from elastichost.quality.binary import evaluate_labels
from elastichost.results.export import export
from elastichost.results.predict import predict
from elastichost.results.preprocess import Preprocessor
from elastichost.results.reader import load_model, model_inputs
from tests.system.test_run import Supervised, folder

pytestmark = pytest.mark.system

__all__ = ["folder"]

MODEL = '''\
import torch
from torchrec import EmbeddingBagCollection, EmbeddingCollection, EmbeddingConfig


class InterestNetwork(torch.nn.Module):
    """Deep interest network (Zhou et al. 2018): each place of the history is weighed by its likeness to the item."""

    def __init__(self, tables):
        super().__init__()
        items = next(table for table in tables if "item" in table.feature_names)
        vectors = EmbeddingConfig(
            name="item_vectors",
            embedding_dim=8,
            num_embeddings=items.num_embeddings,
            feature_names=["item", "history"],
        )
        self.bags = EmbeddingBagCollection(tables=tables)
        self.sequence = EmbeddingCollection(tables=[vectors])
        self.attention = torch.nn.Sequential(torch.nn.Linear(24, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        self.top = torch.nn.Sequential(torch.nn.Linear(1 + 3 * 8 + 2 * 8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

    def forward(self, dense, sparse):
        vectors = self.sequence(sparse)
        item, history = vectors["item"].values(), vectors["history"]
        lengths = history.lengths().long()
        assert lengths.tolist() == (dense[:, 0] * 10).round().long().tolist(), "the history has lost places"
        beside = item.repeat_interleave(lengths, dim=0)
        weights = self.attention(torch.cat([beside, history.values(), beside * history.values()], dim=1))
        interest = torch.segment_reduce(weights * history.values(), "sum", lengths=lengths, initial=0.0)
        parts = [dense, self.bags(sparse).values(), item, interest]
        return self.top(torch.cat(parts, dim=1)).squeeze(1)


def build(tables, num_dense):
    return InterestNetwork(tables)
'''
JOB = """
[job]
name = "interest"
seed = 3
[model]
build = "{model}:build"
[data]
train = ["{train}"]
test = ["{test}"]
label = "label"
dense = ["length"]
categorical = ["item", "history", "user"]
[tables.default]
dim = 8
rows = "dynamic"
[tables.items]
features = ["item", "history"]
pooling = "mean"
admit_after = {admit_after}
[train]
batch_size = 128
{train_settings}
[resources]
workers = 2
{resources}
[tuner]
mode = "off"
"""
TRAIN_ROWS, TEST_ROWS = 6000, 700


def samples(rows: int, seed: int, ids: int) -> pa.Table:
    """Samples whose dense value `length` is a tenth of the history's length, so that the model can check the number of
    positions."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(0, 7, rows)
    items = (generator.zipf(1.3, rows) - 1) % ids
    history = np.split((generator.zipf(1.3, int(lengths.sum())) - 1) % ids, np.cumsum(lengths)[:-1])
    liked = (items % 3 == 0) ^ (generator.random(rows) < 0.2)
    return pa.table(
        {
            "label": liked.astype(np.int64),
            "length": (lengths / 10).astype(np.float32),
            "item": items,
            "history": pa.array([part.tolist() for part in history], type=pa.list_(pa.int64())),
            "user": generator.integers(0, 300, rows),
        }
    )


@pytest.mark.parametrize(
    ("admit_after", "train", "resources"),
    [
        pytest.param(1, 'access = "direct"', "", id="direct", marks=pytest.mark.thorough),
        pytest.param(3, 'access = "served"', "servers = 2", id="served", marks=pytest.mark.thorough),
        pytest.param(3, "", "servers = 2\nhosts = 2", id="mixed"),
    ],
)
def test_a_model_that_attends_to_places_agrees_everywhere(
    folder: Path, admit_after: int, train: str, resources: str
) -> None:
    (folder / "interest.py").write_text(MODEL)
    pq.write_table(samples(TRAIN_ROWS, 1, 2000), folder / "train.parquet", row_group_size=2000)
    test = samples(TEST_ROWS, 2, 20_000)  # most of its ids above 2,000 are not in the training data
    pq.write_table(test, folder / "test.parquet")
    run = Supervised(
        folder,
        template=JOB,
        model=folder / "interest.py",
        test=folder / "test.parquet",
        train=folder / "train.parquet",
        admit_after=admit_after,
        train_settings=train,
        resources=resources,
    )
    code, errors = run.finish()
    assert code == 0, errors
    result = run.result()
    assert result["samples"] == {"planned": TRAIN_ROWS, "trained": TRAIN_ROWS, "skipped": 0, "quarantined": 0}
    predicted = predict(run.run_dir, folder / "test.parquet", folder / "scores.parquet")
    assert predicted.quality[0].logloss == pytest.approx(result["test"]["logloss"], abs=1e-6)
    exported = export(run.run_dir, folder / "model").directory
    with torch.no_grad():
        logits = load_model(exported)(*model_inputs(Preprocessor(exported), test)).numpy()
    scores = pq.read_table(predicted.output).column("probability").to_numpy()
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), scores, atol=1e-6)
    again = evaluate_labels(logits.reshape(-1, 1), test.column("label").to_numpy().astype(np.float32).reshape(-1, 1))
    assert again[0].logloss == pytest.approx(result["test"]["logloss"], abs=1e-6)
