"""The objective of a search: a metric on the test data, and whether more of it is better. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, get_args

from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean
from elastichost.runs.result import RunResult

__all__ = ["DIRECTIONS", "Direction", "MetricName", "best_of", "metric_named", "value_of"]

MetricName = Literal["auc", "logloss", "normalised_entropy"]
Direction = Literal["maximize", "minimize"]
DIRECTIONS: dict[MetricName, Direction] = {"auc": "maximize", "logloss": "minimize", "normalised_entropy": "minimize"}


def metric_named(name: str) -> MetricName:
    """The metric of this name. Raises ConfigError."""
    known: tuple[MetricName, ...] = get_args(MetricName)
    found = next((one for one in known if one == name), None)
    if found is None:
        raise ConfigError(f"unknown metric {name!r}{did_you_mean(name, known)}", hint=f"metrics: {', '.join(known)}")
    return found


def value_of(result: RunResult, metric: MetricName) -> float | None:
    """The metric of a run on its test data. None: the run has no test data, or its data does not define the metric (an
    AUC of samples of one class)."""
    if result.test is None:
        return None
    values = {
        "auc": result.test.auc,
        "logloss": result.test.logloss,
        "normalised_entropy": result.test.normalised_entropy,
    }
    value = values[metric]
    return value if value is not None and math.isfinite(value) else None


def best_of(values: Iterable[tuple[int, float]], metric: MetricName) -> int | None:
    """The number of the best trial of (number, value); the first of equal ones. None: there is none."""
    sign = -1.0 if DIRECTIONS[metric] == "maximize" else 1.0
    return min(((sign * value, number) for number, value in values), default=(0.0, None))[1]
