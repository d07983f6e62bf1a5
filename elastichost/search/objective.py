"""The objective of a search: a figure on the test data, and whether more of it is better. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from elastichost.config.job import JobSpec
from elastichost.config.metric_names import figure_names, is_higher_better
from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean
from elastichost.runs.result import RunResult

__all__ = ["Direction", "Objective", "best_of", "objective_of", "value_of"]

Direction = Literal["maximize", "minimize"]


class Objective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a search improves. metric: the name of a figure of its job, such as "auc" or "gauc(user)[clicked]"."""

    metric: str
    direction: Direction


def objective_of(job: JobSpec, metric: str) -> Objective:
    """The objective of this name. Raises ConfigError if the job does not compute such a figure, or if nothing says
    whether more of it is better."""
    labels = job.data.labels
    known = figure_names(job.evaluate.metrics, labels)
    if metric not in known:
        raise ConfigError(
            f"--metric {metric}: the job does not compute it{did_you_mean(metric, known)}",
            hint=f"it computes {', '.join(known)}; further metrics: evaluate.metrics",
        )
    is_better = is_higher_better(metric, job.evaluate.better, labels)
    if is_better is None:
        raise ConfigError(
            f"--metric {metric}: nothing says whether a higher value is better",
            hint=f'''--set 'evaluate.better={{"{metric}" = "lower"}}', or "higher", for a function of your own''',
        )
    return Objective(metric, "maximize" if is_better else "minimize")


def value_of(result: RunResult, metric: str) -> float | None:
    """The figure of a run on its test data. None: the run has no test data, or its data does not define the figure (an
    AUC of samples of one class)."""
    value = result.test.figure(metric) if result.test is not None else None
    return value if value is not None and math.isfinite(value) else None


def best_of(values: Iterable[tuple[int, float]], direction: Direction) -> int | None:
    """The number of the best trial of (number, value); the first of equal ones. None: there is none."""
    sign = -1.0 if direction == "maximize" else 1.0
    return min(((sign * value, number) for number, value in values), default=(0.0, None))[1]
