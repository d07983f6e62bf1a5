"""An action that failed for lack of memory waits longer each time, or until memory is free. Only the first failure is
reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.supervisor.core.backoff import (
    FREED_BYTES,
    MOST_S,
    Failed,
    Retries,
    failed,
    may_try,
    succeeded,
    waits_s,
)

HOST, OTHER = "host 1", "host 2"


def test_the_wait_doubles_with_each_failure_up_to_ten_minutes() -> None:
    retries, now_s, waits = Retries(), 0.0, list[float]()
    for _ in range(8):
        retries, _ = failed(retries, HOST, now_s)
        waits.append(waits_s(retries, HOST, now_s))
        assert not may_try(retries, HOST, now_s + waits[-1] - 0.1)
        now_s += waits[-1]
        assert may_try(retries, HOST, now_s)
        assert may_try(retries, OTHER, now_s)
    assert waits == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0, 600.0]


@pytest.mark.parametrize("times", [1024, 1025, 10_000])
def test_a_wait_stays_the_longest_one_for_any_number_of_failures(times: int) -> None:
    retries = Retries({HOST: Failed(times - 1, 0.0)})
    assert waits_s(failed(retries, HOST, 0.0)[0], HOST, 0.0) == MOST_S


def test_only_the_first_failure_since_a_success_is_reported() -> None:
    retries, news = failed(Retries(), HOST, 0.0)
    retries, again = failed(retries, HOST, 100.0)
    assert (news, again) == (True, False)
    retries = succeeded(retries, HOST)
    assert may_try(retries, HOST, 100.0)
    retries, news = failed(retries, HOST, 200.0)
    assert news and waits_s(retries, HOST, 200.0) == 30.0


@given(st.integers(-(1 << 40), 1 << 40), st.integers(0, 2 * FREED_BYTES))
def test_memory_that_became_free_shortens_the_wait(left: int, freed: int) -> None:
    retries, _ = failed(Retries(), HOST, 0.0, left)
    assert may_try(retries, HOST, 1.0, left + freed) == (freed >= FREED_BYTES)
    assert not may_try(retries, HOST, 1.0, left - freed)
    assert not may_try(retries, HOST, 1.0), "the free memory is not known"
