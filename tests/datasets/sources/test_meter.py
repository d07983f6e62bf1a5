"""CPU and waiting of a stage are counted strictly apart."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.datasets.sources.meter import StageMeter, quantile_of


def spin(cpu_s: float) -> None:
    until_s = time.thread_time() + cpu_s
    while time.thread_time() < until_s:
        pass


def test_a_thread_that_waits_uses_no_cpu_time_and_one_that_computes_waits_for_nothing() -> None:
    meter, wake = StageMeter("decode"), threading.Event()
    with meter.span(items=1) as span:
        began_s = time.perf_counter()
        wake.wait(0.2)
        span.source_s += time.perf_counter() - began_s
    waited = meter.take()
    with meter.span(items=1):
        spin(0.05)
    computed = meter.take()
    assert waited.source_s >= 0.2 and waited.cpu_s < 0.1
    assert computed.cpu_s >= 0.05 and computed.source_s == 0.0


def test_the_parts_of_a_span_add_up_to_its_wall_time() -> None:
    meter = StageMeter("decode")
    began_s = time.perf_counter()
    with meter.span() as span:
        spin(0.02)
        span.full_s += 0.001
        meter.wait_here(source_s=0.002, empty_s=0.003)
        time.sleep(0.01)
    wall_s = time.perf_counter() - began_s
    found = meter.take()
    assert found.full_s == 0.001 and found.source_s == 0.002 and found.empty_s == 0.003
    assert found.cpu_s + found.source_s + found.full_s + found.empty_s + found.other_s <= wall_s + 1e-3


def test_a_wait_counts_in_the_span_of_its_own_thread() -> None:
    meter = StageMeter("decode")
    with meter.span():
        thread = threading.Thread(target=lambda: meter.wait_here(source_s=5.0))
        thread.start()
        thread.join()
    assert meter.take().source_s == 0.0


def test_each_sum_is_taken_once() -> None:
    meter = StageMeter("source")
    meter.add(cpu_s=1.0, source_s=2.0, first_byte_s=0.5, size_bytes=10, items=1, time_s=2.0)
    first, second = meter.take(), meter.take()
    assert (first.cpu_s, first.source_s, first.first_byte_s, first.bytes, first.items) == (1.0, 2.0, 0.5, 10, 1)
    assert (second.cpu_s, second.source_s, second.bytes, second.items) == (0.0, 0.0, 0, 0)
    assert second.p50_s == 2.0  # quantiles are of the newest items


def test_quantiles_are_of_the_times_since_items_take_another_time() -> None:
    meter = StageMeter("source")
    for _ in range(100):
        meter.add(items=1, time_s=9.0)
    meter.forget_times()
    assert meter.take().p50_s == 0.0
    for number in range(100):
        meter.add(items=1, time_s=number / 100)
    found = meter.take()
    assert (found.p50_s, found.p90_s, found.p99_s) == (0.49, 0.89, 0.98)


@given(values=st.lists(st.floats(0, 100), min_size=1), share=st.floats(0, 1))
def test_a_quantile_is_a_measured_value_that_enough_values_do_not_exceed(values: list[float], share: float) -> None:
    found = quantile_of(sorted(values), share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_no_values_have_the_quantile_zero() -> None:
    assert quantile_of([], 0.5) == 0.0
    assert StageMeter("train").take().p99_s == pytest.approx(0.0)
