"""The cost of a fault, computed from the number of samples over time."""

from __future__ import annotations

import pytest

from benchmarks.recovery.course import Course, full_rate_s, goodput_at, lost_s, rate_between


def course(*parts: tuple[float, float], step_s: float = 0.01) -> Course:
    """A course of parts (seconds, samples/s), recorded every 10 ms."""
    found, now_s, samples = Course(), 0.0, 0.0
    found.note(0.0, 0)
    for seconds, rate in parts:
        for _ in range(round(seconds / step_s)):
            now_s, samples = now_s + step_s, samples + rate * step_s
            found.note(now_s, round(samples))
    return found


def test_half_the_speed_for_a_second_is_half_a_second_lost() -> None:
    found = course((2.0, 1000), (1.0, 500), (3.0, 1000))
    assert rate_between(found, 0.5, 1.5) == pytest.approx(1000, rel=0.01)
    assert lost_s(found, 2.0, 5.0, 1000.0) == pytest.approx(0.5, abs=0.02)
    assert full_rate_s(found, 2.0, 1000.0, 5.0) == pytest.approx(1.0, abs=0.05)
    assert goodput_at(0.5, 60.0) == pytest.approx(1 - 0.5 / 60)


def test_the_full_rate_counts_after_the_dip_and_not_before_it() -> None:
    found = course((2.5, 1000), (0.5, 0), (3.0, 1000))
    assert full_rate_s(found, 2.0, 1000.0, 5.5) == pytest.approx(1.0, abs=0.05)
    assert full_rate_s(course((6.0, 1000)), 2.0, 1000.0, 5.0) == 0.0
    assert full_rate_s(course((2.0, 1000), (4.0, 500)), 2.0, 1000.0, 5.0) is None


def test_a_moment_that_was_not_noted_has_no_samples() -> None:
    with pytest.raises(ValueError, match="outside of the recorded time"):
        course((1.0, 10)).at(2.0)
    with pytest.raises(ValueError, match="outside of the recorded time"):
        Course().at(0.0)
