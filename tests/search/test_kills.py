"""A search that is killed at any of its writes, again and again, trains each trial once and tells of each once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.config.job import make_job
from elastichost.dispatcher.facts import JobStatus
from elastichost.errors import PreflightError
from elastichost.search import trial_feed
from elastichost.search.objective import Objective
from elastichost.search.settings import SearchSettings
from elastichost.search.space import Parameter
from elastichost.search.trial_feed import StudyTrial, TrialFeed
from elastichost.search.trials import TrialJob

PARAMETERS = (Parameter("train.optimizer_rows.lr", "log", 0.01, 1.0), Parameter("train.epochs", "int", 1, 9))
SPEC = make_job(
    {"model": {"build": "elastichost.models:dlrm"}, "data": {"format": "synthetic"}}, Path("/"), "the job", environ={}
)


class KilledError(BaseException):
    """The process of the search was killed."""


@dataclass
class Disk:
    """What a kill leaves: the study, and the queue of the dispatcher. left: writes until the next kill, of each
    process."""

    left: list[int]
    values: dict[int, list[str]] = field(default_factory=dict)
    told: dict[int, float | None] = field(default_factory=dict)
    queue: dict[str, str] = field(default_factory=dict)  # job -> state
    over: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)  # what was done how often

    def write(self) -> None:
        """A kill comes before a write, so all earlier writes stay."""
        if self.left:
            self.left[0] -= 1
            if self.left[0] < 0:
                del self.left[0]
                raise KilledError


def value_of(name: str) -> float:
    return float(name.removeprefix("trial-")) / 100


class FakeStudy:
    """The study on that disk: each value of a trial is a write of its own, as in Optuna's file."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def trials(self) -> tuple[StudyTrial, ...]:
        disk = self._disk
        return tuple(
            StudyTrial(number, tuple(texts), number in disk.told, disk.told.get(number))
            for number, texts in disk.values.items()
        )

    def ask(self) -> StudyTrial:
        self._disk.write()
        number = len(self._disk.values)
        self._disk.values[number] = []
        return self.complete(number)

    def complete(self, number: int) -> StudyTrial:
        for parameter in PARAMETERS[len(self._disk.values[number]) :]:
            self._disk.write()
            self._disk.values[number].append(parameter.text(1 + number % 9))
        return StudyTrial(number, tuple(self._disk.values[number]))

    def tell(self, number: int, value: float | None, why: str, run_dir: str) -> None:
        assert len(self._disk.values[number]) == len(PARAMETERS)
        self._disk.write()
        self._disk.counts[f"told {number}"] += 1
        self._disk.told[number] = value

    def close(self) -> None:
        pass


def work(disk: Disk, feed: TrialFeed, ends: list[bool]) -> None:
    """A process of the search, with the order of writes of the dispatcher. ends: whether the jobs end well, in the
    order in which they end."""
    for name in disk.over:
        disk.queue.pop(name, None)  # a kill between two writes leaves a job in both files
    while True:
        states = {**disk.queue, **disk.over}
        for one in feed.take(tuple(JobStatus(job=name, state=state, run_dir=name) for name, state in states.items())):  # type: ignore[arg-type]
            disk.write()  # its folder
            disk.write()
            assert one.name not in states
            assert one.spec.job.name == one.name
            disk.queue[one.name] = "waiting"
            disk.counts[f"submitted {one.name}"] += 1
        if not disk.queue:
            assert feed.is_over
            return
        name = min(disk.queue, key=lambda name: (disk.queue[name] != "running", crc32(name.encode())))
        if disk.queue[name] == "waiting":
            disk.queue[name] = "running"
            continue
        disk.write()
        disk.over[name] = "done" if not ends or ends.pop() else "failed"
        disk.counts[f"ended {name}"] += 1
        disk.write()
        del disk.queue[name]


def job_of(job: JobStatus, number: int, metric: str) -> TrialJob:
    return TrialJob(number, job.state, value_of(job.job) if job.state == "done" else None, "it failed")


@settings(max_examples=60, deadline=None)
@given(
    budget=st.integers(1, 13),
    left=st.lists(st.integers(0, 40), max_size=8),
    ends=st.lists(st.booleans(), max_size=13),
)
def test_each_trial_is_trained_once_and_told_once(budget: int, left: list[int], ends: list[bool]) -> None:
    disk = Disk(left)
    for _ in range(len(left) + 1):
        wanted = SearchSettings(PARAMETERS, budget, Objective("auc", "maximize"), 0, "/home/user", "/home/user")
        feed = TrialFeed(wanted, SPEC, lambda: FakeStudy(disk), lambda trials, number: None)
        try:
            with patch.object(trial_feed, "job_of", job_of):
                work(disk, feed, ends)
        except KilledError:
            continue
        break
    numbers = set(range(len(disk.values)))
    assert len(numbers) == budget or feed.has_given_up
    assert set(disk.told) == numbers
    assert not disk.queue
    assert len(disk.over) == len(numbers)
    assert set(disk.counts.values()) == {1}, disk.counts
    for number in numbers:
        name = f"trial-{number:03d}"
        assert disk.told[number] == (value_of(name) if disk.over[name] == "done" else None)


def test_a_study_that_was_lost_begins_nothing_over_the_trials_that_were_trained() -> None:
    """New trials would get the names of old jobs, and their metrics."""
    wanted = SearchSettings(PARAMETERS, 3, Objective("auc", "maximize"), 0, "/home/user", "/home/user")
    feed = TrialFeed(wanted, SPEC, lambda: FakeStudy(Disk([])), lambda trials, number: None)
    with pytest.raises(PreflightError, match=r"(?s)knows 0 trials, and not trial-001.*put back the file study\.db"):
        feed.take(
            (
                JobStatus(job="trial-001", state="done", run_dir="r"),
                JobStatus(job="by-hand", state="running", run_dir="h"),
            )
        )
    by_hand = TrialFeed(wanted, SPEC, lambda: FakeStudy(Disk([])), lambda trials, number: None)
    assert len(by_hand.take((JobStatus(job="trial-a", state="running", run_dir="t"),))) == 3
