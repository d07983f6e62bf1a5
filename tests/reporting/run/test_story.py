"""The history of a run from its journal."""

from __future__ import annotations

from elastichost.reporting.run.facts import Story
from elastichost.reporting.run.sessions import axis_of, chapters_of
from elastichost.reporting.run.story import MOST_LISTED, story_of, tuner_decisions_of
from elastichost.runs.events import (
    BatchTorn,
    CheckpointFailed,
    CheckpointStarted,
    EvaluationStarted,
    JournalLine,
    ProcessReady,
    ProcessRepinning,
    ProcessStarting,
    TunerDecided,
    TunerOff,
)
from elastichost.runs.events.text import text_of
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.decision import Decision
from tests.reporting.remains import STARTED, evaluated, line, lost, plan, reached, server, worker

FASTER = Decision("move", Configuration(1, 1), "it is faster")


def story(*lines: JournalLine) -> Story:
    """The story of a session with these lines in its journal."""
    chapters = chapters_of([line(0, STARTED), *lines])
    return story_of(chapters, axis_of(chapters, []))


def test_plans_and_their_outcomes() -> None:
    told = story(
        line(1, plan(2, 1, "cold start")),
        line(5, plan(1, 1, "try 1 worker")),
        line(6, reached(2, 1, 0.009)),
        line(7, ProcessStarting(worker(), "a worker of the plan")),
    )
    assert [(one.number, one.at_s, one.workers, one.servers, one.access, one.outcome) for one in told.plans] == [
        (1, 1.0, 2, 1, "direct", ""),
        (2, 5.0, 1, 1, "direct", "plan reached after 9 ms: workers 2 -> 1"),
    ]
    assert told.plans[1].reason == "try 1 worker"
    assert [one.kind for one in told.decisions] == ["plan_changed", "plan_changed", "process_starting"]
    assert told.decisions[2].text == "starting worker-0.1 (a worker of the plan)"
    assert told.decisions[2].process == "worker-0"


def test_spans_end_with_their_event_or_with_their_session() -> None:
    told = story(
        line(1, CheckpointStarted(1, "every 60 s")),
        line(2, EvaluationStarted(10, "half of it")),
        line(3, evaluated(10, 0.7)),
        line(4, CheckpointFailed("no space", 1, "", 60.0)),
        line(8, CheckpointStarted(2, "every 60 s")),
        line(9, ProcessReady(worker())),
        line(50, STARTED),
        line(60, ProcessReady(worker())),
    )
    assert [(one.kind, one.at_s, one.until_s) for one in told.spans] == [
        ("evaluation", 2.0, 3.0),
        ("checkpoint", 1.0, 4.0),
        ("checkpoint", 8.0, 9.0),
    ]
    assert "no end in the journal" in told.spans[2].text


def test_evaluations_that_the_run_went_back_behind_are_left_out() -> None:
    """The x of a chart ascends, and what a roll-back discarded is no part of the model."""
    said = [evaluated(samples, auc) for samples, auc in ((100, 0.6), (200, 0.7), (300, 0.8), (200, 0.65), (250, 0.66))]
    told = story(*(line(at_s, event) for at_s, event in enumerate(said, 1)))
    assert [(one.samples, one.auc) for one in told.evaluations] == [(100, 0.6), (200, 0.65), (250, 0.66)]


def test_evaluations_without_an_auc_are_listed() -> None:
    told = story(line(1, evaluated(10, None, 0.5)), line(2, EvaluationStarted(20, "half of it")))
    assert [(one.samples, one.auc, one.logloss) for one in told.evaluations] == [(10, None, 0.5)]


def test_faults_and_their_recovery_times() -> None:
    told = story(
        line(1, lost(worker())),
        line(1.1, ProcessReady(worker(1))),
        line(1.5, ProcessReady(worker(incarnation=2))),
        line(2, BatchTorn(worker())),
        line(3, lost(server())),
        line(50, STARTED),
        line(51, ProcessReady(server(incarnation=2))),
    )
    assert [(one.note.kind, one.back_after_s) for one in told.faults] == [
        ("process_lost", 0.5),
        ("batch_torn", None),
        ("process_lost", None),
    ]
    assert told.fault_counts == {"process_lost": 2, "batch_torn": 1}


def test_of_very_many_decisions_the_first_and_last_are_listed() -> None:
    count = MOST_LISTED + 100
    begun = [CheckpointStarted(at_s, f"number {at_s}") for at_s in range(count)]
    told = story(*(line(event.cut, event) for event in begun))
    assert (len(told.decisions), told.decisions_left_out) == (MOST_LISTED, 100)
    assert (told.decisions[0].text, told.decisions[-1].text) == (text_of(begun[0]), text_of(begun[-1]))


def test_threads_are_those_of_workers() -> None:
    told = story(line(1, ProcessRepinning(worker(), (0, 1), 2)), line(2, ProcessRepinning(server(), (0, 1, 2, 3), 4)))
    assert told.threads == ((1.0, 2),)


def test_only_changes_of_the_plan_are_listed_as_plans() -> None:
    told = story(
        line(1, TunerDecided(FASTER)), line(2, reached(2, 1, 0.1)), line(3, TunerOff("tuner.mode: the plan stays"))
    )
    assert told.plans == ()


def test_decisions_of_the_tuner() -> None:
    chapters = chapters_of(
        [
            line(0, STARTED),
            line(1, TunerOff("tuner.mode = off, so the first plan stays")),
            line(2, TunerDecided(FASTER)),
            line(3, TunerDecided(FASTER, only_watches=True)),
        ]
    )
    assert list(tuner_decisions_of(chapters, axis_of(chapters, []))) == [(2.0, FASTER)]
