"""The metric of a search: its name, its value in a result, and which trial is the best."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.errors import ConfigError
from elastichost.runs import result as results
from elastichost.search.objective import best_of, metric_named, value_of
from tests.dispatcher.jobs import result

FIGURES = results.TestFigures(auc=0.7, logloss=0.4, normalised_entropy=0.9, calibration=1.0, samples=10)


def test_the_metric_of_a_result() -> None:
    ended = msgspec.structs.replace(result(peak_bytes=1, peak_workers=1), test=FIGURES)
    assert [value_of(ended, name) for name in ("auc", "logloss", "normalised_entropy")] == [0.7, 0.4, 0.9]  # type: ignore[arg-type]
    for undefined in (None, float("nan")):
        without = msgspec.structs.replace(ended, test=msgspec.structs.replace(FIGURES, auc=undefined))
        assert value_of(without, "auc") is None
    assert value_of(msgspec.structs.replace(ended, test=None), "auc") is None


def test_an_unknown_metric_gets_a_suggestion() -> None:
    assert metric_named("logloss") == "logloss"
    with pytest.raises(ConfigError, match='did you mean "logloss"'):
        metric_named("loglos")


def test_the_best_is_the_highest_auc_and_the_lowest_loss() -> None:
    values = [(0, 0.5), (1, 0.7), (2, 0.7), (3, 0.4)]
    assert (best_of(values, "auc"), best_of(values, "logloss"), best_of([], "auc")) == (1, 3, None)
