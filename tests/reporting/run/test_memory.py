"""Memory in a report: the budget, forecasts, actions and their effects."""

from __future__ import annotations

from pathlib import Path

from elastichost.reporting.run.assemble import read_report
from elastichost.reporting.run.facts import MemoryStep, Report
from elastichost.reporting.run.memory import MOST_STEPS, budget_bytes_of, memory_steps_of
from elastichost.reporting.run.sessions import axis_of, chapters_of
from elastichost.reporting.run.view.page import page_of
from elastichost.runs.events import (
    AnyEvent,
    ForkServerThreads,
    JournalLine,
    LookupsWithoutRow,
    MemoryActed,
    MemoryActionMeasured,
    MemoryBudgetLent,
    MemoryBudgetSet,
    MemoryForecastFailed,
    MemoryFreed,
    MemoryFull,
    MemoryMoveRefused,
    MemoryWarned,
    RunEnded,
)
from elastichost.runs.events.text import text_of
from elastichost.tuner.memory.facts import HostMemorySample, MemoryDecision, MemoryKind, MemorySample
from elastichost.tuner.records import MemoryLooked, MemoryOpened
from tests.reporting.remains import BEGAN_S, NOW, STARTED, line, write_journal, write_lines, write_run

MEASURED = MemoryActionMeasured("evict", 3e6, 9e7, samples=9000, dropped_rows=500, rounds=2, left_out=0, horizon=8192)


def budget_set(host: int, budget_bytes: int) -> MemoryBudgetSet:
    return MemoryBudgetSet(host, budget_bytes, 10 * 10**6, 20 * 10**6, 5 * 10**6, 865 * 10**6)


def acted(action: MemoryKind, reason: str, chance: float, exceeds_in_s: float | None) -> MemoryActed:
    return MemoryActed(action, 0, reason, chance, 600.0, exceeds_in_s)


def told() -> list[JournalLine]:
    """The journal of a run with budget, actions, effects and notes."""
    return [
        line(0, STARTED),
        line(1, budget_set(0, 9 * 10**8)),
        line(2, acted("evict", "rows unseen for 8192 samples are dropped", 0.6, 95.0)),
        line(3, acted("evict", "rows unseen for 7000 samples are dropped", 0.3, None)),
        line(4, acted("admit", "an id gets a row at its 2. sighting", 0.3, 40)),
        line(5, MemoryFull(0, 9 * 10**8, 1, 2, 3, is_files=False)),
        line(6, ForkServerThreads(2)),
        line(7, MEASURED),
        line(8, MemoryFreed(7)),
        line(9, MemoryWarned(0, "memory will not suffice in about 9 s", 1.0, 600.0, 9.0)),
        line(10, MemoryMoveRefused(0, too_few=False)),
        line(11, RunEnded("done")),
    ]


def steps(lines: list[JournalLine]) -> tuple[MemoryStep, ...]:
    """The memory steps of a journal."""
    chapters = chapters_of(lines)
    return memory_steps_of(chapters, axis_of(chapters, []))


def test_memory_steps_are_in_order_with_their_effects() -> None:
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
    assert [bool(one.effect) for one in found] == [False, True, *[False] * 6], "one effect covers both evictions"
    assert found[1].effect == text_of(MEASURED)
    assert "+2.9 MiB within 9,000 samples; the forecast without it was +85.8 MiB" in found[1].effect
    assert [one.text for one in found] == [text_of(told()[int(one.at_s)].event) for one in found]
    assert "budget 858.3 MiB; rows 9.5 MiB" in found[0].text


def test_other_memory_events_are_notes() -> None:
    events: tuple[AnyEvent, ...] = (
        MemoryMoveRefused(0, too_few=True),
        MemoryForecastFailed("ValueError", "no such table"),
        LookupsWithoutRow(100, 50, "50 of 100 lookups found no row"),
    )
    found = steps([line(0, STARTED), *(line(at, event) for at, event in enumerate(events, start=1))])
    assert [(one.kind, one.text) for one in found] == [("note", text_of(event)) for event in events]


def test_an_effect_of_another_session_belongs_to_no_action_of_this_one() -> None:
    begun = [line(0, STARTED), line(1, acted("evict", "rows are dropped", 1.0, None))]
    later = [line(100, STARTED), line(101, MEASURED)]
    assert [one.effect for one in steps([*begun, *later])] == [""]


def test_of_very_many_steps_the_first_and_last_are_kept() -> None:
    many = [MemoryForecastFailed("ValueError", f"number {at}") for at in range(3 * MOST_STEPS)]
    found = steps([line(0, STARTED), *(line(at, event) for at, event in enumerate(many))])
    assert len(found) == MOST_STEPS
    assert (found[0].text, found[-1].text) == (text_of(many[0]), text_of(many[-1]))


def test_budgets_of_all_hosts_add_up_and_the_last_session_counts() -> None:
    first = [line(0, STARTED), line(1, budget_set(0, 100)), line(1, budget_set(1, 200))]
    assert budget_bytes_of(chapters_of(first)) == 300
    again = [*first, line(50, STARTED), line(51, budget_set(0, 150))]
    assert budget_bytes_of(chapters_of(again)) == 350
    assert budget_bytes_of(chapters_of([*again, line(52, MemoryBudgetLent(90))])) == 290
    assert budget_bytes_of(chapters_of([line(0, STARTED)])) is None


def read(run: Path) -> Report:
    return read_report(run, is_running=False, now_utc=NOW)


def test_the_page_shows_memory_steps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_journal(run, *told())
    looks = [
        MemoryLooked(
            BEGAN_S + at_s,
            MemorySample(1, 1, 1.0, 0.0, 1.0, 0.0, 0.0, (HostMemorySample(0, 9 * 10**8, used, 0.0, 1.0),)),
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
        "Forecasts and actions",
        "The job may use 858.3 MiB. At most 800.0 MiB of that were in use",
        "rows dropped",
        "rows unseen for 8192 samples are dropped",
        "+2.9 MiB within 9,000 samples",
        "1m35s",
        "ids admitted later",
        "memory full",
        "memory will not suffice in about 9 s",
    ):
        assert words in page, words


def test_a_run_without_memory_events_has_no_memory_table(tmp_path: Path) -> None:
    report = read(write_run(tmp_path / "run"))
    assert report.memory.steps == ()
    assert "Forecasts and actions" not in page_of(report)
