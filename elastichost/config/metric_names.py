"""The names in `evaluate.metrics`: which metric, of which group column, and whether higher or lower is better. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

__all__ = [
    "ALWAYS",
    "KNOWN_METRICS",
    "Better",
    "Metric",
    "figure_names",
    "group_columns",
    "is_higher_better",
    "label_figure",
    "metric_of",
]

Better = Literal["higher", "lower"]
Kind = Literal["auc", "logloss", "normalised_entropy", "calibration", "gauc", "ndcg", "recall", "own"]

ALWAYS = ("auc", "logloss", "normalised_entropy", "calibration")  # computed for every job
KNOWN_METRICS = '"auc", "logloss", "gauc(COLUMN)", "ndcg@K(COLUMN)", "recall@K(COLUMN)", "file.py:function"'
# Without "calibration", whose best value is 1: it is neither better when higher nor when lower.
_DIRECTIONS: dict[str, Better] = {
    "auc": "higher",
    "logloss": "lower",
    "normalised_entropy": "lower",
    "gauc": "higher",
    "ndcg": "higher",
    "recall": "higher",
}
_GROUPED = re.compile(r"(gauc|(ndcg|recall)@([1-9]\d{0,5}))\((.+)\)")
_OWN = re.compile(r"([A-Za-z_][\w.]*|.+\.py):[A-Za-z_]\w*")


class Metric(msgspec.Struct, frozen=True):
    """One metric. name: of its figure, on screens and in results. group: the column of "gauc(COLUMN)" and the like; "":
    none. depth: the K of "ndcg@K"; 0: none. function: "file.py:function" as it is called; "": it is no own function."""

    name: str
    kind: Kind
    group: str = ""
    depth: int = 0
    function: str = ""


def metric_of(text: str) -> Metric | None:
    """The metric of this name; None: there is none. The name of an own function lacks the directory of its file."""
    match text:
        case "auc" | "logloss" | "normalised_entropy" | "calibration":
            return Metric(text, text)
    if found := _GROUPED.fullmatch(text):
        depth = int(found[3] or 0)
        kind: Kind = "gauc" if not depth else "ndcg" if found[2] == "ndcg" else "recall"
        return Metric(text, kind, group=found[4], depth=depth)
    if _OWN.fullmatch(text):
        file, _, function = text.rpartition(":")
        return Metric(f"{Path(file).name}:{function}" if file.endswith(".py") else text, "own", function=text)
    return None


def group_columns(metrics: Iterable[str]) -> tuple[str, ...]:
    """The columns of all grouped metrics, each once, in order."""
    found = (metric_of(text) for text in metrics)
    return tuple(dict.fromkeys(metric.group for metric in found if metric is not None and metric.group))


def label_figure(name: str, label: str) -> str:
    """The name of a metric's figure for one of several labels; the figure without a label is the mean over them."""
    return f"{name}[{label}]"


def figure_names(metrics: Sequence[str], labels: Sequence[str]) -> tuple[str, ...]:
    """The names of all figures of a job, those of its `evaluate.metrics` and the ones that are always computed."""
    found = [metric for text in (*ALWAYS, *metrics) if (metric := metric_of(text)) is not None]
    names = list(dict.fromkeys(metric.name for metric in found))
    return (*names, *(label_figure(name, label) for name in names for label in labels if len(labels) > 1))


def is_higher_better(figure: str, better: Mapping[str, Better], labels: Sequence[str]) -> bool | None:
    """Whether a higher value of this figure is better. better: what `evaluate.better` says about own functions. None:
    it is not known."""
    name = next((n for label in labels if (n := figure.removesuffix(f"[{label}]")) != figure), figure)
    metric = metric_of(name)
    if metric is None:
        return None
    said = {own.name: way for text, way in better.items() if (own := metric_of(text)) is not None}
    way = said.get(metric.name) if metric.kind == "own" else _DIRECTIONS.get(metric.kind)
    return None if way is None else way == "higher"
