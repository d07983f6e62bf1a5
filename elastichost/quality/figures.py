"""Every figure of one evaluation that a job asks for, of all its labels. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.config.metric_names import ALWAYS, Metric, label_figure
from elastichost.quality.binary import QualityReport
from elastichost.quality.grouped import gauc, ndcg_at, recall_at
from elastichost.quality.own_metrics import OwnFigure

__all__ = ["GroupedScores", "known", "mean_of", "named_figures"]


@dataclass(frozen=True, slots=True)
class GroupedScores:
    """logits, labels float32 [n, labels]; weights float32 [n] or None; groups int64 [n, columns] and has_group bool
    [n, columns], one column for each of `columns`, in order."""

    logits: npt.NDArray[np.float32]
    labels: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32] | None
    columns: tuple[str, ...]
    groups: npt.NDArray[np.int64]
    has_group: npt.NDArray[np.bool_]


def named_figures(
    metrics: Sequence[Metric],
    scores: GroupedScores,
    reports: Sequence[QualityReport],
    own: Sequence[OwnFigure],
    label_names: Sequence[str],
) -> dict[str, float | None]:
    """Name of the figure -> its value, None where it is not defined. With several labels the figure with the metric's
    name is the mean over the labels, None if one of them is not defined; further ones have the label in brackets. Those
    of `ALWAYS` are left out, which the reports have, but not the ones of their labels."""
    figures: dict[str, float | None] = {}
    answers = {(answer.function, answer.label): answer.value for answer in own}
    for metric in metrics:
        values = [_of_label(metric, label, scores, reports, answers) for label in range(len(label_names))]
        if metric.name not in ALWAYS:
            figures[metric.name] = mean_of(values)
        if len(label_names) > 1:
            figures |= {label_figure(metric.name, n): value for n, value in zip(label_names, values, strict=True)}
    return figures


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean; None when there is no value, or one is not known."""
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present and len(present) == len(values) else None


def known(value: float | None) -> float | None:
    """None for NaN: the metric is not defined."""
    return None if value is None or math.isnan(value) else value


def _of_label(
    metric: Metric,
    label: int,
    scores: GroupedScores,
    reports: Sequence[QualityReport],
    answers: Mapping[tuple[str, int], float | None],
) -> float | None:
    if metric.kind == "own":
        return answers.get((metric.function, label))
    if not metric.group:
        value: float = getattr(reports[label], metric.kind)
        return known(value)
    column = scores.columns.index(metric.group)
    of = (
        scores.labels[:, label],
        scores.logits[:, label],
        np.ascontiguousarray(scores.groups[:, column]),
        scores.has_group[:, column],
    )
    ranked: dict[str, Callable[[], float]] = {
        "gauc": lambda: gauc(*of, scores.weights),
        "ndcg": lambda: ndcg_at(metric.depth, *of),
        "recall": lambda: recall_at(metric.depth, *of),
    }
    return known(ranked[metric.kind]())
