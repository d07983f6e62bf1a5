"""The virtual cores and the link of an emulated PS: order of service, conservation of work, and Lindley's recursion."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.emulation.prices import Price
from elastichost.emulation.server_queue import ServerQueue

FAR_S = 1e6
times = st.floats(0.0, 2.0, allow_nan=False).map(lambda value: round(value, 3))
prices = st.builds(
    Price, times, st.just(0.05), times.map(lambda s: s / 10), times.map(lambda s: s / 50), times.map(lambda s: s / 50)
)


def price(sent_s: float, service_s: float, *, in_s: float = 0.0, out_s: float = 0.0, latency_s: float = 0.0) -> Price:
    """The price of a request; what is not given costs nothing."""
    return Price(sent_s, latency_s, service_s, in_s, out_s)


def test_one_core_serves_one_after_another() -> None:
    queue: ServerQueue[str] = ServerQueue(1)
    for name in "abc":
        queue.admit(price(0.0, 1.0, latency_s=0.25), name)
    assert queue.advance(10.0) == [(1.5, "a"), (2.5, "b"), (3.5, "c")]
    assert queue.next_s == math.inf


def test_as_many_cores_as_requests_serve_all_at_once() -> None:
    queue: ServerQueue[int] = ServerQueue(3)
    for number in range(3):
        queue.admit(price(0.0, 1.0), number)
    assert [done_s for done_s, _ in queue.advance(1.0)] == [1.0, 1.0, 1.0]


def test_the_core_is_free_for_others_while_a_push_is_on_the_link() -> None:
    queue: ServerQueue[str] = ServerQueue(1)
    queue.admit(price(0.0, 1.0, in_s=5.0), "push")
    queue.admit(price(1.0, 1.0), "pull")
    assert queue.advance(10.0) == [(2.0, "pull"), (6.0, "push")]


def test_each_direction_of_the_link_is_a_queue_of_its_own() -> None:
    queue: ServerQueue[str] = ServerQueue(8)
    for name in "ab":
        queue.admit(price(0.0, 0.0, in_s=1.0), f"push {name}")
        queue.admit(price(0.0, 0.0, out_s=1.0), f"pull {name}")
    assert {name: done_s for done_s, name in queue.advance(10.0)} == {
        "push a": 1.0,
        "push b": 2.0,
        "pull a": 1.0,
        "pull b": 2.0,
    }


def test_added_cores_serve_what_waits_and_removed_cores_finish_what_they_have() -> None:
    queue: ServerQueue[int] = ServerQueue(1)
    for number in range(4):
        queue.admit(price(0.0, 10.0), number)
    assert queue.advance(1.0) == []
    queue.resize(3, 1.0)
    assert queue.advance(12.0) == [(10.0, 0), (11.0, 1), (11.0, 2)]
    queue.resize(1, 12.0)
    assert queue.advance(20.0) == [(20.0, 3)]


def test_worked_time_counts_work_that_was_done_and_not_work_to_come() -> None:
    queue: ServerQueue[int] = ServerQueue(2)
    for number in range(3):
        queue.admit(price(0.0, 2.0), number)
    seen = []
    for now_s in (0.0, 1.0, 2.0, 3.0, 9.0):
        queue.advance(now_s)
        seen.append(queue.worked_s(now_s))
    assert seen == [0.0, 2.0, 4.0, 5.0, 6.0]


@given(st.lists(prices, min_size=1, max_size=30), st.integers(1, 4), st.lists(times, max_size=8))
def test_the_answers_do_not_depend_on_when_the_queue_is_advanced(
    asked: list[Price], cores: int, looks: list[float]
) -> None:
    """One `advance` at the end returns the same answers as several before it."""
    at_once: ServerQueue[int] = ServerQueue(cores)
    looked_at: ServerQueue[int] = ServerQueue(cores)
    for number, one in enumerate(asked):
        at_once.admit(one, number)
        looked_at.admit(one, number)
    found = [answer for now_s in sorted(looks) for answer in looked_at.advance(now_s)] + looked_at.advance(FAR_S)
    assert found == at_once.advance(FAR_S)


@given(st.lists(prices, min_size=1, max_size=40), st.integers(1, 5))
def test_each_request_is_done_once_not_before_its_time_and_work_is_conserved(asked: list[Price], cores: int) -> None:
    queue: ServerQueue[int] = ServerQueue(cores)
    for number, one in enumerate(asked):
        queue.admit(one, number)
    found = {number: done_s for done_s, number in queue.advance(FAR_S)}
    assert sorted(found) == list(range(len(asked)))
    for number, one in enumerate(asked):
        least_s = one.sent_s + one.in_s + one.service_s + one.out_s + 2 * one.latency_s
        assert found[number] >= least_s - 1e-9
    total_s = sum(one.service_s for one in asked)
    assert queue.worked_s(FAR_S) == pytest.approx(total_s)
    assert max(found.values()) >= total_s / cores
    # No core idles while a request waits: all are done no later than if all came last, at one core
    latest_s = max(one.sent_s for one in asked) + sum(one.in_s + one.out_s for one in asked) + 2 * 0.05
    assert max(found.values()) <= latest_s + total_s + 1e-9


@given(st.lists(times, min_size=1, max_size=30), st.lists(times, min_size=30, max_size=30))
def test_one_core_is_lindleys_recursion(gaps: list[float], services: list[float]) -> None:
    """done_n = max(came_n, done_(n-1)) + service_n."""
    queue: ServerQueue[int] = ServerQueue(1)
    came = list(accumulate(gaps))
    expected, free_s = [], 0.0
    for number, (at_s, service_s) in enumerate(zip(came, services, strict=False)):
        queue.admit(price(at_s, service_s), number)
        free_s = max(at_s, free_s) + service_s
        expected.append(free_s)
    assert [done_s for done_s, _ in queue.advance(FAR_S)] == pytest.approx(expected)
