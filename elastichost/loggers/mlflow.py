"""Sends values to an MLflow tracking server."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from elastichost.loggers.logger import LoggerError, Opened, Value

__all__ = ["MLflowLogger", "name_for_mlflow"]

AT_ONCE = 1000  # the server refuses more metrics in one request
MOST_PARAMETERS = 100  # in one request
PARAMETER_LETTERS = 500


class MLflowLogger:
    """One run of the server for one run; a resumed run continues it. The settings of the job are its parameters."""

    def __init__(self, opened: Opened) -> None:
        try:
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise LoggerError(
                f"the logger mlflow needs its package: {error}", hint="pip install 'elastichost[mlflow]'"
            ) from error
        settings = opened.job.logging.mlflow
        self._metric: Any = Metric
        self._client: Any = MlflowClient(settings.uri or None)
        found = self._client.get_experiment_by_name(settings.experiment)
        experiment = found.experiment_id if found is not None else self._client.create_experiment(settings.experiment)
        self._run = opened.key
        known: Collection[str] = ()
        if self._run:  # the process before this one may have ended before it had sent all parameters
            known = self._client.get_run(self._run).data.params
        else:
            name = settings.run_name or opened.name
            tags = {"elastichost.run_dir": str(opened.run_dir)}
            self._run = str(self._client.create_run(experiment, run_name=name, tags=tags).info.run_id)
        named = [(name_for_mlflow(key), value) for key, value in _flat(opened.job.model_dump(exclude_unset=True))]
        self._parameters: list[Any] = [  # that the server does not have yet
            Param(key, str(value)[:PARAMETER_LETTERS]) for key, value in named if key not in known
        ]

    @property
    def key(self) -> str:
        return self._run

    def _send_parameters(self) -> None:
        """Not when the run is made: an error would make another run at the next try."""
        while self._parameters:
            self._client.log_batch(self._run, params=self._parameters[:MOST_PARAMETERS])
            del self._parameters[:MOST_PARAMETERS]

    def log(self, values: list[Value]) -> None:
        self._send_parameters()
        metrics = [
            self._metric(name_for_mlflow(one.name), one.value, int(one.unix_s * 1000), one.samples) for one in values
        ]
        for start in range(0, len(metrics), AT_ONCE):
            self._client.log_batch(self._run, metrics=metrics[start : start + AT_ONCE])

    def close(self, status: str) -> None:
        self._send_parameters()
        ended = {"done": "FINISHED", "failed": "FAILED"}.get(status, "KILLED")
        self._client.set_tag(self._run, "elastichost.status", status)
        self._client.set_terminated(self._run, ended)


def name_for_mlflow(text: str) -> str:
    """The text as MLflow allows it for a name: a parenthesis, an "@" and the like become "_"."""
    return re.sub(r"[^\w./ -]", "_", text)


def _flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """{"a": {"b": 1}} -> [("a.b", 1)]"""
    found: list[tuple[str, Any]] = []
    for key, value in tree.items():
        found += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found
