"""A search whose files of the outcome cannot be written: a full disk does not end it, and what to do is said."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.dispatcher.facts import HostStatus, JobStatus
from elastichost.dispatcher.options import JobFeed
from elastichost.errors import PreflightError
from elastichost.search import run_search as module
from elastichost.search import trial_feed
from elastichost.search.objective import Objective
from elastichost.search.outcome import BEST_FILE, TRIALS_FILE, SearchOutcome, write_outcome
from elastichost.search.run_search import SearchObserver, run_search
from elastichost.search.settings import SearchSettings
from elastichost.search.trials import TrialJob
from tests.search.test_kills import PARAMETERS, SPEC, Disk, FakeStudy

TRIALS = 4
SETTINGS = SearchSettings(PARAMETERS, TRIALS, Objective("auc", "maximize"), 0, "/home/user", "/home/user")
FULL = errno.ENOSPC


def run_host(
    options: object, inventory: object, submissions: object, on_status: object, on_event: object, feed: JobFeed
) -> HostStatus:
    """A dispatcher whose jobs are done as soon as they are submitted."""
    jobs: dict[str, JobStatus] = {}
    while not feed.is_over:
        for one in feed.take(tuple(jobs.values())):
            jobs[one.name] = JobStatus(job=one.name, state="done", run_dir=one.name)
    return HostStatus(directory="/s", pid=1, commands="", policy="", jobs=tuple(jobs.values()))


@dataclass
class Search:
    """A search of four trials, of which the last one is the best. It writes its files once before the first trial and
    after each trial. ended: trials that were shown. problems: what was told."""

    directory: Path
    monkeypatch: pytest.MonkeyPatch
    ended: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def run(self, errors: Sequence[int]) -> SearchOutcome:
        """errors: the number of the error with which each write fails; 0: it does not fail."""
        left = list(errors)

        def write_or_fail(*arguments: Any) -> None:
            if number := left.pop(0):
                raise OSError(number, os.strerror(number), "somewhere")
            write_outcome(*arguments)

        def job_of(job: JobStatus, number: int, metric: str) -> TrialJob:
            return TrialJob(number, job.state, number / 10)

        self.monkeypatch.setattr(module, "write_outcome", write_or_fail)
        self.monkeypatch.setattr(module, "run_host", run_host)
        self.monkeypatch.setattr(module, "open_study", lambda *_: FakeStudy(Disk([])))
        self.monkeypatch.setattr(trial_feed, "job_of", job_of)
        observer = SearchObserver(
            lambda status: None,
            lambda line: None,
            on_trial=lambda one, all_: self.ended.append(one.trial),
            on_problem=self.problems.append,
        )
        options: Any = SimpleNamespace(directory=self.directory)
        inventory: Any = None
        outcome = run_search(SETTINGS, SPEC, options, inventory, observer)
        assert not left
        return outcome


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    return Search(tmp_path, monkeypatch)


def check_files(directory: Path) -> None:
    """They have all trials."""
    assert (directory / BEST_FILE).read_text().startswith("# trial 3 of 4: auc 0.3\n")
    assert len((directory / TRIALS_FILE).read_text().splitlines()) == 1 + TRIALS


def test_a_full_disk_is_told_once_and_the_search_continues(search: Search) -> None:
    outcome = search.run([0, FULL, FULL, 0, 0])
    assert outcome.is_finished and outcome.best == 3
    assert search.ended == [0, 1, 2, 3]
    assert len(search.problems) == 1
    assert f"cannot be written to {search.directory}: no space left on device" in search.problems[0]
    assert "free some space on the file system at" in search.problems[0]
    check_files(search.directory)


def test_a_disk_that_fills_up_again_is_told_again(search: Search) -> None:
    search.run([FULL, 0, 0, FULL, 0])
    assert len(search.problems) == 2
    check_files(search.directory)


def test_files_that_are_behind_are_written_at_the_end(search: Search) -> None:
    search.run([0, 0, 0, 0, FULL, 0])
    check_files(search.directory)


def test_a_disk_that_is_full_at_the_end_is_an_error_that_says_how_to_continue(search: Search) -> None:
    with pytest.raises(PreflightError, match=rf"(?s)no space left.*free some space.*--resume {search.directory}"):
        search.run([0, 0, 0, 0, FULL, FULL])
    assert search.ended == [0, 1, 2, 3]


def test_files_that_may_not_be_written_are_an_error_that_says_how_to_continue(search: Search) -> None:
    with pytest.raises(PreflightError, match=rf"(?s)permission denied.*--resume {search.directory}"):
        search.run([0, errno.EACCES])
    assert search.problems == []
