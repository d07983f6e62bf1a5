"""The states of a process and the transitions between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.errors import IllegalTransitionError
from elastichost.supervisor.core.lifecycle import LIVE, TRANSITIONS, LifecycleEvent, State, next_state


def test_a_worker_passes_through_its_states_in_order() -> None:
    state = State.REQUESTED
    for event in (
        LifecycleEvent.SPAWNED,
        LifecycleEvent.HELLO,
        LifecycleEvent.READY,
        LifecycleEvent.WORK,
        LifecycleEvent.DRAIN,
        LifecycleEvent.DRAINED,
        LifecycleEvent.STOP,
    ):
        state = next_state("worker-0.1", state, event)
    assert next_state("worker-0.1", state, LifecycleEvent.EXIT_CLEAN) == State.EXITED


def test_an_unrequested_exit_is_a_failure_whatever_its_code() -> None:
    assert next_state("worker-0.1", State.RUNNING, LifecycleEvent.EXIT_CLEAN) == State.FAILED


def test_the_error_of_an_illegal_transition_names_process_state_and_event() -> None:
    with pytest.raises(IllegalTransitionError, match=r"worker-0\.1.*drained.*'ready'"):
        next_state("worker-0.1", State.READY, LifecycleEvent.DRAINED)


@pytest.mark.parametrize("state", sorted(LIVE - {State.REQUESTED}))
def test_every_process_with_a_pid_can_be_killed_and_can_exit(state: State) -> None:
    assert next_state("p", state, LifecycleEvent.KILL) == State.KILLING
    for event in (LifecycleEvent.EXIT_CLEAN, LifecycleEvent.EXIT_OTHER):
        assert next_state("p", state, event) in (State.EXITED, State.FAILED)


@given(st.lists(st.sampled_from(list(LifecycleEvent)), max_size=20))
def test_an_ended_process_has_no_transitions(events: list[LifecycleEvent]) -> None:
    state = State.REQUESTED
    for event in events:
        if (state, event) in TRANSITIONS:
            assert state in LIVE
            state = TRANSITIONS[state, event]
