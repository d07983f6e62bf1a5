"""Sequence numbers: whatever the order of arrival, items leave in order, each once, none early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.datasets.sources.ordered import SequenceBuffer


@given(arrivals=st.integers(0, 40).flatmap(lambda count: st.permutations(range(count))))
def test_items_leave_in_order_whatever_the_order_of_arrival(arrivals: list[int]) -> None:
    buffer: SequenceBuffer[str] = SequenceBuffer()
    left: list[str] = []
    for count, number in enumerate(arrivals, 1):
        buffer.put(number, f"item {number}")
        left += buffer.pop_due()
        assert len(left) + buffer.waiting == count
        assert buffer.is_due_here is False
    assert left == [f"item {number}" for number in range(len(arrivals))]


def test_a_number_arrives_once() -> None:
    buffer: SequenceBuffer[str] = SequenceBuffer()
    buffer.put(1, "b")
    with pytest.raises(ValueError, match="number 1"):
        buffer.put(1, "b")
    buffer.put(0, "a")
    assert list(buffer.pop_due()) == ["a", "b"]
    with pytest.raises(ValueError, match="number 0"):
        buffer.put(0, "a")
