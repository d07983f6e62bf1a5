"""Names for MLflow, which refuses parentheses and the like."""

from __future__ import annotations

import pytest

from elastichost.loggers.mlflow import name_for_mlflow


@pytest.mark.parametrize("name", ["test/auc", "train.batch_size"])
def test_names_that_mlflow_allows_stay(name: str) -> None:
    assert name_for_mlflow(name) == name


def test_other_names_are_allowed_afterwards() -> None:
    validation = pytest.importorskip("mlflow.utils.validation")
    for name in ("test/ndcg@10(user)[clicked]", "test/mine.py:f", "evaluate.better./a b/mine.py:f"):
        validation._validate_metric_name(name_for_mlflow(name))
    assert name_for_mlflow("test/ndcg@10(user)") == "test/ndcg_10_user_"
