"""Checks of `evaluate.metrics`, and of the settings that name one of its figures."""

from __future__ import annotations

from collections.abc import Iterator

from elastichost.config.metric_names import (
    ALWAYS,
    KNOWN_METRICS,
    figure_names,
    is_higher_better,
    metric_of,
)
from elastichost.config.sections.data import DataSection, implied_columns
from elastichost.config.sections.schema import EvaluateSection
from elastichost.human_readable import did_you_mean

__all__ = ["metric_problems"]


def metric_problems(data: DataSection, evaluate: EvaluateSection, keep_best: str) -> Iterator[str]:
    """Problems with metrics, one line each. keep_best: of [checkpoint]."""
    yield from _name_problems(evaluate)
    yield from _group_problems(data, evaluate)
    for text in evaluate.better:
        if text not in evaluate.metrics or (metric := metric_of(text)) is None or metric.kind != "own":
            yield (
                f"evaluate.better.{text}: it is no function in evaluate.metrics{did_you_mean(text, evaluate.metrics)}; "
                "for all other metrics it is known whether higher or lower is better"
            )
    yield from _figure_problems("evaluate.early_stop.metric", evaluate.early_stop.metric, data, evaluate)
    if keep_best:
        yield from _figure_problems("checkpoint.keep_best", keep_best, data, evaluate)
    if keep_best and not data.has_test:
        yield (
            f'checkpoint.keep_best = "{keep_best}": there is no test data; add data.test or data.test_fraction, or '
            'set this to ""'
        )


def _figure_problems(setting: str, figure: str, data: DataSection, evaluate: EvaluateSection) -> Iterator[str]:
    """Problems with a setting that names the figure by which two evaluations are compared."""
    known = figure_names(evaluate.metrics, data.labels)
    if figure not in known:
        hint = did_you_mean(figure, known)
        yield f'{setting} = "{figure}": the job computes no such figure{hint}; add it to evaluate.metrics'
    elif is_higher_better(figure, evaluate.better, data.labels) is None:
        function = _function_of(figure, data, evaluate)
        what = "it is not known which value is better" if function else "its best value is 1"
        add = f'; set evaluate.better."{function}" = "higher" or "lower"' if function else ""
        yield f'{setting} = "{figure}": {what}{add}'


def _function_of(figure: str, data: DataSection, evaluate: EvaluateSection) -> str:
    """The own function of a figure, as `evaluate.metrics` names it and `evaluate.better` has to; "": it has none."""
    names = {figure, *(figure.removesuffix(f"[{label}]") for label in data.labels)}
    own = (metric for text in evaluate.metrics if (metric := metric_of(text)) is not None and metric.kind == "own")
    return next((metric.function for metric in own if metric.name in names), "")


def _name_problems(evaluate: EvaluateSection) -> Iterator[str]:
    first: dict[str, str] = {}
    for text in evaluate.metrics:
        metric = metric_of(text)
        if metric is None:
            yield f'evaluate.metrics: "{text}" is no metric{did_you_mean(text, ALWAYS)}; allowed: {KNOWN_METRICS}'
        elif metric.name in first:
            twice = "is named twice" if first[metric.name] == text else f"has the same name as {first[metric.name]!r}"
            yield f'evaluate.metrics: "{text}" {twice}'
        else:
            first[metric.name] = text


def _group_problems(data: DataSection, evaluate: EvaluateSection) -> Iterator[str]:
    has_fixed_columns = implied_columns(data.format, data.synthetic) is not None or data.has_own_reader
    for text in evaluate.metrics:
        metric = metric_of(text)
        if metric is None or not metric.group or not has_fixed_columns or metric.group in data.categorical:
            continue
        yield (
            f'evaluate.metrics: "{text}": with format "{data.format}" only categorical columns are read, and '
            f"{metric.group!r} is not one of data.categorical{did_you_mean(metric.group, data.categorical)}"
        )
