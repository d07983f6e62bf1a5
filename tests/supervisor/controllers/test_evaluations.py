"""The best evaluation and its checkpoint: what counts as better, and what a resumed run knows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.checkpoint.format import BestFigure
from elastichost.config.job import make_job
from elastichost.runs.facts import EvaluationMemory
from elastichost.runs.result import BestCheckpoint
from elastichost.runs.result import TestFigures as Figures
from elastichost.supervisor.controllers.evaluations import EvaluationController, EvaluationState

RAW: dict[str, Any] = {"model": {"build": "a:b"}, "data": {"format": "synthetic"}}
OWN: dict[str, Any] = {"metrics": ["m.py:f"], "better": {"m.py:f": "lower"}}


def controller(keep_best: str = "auc", **evaluate: Any) -> EvaluationController:
    raw = {**RAW, "checkpoint": {"keep_best": keep_best}, "evaluate": evaluate}
    job = make_job(raw, Path("/jobs"), "job", environ={})
    run: Any = SimpleNamespace(job=job, note=lambda *_: None)
    return EvaluationController(run, EvaluationState(), (10,), 1, lambda: True)


def figures(auc: float | None, **metrics: float | None) -> Figures:
    return Figures(auc, 1.0 - auc if auc is not None else None, None, None, 10, metrics=metrics)


@pytest.mark.parametrize("keep_best", ["auc", "logloss"])
def test_only_a_better_figure_is_a_candidate(keep_best: str) -> None:
    one = controller(keep_best)
    found = []
    for auc in (0.7, None, 0.6, 0.7, 0.8):
        candidate = one._better(figures(auc))
        found.append(candidate is not None)
        if candidate is not None:
            one.written(candidate, f"step-{auc}")
    assert found == [True, False, False, False, True]
    assert one.best is not None and one.best.path == "step-0.8" and one.candidate is None


def test_the_direction_of_an_own_function_is_the_stated_one() -> None:
    one = controller("m.py:f", **OWN)
    one.written(BestFigure("m.py:f", 0.5, 10), "step-10")
    assert one._better(figures(0.9, **{"m.py:f": 0.6})) is None
    assert one._better(figures(0.1, **{"m.py:f": 0.4})) == BestFigure("m.py:f", 0.4, 0)


def test_a_candidate_survives_its_supervisor_only_while_the_weights_are_the_same() -> None:
    memory = EvaluationMemory(evaluated_at=500, candidate=BestFigure("auc", 0.8, 500))
    old = BestCheckpoint("step-400", "auc", 0.7, 400)

    def recalled(samples: int, best: BestCheckpoint | None, keep_best: str = "auc") -> BestFigure | None:
        one = controller(keep_best)
        one.recall(memory, samples, best)
        assert one.best == best and one.memory.candidate == one.candidate
        return one.candidate

    assert recalled(500, old) == recalled(500, None) == memory.candidate
    assert recalled(600, old) is None  # trained on
    assert recalled(500, BestCheckpoint("step-500", "auc", 0.8, 500)) is None  # written already
    assert recalled(500, old, "logloss") is None  # another figure from now on


def test_a_checkpoint_of_other_weights_is_not_the_best() -> None:
    one = controller()
    one.recall(EvaluationMemory(candidate=BestFigure("auc", 0.8, 500)), 500, None)
    assert one.best_figure(501, "step-501") is None
    assert one.best_figure(500, "step-500") == BestFigure("auc", 0.8, 500)
    one.give_up_best()
    assert one.best_figure(500, "step-500") is None


@pytest.mark.parametrize("path", ["/run/checkpoints/step-400", "/run/checkpoints/step-400.replaced"])
def test_a_checkpoint_with_the_name_of_the_best_one_keeps_its_figure(path: str) -> None:
    """It replaces the best one and has its weights; only samples that were skipped or quarantined came since."""
    one, best = controller(), BestFigure("auc", 0.8, 500)
    one.recall(EvaluationMemory(), 500, BestCheckpoint(path, best.figure, best.value, best.samples))
    one._state.candidate = BestFigure("auc", 0.9, 700)
    assert one.best_figure(600, "step-400") == best
    assert one.best_figure(600, "step-500") is None
    assert one.best_figure(700, "step-400") == one.candidate
    one.written(best, "/run/checkpoints/step-400")
    assert one.best == BestCheckpoint("/run/checkpoints/step-400", "auc", 0.8, 500)
    assert one.candidate == BestFigure("auc", 0.9, 700), "the better one is still to be written"


def test_an_early_stop_forgets_the_best_value_of_another_figure() -> None:
    memory = EvaluationMemory(best=0.9, without_better=2, compared="auc")
    one, other = controller(), controller(early_stop={"metric": "logloss"})
    one.recall(memory, 0, None)
    other.recall(memory, 0, None)
    assert (one.memory.best, one.memory.without_better) == (0.9, 2)
    assert (other.memory.best, other.memory.without_better) == (None, 0)
