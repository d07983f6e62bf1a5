"""The objective of a search: its figure and direction, its value in a result, and which trial is the best."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.errors import ConfigError
from elastichost.runs import result as results
from elastichost.search.objective import Direction, Objective, best_of, objective_of, value_of
from tests.dispatcher.jobs import result
from tests.search.conftest import job

FIGURES = results.TestFigures(0.7, 0.4, 0.9, 1.0, samples=10, metrics={"gauc(user)": 0.6, "auc[a]": 0.8})


def test_the_figure_of_a_result() -> None:
    ended = msgspec.structs.replace(result(peak_bytes=1, peak_workers=1), test=FIGURES)
    names = ("auc", "logloss", "normalised_entropy", "gauc(user)", "auc[a]")
    assert [value_of(ended, name) for name in names] == [0.7, 0.4, 0.9, 0.6, 0.8]
    for undefined in (None, float("nan")):
        without = msgspec.structs.replace(ended, test=msgspec.structs.replace(FIGURES, auc=undefined))
        assert value_of(without, "auc") is None
    assert value_of(msgspec.structs.replace(ended, test=None), "auc") is None


@pytest.mark.parametrize(
    ("metric", "direction"),
    [("auc", "maximize"), ("logloss", "minimize"), ("gauc(c0)", "maximize"), ("mine.py:brier", "minimize")],
)
def test_the_job_says_which_figures_there_are_and_which_are_better(metric: str, direction: Direction) -> None:
    made = job(metrics=["gauc(c0)", "mine.py:brier"], better={"mine.py:brier": "lower"})
    assert objective_of(made, metric) == Objective(metric, direction)


def test_a_figure_that_the_job_does_not_compute_or_that_has_no_direction_is_refused() -> None:
    with pytest.raises(ConfigError, match='did you mean "logloss"'):
        objective_of(job(), "loglos")
    with pytest.raises(ConfigError, match="does not compute it") as caught:
        objective_of(job(), "gauc(c0)")
    assert "evaluate.metrics" in (caught.value.hint or "")
    with pytest.raises(ConfigError, match="whether a higher value is better"):
        objective_of(job(), "calibration")
    with pytest.raises(ConfigError, match="whether a higher value is better") as caught:
        objective_of(job(metrics=["mine.py:brier"]), "mine.py:brier")
    assert "evaluate.better" in (caught.value.hint or "")


def test_the_best_is_the_highest_or_the_lowest_and_the_first_of_equal_ones() -> None:
    values = [(0, 0.5), (1, 0.7), (2, 0.7), (3, 0.4)]
    assert (best_of(values, "maximize"), best_of(values, "minimize"), best_of([], "maximize")) == (1, 3, None)
