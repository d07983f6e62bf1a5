"""The bytes that may be held ahead: the bound holds for every order of calls and for a bound that changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.datasets.sources.budget import ByteBudget

STEPS = st.lists(st.tuples(st.sampled_from(["take", "release", "limit"]), st.integers(0, 100)), max_size=60)


@given(limit=st.integers(0, 200), steps=STEPS)
def test_no_more_than_the_bound_is_ever_granted(limit: int, steps: list[tuple[str, int]]) -> None:
    budget, held = ByteBudget(limit), []
    for step, size in steps:
        if step == "take" and budget.take(size):
            held.append(size)
            assert budget.held_bytes <= budget.limit_bytes
        elif step == "release" and held:
            budget.release(held.pop())
        elif step == "limit":
            budget.limit(size)
        assert budget.held_bytes == sum(held)
    assert budget.most_bytes >= budget.held_bytes


def test_a_lower_bound_grants_nothing_until_enough_was_released() -> None:
    budget = ByteBudget(100)
    assert budget.take(80)
    budget.limit(50)
    assert not budget.take(1)
    budget.release(40)
    assert budget.take(10) and not budget.take(1)


def test_a_wrong_size_is_refused() -> None:
    budget = ByteBudget(10)
    with pytest.raises(ValueError, match="negative"):
        budget.take(-1)
    with pytest.raises(ValueError, match="released"):
        budget.release(1)
