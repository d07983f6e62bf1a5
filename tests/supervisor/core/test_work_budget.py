"""The supervisor's waits between turns: none while there is little work; much work gets a bounded share of a core."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.supervisor.core.work_budget import BURST_S, MOST_S, SHARE, WorkBudget


def test_a_few_processes_never_wait() -> None:
    pacing = WorkBudget()
    for _ in range(1000):
        assert pacing.rest_s(worked_s=0.001, passed_s=0.02) == 0.0


def test_a_burst_of_work_does_not_wait() -> None:
    """A hand-over has many turns of a millisecond each, until the token bucket is empty."""
    pacing = WorkBudget()
    turns = 0
    while pacing.rest_s(worked_s=0.001, passed_s=0.001) == 0.0:
        turns += 1
    assert turns * 0.001 == pytest.approx(BURST_S / (1 - SHARE), rel=0.05)


@pytest.mark.parametrize("worked_s", [0.001, 0.003])
def test_continuous_work_takes_its_share(worked_s: float) -> None:
    pacing, now_s, total_s, rest_s = WorkBudget(), 0.0, 0.0, 0.0
    while now_s < 60.0:
        rest_s = pacing.rest_s(worked_s, worked_s + rest_s)
        now_s, total_s = now_s + worked_s + rest_s, total_s + worked_s
    assert total_s / now_s == pytest.approx(SHARE, rel=0.05)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), max_size=50))
def test_the_wait_before_a_turn_is_bounded(turns: list[tuple[float, float]]) -> None:
    pacing = WorkBudget()
    for worked_s, passed_s in turns:
        assert 0.0 <= pacing.rest_s(worked_s, passed_s) <= MOST_S


def test_one_long_turn_does_not_delay_many_others() -> None:
    pacing = WorkBudget()
    pacing.rest_s(worked_s=5.0, passed_s=5.0)
    passed_s = 0.0
    while pacing.rest_s(worked_s=0.0001, passed_s=0.02) > 0.0:
        passed_s += 0.02
    assert passed_s <= 1.1 * BURST_S / SHARE
