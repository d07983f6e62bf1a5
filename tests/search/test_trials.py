"""The trials of a search: what is asked, submitted and told, and when the search ends."""

from __future__ import annotations

import pytest

from elastichost.errors import IllegalTransitionError
from elastichost.search.trials import (
    FAILURES_WITHOUT_SUCCESS,
    RANDOM_TRIALS,
    WAITING_TRIALS,
    AskTrial,
    SubmitTrial,
    TellTrial,
    TrialEvent,
    TrialJob,
    Trials,
    job_name,
    next_trial_state,
)


def carry_out(trials: Trials) -> list[int]:
    """Does what the trials decide. Returns the numbers that were submitted."""
    submitted = []
    while effects := trials.decide():
        for effect in effects:
            match effect:
                case AskTrial():
                    trials.asked(len(trials._entries))
                case SubmitTrial(number):
                    trials.submitted(number)
                    submitted.append(number)
                case TellTrial(number):
                    trials.told(number)
    return submitted


def test_what_no_result_informs_is_submitted_at_once_and_the_rest_as_trials_start() -> None:
    trials = Trials(RANDOM_TRIALS + 5)
    assert carry_out(trials) == list(range(RANDOM_TRIALS))
    trials.seen([TrialJob(0, "running"), TrialJob(1, "starting")])
    assert carry_out(trials) == [], "enough trials wait"
    trials.seen([TrialJob(number, "running") for number in range(RANDOM_TRIALS - WAITING_TRIALS + 1)])
    assert carry_out(trials) == [RANDOM_TRIALS]
    trials.seen([TrialJob(number, "done", 0.5) for number in range(RANDOM_TRIALS + 1)])
    assert carry_out(trials) == [RANDOM_TRIALS + 1, RANDOM_TRIALS + 2]
    assert not trials.is_over
    trials.seen([TrialJob(number, "done", 0.5) for number in range(RANDOM_TRIALS + 3)])
    assert carry_out(trials) == [RANDOM_TRIALS + 3, RANDOM_TRIALS + 4]
    trials.seen([TrialJob(number, "done", 0.5) for number in range(RANDOM_TRIALS + 5)])
    assert carry_out(trials) == []
    assert trials.is_over


def test_what_was_told_comes_before_what_is_asked() -> None:
    trials = Trials(30)
    carry_out(trials)
    trials.seen([TrialJob(number, "done", 0.5) for number in range(RANDOM_TRIALS)])
    assert {type(effect) for effect in trials.decide()} == {TellTrial}


def test_a_job_that_the_dispatcher_has_is_not_submitted_again() -> None:
    trials = Trials(3)
    trials.restored(0, 0.6)
    trials.asked(1)
    trials.asked(2)
    trials.seen([TrialJob(0, "done", 0.6), TrialJob(1, "running"), TrialJob(7, "running")])
    assert carry_out(trials) == [2]
    trials.seen([TrialJob(1, "failed", why="NaN"), TrialJob(2, "done", None, "its result has no auc")])
    assert trials.endings() == (TellTrial(1, None, "NaN"), TellTrial(2, None, "its result has no auc"))
    carry_out(trials)
    assert trials.is_over
    assert trials.endings() == ()


def test_a_stopped_job_has_not_ended() -> None:
    trials = Trials(1)
    carry_out(trials)
    trials.seen([TrialJob(0, "stopped")])
    assert trials.endings() == ()
    assert not trials.is_over


def test_values_that_are_refused_are_told_as_a_failure() -> None:
    trials = Trials(1)
    trials.asked(0)
    trials.refused(0, "not together")
    assert trials.endings() == (TellTrial(0, None, "not together"),)


def test_a_search_whose_first_trials_all_fail_ends_early() -> None:
    trials = Trials(100)
    carry_out(trials)
    trials.seen([TrialJob(number, "failed", why="no file") for number in range(FAILURES_WITHOUT_SUCCESS)])
    assert carry_out(trials) == []
    assert trials.has_given_up
    assert not trials.is_over, "the others may still be done"
    rest = range(FAILURES_WITHOUT_SUCCESS, RANDOM_TRIALS)
    trials.seen([TrialJob(number, "failed", why="no file") for number in rest])
    carry_out(trials)
    assert trials.is_over


@pytest.mark.parametrize("value", [0.5, None])
def test_after_a_resume_only_new_failures_end_a_search_early(value: float | None) -> None:
    trials = Trials(100)
    trials.restored(0, value)
    for number in range(1, 20):
        trials.restored(number, None)
    assert carry_out(trials) == [20, 21]
    assert not trials.has_given_up


def test_what_the_table_does_not_allow_is_an_error() -> None:
    with pytest.raises(IllegalTransitionError):
        next_trial_state("told", TrialEvent.TELL)
    with pytest.raises(IllegalTransitionError):
        next_trial_state("submitted", TrialEvent.SUBMIT)


def test_names_of_jobs() -> None:
    assert [job_name(number) for number in (0, 23, 1234)] == ["trial-000", "trial-023", "trial-1234"]
