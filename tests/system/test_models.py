"""Multi-task, sequence and two-tower models: a run in sync mode is the plain loop, and all that scores agrees.

The samples are those of the examples, and so are the job files.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import elastichost as eh
from benchmarks.models.plain_loop import train_plainly
from elastichost.results.reader import Scorer
from elastichost.wire.applied import read_applied
from tests.serving.server_process import served
from tests.serving.test_predict import post_arrow, stream_of
from tests.system.test_run import ROOT, folder

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

__all__ = ["folder"]

ROWS, TESTED = 6000, 1500
RETAIL = ROOT.parent / "shared" / "data" / "retail_ctr"


def job_of(folder: Path, name: str, data: Path | None = None) -> eh.Job:
    """The job of an example in sync mode with one worker, on samples of its own or those in `data`."""
    if data is None:
        runpy.run_path(str(ROOT / "examples" / "samples.py"))["write"](folder, ROWS, 3)
        data = folder / name
    return eh.Job.from_toml(ROOT / "examples" / f"{name}.toml").with_settings(
        data={"train": [str(data / "train.parquet")], "test": [str(data / "test.parquet")]},
        train={"mode": "sync", "epochs": 1},
        resources={"workers": 1, "servers": 1},
        tuner={"mode": "off"},
    )


def trained_as_the_plain_loop(folder: Path, job: eh.Job) -> eh.Run:
    """Trains a run, and the plain loop. Compares the loss of every step and the AUC of every label."""
    run = eh.train(job, progress=False, dir=folder / "run")
    plain = train_plainly(job.spec)
    applied = read_applied(run.dir)
    applied = applied[applied["samples"] > 0]
    losses = applied["loss_sum"] / applied["samples"]
    assert len(losses) == len(plain.losses) >= 12
    # float32: sums in another order; one gradient moves the next ones
    np.testing.assert_allclose(losses, plain.losses, rtol=1e-3)
    np.testing.assert_allclose(losses[:10], plain.losses[:10], rtol=2e-6)
    test = run.result.test
    assert test is not None
    aucs = test.auc_of_labels or (test.auc,)
    np.testing.assert_allclose(aucs, plain.aucs, atol=1e-3)
    return run


def scored(run: eh.Run, folder: Path, labels: tuple[str, ...]) -> np.ndarray[Any, Any]:
    """The scores of `predict` for the test data, [n] or [n, labels]. Checks that both exports give the same."""
    table = pq.read_table(run.job.spec.data.test[0])
    found = run.predict(run.job.spec.data.test[0])
    names = [f"probability_{label}" for label in labels] if len(labels) > 1 else ["probability"]
    predicted = np.stack([found.column(name).to_numpy() for name in names], axis=1).squeeze()
    directories = [run.export(folder / form, format=form).directory for form in ("torchrec", "pt2")]  # type: ignore[arg-type]
    for scorer in map(Scorer, directories):
        np.testing.assert_allclose(scorer.scores(scorer.preprocessor.prepare(table)), predicted, rtol=0, atol=1e-6)
    return predicted


def check_served(run: eh.Run, folder: Path, labels: tuple[str, ...], predicted: np.ndarray[Any, Any]) -> None:
    """Serves the program that `scored` has exported, and compares answers in JSON and Arrow."""
    rows = pq.read_table(run.job.spec.data.test[0]).drop_columns(list(labels)).slice(0, 60)
    with served(folder / "pt2", folder) as server:
        answer = server.predict(rows.to_pylist())
        assert answer.status_code == 200, answer.text
        np.testing.assert_allclose(answer.json()["scores"], predicted[:60], rtol=0, atol=1e-6)
        arrow = pa.ipc.open_stream(post_arrow(server, stream_of(rows)).content).read_all()
        names = [f"score_{label}" for label in labels] if len(labels) > 1 else ["score"]
        given = np.stack([arrow.column(name).to_numpy() for name in names], axis=1).squeeze()
        np.testing.assert_allclose(given, predicted[:60], rtol=0, atol=1e-6)
        without = [{name: value for name, value in row.items() if name != "item"} for row in rows.to_pylist()[:1]]
        assert server.predict(without).json()["error"]["code"] == "missing_column"


def test_mmoe_with_two_labels(folder: Path) -> None:
    run = trained_as_the_plain_loop(folder, job_of(folder, "mmoe"))
    predicted = scored(run, folder, ("clicked", "bought"))
    assert predicted.shape == (TESTED, 2)
    check_served(run, folder, ("clicked", "bought"), predicted)


def test_din_on_sequences(folder: Path) -> None:
    run = trained_as_the_plain_loop(folder, job_of(folder, "din"))
    predicted = scored(run, folder, ("clicked",))
    assert predicted.shape == (TESTED,)
    check_served(run, folder, ("clicked",), predicted)


def test_two_towers_with_negatives_of_the_micro_batch(folder: Path) -> None:
    """The plain loop computes the loss over each micro-batch, so this also shows what a batch of negatives is."""
    job = job_of(folder, "two_towers").with_settings(train={"micro_batches": 3})
    run = trained_as_the_plain_loop(folder, job)
    scores = scored(run, folder, ("label",))
    data = folder / "two_towers"
    files = {name: data / f"{name}s.parquet" for name in ("user", "item")}
    found = {file.stem: pq.read_table(file) for file in run.export(folder / "vectors", vectors=files).vectors}
    vectors = {
        name: dict(zip(table["id"].to_pylist(), np.array(table["vector"].to_pylist()), strict=True))
        for name, table in found.items()
    }
    checked = 0
    for row, score in zip(pq.read_table(data / "test.parquet").to_pylist(), scores, strict=True):
        if row["user"] in vectors["user"] and row["item"] in vectors["item"]:
            product = vectors["user"][row["user"]] @ vectors["item"][row["item"]] / 0.2
            assert 1 / (1 + np.exp(-product)) == pytest.approx(score, abs=1e-5)
            checked += 1
    assert checked > TESTED // 2


@pytest.mark.thorough
@pytest.mark.skipif(not RETAIL.is_dir(), reason=f"the retail data are not in {RETAIL}")
def test_din_on_retail_data(folder: Path) -> None:
    """Sequences of text ids, of which many are in the test data only."""
    for part, rows in (("train", ROWS), ("test", TESTED)):
        pq.write_table(pq.read_table(RETAIL / f"{part}.parquet").slice(0, rows), folder / f"{part}.parquet")
    args = {"attention": {"recent_items": "item"}, "attention_hidden": [16], "hidden": [32]}
    job = job_of(folder, "retail", folder).with_settings(model={"build": "elastichost.models:din", "args": args})
    scored(trained_as_the_plain_loop(folder, job), folder, ("label",))
