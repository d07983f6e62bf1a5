"""What a journal tells."""

from __future__ import annotations

from elastichost.metrics import JournalEvent
from elastichost.reporting.facts import Story
from elastichost.reporting.sessions import axis_of, chapters_of
from elastichost.reporting.story import MOST_LISTED, story_of, tuner_decisions_of
from tests.reporting.remains import event


def story(*events: JournalEvent) -> Story:
    chapters = chapters_of([event(0, "run_started"), *events])
    return story_of(chapters, axis_of(chapters, []))


def test_plans_and_what_they_came_to() -> None:
    told = story(
        event(1, "decision", "plan: cold start", workers=2, servers=1, access="direct"),
        event(5, "decision", "plan: try 1 worker", workers=1, servers=1, access="direct"),
        event(6, "scaled", "workers 2 -> 1 in 9 ms"),
        event(7, "decision", "starting worker-0.1 (in the plan, not running)"),
    )
    assert [(one.number, one.at_s, one.workers, one.outcome) for one in told.plans] == [
        (1, 1.0, 2, ""),
        (2, 5.0, 1, "workers 2 -> 1 in 9 ms"),
    ]
    assert told.plans[1].reason == "try 1 worker"
    assert len(told.decisions) == 3


def test_spans_end_with_their_event_or_with_their_session() -> None:
    told = story(
        event(1, "decision", "checkpoint: every 60 s"),
        event(2, "decision", "evaluate: half of it"),
        event(3, "evaluation", "auc 0.7", samples=10, auc=0.7),
        event(4, "checkpoint_failed", "no space"),
        event(8, "decision", "checkpoint: every 60 s"),
        event(9, "ready"),
        event(50, "run_started"),
        event(60, "ready"),
    )
    assert [(one.kind, one.at_s, one.until_s) for one in told.spans] == [
        ("evaluation", 2.0, 3.0),
        ("checkpoint", 1.0, 4.0),
        ("checkpoint", 8.0, 9.0),
    ]
    assert "its end was not seen" in told.spans[2].text


def test_evaluations_without_an_auc_are_evaluations() -> None:
    told = story(event(1, "evaluation", samples=10, auc=None, logloss=0.5), event(2, "evaluation", samples="many"))
    assert [(one.samples, one.auc, one.logloss) for one in told.evaluations] == [(10, None, 0.5)]


def test_faults_and_how_soon_they_were_mended() -> None:
    told = story(
        event(1, "process_lost", "worker-0.1 was lost", "worker-0"),
        event(1.1, "ready", "worker-1.1 is ready", "worker-1"),
        event(1.5, "ready", "worker-0.2 is ready", "worker-0"),
        event(2, "torn_batch", "1 batch", "worker-0"),
        event(3, "process_lost", "server-0.1 was lost", "server-0"),
        event(50, "run_started"),
        event(51, "ready", "server-0.2 is ready", "server-0"),
    )
    assert [(one.note.kind, one.back_after_s) for one in told.faults] == [
        ("process_lost", 0.5),
        ("torn_batch", None),
        ("process_lost", None),
    ]
    assert told.fault_counts == {"process_lost": 2, "torn_batch": 1}


def test_of_very_many_the_first_and_the_last_are_listed() -> None:
    count = MOST_LISTED + 100
    told = story(*(event(at_s, "decision", f"checkpoint: {at_s}") for at_s in range(count)))
    assert (len(told.decisions), told.decisions_left_out) == (MOST_LISTED, 100)
    assert (told.decisions[0].text, told.decisions[-1].text) == ("checkpoint: 0", f"checkpoint: {count - 1}")


def test_threads_are_those_of_workers() -> None:
    told = story(
        event(1, "decision", "worker-0 moves", "worker-0", threads=2),
        event(2, "decision", "server-0 moves", "server-0", threads=4),
    )
    assert told.threads == ((1.0, 2),)


def test_data_of_another_shape_is_no_plan() -> None:
    told = story(event(1, "decision", "plan: odd", workers="two"), event(2, "decision", "plan: none"))
    assert told.plans == ()


def test_decisions_of_the_tuner() -> None:
    chapters = chapters_of(
        [
            event(0, "run_started"),
            event(1, "decision", "tuner: off (tuner.mode): the first plan stays"),
            event(2, "decision", "tuner: it is faster", configuration={"workers": 1, "servers": 1}),
        ]
    )
    ((at_s, reason, data),) = tuner_decisions_of(chapters, axis_of(chapters, []))
    assert (at_s, reason, data) == (2.0, "it is faster", {"configuration": {"workers": 1, "servers": 1}})
