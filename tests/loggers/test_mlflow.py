"""Names for MLflow, which refuses parentheses and the like."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from elastichost.config.job import make_job
from elastichost.loggers.logger import Opened, Value
from elastichost.loggers.mlflow import MLflowLogger, name_for_mlflow


@pytest.mark.parametrize("name", ["test/auc", "train.batch_size"])
def test_names_that_mlflow_allows_stay(name: str) -> None:
    assert name_for_mlflow(name) == name


def test_other_names_are_allowed_afterwards() -> None:
    validation = pytest.importorskip("mlflow.utils.validation")
    for name in ("test/ndcg@10(user)[clicked]", "test/mine.py:f", "evaluate.better./a b/mine.py:f"):
        validation._validate_metric_name(name_for_mlflow(name))
    assert name_for_mlflow("test/ndcg@10(user)") == "test/ndcg_10_user_"


def test_a_server_that_fails_between_two_requests_gets_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    made: list[str] = []
    failures = iter([True, True, False])

    class Client:
        def __init__(self, *_: object) -> None:
            pass

        def get_experiment_by_name(self, name: str) -> SimpleNamespace:
            return SimpleNamespace(experiment_id="1")

        def create_run(self, *_: object, **facts: object) -> SimpleNamespace:
            made.append("run")
            return SimpleNamespace(info=SimpleNamespace(run_id=f"run-{len(made)}"))

        def log_batch(self, run: str, params: object = (), metrics: object = ()) -> None:
            if next(failures, False):
                raise ConnectionError("the server went away")

    monkeypatch.setattr(tracking, "MlflowClient", Client)
    job = make_job({"model": {"build": "a:b"}, "data": {"format": "synthetic"}}, tmp_path, "j", environ={})
    logger = MLflowLogger(Opened(tmp_path, "run", job, ""))
    for _ in range(2):
        with pytest.raises(ConnectionError):
            logger.log([Value("train/loss", 1, 0.5, 1.0)])
    logger.log([Value("train/loss", 1, 0.5, 1.0)])
    assert (made, logger.key) == (["run"], "run-1")


def test_parameters_that_an_earlier_process_did_not_send_are_sent(tmp_path: Path) -> None:
    """Regression: the run had its losses, and never its settings."""
    tracking = pytest.importorskip("mlflow.tracking")
    where = f"sqlite:///{tmp_path}/mlflow.db"
    sections = {"model": {"build": "a:b"}, "data": {"format": "synthetic"}, "logging": {"mlflow": {"uri": where}}}
    job = make_job(sections, tmp_path, "j", environ={})
    first = MLflowLogger(Opened(tmp_path, "run", job, ""))  # and it is killed
    for _ in range(2):
        later = MLflowLogger(Opened(tmp_path, "run", job, first.key))
        later.log([Value("train/loss", 1, 0.5, 1.0)])
    found = tracking.MlflowClient(where).get_run(first.key).data
    assert found.params["model.build"] == "a:b" and found.params["data.format"] == "synthetic"
    assert found.metrics == {"train/loss": 0.5}
