"""The RL agent: it moves by one step of one knob, stays within its memory, and learns what pays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.input.rl_agent import STEPS, Agent
from elastichost.wire.facts import InputKnobs


def place_of(knobs: InputKnobs) -> int:
    return STEPS["connections"].index(knobs.connections)


@given(seed=st.integers(0, 1000), speeds=st.lists(st.floats(0, 1e6), min_size=1, max_size=80))
def test_each_act_changes_one_knob_by_one_step_within_the_memory(seed: int, speeds: list[float]) -> None:
    agent = Agent(memory_bytes=2500, unit_bytes=1000, seed=seed)
    before = agent.knobs()
    for speed in speeds:
        knobs = agent.act()
        assert abs(place_of(knobs) - place_of(before)) <= 1
        assert knobs.prefetch_bytes <= 2500
        agent.learn(speed)
        assert agent.knobs() == knobs
        before = knobs
    assert agent.best[0] == max(speeds)


def test_it_finds_that_connections_pay_where_they_do() -> None:
    agent = Agent(memory_bytes=0, unit_bytes=1, seed=1)
    for _ in range(400):
        agent.learn(1000.0 * agent.act().connections)
    assert agent.knobs(agent.best[1]).connections == 32
