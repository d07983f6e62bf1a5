"""The sessions of a run on one axis of running time, each directly after the one before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastichost.reporting.run.sessions import axis_of, chapters_of
from elastichost.runs.events import HistoryUnavailable, JournalLine, ProcessReady, Warned
from tests.reporting.remains import BEGAN_S, STARTED, line, worker

READY = ProcessReady(worker())
WARNED = Warned("the job may need more memory")


def test_a_session_begins_with_run_started() -> None:
    chapters = chapters_of([line(0, STARTED), line(5, READY), line(60, STARTED), line(62, READY)])
    assert [len(chapter.lines) for chapter in chapters] == [2, 2]
    axis = axis_of(chapters, [])
    assert [(one.at_s, one.duration_s) for one in axis.sessions] == [(0.0, 5.0), (5.0, 2.0)]
    assert axis.at_s(1, BEGAN_S + 61.5) == 6.5


def test_warnings_before_a_start_belong_to_the_new_session() -> None:
    lines = [line(0, STARTED), line(5, WARNED), line(99, HistoryUnavailable("no space")), line(100, STARTED)]
    chapters = chapters_of(lines)
    assert [[one.kind for one in chapter.lines] for chapter in chapters] == [
        ["run_started", "warned"],
        ["history_unavailable", "run_started"],
    ]


def test_a_journal_may_begin_with_any_event_or_be_empty() -> None:
    assert chapters_of([]) == ()
    (only,) = chapters_of([line(0, WARNED), line(1, STARTED), line(2, READY)])
    assert [one.kind for one in only.lines] == ["warned", "run_started", "process_ready"]
    assert axis_of((), []).total_s == 0.0


def test_a_measured_duration_beyond_the_journal_counts() -> None:
    axis = axis_of(chapters_of([line(0, STARTED), line(5, READY)]), [7.5])
    assert axis.sessions[0].duration_s == 7.5
    assert axis.measured == (0,)


def test_a_session_that_ended_at_once_was_not_measured() -> None:
    starts = [line(at_s, STARTED) for at_s in (0, 20, 40)]
    chapters = chapters_of([starts[0], line(10, READY), starts[1], starts[2], line(50, READY)])
    assert axis_of(chapters, [10.0, 11.0]).measured == (0, 2)


def test_without_a_journal_the_measurements_make_the_sessions() -> None:
    axis = axis_of((), [3.0, 4.0])
    assert [(one.at_s, one.duration_s, one.began_s) for one in axis.sessions] == [(0.0, 3.0, None), (3.0, 4.0, None)]
    assert axis.at_s(1, 123.0) == 3.0


def test_records_are_placed_in_their_session_also_after_a_reboot() -> None:
    late = JournalLine("", 50.0, STARTED)
    chapters = chapters_of([line(0, STARTED), line(10, READY), late, JournalLine("", 60.0, READY)])
    axis = axis_of(chapters, [])
    assert [axis.next_at_s(one) for one in (BEGAN_S + 1, BEGAN_S + 9, 51.0, 59.0)] == [1.0, 9.0, 11.0, 19.0]


@given(
    st.lists(st.lists(st.floats(0, 1e6), min_size=1, max_size=8), min_size=1, max_size=5),
    st.lists(st.floats(0, 1e6), max_size=7),
)
def test_every_line_has_its_place_within_its_session(offsets: list[list[float]], measured_s: list[float]) -> None:
    lines = [
        line(1e7 * number + at_s, STARTED if first else READY)
        for number, times in enumerate(offsets)
        for first, at_s in [(True, 0.0), *((False, one) for one in sorted(times))]
    ]
    chapters = chapters_of(lines)
    axis = axis_of(chapters, measured_s)
    assert len(chapters) == len(offsets)
    assert len(axis.measured) == len(measured_s)
    assert list(axis.measured) == sorted(axis.measured)
    ends = [one.at_s + one.duration_s for one in axis.sessions]
    assert [one.at_s for one in axis.sessions] == [0.0, *ends[:-1]]
    assert axis.total_s == ends[-1]
    for number, chapter in enumerate(chapters):
        places = [axis.at_s(number, one.monotonic_s) for one in chapter.lines]
        assert places == sorted(places)
        assert axis.sessions[number].at_s <= places[0] <= places[-1] <= ends[number]
    in_order = [axis.next_at_s(one.monotonic_s) for one in lines]
    assert in_order == sorted(in_order)
