"""The wait before something that failed is tried again."""

from __future__ import annotations

import pytest

from elastichost.clock.backoff import backoff_s


def test_the_wait_doubles_with_each_failure_up_to_a_limit() -> None:
    assert [backoff_s(times, 0.1, 5.0) for times in (1, 2, 3, 6, 7)] == [0.1, 0.2, 0.4, 3.2, 5.0]
    assert [backoff_s(times, 1.0, 30.0) for times in (1, 2, 3, 5, 6)] == [1.0, 2.0, 4.0, 16.0, 30.0]


@pytest.mark.parametrize("times", [64, 1024, 1025, 10_000])
def test_the_wait_stays_the_longest_one_for_any_number_of_failures(times: int) -> None:
    """2.0 ** 1024 is no float."""
    assert backoff_s(times, 1e-3, 60.0) == 60.0
