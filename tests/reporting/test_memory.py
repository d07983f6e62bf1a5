"""What a report tells of memory: the budget, what was foreseen, what was done, and what that did."""

from __future__ import annotations

from pathlib import Path

from elastichost.metrics import JournalEvent
from elastichost.reporting.assemble import read_report
from elastichost.reporting.facts import MemoryStep, Report
from elastichost.reporting.memory import MOST_STEPS, budget_bytes_of, memory_steps_of
from elastichost.reporting.page import page_of
from elastichost.reporting.sessions import axis_of, chapters_of
from elastichost.tuner.memory_facts import HostLook, MemoryDecision, MemoryLook
from elastichost.tuner.records import MemoryLooked, MemoryOpened
from tests.reporting.remains import BEGAN_S, NOW, event, write_events, write_lines, write_run

DROPPED = "what dropping rows did: +3.0 MB in the 9,000 samples since, where +90.0 MB were to be expected"


def told() -> list[JournalEvent]:
    return [
        event(0, "run_started"),
        event(1, "budget", "memory: 900.0 MB may be used; rows take 10.0 MB", host=0, budget_bytes=9 * 10**8),
        event(2, "memory", "rows unseen for 8192 samples are dropped", kind="evict", chance=0.6, exceeds_in_s=95.0),
        event(3, "memory", "rows unseen for 7000 samples are dropped", kind="evict", chance=0.3, exceeds_in_s=None),
        event(4, "memory", "an id gets a row at its 2. sighting", kind="admit", chance=0.3, exceeds_in_s=40),
        event(5, "warning", "memory: all of the 900.0 MB is used", host=0, used_bytes=1, private_bytes=2),
        event(6, "warning", "the fork server has 2 threads"),
        event(7, "memory", DROPPED, kind="evict", grown_bytes=3e6, expected_bytes=9e7),
        event(8, "memory", "new ids get rows again; 7 sightings went without one", left_out=7),
        event(9, "warning", "memory: memory will not suffice in about 9 s", kind="warn", chance=1.0, exceeds_in_s=9.0),
        event(10, "memory", "buckets do not move now: something else is changing hands"),
        event(11, "run_ended", "done"),
    ]


def steps(events: list[JournalEvent]) -> tuple[MemoryStep, ...]:
    chapters = chapters_of(events)
    return memory_steps_of(chapters, axis_of(chapters, []))


def test_what_was_told_is_in_order_and_what_an_action_did_is_with_it() -> None:
    found = steps(told())
    kinds = [(one.at_s, one.kind) for one in found]
    assert kinds == [
        (1.0, "budget"),
        (2.0, "evict"),
        (3.0, "evict"),
        (4.0, "admit"),
        (5.0, "full"),
        (8.0, "free"),
        (9.0, "warn"),
        (10.0, "note"),
    ]
    assert [(one.exceeds_in_s, one.chance) for one in found[1:4]] == [(95.0, 0.6), (None, 0.3), (40.0, 0.3)]
    assert [bool(one.effect) for one in found] == [False, True, *[False] * 6], "both of the evictions were measured so"
    assert found[1].effect.startswith("+3.0 MB")
    assert found[0].text == "900.0 MB may be used; rows take 10.0 MB"


def test_an_effect_of_another_session_belongs_to_no_action_of_this_one() -> None:
    begun = [event(0, "run_started"), event(1, "memory", "rows are dropped", kind="evict", chance=1.0)]
    later = [event(100, "run_started"), event(101, "memory", DROPPED, kind="evict", grown_bytes=1.0)]
    assert [one.effect for one in steps([*begun, *later])] == [""]


def test_of_very_many_the_first_and_the_last_are_told() -> None:
    many = [event(at, "memory", f"number {at}") for at in range(3 * MOST_STEPS)]
    found = steps([event(0, "run_started"), *many])
    assert len(found) == MOST_STEPS
    assert (found[0].text, found[-1].text) == ("number 0", f"number {3 * MOST_STEPS - 1}")


def test_budgets_of_all_hosts_add_up_and_the_last_session_counts() -> None:
    def budget(at: float, host: int, size: int) -> JournalEvent:
        return event(at, "budget", "memory: so much", host=host, budget_bytes=size)

    first = [event(0, "run_started"), budget(1, 0, 100), budget(1, 1, 200)]
    assert budget_bytes_of(chapters_of(first)) == 300
    assert budget_bytes_of(chapters_of([*first, event(50, "run_started"), budget(51, 0, 150)])) == 350
    assert budget_bytes_of(chapters_of([event(0, "run_started")])) is None


def read(run: Path) -> Report:
    return read_report(run, is_running=False, now_utc=NOW)


def test_the_page_tells_it_in_plain_words(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_events(run, *told())
    looks = [
        MemoryLooked(
            BEGAN_S + at_s,
            MemoryLook(1, 1, 1.0, 0.0, 1.0, 0.0, 0.0, (HostLook(0, 9 * 10**8, used, 0.0, 1.0),)),
            MemoryDecision("stay", ""),
        )
        for at_s, used in ((2.0, 500 << 20), (3.0, 800 << 20), (4.0, 700 << 20))
    ]
    write_lines(run / "decisions.jsonl", [MemoryOpened(), *looks])
    report = read(run)
    assert report.memory.budget_bytes == 9 * 10**8
    assert report.memory.peak_used_bytes == 800 << 20
    page = page_of(report)
    for words in (
        "What was foreseen, and what was done",
        "The job may use 858.3 MiB. Of that at most 800.0 MiB were taken",
        "rows dropped",
        "rows unseen for 8192 samples are dropped",
        "+3.0 MB in the 9,000 samples since",
        "1m35s",
        "ids admitted later",
        "all is used",
        "memory will not suffice in about 9 s",
    ):
        assert words in page, words


def test_a_run_of_which_nothing_was_told_has_no_such_table(tmp_path: Path) -> None:
    report = read(write_run(tmp_path / "run"))
    assert report.memory.steps == ()
    assert "What was foreseen" not in page_of(report)
