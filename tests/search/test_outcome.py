"""The files of a search: the list of trials, and the best job, which trains unedited."""

from __future__ import annotations

import csv
from pathlib import Path

from elastichost.config.job import load_job
from elastichost.search.outcome import BEST_FILE, TRIALS_FILE, outcome_of, write_outcome
from elastichost.search.trial_feed import StudyTrial
from tests.search.conftest import job, settings_of

SETTINGS = settings_of("train.optimizer_rows.lr=log(0.01, 1)", "train.optimizer_rows.name=choice(sgd, adagrad)")
TRIALS = (
    StudyTrial(0, ("0.5", "sgd"), is_told=True, value=0.7, run_dir="/runs/a"),
    StudyTrial(1, ("0.25", "adagrad"), is_told=True, value=0.8, run_dir="/runs/b"),
    StudyTrial(2, ("0.75", "sgd"), is_told=True, why='the loss is "NaN", it stops'),
    StudyTrial(3, ("0.1",)),
)


def test_the_outcome_of_trials() -> None:
    outcome = outcome_of(Path("/s"), SETTINGS, TRIALS)
    assert [one.state for one in outcome.trials] == ["done", "done", "failed", "unfinished"]
    assert (outcome.best, outcome.direction, outcome.is_finished) == (1, "maximize", False)
    assert outcome.trials[3].settings == {"train.optimizer_rows.lr": "0.1"}
    assert outcome_of(Path("/s"), SETTINGS, TRIALS[:3]).is_finished is False, "one is to come"
    assert outcome_of(Path("/s"), SETTINGS, TRIALS[:3], has_given_up=True).is_finished


def test_files(tmp_path: Path) -> None:
    empty = outcome_of(tmp_path, SETTINGS, TRIALS[2:])
    write_outcome(tmp_path, empty, SETTINGS, job())
    assert empty.best_trial is None
    assert not (tmp_path / BEST_FILE).exists()
    write_outcome(tmp_path, outcome_of(tmp_path, SETTINGS, TRIALS), SETTINGS, job())
    rows = list(csv.DictReader((tmp_path / TRIALS_FILE).open()))
    assert [row["auc"] for row in rows] == ["0.7", "0.8", "", ""]
    assert rows[2]["why"] == 'the loss is "NaN", it stops'
    assert rows[1]["train.optimizer_rows.name"] == "adagrad"
    best = load_job(tmp_path / BEST_FILE, environ={})
    assert (best.job.name, best.train.optimizer_rows.lr, best.train.optimizer_rows.name) == ("ads", 0.25, "adagrad")
    assert (tmp_path / BEST_FILE).read_text().startswith("# trial 1 of 4: auc 0.8\n")
