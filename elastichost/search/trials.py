"""The trials of a search: their states, and what to do next. Pure.

    ask -> asked -> submitted -> done | failed -> told
             |                     ^
             +-- values refused ---+

`decide` returns what is to be done; the caller does it, and says so. What is on disk comes first: `asked` and
`restored` take the trials of the study, `seen` takes the jobs of the dispatcher. So a search that was killed continues
by the same rules: a trial whose job the dispatcher has is not submitted again, and one that Optuna was told of is not
told again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from elastichost.dispatcher.facts import OVER_STATES, JobState
from elastichost.errors import IllegalTransitionError

__all__ = [
    "RANDOM_TRIALS",
    "AskTrial",
    "SubmitTrial",
    "TellTrial",
    "TrialEffect",
    "TrialEvent",
    "TrialJob",
    "Trials",
    "is_job_name",
    "job_name",
    "next_trial_state",
]

JOB_PREFIX = "trial-"
# Optuna's TPE draws the values of the first trials at random. No result informs them, so all are submitted at once.
RANDOM_TRIALS = 10
# Trials that wait in the queue of the dispatcher, so that it can choose and examine the next job while others train.
# With more, Optuna would suggest values without the results of the trials that end in the meantime.
WAITING_TRIALS = 2
# A search ends early when so many trials have failed and none was done: the fault is not in the values.
FAILURES_WITHOUT_SUCCESS = 5

TrialState = Literal["asked", "submitted", "done", "failed", "told"]


class TrialEvent(StrEnum):
    """What happens to a trial."""

    SUBMIT = "submit"  # the dispatcher has its job
    DONE = "done"  # its job is done, and its metric is defined
    FAIL = "fail"  # its job failed or was cancelled, its metric is not defined, or its values are refused
    TELL = "tell"  # the study has its metric or its failure


_TABLE: dict[tuple[TrialState, TrialEvent], TrialState] = {
    ("asked", TrialEvent.SUBMIT): "submitted",
    ("asked", TrialEvent.FAIL): "failed",  # each value is allowed, but not together with the others
    ("submitted", TrialEvent.DONE): "done",
    ("submitted", TrialEvent.FAIL): "failed",
    ("done", TrialEvent.TELL): "told",
    ("failed", TrialEvent.TELL): "told",
}


def next_trial_state(state: TrialState, event: TrialEvent) -> TrialState:
    """The state after an event. Raises IllegalTransitionError when the state does not allow the event."""
    try:
        return _TABLE[state, event]
    except KeyError:
        raise IllegalTransitionError("trial", state, event) from None


def job_name(number: int) -> str:
    """The name of a trial's job. It is the same after a kill, so that the job is found again."""
    return f"{JOB_PREFIX}{number:03d}"


def is_job_name(name: str) -> bool:
    """Whether a job of this name is that of a trial."""
    digits = name.removeprefix(JOB_PREFIX)
    return digits.isdecimal() and name == job_name(int(digits))


@dataclass(frozen=True, slots=True)
class TrialJob:
    """What the dispatcher says of the job of a trial. value: the metric; None: the job is not done, or its metric is
    not defined. why: the reason of a failure."""

    number: int
    state: JobState
    value: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class AskTrial:
    """Asks Optuna for the values of one more trial."""


@dataclass(frozen=True, slots=True)
class SubmitTrial:
    """Submits the job of a trial."""

    number: int


@dataclass(frozen=True, slots=True)
class TellTrial:
    """Tells Optuna how a trial ended. value: the metric; None: the trial failed."""

    number: int
    value: float | None
    why: str = ""


TrialEffect = AskTrial | SubmitTrial | TellTrial


@dataclass(slots=True)
class _TrialEntry:
    state: TrialState
    value: float | None = None
    why: str = ""
    is_waiting: bool = True  # its job has not started
    is_earlier: bool = False  # it ended before this process began


@dataclass(slots=True)
class Trials:
    """The trials of a search by number. budget: number of trials to make."""

    budget: int
    _entries: dict[int, _TrialEntry] = field(default_factory=dict)

    def asked(self, number: int) -> None:
        """The study has this trial, and was not told how it ended."""
        self._entries[number] = _TrialEntry("asked")

    def restored(self, number: int, value: float | None) -> None:
        """The study was told how this trial ended, before this process began. value: None: it failed."""
        self._entries[number] = _TrialEntry("told", value, is_earlier=True)

    def seen(self, jobs: Sequence[TrialJob]) -> None:
        """Takes the jobs that the dispatcher has. Jobs of no trial, and of trials that ended, change nothing."""
        for job in jobs:
            entry = self._entries.get(job.number)
            if entry is None or entry.state not in ("asked", "submitted"):
                continue
            if entry.state == "asked":
                entry.state = next_trial_state(entry.state, TrialEvent.SUBMIT)
            entry.is_waiting = job.state == "waiting"
            if job.state not in OVER_STATES:
                continue
            if job.state == "done" and job.value is not None:
                entry.state, entry.value = next_trial_state(entry.state, TrialEvent.DONE), job.value
            else:
                self._fail(entry, job.why)

    def submitted(self, number: int) -> None:
        entry = self._entries[number]
        entry.state = next_trial_state(entry.state, TrialEvent.SUBMIT)

    def refused(self, number: int, why: str) -> None:
        """The job file does not allow the values of this trial together."""
        self._fail(self._entries[number], why)

    def told(self, number: int) -> None:
        entry = self._entries[number]
        entry.state = next_trial_state(entry.state, TrialEvent.TELL)

    def _fail(self, entry: _TrialEntry, why: str) -> None:
        entry.state, entry.why = next_trial_state(entry.state, TrialEvent.FAIL), why

    def decide(self) -> tuple[TrialEffect, ...]:
        """What to do next: tells before asks, because what was told informs the next values. Call it until it returns
        nothing."""
        return self.endings() or tuple(self._submissions()) or (AskTrial(),) * (self._asks() > 0)

    def endings(self) -> tuple[TellTrial, ...]:
        """What Optuna is to be told."""
        return tuple(
            TellTrial(number, entry.value, entry.why)
            for number, entry in self._entries.items()
            if entry.state in ("done", "failed")
        )

    def _submissions(self) -> Iterator[SubmitTrial]:
        for number, entry in self._entries.items():
            if entry.state == "asked":
                yield SubmitTrial(number)

    def _asks(self) -> int:
        """Number of trials to ask for now."""
        if self.has_given_up:
            return 0
        waiting = sum(entry.is_waiting and entry.state in ("asked", "submitted") for entry in self._entries.values())
        uninformed = RANDOM_TRIALS - len(self._entries)
        return min(self.budget - len(self._entries), max(uninformed, WAITING_TRIALS - waiting))

    @property
    def has_given_up(self) -> bool:
        """Whether the first trials all failed, so that no more are asked for. Trials that failed before the search was
        resumed do not count: their cause may be repaired."""
        ends = [entry for entry in self._entries.values() if entry.state in ("done", "failed", "told")]
        ends = [entry for entry in ends if not (entry.is_earlier and entry.value is None)]
        failures = sum(entry.value is None for entry in ends)
        return failures >= FAILURES_WITHOUT_SUCCESS and failures == len(ends)

    @property
    def is_over(self) -> bool:
        """Whether all trials have ended, Optuna was told of all, and no more are to come."""
        is_settled = all(entry.state == "told" for entry in self._entries.values())
        return is_settled and (self.has_given_up or len(self._entries) >= self.budget)
