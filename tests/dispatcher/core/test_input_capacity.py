"""The capacity of a shared source is found from jobs that wait at the same time, and from nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.dispatcher.core.input_capacity import FRESH_S, InputCapacity, JobReading

MB = 1e6


def reading(job: str, mb_per_s: float, at_s: float = 0.0, **facts: object) -> JobReading:
    """By default of one worker that waits most of its time."""
    given = {"twin": "disk", "workers": 1, "wait_share": 0.9, "core_wait_share": 0.0, "seconds": 2.0}
    given |= {"cpu_s_per_byte": 1e-9, **facts}
    return JobReading(job=job, bytes_per_s=mb_per_s * MB, at_s=at_s, **given)  # type: ignore[arg-type]


def after(*readings: JobReading) -> InputCapacity:
    found = InputCapacity()
    for one in readings:
        found.take(one)
    return found


def test_one_job_shows_no_limit_of_others() -> None:
    assert after(reading("a", 10)).bytes_per_s() is None
    assert InputCapacity().bytes_per_s() is None


def test_connections_that_are_limited_each_show_no_shared_limit() -> None:
    found = after(reading("a", 10), reading("a", 10, 2), reading("b", 10, 2), reading("c", 9.5, 3))
    assert found.bytes_per_s() is None


def test_two_jobs_that_get_half_each_show_a_full_source() -> None:
    found = after(reading("a", 10), reading("a", 5, 6), reading("b", 5, 6.1))
    assert found.bytes_per_s() == pytest.approx(10 * MB)


def test_a_source_that_gives_more_again_is_not_taken_for_full() -> None:
    found = after(reading("a", 50), reading("a", 2.5, 6), reading("b", 2.5, 6.1))
    assert found.bytes_per_s() == pytest.approx(5 * MB)
    found.take(reading("c", 5.5, 20))
    assert found.bytes_per_s() == pytest.approx(5 * MB), "so much more is noise"
    for at_s, mb_per_s in ((24, 25), (25, 5), (26, 25), (31, 25)):
        found.take(reading("c", mb_per_s, at_s, seconds=1.0))
        assert found.bytes_per_s() == pytest.approx(5 * MB), "a source that was held up makes up for it once"
    found.take(reading("c", 25, 32, seconds=1.0))
    assert found.bytes_per_s() is None
    together = after(reading("a", 50), reading("a", 2.5, 6), reading("b", 2.5, 6.1))
    for at_s in (30, 32):
        for job in "ab":
            together.take(reading(job, 4, at_s))
    assert together.bytes_per_s() == pytest.approx(8 * MB), "what both read together is known anew"


def test_readings_of_different_moments_are_not_added() -> None:
    """The first reading of `b` covers no moment at which `a` had the source alone."""
    found = after(reading("a", 10, 2), reading("b", 5, 4), reading("a", 5, 4.5), reading("b", 5, 6))
    assert found.bytes_per_s() == pytest.approx(10 * MB)


def test_jobs_that_began_at_once_teach_it_when_some_have_ended() -> None:
    found = after(*(reading(job, 2.5, 1) for job in "abcd"))
    assert found.bytes_per_s() is None
    found.take(reading("a", 10, 1 + 2 * FRESH_S))
    assert found.bytes_per_s() == pytest.approx(10 * MB)


def test_a_second_reader_of_the_same_job_that_brings_nothing_shows_it() -> None:
    assert after(reading("a", 10), reading("a", 10, 6, workers=2)).bytes_per_s() == pytest.approx(10 * MB)


def test_jobs_that_do_not_wait_or_do_not_read_show_nothing() -> None:
    assert after(reading("a", 10), reading("a", 4, 6, wait_share=0.1), reading("b", 4, 6.1)).bytes_per_s() is None
    assert after(reading("a", 10), reading("a", 0.001, 6), reading("b", 0.001, 6)).bytes_per_s() is None


def test_readers_that_compute_at_their_peak_show_nothing_of_a_source() -> None:
    """At 10 MB/s such a reader keeps a core busy. Four of them on two cores get half each."""
    each = 1 / (10 * MB)
    busy = after(reading("a", 10), *(reading(job, 5, 6, cpu_s_per_byte=each) for job in "abcd"))
    assert busy.bytes_per_s() is None and not busy.is_contested("e", 6.0)
    idle = after(reading("a", 10), *(reading(job, 5, 6) for job in "abcd"))
    assert idle.bytes_per_s() is not None and idle.is_contested("e", 6.0)


def test_readers_without_a_core_are_expected_to_read_less() -> None:
    def shared(each: float, lacking: float) -> InputCapacity:
        return after(reading("a", 10), *(reading(job, each, 6, core_wait_share=lacking) for job in "ab"))

    assert shared(7, 0.0).bytes_per_s() == pytest.approx(14 * MB)
    assert shared(7, 0.2).bytes_per_s() is None, "they lacked cores, and read what is left of their peaks"
    assert shared(5, 0.2).bytes_per_s() == pytest.approx(10 * MB)
    assert shared(3, 0.6).bytes_per_s() is None, "the source may have been without a request most of the time"
    one_has_cores = after(reading("a", 10), reading("a", 7, 6), reading("b", 3, 6, core_wait_share=0.6))
    assert one_has_cores.bytes_per_s() == pytest.approx(10 * MB)


def test_a_peak_without_a_core_is_expected_again_with_as_little() -> None:
    """The reader had 8 MB/s although it lacked a core for half of the time, so two of them could have 16 MB/s."""
    peak = reading("a", 8, core_wait_share=0.5)
    found = after(peak, *(reading(job, 5, 6, core_wait_share=0.4) for job in "ab"))
    assert found.bytes_per_s() == pytest.approx(10 * MB)


def test_moments_at_which_readers_were_held_up_do_not_lower_the_capacity() -> None:
    """Half of the windows show less than the source gives: what held the readers up is not known."""
    found = InputCapacity()
    for turn in range(10):
        each = 5.0 if turn % 2 else 2.5
        for job in "ab":
            found.take(reading(job, each if turn else 10.0, 3.0 * turn))
    assert found.bytes_per_s() == pytest.approx(10 * MB)


def test_bytes_that_a_job_read_alone_are_not_added_to_those_of_a_job_that_came_later() -> None:
    """The reading of `a` from 4 s to 7 s is half alone: 7.5 MB/s, beside 5 MB/s of `b` from 5.5 s on."""
    found = after(reading("a", 10, 4), reading("a", 7.5, 7, seconds=3.0), reading("b", 5, 7.5))
    assert found.bytes_per_s() is None
    for one in (reading("a", 5, 9), reading("b", 5, 9.5)):
        found.take(one)
    assert found.bytes_per_s() == pytest.approx(10 * MB)


def test_no_window_counts_while_a_job_reads_of_which_nothing_is_known() -> None:
    found = after(reading("a", 10))
    for job in "ab":
        found.take(reading(job, 3, 6), others="abc")
    assert found.bytes_per_s() is None, "the third part of the source is missing"
    assert found.is_contested("a", 6.0, others="bc")
    lonely = after(reading("a", 10))
    assert not lonely.is_contested("a", 0.5) and lonely.is_contested("a", 0.5, others="b")


def test_a_source_that_becomes_much_faster_is_measured_anew() -> None:
    """What was known is forgotten between the readings of two jobs, which cover one moment."""
    found = after(reading("a", 100, 2), reading("b", 100, 20))
    for at_s in (40.0, 42.0, 44.0, 46.0, 48.0):
        found.take(reading("a", 50, at_s), {"b"})
        found.take(reading("b", 50, at_s), {"a"})
    assert found.bytes_per_s() == pytest.approx(100 * MB)
    for at_s in (50.0, 52.0, 54.0):
        found.take(reading("a", 140, at_s), {"b"})
        found.take(reading("b", 140, at_s), {"a"})
    known = found.bytes_per_s()
    assert known is None or known > 200 * MB


def test_contested() -> None:
    found = after(reading("a", 10), reading("b", 1, wait_share=0.0))
    assert found.is_contested("b", 1.0) and not found.is_contested("a", 1.0)
    assert not found.is_contested("b", 2 * FRESH_S)


@given(
    capacity=st.floats(1, 100),
    peak=st.floats(1, 100),
    counts=st.lists(st.integers(1, 8), min_size=2, max_size=20),
)
def test_a_source_that_is_full_is_found_and_one_that_is_not_is_not(
    capacity: float, peak: float, counts: list[int]
) -> None:
    """Each reader alone gets `peak` or all of the capacity; n readers get at most the capacity together."""
    found = InputCapacity()
    for turn, many in enumerate((1, *counts)):
        for job in range(many):
            found.take(reading(str(job), min(peak, capacity / many), turn * 2 * FRESH_S))
    alone = min(peak, capacity)
    known = found.bytes_per_s()
    if max(counts) * alone > 2 * capacity:
        assert known == pytest.approx(capacity * MB, rel=1e-6)
    if max(counts) * alone < capacity:
        assert known is None
