"""The benchmark of the memory tuner, and what it shows, on a few of its runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.tuner import memory
from benchmarks.tuner.memory import AIMS, KINDS, LEAST_ROWS, Figures, measure, simulate


@pytest.fixture(scope="module")
def figures() -> Figures:
    return measure(range(2))


@pytest.mark.parametrize("kind", KINDS)
def test_runs_grow_and_are_the_same_for_the_same_seed(kind: str) -> None:
    run, again = (simulate(kind, np.random.default_rng((4, 1))) for _ in range(2))
    assert np.array_equal(run.used, again.used)
    assert run.rows[-1] >= LEAST_ROWS
    assert (np.diff(run.rows) >= 0).all() and (np.diff(run.samples) > 0).all()
    assert run.exceeds_s is None or run.used.max() > run.budget


def test_the_end_of_memory_is_seen_in_time_and_seldom_in_vain(figures: Figures) -> None:
    assert figures.exceeding >= 4
    assert figures.precision >= AIMS["precision"]
    assert figures.recall >= AIMS["recall"]


def test_figures_are_printed(
    figures: Figures, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(memory, "measure", lambda seeds: figures)
    assert memory.main(["--quick", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["runs"] == 2 * len(KINDS)
    memory.main(["--quick"])
    assert "precision" in capsys.readouterr().out
