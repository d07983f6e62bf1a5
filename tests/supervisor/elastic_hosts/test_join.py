"""The way of a machine into a run: one step for each thing seen, and refused for whatever speaks against it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.supervisor.elastic_hosts.join import JOIN_TIMEOUT_S, TRANSITIONS, GuestState, Seen, next_state

ENDS = (GuestState.JOINED, GuestState.REFUSED)
ORDER = [GuestState.CALLED, GuestState.GREETED, GuestState.OPENED, GuestState.JOINED]
seen = st.builds(
    Seen,
    has_answered=st.booleans(),
    is_prepared=st.booleans(),
    has_arena=st.booleans(),
    trouble=st.sampled_from(["", "", "", "its output has ended"]),
    waited_s=st.floats(0, 2 * JOIN_TIMEOUT_S),
)


def test_called_greeted_opened_joined() -> None:
    state = GuestState.CALLED
    for facts, then in zip(
        [Seen(has_answered=True), Seen(has_answered=True, is_prepared=True), Seen(True, True, True)],
        ORDER[1:],
        strict=True,
    ):
        assert next_state(state, Seen()) == (state, "")
        state, reason = next_state(state, facts)
        assert (state, reason) == (then, "")


def test_one_that_is_late_is_refused_and_told_how_far_it_came() -> None:
    state, reason = next_state(GuestState.GREETED, Seen(has_answered=True, waited_s=JOIN_TIMEOUT_S + 1))
    assert state == GuestState.REFUSED
    assert reason == f"it took more than {JOIN_TIMEOUT_S:g} s, and is only greeted"


@settings(deadline=None)
@given(looks=st.lists(seen, max_size=12))
def test_it_goes_on_step_by_step_and_never_comes_back(looks: list[Seen]) -> None:
    state = GuestState.CALLED
    for look in looks:
        before = state
        state, reason = next_state(before, look)
        assert bool(reason) == (state == GuestState.REFUSED and before != GuestState.REFUSED)
        if before in ENDS:
            assert state == before
        elif look.trouble:
            assert (state, reason) == (GuestState.REFUSED, look.trouble)
        elif state not in (before, GuestState.REFUSED):
            assert ORDER.index(state) == ORDER.index(before) + 1
            assert any(to == state for (of, _), to in TRANSITIONS.items() if of == before)
