"""The figures of the benchmark of models, computed by hand, and the samples it trains on."""

from __future__ import annotations

import dataclasses
import math
import runpy
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.harness.runner import run, silent
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.models.benchmark import Case, Quality, benchmark_of, figures_of, student_interval
from benchmarks.models.recall import recall_at
from benchmarks.models.samples import Rows, batch_of, read_samples


def test_recall_counts_the_items_that_a_user_took() -> None:
    users = np.array([[1, 0], [0, 1], [1, 1]], dtype=np.float32)
    items = np.array([[3, 0], [2, 1], [0, 4], [-1, -1]], dtype=np.float32)
    # the first user has items 0 and 1 on top, the second 2 and 1; the third took nothing
    taken_by, taken = np.array([0, 0, 0, 1]), np.array([0, 2, 3, 1])
    assert recall_at(2, users, items, taken_by, taken) == pytest.approx((1 / 2 + 1) / 2)
    assert math.isnan(recall_at(2, users, items, taken_by[:0], taken[:0]))


def test_the_interval_is_students() -> None:
    found = student_interval([1.0, 2.0, 3.0])
    assert found.mean == pytest.approx(2.0)
    assert found.high - found.mean == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert student_interval([0.5]).low == student_interval([0.5]).high == 0.5


def test_the_json_has_each_model_its_arms_and_their_differences(tmp_path: Path) -> None:
    towers = Case("two_towers", EXAMPLES / "two_towers.toml", "{}", has_vectors=True)
    measured = {"plain loop": 0.80, "elastichost": 0.79, "elastichost, sync": 0.81}
    of_towers = benchmark_of(towers, 2, 2, tmp_path)
    assert of_towers.arms.keys() == measured.keys()
    arms = {arm: (lambda number, auc=auc: Quality(auc + number / 10, auc / 2)) for arm, auc in measured.items()}
    outcome = run(dataclasses.replace(of_towers, arms=arms), silent)
    told = msgspec.json.decode(msgspec.json.encode(figures_of([outcome])))["two_towers"]
    assert told["figures"]["AUC"]["elastichost"]["mean"] == pytest.approx(0.84)
    assert told["figures"]["recall@10"]["plain loop"]["mean"] == pytest.approx(0.40)
    assert told["differences"]["AUC, elastichost - plain loop"]["mean"] == pytest.approx(-0.01)
    assert told["differences"]["recall@10, elastichost, sync - plain loop"]["high"] == pytest.approx(0.005)
    missed = [verdict["figure"] for verdict in told["verdicts"] if not verdict["reached"]]
    assert len(told["verdicts"]) == 4
    assert missed == ["AUC, elastichost - plain loop", "recall@10, elastichost - plain loop"]


def test_ids_without_a_row_are_left_out_or_keep_their_places(tmp_path: Path) -> None:
    write = runpy.run_path(str(EXAMPLES / "samples.py"))["write"]
    write(tmp_path, 400, 1)
    samples = read_samples(tmp_path / "din" / "train.parquet", ("price",), ("clicked",), ("item", "recent_items"))
    table = pq.read_table(tmp_path / "din" / "train.parquet").slice(5, 7)
    known = np.unique(samples.keys["item"].values)[::2]
    rows = {name: Rows(known, frozenset(["recent_items"])) for name in ("item", "recent_items")}
    dense, sparse, labels = batch_of(samples, rows, 5, 12)
    assert dense.shape == labels.shape == (7, 1)
    row_of = {key: place for place, key in enumerate(known.tolist())}
    items = [[row_of[one]] if one in row_of else [] for one in table.column("item").to_pylist()]
    recent = [[row_of.get(one, len(known)) for one in places] for places in table.column("recent_items").to_pylist()]
    assert [one.tolist() for one in sparse["item"].to_dense()] == items
    assert [one.tolist() for one in sparse["recent_items"].to_dense()] == recent
