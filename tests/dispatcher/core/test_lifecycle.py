"""The life cycle of a job on a host: every transition of the table is legal, and no other."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.dispatcher.core.lifecycle import JobLifecycleEvent, next_state
from elastichost.dispatcher.facts import ENDED_STATES, JobState
from elastichost.errors import IllegalTransitionError

STATES: tuple[JobState, ...] = get_args(JobState)
EDGES: dict[str, dict[str, str]] = {
    "waiting": {"start": "starting", "cancel": "cancelled", "keep": "stopped", "fail": "failed"},
    "starting": {
        "trains": "running",
        "stop": "stopping",
        "requeue": "waiting",
        "done": "done",
        "fail": "failed",
    },
    "running": {"pause": "paused", "stop": "stopping", "requeue": "waiting", "done": "done", "fail": "failed"},
    "paused": {"resume": "running", "stop": "stopping", "requeue": "waiting", "done": "done", "fail": "failed"},
    "stopping": {"requeue": "waiting", "done": "done", "fail": "failed", "cancel": "cancelled", "keep": "stopped"},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", list(JobLifecycleEvent))
def test_every_transition_of_the_table_is_legal_and_no_other(state: JobState, event: JobLifecycleEvent) -> None:
    expected = EDGES.get(state, {}).get(event)
    if expected is None:
        with pytest.raises(IllegalTransitionError, match=rf"{event.value}.*in state '{state}'"):
            next_state(state, event)
    else:
        assert next_state(state, event) == expected


def test_a_job_can_end_from_every_state() -> None:
    reached = set(ENDED_STATES)
    for _ in STATES:
        reached |= {state for state, edges in EDGES.items() if reached & set(edges.values())}
    assert reached == set(STATES)


@pytest.mark.parametrize("state", ["starting", "running", "paused", "stopping"])
def test_a_job_with_a_process_may_be_done_fail_or_wait_again_at_any_moment(state: JobState) -> None:
    assert next_state(state, JobLifecycleEvent.DONE) == "done"
    assert next_state(state, JobLifecycleEvent.FAIL) == "failed"
    assert next_state(state, JobLifecycleEvent.REQUEUE) == "waiting"


@given(st.lists(st.sampled_from(list(JobLifecycleEvent)), max_size=30))
def test_a_job_that_has_ended_stays_in_its_state(events: list[JobLifecycleEvent]) -> None:
    state: JobState = "waiting"
    for event in events:
        try:
            after = next_state(state, event)
        except IllegalTransitionError:
            continue
        assert state not in ENDED_STATES
        state = after
