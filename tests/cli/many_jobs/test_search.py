"""`search`: what is refused before anything starts, and the last screen."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from elastichost.cli.many_jobs.search import _search, exit_code_of, show_outcome, trial_line
from elastichost.dispatcher.options import AskedOptions, HostOptions
from elastichost.resources import HostInventory
from elastichost.search import run_search
from elastichost.search.outcome import SearchOutcome, outcome_of
from elastichost.search.settings import begin_directory
from elastichost.search.trial_feed import StudyTrial
from elastichost.tuner.colocation.policies import ColocationSettings
from tests.cli.conftest import Elastichost
from tests.search.conftest import job, settings_of

JOB = '[model]\nbuild = "elastichost.models:dlrm"\n[data]\nformat = "synthetic"\n'
LR = "train.optimizer_rows.lr=log(0.01, 1)"
SETTINGS = settings_of(LR, trials=3)
DONE = (
    StudyTrial(0, ("0.5",), is_told=True, value=0.7),
    StudyTrial(1, ("0.123456",), is_told=True, value=0.8),
    StudyTrial(2, ("0.75",), is_told=True, why="the loss is NaN"),
)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("job.toml",), "at least one --param"),
        (("job.toml", "--param", "train.optimizer_rows.lrr=log(0.01, 1)"), 'did you mean "lr"'),
        (("job.toml", "--param", "train.epochs=int(0, 2)"), "(from --param train.epochs)"),
        (("job.toml", "--param", "train.epochs=itn(1, 2)"), 'did you mean "int"'),
        (("job.toml", "--param", LR, "--metric", "acu"), 'did you mean "auc"'),
        (("job.toml", "--param", LR, "--memory", "lots"), "--memory"),
        (("job.toml", "--param", LR, "--trials", "0"), "--trials"),
        (("--param", LR), "needs a job file"),
        (("missing.toml", "--param", LR), "no such job file"),
        (("--resume", "nowhere"), "not the directory of a search"),
        (("job.toml", "--resume", "search", "--param", LR), "without JOB, --param"),
        (("job.toml", "--param", LR, "--run-dir", "search"), "already holds a search"),
        (("job.toml", "--param", LR, "--run-dir", "batch"), "already holds jobs"),
        (("job.toml", "--param", LR, "--run-dir", "."), "is not empty: a search needs a directory of its own"),
        (("job.toml", "--param", LR, "--run-dir", "job.toml"), "is not empty: a search needs a directory of its own"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_starts(
    elastichost: Elastichost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "batch").mkdir()
    (tmp_path / "batch" / "host.json").write_text("{}")
    begin_directory(tmp_path / "search", SETTINGS, job(), AskedOptions("complementary"))
    before = sorted(tmp_path.rglob("*"))
    outcome = elastichost("search", *arguments)
    assert outcome.code == 2
    assert said in outcome.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_resume_of_a_search_names_the_verb(
    elastichost: Elastichost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begin_directory(tmp_path / "s", SETTINGS, job(), AskedOptions("complementary"))
    (tmp_path / "s" / "queue.json").write_text("[]")
    outcome = elastichost("resume", "s")
    assert outcome.code == 2
    assert "search --resume s" in outcome.stderr


def test_the_screen_has_the_best_trial_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path / "s", SETTINGS, DONE)
    show_outcome(outcome)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["trial-001", "trial-000", "trial-002"]
    assert "0.1235" in lines[1]
    assert "the loss is NaN" in lines[3]
    assert "best: trial-001, auc 0.8000" in lines[4]
    assert lines[5].endswith(f"run {tmp_path / 's' / 'best.toml'}")
    assert exit_code_of(outcome) == 0
    assert "(the best so far)" in trial_line(outcome.trials[1], outcome).plain
    assert "failed: the loss is NaN" in trial_line(outcome.trials[2], outcome).plain


def test_exit_codes_and_the_next_step(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    stopped = outcome_of(tmp_path, SETTINGS, DONE[:2])
    show_outcome(stopped)
    assert "search --resume" in capsys.readouterr().out
    failed = outcome_of(tmp_path, SETTINGS, DONE[2:], has_given_up=True)
    show_outcome(failed)
    assert "all failed" in capsys.readouterr().out
    assert (exit_code_of(stopped), exit_code_of(failed)) == (75, 1)


def test_a_problem_that_does_not_end_the_search_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def search_on_a_full_disk(*arguments: object) -> SearchOutcome:
        observer = arguments[-1]
        assert isinstance(observer, run_search.SearchObserver)
        observer.on_problem("trials.csv cannot be written")
        return outcome_of(tmp_path, SETTINGS, DONE)

    monkeypatch.setattr(run_search, "run_search", search_on_a_full_disk)
    options = HostOptions(tmp_path, tmp_path, 1, ColocationSettings("exclusive"))
    with pytest.raises(typer.Exit):
        _search(SETTINGS, job(), options, HostInventory((0,), 1), live=False, as_json=True)
    assert "trials.csv cannot be written" in capsys.readouterr().err
