"""A machine joins a run: it passes through its states in order, and any problem refuses it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.supervisor.elastic_hosts.join import (
    JOIN_TIMEOUT_S,
    TRANSITIONS,
    HostObservation,
    JoinState,
    next_state,
)

ORDER = [JoinState.CALLED, JoinState.GREETED, JoinState.OPENED, JoinState.JOINED]
seen = st.builds(
    HostObservation,
    has_answered=st.booleans(),
    is_prepared=st.booleans(),
    has_arena=st.booleans(),
    trouble=st.sampled_from(["", "", "", "the other end has closed the connection"]),
    waited_s=st.floats(0, 2 * JOIN_TIMEOUT_S),
)


def test_a_machine_is_called_greeted_opened_and_joined() -> None:
    state = JoinState.CALLED
    for facts, then in zip(
        [
            HostObservation(has_answered=True),
            HostObservation(has_answered=True, is_prepared=True),
            HostObservation(True, True, True),
        ],
        ORDER[1:],
        strict=True,
    ):
        assert next_state(state, HostObservation()) == (state, "")
        state, reason = next_state(state, facts)
        assert (state, reason) == (then, "")


def test_a_machine_that_takes_too_long_is_refused_with_its_last_state() -> None:
    state, reason = next_state(JoinState.GREETED, HostObservation(has_answered=True, waited_s=JOIN_TIMEOUT_S + 1))
    assert state == JoinState.REFUSED
    assert reason == f"the machine has not joined within {JOIN_TIMEOUT_S:g} s; it is only greeted"


def test_a_machine_that_is_lost_before_the_others_have_joined_is_refused() -> None:
    """The run must not begin to use it when the last of the others has joined."""
    lost = HostObservation(True, True, True, trouble="the other end has closed the connection")
    assert next_state(JoinState.JOINED, lost) == (JoinState.REFUSED, lost.trouble)
    late = HostObservation(True, True, True, waited_s=JOIN_TIMEOUT_S + 1)
    assert next_state(JoinState.JOINED, late) == (JoinState.JOINED, "")


@settings(deadline=None)
@given(looks=st.lists(seen, max_size=12))
def test_states_are_passed_in_order_and_none_is_entered_again(looks: list[HostObservation]) -> None:
    state = JoinState.CALLED
    for look in looks:
        before = state
        state, reason = next_state(before, look)
        assert bool(reason) == (state == JoinState.REFUSED and before != JoinState.REFUSED)
        if before == JoinState.REFUSED:
            assert state == before
        elif look.trouble:
            assert (state, reason) == (JoinState.REFUSED, look.trouble)
        elif state not in (before, JoinState.REFUSED):
            assert ORDER.index(state) == ORDER.index(before) + 1
            assert any(to == state for (of, _), to in TRANSITIONS.items() if of == before)
