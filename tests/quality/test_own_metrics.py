"""Metric functions of the user: called in a process of their own, and whatever they do is an answer."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from elastichost.errors import ModelError
from elastichost.quality import own_metrics
from elastichost.quality.own_metrics import OwnFigure, OwnMetrics, check_functions

SOURCE = """
import os, time
import beside

def brier(scores, labels, weights):
    assert scores.dtype == labels.dtype == weights.dtype == "float64"
    return ((scores - labels) ** 2 * weights).sum() / weights.sum()

def fails(scores, labels, weights):
    raise KeyError("no such figure")

def undefined(scores, labels, weights):
    return float("nan")

def dies(scores, labels, weights):
    print("out of memory", flush=True)
    os._exit(7)

def hangs(scores, labels, weights):
    time.sleep(1000)
"""


@pytest.fixture
def functions(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "beside.py").write_text("")
    return f"{tmp_path}/mine.py"


def answers(names: list[str], directory: Path) -> tuple[OwnFigure, ...]:
    scores, labels = np.array([[0.5, 0.2], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 1.0]])
    call = OwnMetrics(names, directory, scores, labels, np.array([3.0, 1.0]), time.monotonic())
    try:
        while (found := call.poll(time.monotonic())) is None:
            time.sleep(0.01)
        return found
    finally:
        call.close()
        assert not directory.exists()


def test_each_function_is_called_with_each_label(functions: str, tmp_path: Path) -> None:
    names = [f"{functions}:{name}" for name in ("brier", "fails", "undefined")]
    brier, other, fails, _, undefined, _ = answers(names, tmp_path / "files")
    assert brier == OwnFigure(names[0], 0, 0.1875) and other.value == pytest.approx((3 * 0.04 + 1) / 4)
    assert fails.value is None and "KeyError: 'no such figure'" in fails.problem and "mine.py, line 10" in fails.problem
    assert undefined == OwnFigure(names[2], 0, None)


def test_a_process_that_ends_or_hangs_gives_no_figure(
    functions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, second) = answers([f"{functions}:dies"], tmp_path / "files")
    assert first.problem == second.problem == "its process ended with exit code 7: out of memory"
    monkeypatch.setattr(own_metrics, "TIMEOUT_S", 0.0)
    (first, _) = answers([f"{functions}:hangs"], tmp_path / "files")
    assert first.problem == "it was not done after 0 s"


def test_a_function_that_fails_is_refused_before_the_run(functions: str, tmp_path: Path) -> None:
    check_functions([f"{functions}:brier"], tmp_path / "trial")
    with pytest.raises(ModelError, match=r"mine\.py:fails' fails on 64 samples: KeyError"):
        check_functions([f"{functions}:brier", f"{functions}:fails"], tmp_path / "trial")
    with pytest.raises(ModelError, match="has no function 'absent'"):
        check_functions([f"{functions}:absent"], tmp_path / "trial")
    with pytest.raises(ModelError, match="No module named 'nowhere'"):
        check_functions(["nowhere.metrics:f"], tmp_path / "trial")
