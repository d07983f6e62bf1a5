"""Metrics of whole runs: of groups that are no feature, of several labels, and of the user's own functions."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import elastichost as eh
from elastichost.cli.train.summary import summary
from elastichost.metrics import read_status
from elastichost.quality.grouped import gauc, recall_at
from elastichost.results.export import export
from elastichost.results.predict import predict
from elastichost.runs.events import BestCheckpointWritten, EvaluationFinished, MetricFailed
from tests.system.test_run import Supervised, folder

pytestmark = [pytest.mark.system, pytest.mark.timeout(200)]

__all__ = ["folder"]

FUNCTIONS = """
def brier(scores, labels, weights):
    return ((scores - labels) ** 2 * weights).sum() / weights.sum()

def picky(scores, labels, weights):
    if len(labels) > 1000:
        raise ValueError("too many samples")
    return 1.0
"""
ROWS = 12_000


def write(folder: Path, name: str, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    item, user = random.integers(0, 50, ROWS), random.integers(0, 200, ROWS)
    logit = np.random.default_rng(0).normal(size=50)[item]
    labels = {
        "clicked": random.random(ROWS) < 1 / (1 + np.exp(-2 * logit)),
        "bought": random.random(ROWS) < 1 / (1 + np.exp(2 * logit)),
    }
    table = pa.table({"item": item, "user": [f"u{one}" for one in user], **labels})
    pa.parquet.write_table(table, folder / name, row_group_size=4000)
    return table


def test_figures_of_groups_labels_and_own_functions(folder: Path) -> None:
    write(folder, "train.parquet", 1)
    test = write(folder, "test.parquet", 2)
    (folder / "mine.py").write_text(FUNCTIONS)
    own = f"{folder}/mine.py:brier"
    evaluate: dict[str, Any] = {
        "metrics": ["gauc(user)", "recall@10(user)", own, f"{folder}/mine.py:picky"],
        "better": {own: "lower"},
        "early_stop": {"metric": "mine.py:brier[clicked]", "patience": 3},
        "every_samples": 6000,
    }
    data = eh.Data(
        train=folder / "train.parquet",
        test=folder / "test.parquet",
        label=["clicked", "bought"],
        categorical=["item"],
    )
    run = eh.train(
        model="elastichost.models:wide_deep",
        model_args={"hidden": [8]},
        data=data,
        dir=folder / "run",
        progress=False,
        workers=2,
        servers=1,
        train={"batch_size": 64},
        tuner={"mode": "off"},
        evaluate=evaluate,
    )
    scored = run.predict(folder / "test.parquet").to_pandas()
    user = np.unique(test["user"].to_pylist(), return_inverse=True)[1].astype(np.int64)
    everyone = np.ones(ROWS, dtype=bool)
    for label in ("clicked", "bought"):
        labels = test[label].to_numpy().astype(float)
        scores = scored[f"probability_{label}"].to_numpy()
        expected = {
            f"gauc(user)[{label}]": gauc(labels, scores, user, everyone),
            f"recall@10(user)[{label}]": recall_at(10, labels, scores, user, everyone),
            f"mine.py:brier[{label}]": ((scores - labels) ** 2).mean(),
        }
        assert {name: run.metrics[name] for name in expected} == pytest.approx(expected, abs=1e-4)
        assert run.metrics[f"gauc(user)[{label}]"] > 0.6
    both = [run.metrics[f"gauc(user)[{label}]"] for label in ("clicked", "bought")]
    assert run.metrics["gauc(user)"] == pytest.approx(sum(both) / 2)
    with pytest.raises(KeyError):
        run.metrics["mine.py:picky"]
    failed = [line.event for line in run.events() if isinstance(line.event, MetricFailed)]
    assert {event.label for event in failed} == {"clicked", "bought"} and "too many samples" in failed[0].problem
    history = run.history.to_pandas()["test_gauc(user)"].dropna()
    assert len(history) >= 2 and history.iloc[-1] == run.metrics["gauc(user)"]
    assert read_status(run.dir).test_metrics["gauc(user)"] == run.metrics["gauc(user)"]
    assert "gauc(user)" in run.report().read_text() and "gauc(user)" in summary(run.result).plain
    assert not (run.dir / "own-metrics").exists()


KEPT = """
[job]
name = "kept"
seed = 7
[model]
build = "elastichost.models:wide_deep"
args = {{ hidden = [8] }}
[data]
train = ["{place}/train.parquet"]
test = ["{place}/test.parquet"]
label = "clicked"
categorical = ["item", "user"]
[train]
batch_size = 64
epochs = 10
optimizer_rows = {{ name = "sgd", lr = 2.0 }}
[resources]
workers = 2
[checkpoint]
keep = 1
keep_best = "auc"
every_s = 0.5
[evaluate]
metrics = ["gauc(item)"]
every_samples = 20_000
[tuner]
mode = "off"
"""


def test_the_best_checkpoint_is_kept_through_rotation_kills_and_resume(folder: Path) -> None:
    """Users do not matter for the labels, so learning them by heart makes later evaluations worse. A worker and the
    supervisor are killed between evaluations."""
    write(folder, "train.parquet", 1)
    write(folder, "test.parquet", 2)
    run = Supervised(folder, template=KEPT, place=folder)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(BestCheckpointWritten))
    os.kill(run.pid("worker-0"), signal.SIGKILL)
    run.wait_until(lambda: len(run.events(EvaluationFinished)) >= 2)
    run.process.kill()
    run.finish()
    again = Supervised(folder, resume=True, template=KEPT, place=folder)
    code, errors = again.finish()
    assert code == 0, errors
    finished = again.events(EvaluationFinished)
    best = max(finished, key=lambda event: event.auc or 0.0)
    kept = again.result()["best"]
    assert (kept["figure"], kept["value"]) == ("auc", best.auc)
    assert kept["samples"] == best.samples < finished[-1].samples
    checkpoints = {path.name for path in (again.run_dir / "checkpoints").iterdir()}
    assert checkpoints == {Path(kept["path"]).name, Path(again.result()["checkpoint"]).name}
    for is_best, expected in ((True, best.auc), (False, finished[-1].auc)):
        scored = predict(again.run_dir, folder / "test.parquet", folder / "scores.parquet", best=is_best)
        assert scored.quality[0].auc == pytest.approx(expected, abs=1e-5)
    report = export(again.run_dir, folder / "exported", best=True)
    assert str(report.checkpoint) == kept["path"]
